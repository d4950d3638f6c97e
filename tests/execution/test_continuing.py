"""A session that continues another begins with its changes, and takes its place (SPEC 9.4, 3.9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.session_store import continued_session
from engine.model import Assignment, ChangeSet, ChangeState, Refusal
from engine.storage.database import Transaction
from tests.execution.landing_world import World, our_refs


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": "1\n2\n3\n", ".gitignore": "*.log\n"})
    yield world
    world.close()


def work(world: World, session_id: str, files: dict[str, str], *, continues: str = "") -> ChangeSet:
    """A session that writes `files` and ends as a change set."""
    onto = world.changes.captures.starting_tree(continues) if continues else None
    worktree = world.worktrees.create(session_id, world.root, onto=onto)
    for name, text in files.items():
        (worktree.folder / name).write_text(text)
    captured = world.changes.captures.capture(worktree)
    assert captured is not None

    def store(tx: Transaction) -> ChangeSet:
        stored = world.changes.captures.store(tx, captured, prediction_id="pred_1", title=session_id)
        if continues:
            world.changes.supersede(tx, continues, by=session_id)
        return stored

    return world.database.write(store)


def tidied() -> None:
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("clawpy-tidy-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_it_begins_with_the_changes_that_wait_and_leaves_one_change_set(world: World) -> None:
    former = work(world, "sess_1", {"a.txt": "one\n2\n3\n", "new.txt": "n\n"})
    world.repository.write("mine.txt", "meanwhile\n")

    after = work(world, "sess_2", {"b.txt": "b\n"}, continues="sess_1")

    assert {file.path for file in after.files} == {"a.txt", "new.txt", "b.txt"}
    gone = world.changes.get(former.id)
    assert (gone.state, gone.note) == (ChangeState.DISCARDED, "continued in sess_2")
    tidied()
    assert not world.worktrees.folder_of("sess_1").exists()
    assert not any("sess_1" in ref for ref in our_refs(world.root))
    world.changes.land(after.id)
    assert (world.root / "a.txt").read_text() == "one\n2\n3\n"
    assert (world.root / "b.txt").read_text() == "b\n"
    assert (world.root / "mine.txt").read_text() == "meanwhile\n"


@pytest.mark.parametrize("decide", ["land", "discard"])
def test_what_was_decided_already_stays_so(world: World, decide: str) -> None:
    former = work(world, "sess_1", {"a.txt": "one\n2\n3\n"})
    getattr(world.changes, decide)(former.id)
    state = world.changes.get(former.id).state

    after = work(world, "sess_2", {"b.txt": "b\n"}, continues="sess_1")

    assert [file.path for file in after.files] == ["b.txt"]
    assert world.changes.get(former.id).state is state


@pytest.mark.long
def test_what_is_landed_while_the_next_runs_is_not_discarded(world: World) -> None:
    former = work(world, "sess_1", {"a.txt": "one\n2\n3\n"})
    worktree = world.worktrees.create("sess_2", world.root, onto=world.changes.captures.starting_tree("sess_1"))
    world.changes.land(former.id)
    (worktree.folder / "b.txt").write_text("b\n")
    captured = world.changes.captures.capture(worktree)
    assert captured is not None

    def store(tx: Transaction) -> ChangeSet:
        world.changes.supersede(tx, "sess_1", by="sess_2")
        return world.changes.captures.store(tx, captured, prediction_id="pred_1", title="next")

    after = world.database.write(store)

    assert world.changes.get(former.id).state is ChangeState.LANDED
    world.changes.land(after.id)
    assert (world.root / "b.txt").read_text() == "b\n"


def test_changes_that_do_not_fit_any_more_are_named_and_nothing_stays_behind(world: World) -> None:
    work(world, "sess_1", {"a.txt": "theirs\n2\n3\n"})
    world.repository.write("a.txt", "mine\n2\n3\n")

    with pytest.raises(Refusal, match=r"a\.txt") as refused:
        world.worktrees.create("sess_2", world.root, onto=world.changes.captures.starting_tree("sess_1"))

    assert refused.value.code == "conflict"
    assert not world.worktrees.folder_of("sess_2").exists()
    assert not any("sess_2" in ref for ref in our_refs(world.root))


def test_only_prose_continues() -> None:
    prose = Assignment("go on", "koji-core", "/w", "model", None, {"continues": "sess_1"})
    assert continued_session(prose) == "sess_1"
    assert continued_session(Assignment("x", "koji-core", "/w", "flow", "run_tests", {"continues": "sess_1"})) == ""
    assert continued_session(Assignment("x", "koji-core", "/w", "model")) == ""
