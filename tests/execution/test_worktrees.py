"""A session's own folder: exactly the operator's files, and gone without a trace (SPEC 3.8, 3.9)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution import trees
from engine.files import remove_folder
from engine.git import Git, GitError
from engine.model import ChangeState
from tests.conftest import Repository
from tests.execution.landing_world import World, git_state, our_refs, picture

# The present tree as a git tree: all that is there, nothing touched, no program of the repository run (SPEC 3.9).


def listing(repository: Repository, tree: str) -> dict[str, str]:
    """path -> "mode oid" of a tree."""
    out = subprocess.run(["git", "ls-tree", "-rz", tree], cwd=repository.path, check=True, capture_output=True).stdout
    rows = (item.split(b"\t", 1) for item in out.split(b"\0") if item)
    return {os.fsdecode(path): f"{head.split()[0].decode()} {head.split()[2].decode()}" for head, path in rows}


def content(repository: Repository, tree: str, path: str) -> bytes:
    oid = listing(repository, tree)[path].split()[1]
    return subprocess.run(["git", "cat-file", "blob", oid], cwd=repository.path, check=True, capture_output=True).stdout


def take(repository: Repository) -> trees.Snapshot:
    return trees.take_snapshot(Git(repository.path).pin())


def test_staged_unstaged_and_untracked_are_in_it_ignored_are_not(repository: Repository) -> None:
    repository.commit("one", {"staged": "1", "unstaged": "1", "gone": "1", ".gitignore": "*.log\n", "kept.txt": "k"})
    repository.write("staged", "2")
    repository.git("add", "staged")
    repository.write("staged", "3")
    repository.write("unstaged", "2")
    (repository.path / "gone").unlink()
    repository.write("new", "n")
    repository.write("deep/er/new", "n")
    repository.write("noise.log", "x")
    repository.git("rm", "-q", "--cached", "kept.txt")

    snapshot = take(repository)

    assert set(listing(repository, snapshot.tree)) == {
        "staged", "unstaged", "new", "deep/er/new", ".gitignore", "kept.txt",
    }  # fmt: skip
    assert content(repository, snapshot.tree, "staged") == b"3"
    assert not snapshot.clean


def test_names_links_and_modes(repository: Repository) -> None:
    repository.commit("one")
    names = [" lead", "a b", 'quo"te', "new\nline", "tab\there", "ünï", "-dash", ":(glob)x", "back\\slash", "*"]
    for name in names:
        repository.write(name, name)
    raw = os.fsdecode(b"caf\xe9")
    (repository.path / raw).write_bytes(b"latin")
    (repository.path / "link").symlink_to("nowhere/at all")
    repository.write("run.sh", "#!/bin/sh\n").chmod(0o755)

    entries = listing(repository, take(repository).tree)

    assert set(entries) == {*names, raw, "link", "run.sh"}
    assert entries["link"].startswith("120000")
    assert entries["run.sh"].startswith("100755")


def test_what_git_was_told_to_take_for_unchanged_is_looked_at(repository: Repository) -> None:
    repository.commit("one", {"assumed": "1", "skipped": "1", "absent": "1"})
    repository.git("update-index", "--assume-unchanged", "assumed")
    repository.git("update-index", "--skip-worktree", "skipped", "absent")
    repository.write("assumed", "2")
    repository.write("skipped", "2")
    (repository.path / "absent").unlink()

    tree = take(repository).tree

    assert content(repository, tree, "assumed") == b"2"
    assert content(repository, tree, "skipped") == b"2"
    assert content(repository, tree, "absent") == b"1"  # not checked out is not deleted


def test_before_the_first_commit(repository: Repository) -> None:
    assert take(repository).clean
    repository.write("a.txt", "a\n")
    snapshot = take(repository)
    assert (snapshot.head, snapshot.clean) == ("", False)
    assert list(listing(repository, snapshot.tree)) == ["a.txt"]


def test_nothing_of_the_operators_is_touched(repository: Repository) -> None:
    repository.commit("one", {"a": "1", "b": "1"})
    repository.write("a", "2")
    repository.git("stash", "-q")
    repository.write("b", "2")
    repository.write("c", "3")
    repository.git("add", "-N", "c")
    before = git_state(repository.path), picture(repository.path)

    take(repository)

    assert (git_state(repository.path), picture(repository.path)) == before


def test_a_file_becomes_a_folder_and_a_folder_a_link(repository: Repository) -> None:
    repository.commit("one", {"a": "1", "d/f": "1"})
    (repository.path / "a").unlink()
    repository.write("a/b", "2")
    (repository.path / "d/f").unlink()
    (repository.path / "d").rmdir()
    (repository.path / "d").symlink_to("a")

    assert set(listing(repository, take(repository).tree)) == {"a/b", "d"}


def test_an_unfinished_merge(repository: Repository) -> None:
    repository.commit("one", {"a": "1\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit("theirs", {"a": "2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("ours", {"a": "3\n"})
    subprocess.run(["git", "merge", "other"], cwd=repository.path, capture_output=True, check=False)

    assert b"<<<<<<<" in content(repository, take(repository).tree, "a")


def test_submodules_keep_their_commit_and_nested_repositories_stay_out(repository: Repository, tmp_path: Path) -> None:
    part = Repository(tmp_path / "part")
    part.commit("one", {"x": "1"})
    repository.commit("one", {"a": "1"})
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part.path), "lib")
    repository.commit("with a part")
    (repository.path / "lib/x").write_text("dirty")
    nested = Repository(repository.path / "nested")
    nested.commit("one", {"y": "1"})
    Repository(repository.path / "unborn").write("z", "1")

    snapshot = take(repository)

    assert snapshot.clean
    assert listing(repository, snapshot.tree)["lib"].startswith("160000")


def test_no_program_of_the_configuration_runs(repository: Repository, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    script.chmod(0o755)
    repository.commit(
        "one", {"a.bin": "1\n", "b.bin": "1\n", ".gitattributes": "*.bin filter=e=v.il merge=evil diff=evil\n"}
    )
    for key in ("clean", "smudge", "process"):
        repository.git("config", f"filter.e=v.il.{key}", str(script))
    repository.git("config", "filter.e=v.il.required", "true")
    repository.git("config", "merge.evil.driver", str(script))
    repository.git("config", "diff.evil.textconv", str(script))
    repository.git("config", "core.fsmonitor", str(script))
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction"):
        (repository.path / ".git/hooks").mkdir(exist_ok=True)
        (repository.path / ".git/hooks" / hook).write_text(script.read_text())
        (repository.path / ".git/hooks" / hook).chmod(0o755)
    trap.unlink(missing_ok=True)
    repository.write("a.bin", "2\n")

    snapshot = take(repository)

    assert content(repository, snapshot.tree, "a.bin") == b"2\n"
    assert not trap.exists()


@pytest.mark.long
def test_a_racy_edit_is_seen(repository: Repository) -> None:
    """Same size, same time as the index: git must compare contents, also in the copy of the index."""
    for number in range(20):
        repository.commit("one", {"a": f"{number:04}"})
        repository.write("a", f"x{number:03}")
        assert content(repository, take(repository).tree, "a") == f"x{number:03}".encode()


def test_a_split_index_and_an_unusual_git_folder(repository: Repository, tmp_path: Path) -> None:
    repository.commit("one", {"a": "1", "b": "1"})
    repository.git("update-index", "--split-index")
    repository.write("a", "2")
    shared = sorted(file.name for file in (repository.path / ".git").glob("sharedindex.*"))
    other = tmp_path / "linked"
    repository.git("worktree", "add", "-q", "-b", "other", str(other))
    (other / "b").write_text("3")

    assert content(repository, take(repository).tree, "a") == b"2"
    linked = trees.take_snapshot(Git(other).pin())
    assert content(repository, linked.tree, "b") == b"3"
    assert sorted(file.name for file in (repository.path / ".git").glob("sharedindex.*")) == shared


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "x" * 81, "a\n"])
def test_session_ids_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        trees.validate_id(name)


def test_paths_are_shown_harmlessly() -> None:
    assert trees.printable_path(b"a\nb\x1b[31m\xff\xe2\x80\xae") == "a\\nb\\x1b[31m\\xff\\u202e"


def test_a_file_of_an_unknown_encoding_is_taken_byte_for_byte(repository: Repository) -> None:
    repository.commit("one", {".gitattributes": "*.txt working-tree-encoding=NO-SUCH\n"})
    repository.write("a.txt", "bytes")
    repository.write("b.py", "new = 1\n")
    tree = take(repository).tree
    assert repository.git("cat-file", "blob", f"{tree}:a.txt") == "bytes"
    assert repository.git("cat-file", "blob", f"{tree}:b.py") == "new = 1"


UNREADABLE = """
import sys
from pathlib import Path
from engine.git import Git
from engine.execution import trees
print(trees.take_snapshot(Git(Path(sys.argv[1])).pin()).tree)
"""


def test_a_file_that_may_not_be_read_stays_as_it_was(repository: Repository) -> None:
    """As a user, or as root without the right to read everything."""
    repository.commit("one", {"a.txt": "1\n", "b.txt": "1\n"})
    repository.write("a.txt", "2\n").chmod(0)
    repository.write("b.txt", "2\n")
    repository.write("new.txt", "2\n").chmod(0)
    confined: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not there")
        dropped = "-dac_override,-dac_read_search"
        confined = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]
    done = subprocess.run(
        [*confined, sys.executable, "-c", UNREADABLE, str(repository.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tree = done.stdout.strip()
    assert repository.git("cat-file", "blob", f"{tree}:a.txt") == "1"
    assert repository.git("cat-file", "blob", f"{tree}:b.txt") == "2"
    assert repository.git("ls-tree", "--name-only", tree).split() == ["a.txt", "b.txt"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": "1\n", ".gitignore": "*.log\n"})
    yield world
    world.close()


def test_it_holds_the_present_files(world: World) -> None:
    world.repository.write("a.txt", "2\n")
    world.repository.write("new.txt", "n\n")
    world.repository.write("noise.log", "x")
    before = git_state(world.root)

    worktree = world.worktrees.create("session_1", world.root)

    assert {path: entry[2] for path, entry in picture(worktree.folder).items() if path != ".git"} == {
        "a.txt": b"2\n", "new.txt": b"n\n", ".gitignore": b"*.log\n",
    }  # fmt: skip
    status = subprocess.run(["git", "status", "--porcelain"], cwd=worktree.folder, capture_output=True, check=True)
    assert status.stdout == b""
    assert git_state(world.root) == before
    assert worktree.head == world.repository.git("rev-parse", "HEAD")
    assert worktree.start != worktree.head


def test_a_clean_tree_starts_at_head(world: World) -> None:
    worktree = world.worktrees.create("session_1", world.root)

    assert worktree.start == worktree.head == world.repository.git("rev-parse", "HEAD")


def test_without_a_commit_and_in_a_folder_with_a_strange_name(tmp_path: Path) -> None:
    world = World(tmp_path / "a b ü'\n")
    world.repository.write("x", "1")

    worktree = world.worktrees.create("session_1", world.root)

    assert (worktree.folder / "x").read_text() == "1"
    world.worktrees.remove("session_1")
    assert not worktree.folder.exists()
    assert list((world.root / ".git").glob("worktrees/*")) == []
    world.close()


def test_no_hook_runs(world: World) -> None:
    hook = world.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {world.folder}/trap\n")
    hook.chmod(0o755)

    world.worktrees.create("session_1", world.root)

    assert not (world.folder / "trap").exists()


def test_removed_it_leaves_nothing_and_others_stay(world: World) -> None:
    stale = world.folder / "operators"
    world.repository.git("worktree", "add", "-q", str(stale))
    shutil.rmtree(stale)  # the operator's own stale worktree is not ours to prune
    worktree = world.worktrees.create("session_1", world.root)
    (worktree.folder / "locked").mkdir()
    (worktree.folder / "locked/x").write_text("x")
    (worktree.folder / "locked").chmod(0o500)

    world.worktrees.remove("session_1")
    world.worktrees.release(world.root, "session_1")
    world.worktrees.remove("session_1")

    assert not worktree.folder.exists()
    assert our_refs(world.root) == []
    assert str(stale) in world.repository.git("worktree", "list")
    assert "session_1" not in world.repository.git("worktree", "list")


def test_a_session_cannot_bring_a_configuration_of_its_own(world: World) -> None:
    """The worktree's `.git` file is the session's to rewrite: capturing must not follow it."""
    worktree = world.worktrees.create("session_1", world.root)
    evil = Repository(world.folder / "evil")
    evil.git("config", "core.fsmonitor", f"touch {world.folder}/trap")
    evil.git("config", "filter.evil.clean", f"touch {world.folder}/trap; cat")
    (worktree.folder / ".git").write_text(f"gitdir: {evil.path}/.git\n")
    (worktree.folder / ".gitattributes").write_text("* filter=evil\n")
    (worktree.folder / "a.txt").write_text("changed\n")

    result = world.worktrees.capture(worktree).tree

    assert world.repository.git("show", f"{result}:a.txt") == "changed"
    assert not (world.folder / "trap").exists()
    world.worktrees.remove("session_1")
    assert not worktree.folder.exists()
    assert evil.path.exists()


def test_what_the_session_did_with_git_does_not_matter(world: World) -> None:
    """Commits, staging, another branch: the change set is the files."""
    world.repository.write("untracked.log.txt", "mine")
    worktree = world.worktrees.create("session_1", world.root)
    inside = Repository(world.folder / "unused")
    inside.path = worktree.folder
    (worktree.folder / ".gitignore").write_text("*.log\n*.txt\n")
    inside.git("rm", "-q", "--cached", "a.txt")
    inside.commit("work", {"b.md": "b"})

    result = world.worktrees.capture(worktree).tree

    names = world.repository.git("ls-tree", "-r", "--name-only", result).splitlines()
    assert names == [".gitignore", "a.txt", "b.md", "untracked.log.txt"]


def test_recovery_removes_what_dead_sessions_left(world: World) -> None:
    first = world.worktrees.create("session_1", world.root)
    second = world.worktrees.create("session_2", world.root)

    words = world.worktrees.recover(keep={"session_2"}, keep_refs={"session_2"})

    assert words == ["removed the worktree that session session_1 left behind"]
    assert not first.folder.exists()
    assert second.folder.exists()
    assert [line.rpartition("/")[0].rpartition("/")[2] for line in our_refs(world.root)] == ["session_2"]
    assert world.worktrees.recover(keep={"session_2"}) == []


def test_recovery_bears_a_repository_that_is_gone(world: World) -> None:
    worktree = world.worktrees.create("session_1", world.root)
    shutil.rmtree(world.root)

    assert len(world.worktrees.recover()) == 1
    assert not worktree.folder.exists()


def test_what_cannot_be_removed_holds_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    change = world.changed(lambda folder: (folder / "a.txt").write_text("2\n") and None)
    folder = world.worktrees.folder_of("session_1")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("engine.execution.worktrees.remove_folder", refuse)
        assert world.changes.discard(change.id).state is ChangeState.DISCARDED
        assert world.changes.recover() == [f"{folder} cannot be removed; delete it by hand, the log says why"]
    assert folder.exists()

    assert world.changes.recover() == ["removed the worktree that session session_1 left behind"]
    assert not folder.exists()
    assert our_refs(world.root) == []


def test_a_worktree_that_cannot_be_made_leaves_nothing(world: World) -> None:
    world.home.worktrees.mkdir(parents=True)
    (world.home.worktrees / "session_1").mkdir()
    (world.home.worktrees / "session_1/x").write_text("in the way")

    with pytest.raises(GitError):
        world.worktrees.create("session_1", world.root)

    assert our_refs(world.root) == []
    assert world.worktrees.recover() == []


def test_removing_never_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/x").write_text("x")
    (tmp_path / "doomed/a").mkdir(parents=True)
    (tmp_path / "doomed/a/link").symlink_to(tmp_path / "precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")

    remove_folder(tmp_path / "doomed")
    remove_folder(tmp_path / "link")
    remove_folder(tmp_path / "nothing")

    assert (tmp_path / "precious/x").exists()
    assert not (tmp_path / "doomed").exists()
