"""A stopped session ends within a second with all that it started; how many run at once, and in which order others
follow (SPEC 3.7, 3.8)."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config.settings import Settings
from engine.execution.live_session import LiveSession
from engine.execution.processes import Processes, ProcessesClosed
from engine.execution.session_processes import find_marked_processes
from engine.model import Refusal, SessionState, SessionView
from engine.randomness import Randomness
from tests.execution.session_world import SLEEP, MakeWorld, ScriptWorld, run_python
from tests.support.checks import wait_for_threads, wait_until
from tests.support.programs import is_alive


@contextmanager
def assert_done_within_a_second() -> Iterator[None]:
    """Check that the block takes a second, and what a loaded machine takes."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 8


@pytest.mark.long
def test_stop_ends_all_processes_of_a_session_within_a_second(world: ScriptWorld):
    family = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        f"subprocess.Popen([sys.executable, '-c', {'import signal; signal.signal(15, signal.SIG_IGN); ' + SLEEP!r}],"
        " start_new_session=True)\n"
        "time.sleep(60)"
    )
    view = world.start(lambda live: run_python(live, family))
    wait_until(lambda: len(world.read_lines(view)) == 2)
    pids = [int(text) for text in world.read_lines(view)]
    with assert_done_within_a_second():
        world.sessions.stop(view.id, "the operator said so")
        ended = world.wait(view)
    assert not any(is_alive(pid) for pid in pids)
    assert find_marked_processes(view.id) == []
    assert ended.state is SessionState.CANCELLED
    assert ended.summary == "the operator said so"
    assert world.ended[0].state is SessionState.CANCELLED
    world.sessions.stop(view.id, "again")
    assert world.sessions.get(view.id).summary == "the operator said so"


@pytest.mark.long
def test_a_session_whose_thread_does_not_return_is_ended_without_it(world: ScriptWorld):
    release = threading.Event()

    def ignore_stop(live: LiveSession) -> str:
        live.charge(10_000)
        live.reserve_cost(30_000)
        release.wait(20)
        live.charge(1_000)
        return "too late"

    view = world.start(ignore_stop)
    wait_until(lambda: world.runner.started_ids)
    with assert_done_within_a_second():
        world.sessions.stop(view.id, "enough")
        assert world.wait(view).state is SessionState.CANCELLED
    release.set()
    wait_for_threads(f"clawpy-{view.id}")
    assert world.sessions.get(view.id).summary == "enough"
    assert world.sessions.get(view.id).cost == 40_000, "a call without a price counts as reserved"
    assert len(world.ended) == 1


def test_no_command_starts_after_the_end_of_its_session(tmp_path: Path):
    processes = Processes(Randomness().new_id("sess"))
    processes.end()
    with pytest.raises(ProcessesClosed):
        processes.run(["true"], cwd=tmp_path, env={}, on_output=lambda chunk: None)


# The queue


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


def test_stop_all_ends_sessions_that_wait_for_another_engine(make_world: MakeWorld):
    views = close_with_queue(make_world(), 3)
    brief = make_world()
    brief.sessions.recover(resume=False)
    assert brief.sessions.stop_all("enough") == 1
    assert brief.get_state(views[2]) is SessionState.CANCELLED
