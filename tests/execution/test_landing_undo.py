"""Undo and broken-off halves, case by case (SPEC 3.9)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model import ChangeState
from engine.storage import intents
from tests.execution.landing_world import TEXT, World, picture, refusal_of, writing


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT, "d/only.txt": "d\n", "b.txt": TEXT})
    yield world
    world.close()


@pytest.mark.long
@pytest.mark.parametrize("edit", ["bytes", "mode", "gone", "kind", "folder"])
def test_undo_refuses_what_would_lose_later_edits(world: World, edit: str) -> None:
    def session(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "d/only.txt").unlink()

    change_set = world.changed(session)
    world.changes.land(change_set.id)
    file = world.root / "a.txt"
    name = "a.txt"
    if edit == "bytes":
        file.write_text("mine\n")
    elif edit == "mode":
        file.chmod(0o755)
    elif edit == "gone":
        file.unlink()
    elif edit == "kind":
        file.unlink()
        file.symlink_to("b.txt")
    else:
        (world.root / "d").write_text("a file where the folder was\n")
        name = "d"
    before = picture(world.root)

    refusal = refusal_of(lambda: world.changes.undo(change_set.id))

    assert refusal.code == "later_edits"
    assert name in refusal.message
    assert picture(world.root) == before
    assert world.changes.get(change_set.id).state is ChangeState.LANDED


@pytest.mark.long
@pytest.mark.parametrize("failing", ["prepare", "write", "make folder", "remove"])
def test_a_write_that_fails_takes_everything_back(world: World, failing: str) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "d/only.txt").unlink()
        (folder / "sub").mkdir()
        (folder / "sub/new.txt").write_text("theirs\n")

    change_set = world.changed(edit)
    before = picture(world.root)

    def fail(step: str) -> None:
        if step.startswith(failing):
            world.step = lambda step: None
            raise OSError(28, "No space left on device", "a.txt")

    world.step = fail
    refusal = refusal_of(lambda: world.changes.land(change_set.id))

    assert refusal.code == "cannot_write"
    assert picture(world.root) == before
    assert intents.unfinished(world.database, "landing") == []
    world.changes.land(change_set.id)


def test_what_could_not_be_taken_back_is_taken_back_before_anything_else(world: World) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "b.txt").write_text("theirs\n")

    change_set = world.changed(edit)
    before = picture(world.root)

    def fail(step: str) -> None:
        if step in ("write b.txt", "take back"):
            raise OSError(28, "No space left on device")

    world.step = fail
    assert refusal_of(lambda: world.changes.land(change_set.id)).code == "not_restored"
    assert picture(world.root) != before
    world.step = lambda step: None

    assert world.changes.land(change_set.id).state is ChangeState.LANDED
    world.changes.undo(change_set.id)
    assert picture(world.root) == before


def test_recovery_says_what_it_left_alone(world: World) -> None:
    def edit(folder: Path) -> None:
        (folder / "a.txt").write_text("theirs\n")
        (folder / "b.txt").write_text("theirs\n")

    change_set = world.changed(edit)

    class Killed(BaseException):
        pass

    def kill(step: str) -> None:
        if step == "write b.txt":
            raise Killed

    world.step = kill
    with pytest.raises(Killed):
        world.changes.land(change_set.id)
    (world.root / "a.txt").write_text("edited after the crash\n")
    world.step = lambda step: None

    (words,) = world.changes.recover()

    assert "interrupted and undone" in words
    assert "a.txt" in words
    assert (world.root / "a.txt").read_text() == "edited after the crash\n"
    assert (world.root / "b.txt").read_text() == TEXT
    assert list(world.root.glob(".clawpy*")) == []
    assert world.changes.recover() == []


def test_a_repository_with_longer_hashes(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", tmp_path / "shop"], check=True)
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": TEXT})
    change_set = world.changed(writing("a.txt", "theirs\n"))
    before = picture(world.root)

    world.changes.land(change_set.id)
    assert (world.root / "a.txt").read_text() == "theirs\n"
    world.changes.undo(change_set.id)
    assert picture(world.root) == before
    assert world.changes.branch(change_set.id).branch == "clawpy/fix-the-cart"
    world.close()


def test_a_workspace_that_is_itself_a_linked_worktree(world: World) -> None:
    linked = world.folder / "linked"
    world.repository.git("worktree", "add", "-q", "-b", "other", str(linked))
    worktree = world.worktrees.create("session_1", linked)
    (worktree.folder / "a.txt").write_text("theirs\n")
    captured = world.changes.captures.capture(worktree)
    assert captured is not None
    change_set = world.database.write(
        lambda tx: world.changes.captures.store(tx, captured, prediction_id="p", title="t")
    )
    untouched = picture(world.root)

    world.changes.land(change_set.id)

    assert (linked / "a.txt").read_text() == "theirs\n"
    assert picture(world.root) == untouched
    world.changes.undo(change_set.id)
    assert (linked / "a.txt").read_text() == TEXT
    assert linked.exists()
