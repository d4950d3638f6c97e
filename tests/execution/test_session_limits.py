"""A session ends at the limits of time, silence, cost and disk (SPEC 3.4, 3.8)."""

import os
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.config.settings import Settings
from engine.execution import session_limits, session_run
from engine.execution.live_session import LiveSession
from engine.execution.session_limits import Limits
from engine.model import SessionState
from tests.execution.session_world import SLEEP, MakeWorld, ScriptWorld, run_python
from tests.support.checks import wait_until


@pytest.mark.parametrize(
    "mode, limits",
    [("approved", Limits(45 * 60, 10 * 60, 1_000_000)), ("autonomous", Limits(120, None, 1_000_000, 50_000))],
)
def test_a_session_has_the_limits_of_its_channel_and_mode(mode: str, limits: Limits):
    assert Limits.of(Settings().get_channel("koji-core"), mode) == limits


@pytest.mark.long
@pytest.mark.parametrize(
    "channel, span, message",
    [
        ({"session_minutes": 45, "session_silence_minutes": 60}, timedelta(minutes=45), "ran for 45 min"),
        ({}, timedelta(minutes=10), "printed nothing for 10 min"),
    ],
)
def test_an_approved_session_ends_at_its_time_limits(
    make_world: MakeWorld, clock: FakeClock, channel: dict[str, object], span: timedelta, message: str
):
    world = make_world(channel=channel)
    running = []

    def work(live: LiveSession) -> str:
        running.append(live)
        return run_python(live, SLEEP)

    view = world.start(work)
    wait_until(lambda: world.read_lines(view))
    clock.advance(span - timedelta(microseconds=1))
    assert running[0].explain_exceeded_limit() == ""
    clock.advance(timedelta(microseconds=1))
    ended = world.wait(view)
    assert ended.state is SessionState.FAILED
    assert message in ended.summary


def test_a_session_ends_when_it_passes_its_cost_cap(world: ScriptWorld):
    dollar_tenth = 100_000  # micro-dollars

    def work(live: LiveSession) -> str:
        for _ in range(100):
            live.charge(dollar_tenth, tokens=10)
        return "not reached"

    view = world.run(work)
    assert view.state is SessionState.FAILED
    assert view.summary == "it spent $1.10 of $1.00"
    assert view.cost == 1_100_000
    assert view.tokens == 110


@pytest.mark.parametrize(
    "minimum, message", [("MIN_FREE_BYTES", "MB are free on the disk of"), ("MIN_FREE_FILES", "more files")]
)
def test_a_session_ends_when_the_disk_is_nearly_full(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch, minimum: str, message: str
):
    if not os.statvfs(world.workspace).f_files:
        pytest.skip("this file system does not count files")
    view = world.start("gate")
    monkeypatch.setattr(session_limits, minimum, 1 << 62)
    view = world.wait(view)
    assert view.state is SessionState.FAILED
    assert message in view.summary


@pytest.mark.parametrize(
    "calls, state, not_begun",
    [(0, SessionState.CANNOT_RUN, True), (1, SessionState.FAILED, False)],
    ids=["first call", "later call"],
)
def test_a_call_that_may_cost_too_much_is_not_made(
    world: ScriptWorld, calls: int, state: SessionState, not_begun: bool
):
    def work(live: LiveSession) -> str:
        for _ in range(calls):
            live.reserve_cost(400_000)
            live.charge(300_000)
        live.reserve_cost(1_000_001)
        return "not reached"

    view = world.run(work)
    assert (view.state, view.not_begun) == (state, not_begun)
    assert view.summary.startswith(f"the next call may cost $1.00; it spent ${0.3 * calls:.2f} of $1.00; raise it: `")


def test_a_session_whose_transcript_cannot_be_written_ends(world: ScriptWorld, monkeypatch: pytest.MonkeyPatch):
    view = world.start("gate")
    wait_until(lambda: world.get_state(view) is SessionState.RUNNING)

    def fail(watch: object, live: LiveSession):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_run.SessionWatch, "publish_output", fail)
    ended = world.wait(view)
    assert (ended.state, ended.summary) == (
        SessionState.FAILED,
        "its transcript cannot be written: No space left on device",
    )
