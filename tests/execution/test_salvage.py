"""What a session had changed is kept when it does not come to its end (SPEC 3.8): stopped, or the engine died."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution import sessions as sessions_module
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.runner import RunnerResult
from engine.execution.session_store import SessionRow, continued_session
from engine.execution.session_workspace import SessionWorkspace, SessionWorkspaces
from engine.model import UNDONE, Assignment, ChangeSet, ChangeState, Refusal, SessionState, SessionView
from engine.storage.database import Database, Transaction
from engine.storage.state import unfinished_intents
from tests.conftest import Repository
from tests.execution.landing_world import World, our_refs
from tests.execution.session_world import ProseRunner, RepositoryWorld, until

AgentWork = Callable[[LiveSession, SessionWorkspace], None]


class Agent(ProseRunner):
    """It works as a test says, and its changes are kept."""

    def __init__(self, workspaces: SessionWorkspaces, work: AgentWork) -> None:
        super().__init__(workspaces)
        self._work = work

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        with self.workspaces.open(live, Place.CHANGE_SET, salvage=view) as workspace:
            self._work(live, workspace)
            write = self.workspaces.keep(live, view, workspace, Place.CHANGE_SET)
        return RunnerResult("done", write=write)


class AgentWorld(RepositoryWorld):
    """Sessions of one agent; built anew on the same database it is the next engine."""

    def __init__(
        self, root: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository, work: AgentWork
    ) -> None:
        super().__init__(root, database, clock, bus, repository)
        self.agent = Agent(self.workspaces, work)
        self.sessions._runners = {"model": self.agent}

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
) -> Iterator[Callable[[AgentWork], AgentWorld]]:
    repository.commit("one", {"a.txt": "a\n"})
    worlds: list[AgentWorld] = []

    def build(work: AgentWork) -> AgentWorld:
        worlds.append(AgentWorld(tmp_path, database, clock, bus, repository, work))
        return worlds[-1]

    yield build
    for world in worlds:
        world.sessions.close()


def stopped(world: AgentWorld, reason: str) -> SessionView:
    view = world.begin()
    until(lambda: "half is written" in world.texts(view, ("note",)))
    world.sessions.stop(view.id, reason)
    return world.sessions.wait(view.id, 10)


@pytest.mark.long
def test_what_a_stopped_session_had_changed_waits(make: Callable[[AgentWork], AgentWorld]) -> None:
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


def test_what_an_undone_card_had_changed_is_thrown_away(make: Callable[[AgentWork], AgentWorld]) -> None:
    world = make(writes_and_waits)
    view = stopped(world, UNDONE)
    assert (view.change_set_id, view.summary) == (None, UNDONE)
    assert view.gone == "its worktree is gone; its changes were discarded with its card"
    assert world.sessions.recover() == []
    assert world.files(view.id) == []


def test_a_thread_that_comes_back_late_hands_in_what_it_has_once(
    make: Callable[[AgentWork], AgentWorld], monkeypatch: pytest.MonkeyPatch
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


def test_what_a_crash_interrupted_waits_after_the_next_start(make: Callable[[AgentWork], AgentWorld]) -> None:
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
    make: Callable[[AgentWork], AgentWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make(nothing).crashed("half.txt")
    killed = make(nothing)

    def dies(*arguments: object, **named: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(killed.changes, "store", dies)
    with pytest.raises(RuntimeError):
        killed.sessions.recover()
    assert killed.files(session_id) == []
    world = make(nothing)
    assert world.sessions.recover() == [f"its changes until then are waiting: 1 file ({session_id})"]
    assert world.files(session_id) == ["half.txt"]
    assert len([change for change in world.changes.list() if change.state is ChangeState.WAITING]) == 1


def test_a_crash_of_a_session_that_had_changed_nothing_leaves_nothing(make: Callable[[AgentWork], AgentWorld]) -> None:
    world = make(nothing)
    session_id = world.crashed()
    words = make(nothing).sessions.recover()
    assert words[1:] == [f"removed the worktree that session {session_id} left behind"]
    assert not world.worktrees.folder_of(session_id).exists()


def test_what_cannot_be_captured_stays_where_it_is(
    make: Callable[[AgentWork], AgentWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make(nothing).crashed("half.txt")
    world = make(nothing)

    def fails(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(world.changes, "capture", fails)
        assert "cannot be saved yet" in world.sessions.recover()[1]
    assert (world.worktrees.folder_of(session_id) / "half.txt").exists()
    assert make(nothing).sessions.recover() == [f"its changes until then are waiting: 1 file ({session_id})"]
    shutil.rmtree(world.worktrees.folder_of(session_id))
    assert unfinished_intents(world.database, "worktree") != []


# A session that continues another begins with its changes, and takes its place (SPEC 9.4, 3.9).


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.repository.commit("one", {"a.txt": "1\n2\n3\n", ".gitignore": "*.log\n"})
    yield world
    world.close()


def work(world: World, session_id: str, files: dict[str, str], *, continues: str = "") -> ChangeSet:
    """A session that writes `files` and ends as a change set."""

    def edit(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)

    return world.changed(edit, name=session_id, continues=continues)


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

    def edit(folder: Path) -> None:
        world.changes.land(former.id)
        (folder / "b.txt").write_text("b\n")

    after = world.changed(edit, name="sess_2", continues="sess_1")

    assert world.changes.get(former.id).state is ChangeState.LANDED
    world.changes.land(after.id)
    assert (world.root / "b.txt").read_text() == "b\n"


def test_changes_that_do_not_fit_any_more_are_named_and_nothing_stays_behind(world: World) -> None:
    work(world, "sess_1", {"a.txt": "theirs\n2\n3\n"})
    world.repository.write("a.txt", "mine\n2\n3\n")

    with pytest.raises(Refusal, match=r"a\.txt") as refused:
        world.worktrees.create("sess_2", world.root, onto=world.changes.starting_tree("sess_1"))

    assert refused.value.code == "conflict"
    assert not world.worktrees.folder_of("sess_2").exists()
    assert not any("sess_2" in ref for ref in our_refs(world.root))


def test_only_prose_continues() -> None:
    prose = Assignment("go on", "koji-core", "/w", "model", None, {"continues": "sess_1"})
    assert continued_session(prose) == "sess_1"
    assert continued_session(Assignment("x", "koji-core", "/w", "flow", "run_tests", {"continues": "sess_1"})) == ""
    assert continued_session(Assignment("x", "koji-core", "/w", "model")) == ""
