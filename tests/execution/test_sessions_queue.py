"""Sessions: how many run, who waits, and what becomes of the queue (SPEC 3.8)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import Settings
from engine.events import EventBus
from engine.execution.live_session import LiveSession
from engine.model import Refusal, SessionState
from engine.storage.database import Database
from tests.execution.session_world import World, until


def test_at_most_so_many_run_and_the_rest_in_order(world: World) -> None:
    views = [world.start("gate") for _ in range(5)]
    until(lambda: len(world.runner.begun) == 2)
    assert [world.state(view) for view in views] == [SessionState.RUNNING] * 2 + [SessionState.QUEUED] * 3
    assert {view.id for view in world.sessions.running()} == {views[0].id, views[1].id}
    with pytest.raises(Refusal, match="has not started"):
        world.sessions.reply(views[3].id, "not yet")
    world.sessions.stop(views[3].id, "changed my mind")
    assert world.state(views[3]) is SessionState.CANCELLED
    world.runner.gate.set()
    for index in (0, 1, 2, 4):
        assert world.sessions.wait(views[index].id, 5).state is SessionState.SUCCEEDED
    assert sorted(world.runner.begun[:2]) == sorted(view.id for view in views[:2])
    assert sorted(world.runner.begun[2:]) == sorted([views[2].id, views[4].id])


def test_who_waits_longest_is_next(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=1))
    views = [world.start("gate") for _ in range(6)]
    world.runner.gate.set()
    for view in views:
        assert world.sessions.wait(view.id, 10).state is SessionState.SUCCEEDED
    assert world.runner.begun == [view.id for view in views]
    world.sessions.close()


def test_who_waits_for_a_person_gives_the_seat_away(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=1))
    answered = threading.Event()

    def asks(live: LiveSession) -> str:
        with live.pause_clock():
            until(lambda: answered.is_set() or live.cancelled)
        return "answered"

    asking = world.start(asks)
    other = world.run(lambda live: "done meanwhile")
    assert other.state is SessionState.SUCCEEDED
    assert world.state(asking) is SessionState.RUNNING
    answered.set()
    assert world.sessions.wait(asking.id, 10).summary == "answered"
    world.sessions.close()


def test_close_ends_what_runs_and_keeps_the_queue(world: World) -> None:
    views = [world.start("gate") for _ in range(3)]
    until(lambda: len(world.runner.begun) == 2)
    world.sessions.close()
    assert [world.state(view) for view in views] == [SessionState.CANCELLED] * 2 + [SessionState.QUEUED]
    with pytest.raises(Refusal, match="closing"):
        world.start("gate")


def test_who_does_not_stay_leaves_the_queue_alone(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    first = World(tmp_path, database, clock, bus)
    views = [first.start("gate") for _ in range(4)]
    until(lambda: len(first.runner.begun) == 2)
    first.sessions.close()

    brief = World(tmp_path, database, clock, bus)
    assert [message.partition("(")[0] for message in brief.sessions.recover(resume=False)] == [
        "“do it” waits for the console "
    ] * 2
    brief.sessions.stop(views[2].id, "undone")
    brief.sessions.close()
    assert [brief.state(view) for view in views[2:]] == [SessionState.CANCELLED, SessionState.QUEUED]
    assert brief.runner.begun == []

    lasting = World(tmp_path, database, clock, bus)
    lasting.runner.gate.set()
    lasting.sessions.recover()
    assert lasting.sessions.wait(views[3].id, 5).state is SessionState.SUCCEEDED
    lasting.sessions.close()


def test_stop_all_ends_what_waits_for_another_engine(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    first = World(tmp_path, database, clock, bus)
    views = [first.start("gate") for _ in range(3)]
    until(lambda: len(first.runner.begun) == 2)
    first.sessions.close()
    brief = World(tmp_path, database, clock, bus)
    brief.sessions.recover(resume=False)
    assert brief.sessions.stop_all("enough") == 1
    assert brief.state(views[2]) is SessionState.CANCELLED


def test_more_may_run_when_the_setting_says_so(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=3))
    for _ in range(4):
        world.start("gate")
    until(lambda: len(world.runner.begun) == 3)
    world.runner.gate.set()
    until(lambda: len(world.runner.begun) == 4)
    world.sessions.close()
