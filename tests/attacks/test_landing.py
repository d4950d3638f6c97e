"""Landing change sets with planted files, hostile names and links: nothing outside the project changes (SPEC 3.9)."""

import contextlib
import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlmodel import col, update

from engine.execution.change_store import ChangeSetRow
from engine.model import Refusal
from tests.attacks.landing_files import EDITED, Canary, ignore_failure, make_all_changes
from tests.execution.changesets.landing_world import Change, LandingWorld, make_edits
from tests.support.checks import refused

pytestmark = pytest.mark.attack("landing")


# Other kinds of entries in place of a file


def plant_hard_link(path: Path, canary: Canary):
    try:
        path.hardlink_to(canary.folder / "id_rsa")
    except OSError as error:
        pytest.skip(f"no hard link from here to there: {error}")


def plant_socket(path: Path, canary: Canary):
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


Plant = Callable[[Path, Canary], object]
PLANTS: dict[str, Plant] = {
    "pipe": lambda path, canary: os.mkfifo(path),
    "link": lambda path, canary: path.symlink_to(canary.folder / "id_rsa"),
    "hard link": plant_hard_link,
    "folder": lambda path, canary: path.mkdir(),
    "socket": plant_socket,
}


@pytest.mark.parametrize(
    "when", ["before", "write", *(pytest.param(step, marks=pytest.mark.long) for step in ("planned", "prepare"))]
)
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_nothing_outside_changes_when_a_file_is_replaced_before_it_is_written(
    project: LandingWorld, canary: Canary, plant: Plant, when: str
):
    change = project.make_change(make_all_changes)
    place = project.root / "d/f.txt"

    def replace_file():
        if stat.S_ISREG(place.lstat().st_mode):
            place.unlink()
            plant(place, canary)

    if when == "before":
        replace_file()
    project.step = lambda name: replace_file() if name.startswith(when) else None
    ignore_failure(change.land)
    canary.assert_untouched()


# Names and kinds in a change set that no session makes by itself


def make_git_tree(project: LandingWorld, *lines: str) -> str:
    """The id of a tree made of these lines of `mktree`, also of lines that git itself refuses."""
    argv = ["git", "mktree", "--missing"]
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run(argv, cwd=project.root, input=text, text=True, check=True, capture_output=True).stdout.strip()


def change_with(project: LandingWorld, *lines: str, name: str = "session_1") -> Change:
    """A change set whose result is HEAD's tree with these lines of `mktree` added."""
    change = project.make_change(make_edits({"top": EDITED}), name=name)
    result = make_git_tree(project, *project.repository.git("ls-tree", "HEAD").splitlines(), *lines)
    statement = update(ChangeSetRow).where(col(ChangeSetRow.id) == change.id)
    project.database.write(lambda tx: tx.session.exec(statement.values(result_tree=result)))
    return change


GIT_NAMES = (
    ".git", ".GIT", ".gIt", ".git ", ".git.", ".git . .", "git~1", "GIT~1", ".g\u200cit", ".git\u200d", "\ufeff.git",
    ".git::$INDEX_ALLOCATION",
)  # fmt: skip


@pytest.mark.parametrize("name", [*GIT_NAMES, "..", "."])
@pytest.mark.parametrize("at", ["top", pytest.param("below", marks=pytest.mark.slow_attack)])
def test_names_that_lead_to_git_or_out_of_the_project_are_not_landed(
    project: LandingWorld, canary: Canary, name: str, at: str
):
    blob = project.repository.git("hash-object", "-w", "top")
    inner = make_git_tree(project, f"100755 blob {blob}\tpost-checkout", f"100644 blob {blob}\tconfig")
    evil = f"040000 tree {inner}\t{name}"
    change = change_with(project, evil if at == "top" else f"040000 tree {make_git_tree(project, evil)}\tinner")
    git = {path: path.read_bytes() for path in (project.root / ".git/config", project.root / ".git/HEAD")}
    beside = sorted(project.root.parent.iterdir())
    with pytest.raises(Refusal):
        change.land()
    assert {path: path.read_bytes() for path in git} == git
    assert not (project.root / ".git/post-checkout").exists()
    assert sorted(project.root.parent.iterdir()) == beside
    assert not any(path.name == "post-checkout" for path in project.root.rglob("*"))
    canary.assert_untouched()


def test_a_submodule_is_not_landed(project: LandingWorld, canary: Canary):
    change = change_with(project, f"160000 commit {'1' * 40}\tsub")
    with pytest.raises(Refusal, match="submodule"):
        change.land()
    assert not (project.root / "sub").exists()


TARGETS = ("{outside}", "{outside}/authorized_keys", "../{up}{outside}", "d/../../..{outside}", "/proc/self/cwd", "..")


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_no_file_lands_behind_a_link_that_leads_out(project: LandingWorld, canary: Canary, target: str):
    up = "../" * len(project.root.parts)
    to = target.format(outside=canary.folder, up=up)
    first = project.make_change(lambda folder: (folder / "x").symlink_to(to))
    with pytest.raises(Refusal, match="points outside the project"):
        first.land()
    assert not (project.root / "x").is_symlink()
    (project.root / "x").symlink_to(to)  # as if it had been landed all the same, ignored by git
    (project.root / ".git/info/exclude").write_text("x\n")
    blob = project.repository.git("hash-object", "-w", "top")
    behind = make_git_tree(project, f"100644 blob {blob}\tauthorized_keys")
    second = change_with(project, f"040000 tree {behind}\tx", name="session_2")
    with pytest.raises(Refusal):
        second.land()
    canary.assert_untouched()


def test_links_that_lead_out_only_together_are_not_landed(project: LandingWorld, canary: Canary):
    """Each link alone stays within the project; one behind the other they lead out."""

    def edit(folder: Path):
        (folder / "d/e").mkdir()
        (folder / "d/e/here").symlink_to("../..")
        (folder / "d/e/out").symlink_to("here/../outside")

    change = project.make_change(edit)
    with pytest.raises(Refusal, match=r"d/e/out \(a link that points outside"):
        change.land()


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o1777])
def test_no_setuid_bit_is_landed(project: LandingWorld, mode: int):
    file = project.root / "d/f.txt"
    change = project.make_change(make_all_changes)
    file.chmod(mode)
    change.land()
    assert file.read_text() == EDITED
    assert not file.stat().st_mode & 0o7000
    change.undo()
    assert file.read_text() == "one\n"
    assert not file.stat().st_mode & 0o7000


# While a session may write there


def test_nothing_lands_while_a_session_works_in_the_same_files(project: LandingWorld):
    change = project.make_change(make_all_changes)
    locks = project.worktrees.locks
    with locks.register_writer("session_7", project.root, is_confined=True):
        assert "session_7" in refused("session_writes", change.land).message
    assert (project.root / "d/f.txt").read_text() == "one\n"
    change.land()
    with locks.register_writer("session_7", project.root, is_confined=True):
        assert "session_7" in refused("session_writes", change.undo).message
