"""Landing, undo and their recovery (SPEC 3.9), case by case, and a few random scenarios.

Five hundred of them: `pytest -m faults tests/faults/test_landing_kill.py`.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from engine.model import ChangeState, Refusal
from engine.storage.state import unfinished_intents
from tests.execution.changesets.landing_scenarios import SCENARIOS, Scenario, check_scenario, find_refusal
from tests.execution.changesets.landing_world import (
    TEXT,
    Change,
    LandingWorld,
    assert_landing_is_refused,
    file_edit,
    file_edits,
    kill_at,
)
from tests.execution.changesets.random_edits import Edit
from tests.support.helpers import refused

FILES = {"a.txt": TEXT, "d/only.txt": "d\n", "b.txt": TEXT}


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", FILES)
    return landing_world


def test_lines_that_changed_on_both_sides_are_a_conflict(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("a.txt", TEXT.replace("line 3\n", "theirs\n")))
    world.write("a.txt", TEXT.replace("line 3\n", "mine\n"))

    refusal = assert_landing_is_refused(world, change_set)

    assert "a.txt" in refusal.message
    assert "branch" in refusal.fix


def test_modes_links_deletions_and_folders_land_and_are_undone(world: LandingWorld) -> None:
    world.write("private.txt", "p\n").chmod(0o600)
    world.write("fixed.txt", "f\n").chmod(0o444)
    world.write("run.sh", "r\n").chmod(0o750)
    (world.root / "link").symlink_to("./a.txt")
    (world.root / "d").chmod(0o711)

    def edit(folder: Path) -> None:
        (folder / "private.txt").write_text("P\n")
        (folder / "fixed.txt").unlink()
        (folder / "fixed.txt").write_text("F\n")
        (folder / "run.sh").chmod(0o644)
        (folder / "a.txt").chmod(0o755)
        (folder / "d/only.txt").unlink()
        (folder / "d").rmdir()
        (folder / "link").unlink()
        (folder / "link").symlink_to("b.txt/../d//")
        (folder / "b.txt").unlink()
        (folder / "b.txt").mkdir()
        (folder / "b.txt/inner").write_bytes(b"\0\xff\r\n")

    change_set = world.make_change(edit)
    before, state = world.files, world.git_state

    change_set.land()

    after = world.files
    assert after["private.txt"] == ("file", 0o600, b"P\n")
    assert after["fixed.txt"] == ("file", 0o444, b"F\n")
    assert after["run.sh"] == ("file", 0o640, b"r\n")
    assert after["a.txt"][1] == 0o755
    assert after["link"] == ("link", 0, b"b.txt/../d//")
    assert after["b.txt/inner"][2] == b"\0\xff\r\n"
    assert "d" not in after
    change_set.undo()
    assert world.files == before
    assert world.git_state == state


def test_line_endings_are_those_of_a_checkout_and_restored_by_the_undo(world: LandingWorld) -> None:
    world.git("config", "core.autocrlf", "true")
    (world.root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (world.root / "unix.txt").write_bytes(b"one\ntwo\n")

    def edit(folder: Path) -> None:
        for name in ("dos.txt", "unix.txt"):
            (folder / name).write_bytes((folder / name).read_bytes() + b"three\r\n")
        (folder / "a.txt").chmod(0o755)
        (folder / ".gitattributes").write_text("*.lf eol=lf\n")
        (folder / "new.lf").write_text("x\ny\n")

    change_set = world.make_change(edit)
    before = world.files

    change_set.land()

    assert (world.root / "dos.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "unix.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (world.root / "new.lf").read_bytes() == b"x\ny\n"
    assert (world.root / "a.txt").read_bytes() == TEXT.encode()  # the mode alone changed
    change_set.undo()
    assert world.files == before


@pytest.mark.long
def test_a_submodule_is_left_as_it_is(world: LandingWorld, tmp_path: Path) -> None:
    library = LandingWorld(tmp_path / "library").repository
    library.commit("one", {"x": "1"})
    commit = library.git("rev-parse", "HEAD")
    world.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.path), "lib")
    world.repository.commit("part")
    beside = world.make_change(file_edit("a.txt", "beside\n"), name="session_1")
    (world.root / "lib/x").write_text("dirty")
    beside.land()

    def drop(folder: Path) -> None:
        (folder / "lib").rmdir()

    assert world.run_session(drop, name="session_2") is None, "a submodule is no part of the changes"
    assert commit == world.git("-C", "lib", "rev-parse", "HEAD")


def test_a_file_with_a_filter_program_is_not_landed_and_no_filter_runs(world: LandingWorld) -> None:
    world.git("config", "filter.lfs.clean", f"touch {world.folder}/trap; cat")
    world.git("config", "filter.lfs.smudge", f"touch {world.folder}/trap; cat")
    world.write(".gitattributes", "*.bin filter=lfs\n")
    change_set = world.make_change(file_edit("big.bin", "theirs\n"))

    assert "lfs" in assert_landing_is_refused(world, change_set, "unsupported_files").message
    refused("unsupported_files", change_set.branch)
    assert not (world.folder / "trap").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["b.txt", pytest.param("d/only.txt", marks=pytest.mark.faults), pytest.param("new.txt", marks=pytest.mark.faults)],
)
def test_an_edit_during_the_landing_is_never_overwritten(world: LandingWorld, tmp_path: Path, name: str) -> None:
    """At every step; and the landing happens as a whole or not at all."""
    files = {"a.txt": "theirs\n", "b.txt": "theirs\n", "d/only.txt": None, "new.txt": "theirs\n"}
    before = world.files
    steps: list[str] = []
    world.step = steps.append
    world.make_change(file_edits(files)).land()

    for number_of_step in range(steps.index("files done")):
        edited = LandingWorld(tmp_path / str(number_of_step))
        edited.repository.commit("one", FILES)
        refusal = land_with_save(edited, edited.make_change(file_edits(files)), name, number_of_step)
        after = edited.files
        edited.close()
        assert after[name][2] == b"saved by the operator\n"
        if refusal is None:  # saved after its file was landed
            assert after["a.txt"][2] == b"theirs\n"
        else:
            assert refusal.code == "conflict"
            assert {**after, name: None} == {**before, name: None}


def land_with_save(world: LandingWorld, change_set: Change, name: str, number_of_step: int) -> Refusal | None:
    """Land while the operator saves a file at this step. Returns how it was refused, or None."""
    numbers = itertools.count()

    def save(step: str) -> None:
        if next(numbers) == number_of_step:
            world.write(name, "saved by the operator\n")

    world.step = save
    return find_refusal(change_set.land)


@pytest.mark.long
def test_a_file_that_changes_all_the_time_is_refused(world: LandingWorld) -> None:
    change_set = world.make_change(file_edit("a.txt", TEXT + "theirs\n"))
    numbers_of_attempts = itertools.count()

    def change_file(step: str) -> None:
        if step == "planned":
            world.write("a.txt", f"{next(numbers_of_attempts)}\n" + TEXT)

    world.step = change_file
    refused("busy_files", change_set.land)
    assert next(numbers_of_attempts) == 5


# Undo and recovery


@pytest.mark.long
@pytest.mark.parametrize("failing", ["prepare", "write", "make folder", "remove"])
def test_a_landing_that_fails_to_write_is_rolled_back(world: LandingWorld, failing: str) -> None:
    files = {"a.txt": "theirs\n", "d/only.txt": None, "sub/new.txt": "theirs\n"}
    change_set = world.make_change(file_edits(files))
    before = world.files

    def fail(step: str) -> None:
        if step.startswith(failing):
            world.step = lambda step: None
            raise OSError(28, "No space left on device", "a.txt")

    world.step = fail
    refused("cannot_write", change_set.land)

    assert world.files == before
    assert unfinished_intents(world.database, "landing") == []
    change_set.land()


def test_a_failed_rollback_is_finished_before_the_next_landing(world: LandingWorld) -> None:
    change_set = world.make_change(file_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    before = world.files

    def fail(step: str) -> None:
        if step in ("write b.txt", "roll back"):
            raise OSError(28, "No space left on device")

    world.step = fail
    refused("not_restored", change_set.land)
    assert world.files != before
    world.step = lambda step: None

    assert change_set.land().state is ChangeState.LANDED
    change_set.undo()
    assert world.files == before


def test_recovery_keeps_and_names_files_that_were_edited_after_the_crash(world: LandingWorld) -> None:
    change_set = world.make_change(file_edits({"a.txt": "theirs\n", "b.txt": "theirs\n"}))
    kill_at(world, "write b.txt", change_set.land)
    (world.root / "a.txt").write_text("edited after the crash\n")

    (message,) = world.changes.recover()

    assert "interrupted and undone" in message
    assert "a.txt" in message
    assert (world.root / "a.txt").read_text() == "edited after the crash\n"
    assert (world.root / "b.txt").read_text() == TEXT
    assert list(world.root.glob(".clawpy*")) == []
    assert world.changes.recover() == []


def test_a_repository_with_sha256_lands_undoes_and_branches(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", tmp_path / "shop"], check=True)
    world = LandingWorld(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT})
    change_set = world.make_change(file_edit("a.txt", "theirs\n"))
    before = world.files

    change_set.land()
    assert (world.root / "a.txt").read_text() == "theirs\n"
    change_set.undo()
    assert world.files == before
    assert change_set.branch().branch == "clawpy/fix-the-cart"
    world.close()


def test_a_workspace_that_is_a_linked_worktree_lands_and_undoes(world: LandingWorld) -> None:
    linked = world.folder / "linked"
    world.git("worktree", "add", "-q", "-b", "other", str(linked))
    change_set = world.make_change(file_edit("a.txt", "theirs\n"), workspace=linked)
    untouched = world.files

    change_set.land()

    assert (linked / "a.txt").read_text() == "theirs\n"
    assert world.files == untouched
    change_set.undo()
    assert (linked / "a.txt").read_text() == TEXT
    assert linked.exists()


LINE = Edit("line", "a.txt", other="theirs", number=3)
"""What the session changes in most cases."""

CASES = {
    "the same line": (LINE, Edit("line", "a.txt", other="mine", number=3), None, "refused"),
    "a renamed file with an edit": (Edit("rename", "a.txt", "moved.txt"), Edit("line", "a.txt"), None, "undone"),
    "another case of a name": (Edit("rename", "a.txt", "A.txt"), None, None, "undone"),
    "an ignored file where a file comes": (Edit("write", "new"), Edit("ignored", "new"), None, "refused"),
    "an ignored folder where a file comes": (Edit("write", "new"), Edit("ignored", "new/deep/er"), None, "refused"),
    "an ignored file where a folder comes": (Edit("write", "sub/new"), Edit("ignored", "sub"), None, "refused"),
    "an empty folder where a file comes": (Edit("write", "new"), Edit("empty_folder", "new"), None, "undone"),
    "later bytes": (LINE, None, Edit("write", "a.txt"), "undo refused"),
    "a later mode": (LINE, None, Edit("mode", "a.txt"), "undo refused"),
    "later gone": (LINE, None, Edit("delete", "a.txt"), "undo refused"),
    "later a link": (LINE, None, Edit("link", "a.txt"), "undo refused"),
    "later a file where the folder was": (Edit("delete", "d/c.txt"), None, Edit("write", "d"), "undo refused"),
}
"""What the session does, what the operator does meanwhile and later, and what becomes of the landing and its undo."""


@pytest.mark.long
@pytest.mark.parametrize(("session", "meanwhile", "later", "outcome"), CASES.values(), ids=CASES)
def test_what_would_lose_something_of_yours_is_refused_and_nothing_else(
    tmp_path: Path, session: Edit, meanwhile: Edit | None, later: Edit | None, outcome: str
) -> None:
    scenario = Scenario([], [session], [meanwhile] if meanwhile else [], [later] if later else [])
    assert check_scenario(scenario, tmp_path) == outcome


@pytest.mark.long
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCENARIOS)
def test_a_landing_is_what_git_would_do_and_an_undo_is_its_exact_reverse(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_scenario(scenario, Path(folder))
