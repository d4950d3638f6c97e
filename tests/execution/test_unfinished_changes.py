"""Changes of a session that was stopped, or that a crash interrupted, wait, and one that continues it is told of them
(SPEC 3.8)."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution import sessions as sessions_module
from engine.execution.live_session import LiveSession
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.session_folders import SessionFolder
from engine.model import UNDONE, ChangeState, SessionState, SessionView
from tests.execution.agent_world import AgentWork, AgentWorld, do_nothing
from tests.execution.session_world import MakeWorld, needs_sandbox
from tests.support.checks import wait_for_threads, wait_until
from tests.support.repository import Repository

MakeAgentWorld = Callable[..., AgentWorld]
"""Makes a world whose agent does some work, by default nothing."""


def write_half(live: LiveSession, folder: SessionFolder):
    (folder.path / "half.txt").write_text("half\n")


def write_and_wait(live: LiveSession, folder: SessionFolder):
    write_half(live, folder)
    live.say("half is written")
    wait_until(lambda: live.stop_requested)
    live.check_running()


def raise_disk_full(*arguments: object):
    raise OSError(28, "No space left on device")


@pytest.fixture
def make_agent_world(make_world: MakeWorld, repository: Repository) -> MakeAgentWorld:
    repository.commit("one", {"a.txt": "a\n"})

    def make(work: AgentWork = do_nothing) -> AgentWorld:
        world = make_world(AgentWorld, repository=repository)
        world.agent.work = work
        return world

    return make


def stop_session(world: AgentWorld, reason: str) -> SessionView:
    """Stop a session once it wrote a file."""
    view = world.begin_prose()
    wait_until(lambda: "half is written" in world.read_lines(view, ("note",)))
    world.sessions.stop(view.id, reason)
    return world.wait(view)


@pytest.mark.long
def test_changes_of_a_stopped_session_wait(make_agent_world: MakeAgentWorld):
    world = make_agent_world(write_and_wait)
    view = stop_session(world, "stopped by you")
    assert (view.state, view.error) == (SessionState.CANCELLED, "stopped by you")
    assert view.summary == "stopped by you; its changes until then are waiting"
    assert world.list_files(view.id) == ["half.txt"]
    assert (Path(view.cwd).is_dir(), view.gone) == (True, "")
    world.changes.land(view.change_set_id)
    assert (world.workspace / "half.txt").read_text() == "half\n"
    assert world.sessions.get(view.id).gone == "its worktree is gone; its changes are in its change set"


def test_changes_of_an_undone_card_are_discarded(make_agent_world: MakeAgentWorld):
    world = make_agent_world(write_and_wait)
    view = stop_session(world, UNDONE)
    assert (view.change_set_id, view.summary) == (None, UNDONE)
    assert view.gone == "its worktree is gone; its changes were discarded with its card"
    assert "nothing that you changed" in world.folders.describe_carried(view.id)
    assert world.sessions.recover() == []
    assert world.list_files(view.id) == []


def test_a_thread_that_returns_after_the_end_stores_its_changes_once(
    make_agent_world: MakeAgentWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sessions_module, "STOP_TIMEOUT_S", 0.0)
    released = threading.Event()

    def ignore_stop(live: LiveSession, folder: SessionFolder):
        write_half(live, folder)
        live.say("half is written")
        released.wait(10)
        live.check_running()

    world = make_agent_world(ignore_stop)
    view = stop_session(world, "kill switch")
    assert (view.state, view.change_set_id) == (SessionState.CANCELLED, None)
    released.set()
    wait_for_threads(f"clawpy-{view.id}")
    assert world.list_files(view.id) == ["half.txt"]
    after = world.sessions.get(view.id)
    assert (after.summary, after.gone) == ("kill switch; its changes until then are waiting", "")
    assert len(world.changes.list_newest()) == 1


def test_changes_of_an_interrupted_session_wait_after_the_next_start(make_agent_world: MakeAgentWorld):
    world = make_agent_world()
    session_id = world.interrupt_session("half.txt")
    messages = make_agent_world().sessions.recover()
    assert messages[0].endswith(f"it was interrupted ({session_id})")
    assert messages[1:] == [f"its changes until then are waiting: 1 file ({session_id})"]
    view = world.sessions.get(session_id)
    assert view.state is SessionState.INTERRUPTED
    assert view.summary == "the engine stopped while it ran; its changes until then are waiting"
    assert make_agent_world().sessions.recover() == []
    world.changes.land(view.change_set_id)
    assert (world.workspace / "half.txt").read_text() == "half\n"


def test_a_recovery_that_is_killed_loses_no_changes(make_agent_world: MakeAgentWorld, monkeypatch: pytest.MonkeyPatch):
    session_id = make_agent_world().interrupt_session("half.txt")
    killed = make_agent_world()
    monkeypatch.setattr(killed.changes, "store", None)
    with pytest.raises(TypeError):
        killed.sessions.recover()
    assert killed.list_files(session_id) == []
    world = make_agent_world()
    assert world.sessions.recover() == [f"its changes until then are waiting: 1 file ({session_id})"]
    assert world.list_files(session_id) == ["half.txt"]
    assert len(world.changes.list_newest(state=ChangeState.WAITING)) == 1


def test_a_worktree_whose_changes_cannot_be_captured_is_kept(
    make_agent_world: MakeAgentWorld, monkeypatch: pytest.MonkeyPatch
):
    session_id = make_agent_world().interrupt_session("half.txt")
    world = make_agent_world()

    with monkeypatch.context() as patch:
        patch.setattr(world.changes, "capture", raise_disk_full)
        assert "cannot be saved yet" in world.sessions.recover()[1]
    assert (world.worktrees.folder_of(session_id) / "half.txt").exists()
    saved = f"its changes until then are waiting: 1 file ({session_id})"
    assert make_agent_world().sessions.recover() == [saved]


@needs_sandbox
def test_git_shows_an_agent_what_it_changed(make_world: MakeWorld, repository: Repository):
    """Agents run git in their worktree all the time. There it reads the repository."""
    repository.commit("Begin", {"a.txt": "a\n"})
    world = make_world(AgentWorld, repository=repository, sandbox=find_best_sandbox())
    outputs = []

    def change_and_ask_git(live: LiveSession, folder: SessionFolder):
        (folder.path / "a.txt").write_text("changed\n")
        for command in (["git", "status", "--short"], ["git", "log", "--format=%s"]):
            outputs.append(live.execute(command, cwd=folder.path).output)

    world.agent.work = change_and_ask_git
    world.wait(world.begin_prose())
    assert outputs == [" M a.txt\n", "Begin\n"]


def test_changes_that_cannot_be_saved_at_a_stop_are_saved_by_the_next_start(
    make_agent_world: MakeAgentWorld, monkeypatch: pytest.MonkeyPatch
):
    world = make_agent_world(write_and_wait)
    with monkeypatch.context() as patch:
        patch.setattr(world.changes, "capture", raise_disk_full)
        view = stop_session(world, "stopped by you")
        assert view.change_set_id is None
        wait_until(lambda: any("the next start tries again" in line for line in world.read_lines(view, ("error",))))
    assert make_agent_world().sessions.recover()[-1].endswith(f"1 file ({view.id})")
