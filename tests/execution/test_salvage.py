"""What a session had changed is kept when it does not come to its end (SPEC 3.8): stopped, or the engine died."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution import sessions as sessions_module
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.runner import RunnerResult
from engine.execution.session_store import SessionRow
from engine.execution.session_workspace import SessionWorkspace, SessionWorkspaces
from engine.model import UNDONE, ChangeState, SessionState, SessionView
from engine.storage import intents
from engine.storage.database import Database, Transaction
from tests.conftest import Repository
from tests.execution.session_world import ProseRunner, RepositoryWorld, until

Work = Callable[[LiveSession, SessionWorkspace], None]


class Agent(ProseRunner):
    """It works as a test says, and its changes are kept."""

    def __init__(self, workspaces: SessionWorkspaces, work: Work) -> None:
        super().__init__(workspaces)
        self._work = work

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        with self.workspaces.open(live, Place.CHANGE_SET, salvage=view) as workspace:
            self._work(live, workspace)
            write = self.workspaces.keep(live, view, workspace, Place.CHANGE_SET)
        return RunnerResult("done", write=write)


class World(RepositoryWorld):
    """Sessions of one agent; built anew on the same database it is the next engine."""

    def __init__(
        self, root: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository, work: Work
    ) -> None:
        super().__init__(root, database, clock, bus, repository)
        self.agent = Agent(self.workspaces, work)
        self.sessions.admission._runners = {"model": self.agent}

    def begin(self) -> SessionView:
        return self.prose(self.agent)

    def crashed(self, *files: str) -> str:
        """A session as a crash leaves it that had written `files`."""
        session_id = self.begin().id
        self.sessions.wait(session_id, 10)
        folder = self.worktrees.folder_of(session_id)
        if (change := self.changes.for_session(session_id)) is not None:
            self.changes.discard(change.id)
        worktree = self.worktrees.create(session_id, self.workspace)
        self.worktrees.mark_worth_keeping(worktree)
        for name in files:
            (folder / name).write_text("half\n")

        def forget(tx: Transaction) -> None:
            row = tx.session.get(SessionRow, session_id)
            assert row is not None
            row.state, row.ended_at, row.change_set_id = "running", None, None
            row.summary = row.error = ""
            tx.session.add(row)

        self.database.write(forget)
        return session_id

    def files(self, session_id: str) -> list[str]:
        change = self.changes.for_session(session_id)
        return [] if change is None else [file.path for file in change.files]


def writes_and_waits(live: LiveSession, workspace: SessionWorkspace) -> None:
    (workspace.folder / "half.txt").write_text("half\n")
    live.say("half is written")
    until(lambda: live.cancelled)
    live.check_running()


def nothing(live: LiveSession, workspace: SessionWorkspace) -> None:
    """An agent that changes nothing."""


@pytest.fixture
def make(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository
) -> Iterator[Callable[[Work], World]]:
    repository.commit("one", {"a.txt": "a\n"})
    worlds: list[World] = []

    def build(work: Work) -> World:
        worlds.append(World(tmp_path, database, clock, bus, repository, work))
        return worlds[-1]

    yield build
    for world in worlds:
        world.sessions.close()


def stopped(world: World, reason: str) -> SessionView:
    view = world.begin()
    until(lambda: "half is written" in world.texts(view, ("note",)))
    world.sessions.stop(view.id, reason)
    return world.sessions.wait(view.id, 10)


@pytest.mark.long
def test_what_a_stopped_session_had_changed_waits(make: Callable[[Work], World]) -> None:
    world = make(writes_and_waits)
    view = stopped(world, "stopped by you")
    assert (view.state, view.error) == (SessionState.CANCELLED, "stopped by you")
    assert view.summary == "stopped by you; its changes until then are waiting"
    assert world.files(view.id) == ["half.txt"]
    assert view.change_set_id is not None
    assert (Path(view.cwd).is_dir(), view.gone) == (True, "")
    world.changes.land(view.change_set_id)
    assert (world.workspace / "half.txt").read_text() == "half\n"
    assert world.sessions.get(view.id).gone == "its worktree is gone; its changes are in its change set"


def test_what_an_undone_card_had_changed_is_thrown_away(make: Callable[[Work], World]) -> None:
    world = make(writes_and_waits)
    view = stopped(world, UNDONE)
    assert (view.change_set_id, view.summary) == (None, UNDONE)
    assert view.gone == "its worktree is gone; its changes were discarded with its card"
    assert world.sessions.recover() == []
    assert world.files(view.id) == []


def test_a_thread_that_comes_back_late_hands_in_what_it_has_once(
    make: Callable[[Work], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "STOP_TIMEOUT_S", 0.0)
    go = threading.Event()

    def deep(live: LiveSession, workspace: SessionWorkspace) -> None:
        (workspace.folder / "half.txt").write_text("half\n")
        live.say("half is written")
        go.wait(10)
        live.check_running()

    world = make(deep)
    view = stopped(world, "kill switch")
    assert (view.state, view.change_set_id) == (SessionState.CANCELLED, None)
    go.set()
    until(lambda: world.sessions.get(view.id).change_set_id)
    assert world.files(view.id) == ["half.txt"]
    after = world.sessions.get(view.id)
    assert (after.summary, after.gone) == ("kill switch; its changes until then are waiting", "")
    assert Path(after.cwd) == world.worktrees.folder_of(view.id)
    until(lambda: not world.sessions._threads)
    assert len(world.changes.list()) == 1


def test_what_a_crash_interrupted_waits_after_the_next_start(make: Callable[[Work], World]) -> None:
    world = make(nothing)
    session_id = world.crashed("half.txt")
    words = make(nothing).sessions.recover()
    assert words[0].endswith(f"it was interrupted ({session_id})")
    assert words[1:] == [f"its changes until then are waiting: 1 file ({session_id})"]
    view = world.sessions.get(session_id)
    assert (view.state, world.files(session_id)) == (SessionState.INTERRUPTED, ["half.txt"])
    assert view.summary == "the engine stopped while it ran; its changes until then are waiting"
    assert Path(view.cwd) == world.worktrees.folder_of(session_id)
    assert make(nothing).sessions.recover() == []
    change = world.changes.for_session(session_id)
    assert change is not None
    assert change.state is ChangeState.WAITING
    world.changes.land(change.id)
    assert (world.workspace / "half.txt").read_text() == "half\n"


def test_a_start_that_is_killed_too_loses_nothing(
    make: Callable[[Work], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make(nothing).crashed("half.txt")
    killed = make(nothing)

    def dies(*arguments: object, **named: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(killed.changes.captures, "store", dies)
    with pytest.raises(RuntimeError):
        killed.sessions.recover()
    assert killed.files(session_id) == []
    world = make(nothing)
    assert world.sessions.recover() == [f"its changes until then are waiting: 1 file ({session_id})"]
    assert world.files(session_id) == ["half.txt"]
    assert len([change for change in world.changes.list() if change.state is ChangeState.WAITING]) == 1


def test_a_crash_of_a_session_that_had_changed_nothing_leaves_nothing(make: Callable[[Work], World]) -> None:
    world = make(nothing)
    session_id = world.crashed()
    words = make(nothing).sessions.recover()
    assert words[1:] == [f"removed the worktree that session {session_id} left behind"]
    assert not world.worktrees.folder_of(session_id).exists()


def test_what_cannot_be_captured_stays_where_it_is(
    make: Callable[[Work], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make(nothing).crashed("half.txt")
    world = make(nothing)

    def fails(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(world.changes.captures, "capture", fails)
        assert "cannot be saved yet" in world.sessions.recover()[1]
    assert (world.worktrees.folder_of(session_id) / "half.txt").exists()
    assert make(nothing).sessions.recover() == [f"its changes until then are waiting: 1 file ({session_id})"]
    shutil.rmtree(world.worktrees.folder_of(session_id))
    assert intents.unfinished(world.database, "worktree") != []
