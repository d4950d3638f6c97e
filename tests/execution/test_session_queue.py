"""How many sessions run at once, in which order others follow, what a closed engine leaves of them (SPEC 3.8)."""

import threading

import pytest

from engine.config import Settings
from engine.execution.live_session import LiveSession
from engine.model import Refusal, SessionState, SessionView
from tests.execution.session_world import MakeWorld, ScriptWorld
from tests.support.helpers import wait_until


def close_with_queue(world: ScriptWorld, number: int) -> list[SessionView]:
    """Close an engine after the start of so many sessions, of which two run."""
    views = [world.start("gate") for _ in range(number)]
    wait_until(lambda: len(world.runner.started_ids) == 2)
    world.sessions.close()
    return views


def test_the_limit_on_running_sessions_holds_and_the_queue_keeps_its_order(world: ScriptWorld):
    views = [world.start("gate") for _ in range(5)]
    wait_until(lambda: len(world.runner.started_ids) == 2)
    assert [world.get_state(view) for view in views] == [SessionState.RUNNING] * 2 + [SessionState.QUEUED] * 3
    world.sessions.stop(views[3].id, "changed my mind")
    assert world.get_state(views[3]) is SessionState.CANCELLED
    world.runner.gate.set()
    for view in (*views[:3], views[4]):
        assert world.wait(view).state is SessionState.SUCCEEDED
    assert set(world.runner.started_ids[2:]) == {views[2].id, views[4].id}


def test_a_session_that_waits_for_a_person_lets_another_run(make_world: MakeWorld):
    world = make_world(settings=Settings(max_running_sessions=1))
    answered = threading.Event()

    def ask(live: LiveSession) -> str:
        with live.pause_clock():
            wait_until(lambda: answered.is_set() or live.stop_requested)
        return "answered"

    waiting = world.start(ask)
    second = world.run(lambda live: "done meanwhile")
    assert second.state is SessionState.SUCCEEDED
    assert world.get_state(waiting) is SessionState.RUNNING
    answered.set()
    assert world.wait(waiting).summary == "answered"


def test_close_ends_running_sessions_and_keeps_the_queue(world: ScriptWorld):
    views = close_with_queue(world, 3)
    assert [world.get_state(view) for view in views] == [SessionState.CANCELLED] * 2 + [SessionState.QUEUED]
    with pytest.raises(Refusal, match="closing"):
        world.start("gate")


def test_recover_without_resume_keeps_the_queue(make_world: MakeWorld):
    views = close_with_queue(make_world(), 4)

    brief = make_world()
    assert [message.partition("(")[0] for message in brief.sessions.recover(resume=False)] == [
        "“do it” waits for the console "
    ] * 2
    brief.sessions.stop(views[2].id, "undone")
    brief.sessions.close()
    assert [brief.get_state(view) for view in views[2:]] == [SessionState.CANCELLED, SessionState.QUEUED]
    assert brief.runner.started_ids == []

    lasting = make_world()
    lasting.runner.gate.set()
    lasting.sessions.recover()
    assert lasting.sessions.wait(views[3].id, 20).state is SessionState.SUCCEEDED


def test_stop_all_ends_sessions_that_wait_for_another_engine(make_world: MakeWorld):
    views = close_with_queue(make_world(), 3)
    brief = make_world()
    brief.sessions.recover(resume=False)
    assert brief.sessions.stop_all("enough") == 1
    assert brief.get_state(views[2]) is SessionState.CANCELLED
