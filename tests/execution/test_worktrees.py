"""Worktrees of sessions: made from the present files, captured, removed, recovered (SPEC 3.8, 3.9).

That no hook and no `.git` file of a session runs a program is tested in `tests/attacks/`.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from engine.execution import worktrees
from engine.git import GitError
from engine.model import ChangeState
from tests.execution.changesets.landing_world import LandingWorld, make_edits, read_file_states
from tests.support.repository import Repository

GITIGNORE = "*.log\n"


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", {"a.txt": "1\n", ".gitignore": GITIGNORE})
    return landing_world


def test_a_worktree_has_the_present_files(world: LandingWorld):
    clean = world.open_worktree("session_0")
    assert clean.start == clean.head == world.git("rev-parse", "HEAD")
    world.write("a.txt", "2\n")
    world.write("new.txt", "n\n")
    world.write("noise.log", "x")
    before = world.git_state

    worktree = world.open_worktree()

    assert {path: entry[2] for path, entry in read_file_states(worktree.folder).items() if path != ".git"} == {
        "a.txt": b"2\n", "new.txt": b"n\n", ".gitignore": GITIGNORE.encode(),
    }  # fmt: skip
    status = subprocess.run(["git", "status", "--porcelain"], cwd=worktree.folder, capture_output=True, check=True)
    assert status.stdout == b""
    assert world.git_state == before


def test_a_worktree_is_made_without_a_commit_and_in_a_folder_with_an_unusual_name(tmp_path: Path):
    world = LandingWorld(tmp_path / "a b ü'\n")
    world.write("x", "1")

    worktree = world.open_worktree()

    assert (worktree.folder / "x").read_text() == "1"
    world.worktrees.remove("session_1")
    assert not worktree.folder.exists()
    assert list((world.root / ".git").glob("worktrees/*")) == []
    world.close()


def test_removing_a_worktree_leaves_those_of_others(world: LandingWorld):
    stale = world.folder / "operators"
    world.git("worktree", "add", "-q", str(stale))
    shutil.rmtree(stale)  # the operator's own stale worktree is not ours to prune
    worktree = world.open_worktree()
    locked = worktree.folder / "locked"
    locked.mkdir()
    (locked / "x").write_text("x")
    locked.chmod(0o500)

    world.worktrees.remove("session_1")
    world.worktrees.release(world.root, "session_1")
    world.worktrees.remove("session_1")

    assert not worktree.folder.exists()
    assert world.refs == []
    assert str(stale) in world.git("worktree", "list")
    assert "session_1" not in world.git("worktree", "list")


def test_the_captured_tree_is_that_of_the_files_whatever_the_session_did_with_git(world: LandingWorld):
    world.write("untracked.log.txt", "mine")
    worktree = world.open_worktree()
    inside = Repository(world.folder / "unused")
    inside.path = worktree.folder
    (worktree.folder / ".gitignore").write_text("*.log\n*.txt\n")
    inside.git("rm", "-q", "--cached", "a.txt")
    inside.commit("work", {"b.md": "b"})

    result = world.worktrees.capture(worktree).tree

    names = world.git("ls-tree", "-r", "--name-only", result).splitlines()
    assert names == [".gitignore", "a.txt", "b.md", "untracked.log.txt"]


def test_recovery_removes_worktrees_of_earlier_sessions(world: LandingWorld):
    first, second = world.open_worktree(), world.open_worktree("session_2")

    messages = world.worktrees.recover(keep={"session_2"}, keep_refs={"session_2"})

    assert messages == ["removed the worktree that session session_1 left behind"]
    assert (first.folder.exists(), second.folder.exists()) == (False, True)
    assert ["session_2" in line for line in world.refs] == [True]
    assert world.worktrees.recover(keep={"session_2"}) == []


def test_recovery_removes_the_worktree_of_a_repository_that_is_gone(world: LandingWorld):
    worktree = world.open_worktree()
    shutil.rmtree(world.root)

    assert len(world.worktrees.recover()) == 1
    assert not worktree.folder.exists()


def test_a_worktree_that_cannot_be_removed_is_left_to_the_next_start(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
):
    change = world.make_change(make_edits({"a.txt": "2\n"}))
    folder = world.worktrees.folder_of("session_1")

    def refuse(path: Path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(worktrees, "remove_folder", refuse)
        assert change.discard().state is ChangeState.DISCARDED
        assert world.changes.recover() == [f"{folder} cannot be removed; delete it by hand, the log says why"]
    assert world.changes.recover() == ["removed the worktree that session session_1 left behind"]
    assert not folder.exists()
    assert world.refs == []


def test_a_worktree_that_cannot_be_made_leaves_nothing(world: LandingWorld):
    folder = world.worktrees.folder_of("session_1")
    folder.mkdir(parents=True)
    (folder / "x").write_text("in the way")

    with pytest.raises(GitError):
        world.open_worktree()

    assert world.refs == []
    assert world.worktrees.recover() == []
