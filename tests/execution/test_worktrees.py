"""A session's own folder: exactly the operator's files, and gone without a trace (SPEC 3.8, 3.9)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.git import GitError
from engine.model import ChangeState
from engine.plain_files import remove_folder
from tests.conftest import Repository
from tests.execution.landing_world import World, git_state, our_refs, picture


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
