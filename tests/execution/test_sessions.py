"""Sessions: permit, commands, limits, output, and the queue until the next start of the engine (SPEC 3.7, 3.8)."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.config import Settings
from engine.events import EventBus, SessionOutput
from engine.execution import session_run
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import WorkFailed
from engine.execution.session_store import SessionRow
from engine.execution.session_terms import Limits
from engine.model import Refusal, SessionState, SessionView, Verdict
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import PYTHON, SLEEP, MakeWorld, ScriptWorld, run_python
from tests.support.helpers import refused, wait_for_threads, wait_until

# A whole life


def test_a_session_goes_from_its_permit_to_its_summary(world: ScriptWorld, database: Database) -> None:
    view = world.run(lambda live: run_python(live, "print('hello'); print('wörld')") and "said hello")
    assert view.state is SessionState.SUCCEEDED
    assert view.summary == "said hello"
    assert view.sandbox == "no sandbox"
    assert view.prediction_id == "pred_1"
    assert world.texts(view) == ["hello", "wörld"]
    assert [line.kind for line in world.sessions.transcript(view.id)] == ["command", "output", "output", "exit", "note"]
    assert view.lines == 5
    events = [entry.kind for entry in reversed(Ledger(database).latest())]
    assert events == ["SessionQueued", "SessionStarted", "SessionEnded"]
    assert [started.state for started in world.started] == [SessionState.RUNNING]
    ended, *repeated = world.ended
    assert (ended.id, ended.state, repeated) == (view.id, SessionState.SUCCEEDED, [])
    wait_until(lambda: not (world.home.cache / "scratch" / view.id).exists())


def test_a_permit_is_used_once_and_for_its_assignment_alone(world: ScriptWorld) -> None:
    assignment = world.assignment(lambda live: "done")
    permit = world.make_permit(assignment)
    world.sessions.start(permit, assignment, agent="builder", without_sandbox=True)
    with pytest.raises(Refusal, match="used"):
        world.sessions.start(permit, assignment, agent="builder", without_sandbox=True)
    unrelated = world.assignment("gate")
    with pytest.raises(Refusal) as refusal:
        world.sessions.start(permit, unrelated, agent="builder", without_sandbox=True)
    assert refusal.value.code in ("permit_used", "permit_mismatch")
    assert len(world.sessions.list()) == 1


def test_a_session_that_cannot_start_uses_no_permit(world: ScriptWorld) -> None:
    good = world.assignment("gate")
    refused("unknown_channel", lambda: world.begin(replace(good, channel="nowhere")))
    refused("no_runner", lambda: world.begin(replace(good, runner="acp")))
    refused("no_runner", lambda: world.begin(replace(good, flow=None)))
    world.stop_reason = "F12 was pressed"
    with pytest.raises(Refusal, match="F12 was pressed"):
        world.start("gate")
    assert not world.permits.used
    assert world.sessions.list() == []
    refused("unknown_session", lambda: world.sessions.get("sess_nobody"))


def test_an_error_of_the_runner_fails_the_session_with_its_message(
    world: ScriptWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_flow(live: LiveSession) -> str:
        raise WorkFailed("there is no test runner", "install pytest")

    def refuse(live: LiveSession) -> str:
        raise Refusal("git_failed", "git says no")

    def crash(live: LiveSession) -> str:
        raise KeyError("oh \x1b[31mdear")

    for work, message in (
        (fail_flow, "there is no test runner (install pytest)"),
        (refuse, "git says no"),
        (crash, "unexpected error: KeyError: "),
    ):
        view = world.run(work)
        assert view.state is SessionState.FAILED
        assert view.summary.startswith(message)
        assert "\x1b" not in view.summary
        assert world.texts(view, ["error"])[-1].startswith(message)
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCK])
def test_the_content_filter_is_asked_before_every_command(make_world: MakeWorld, verdict: Verdict) -> None:
    commands: list[str] = []

    def judge(command: str) -> Verdict:
        commands.append(command)
        return verdict if "rm" in command else Verdict.ALLOW

    world = make_world(verdict=judge)
    victim = world.workspace / "precious"
    victim.touch()

    def work(live: LiveSession) -> str:
        live.execute(["true"], cwd=live.folder)
        live.execute(["rm", "precious"], cwd=live.folder)
        return "not reached"

    view = world.run(work)
    assert view.state is SessionState.BLOCKED
    assert "a rule says so" in view.summary
    assert commands == ["true", "rm precious"]
    assert victim.exists()


@pytest.mark.long
def test_a_command_has_its_exit_code_its_output_and_its_timeout(world: ScriptWorld) -> None:
    def work(live: LiveSession) -> str:
        assert live.execute([PYTHON, "-c", "raise SystemExit(5)"], cwd=live.folder).exit_code == 5
        assert run_python(live, "import os; print(os.environ['EXTRA'])", env={"EXTRA": "yes"}) == "yes\n"
        slow = live.execute([PYTHON, "-c", SLEEP], cwd=live.folder, timeout=0.3)
        assert (slow.timed_out, slow.exit_code) == (True, 124)
        run_python(live, "print('hidden')", quiet=True)
        return "ok"

    view = world.run(work)
    assert view.summary == "ok"
    assert "hidden" not in world.texts(view)


# Limits


@pytest.mark.parametrize(
    ("mode", "limits"),
    [("approved", Limits(45 * 60, 10 * 60, 1_000_000)), ("autonomous", Limits(120, None, 1_000_000, 50_000))],
)
def test_a_session_has_the_limits_of_its_channel_and_mode(mode: str, limits: Limits) -> None:
    assert Limits.of(Settings().channel("koji-core"), mode) == limits


@pytest.mark.long
@pytest.mark.parametrize(
    ("channel", "span", "message"),
    [
        ({"session_minutes": 45, "session_silence_minutes": 60}, timedelta(minutes=45), "ran for 45 min"),
        ({}, timedelta(minutes=10), "printed nothing for 10 min"),
    ],
)
def test_an_approved_session_ends_at_its_time_limits(
    make_world: MakeWorld, clock: FakeClock, channel: dict[str, object], span: timedelta, message: str
) -> None:
    world = make_world(channel=channel)
    running: list[LiveSession] = []

    def work(live: LiveSession) -> str:
        running.append(live)
        return run_python(live, SLEEP)

    view = world.start(work)
    wait_until(lambda: world.texts(view))
    clock.advance(span - timedelta(microseconds=1))
    assert running[0].find_exceeded_limit() == ""
    clock.advance(timedelta(microseconds=1))
    ended = world.wait(view)
    assert ended.state is SessionState.FAILED
    assert message in ended.summary


def test_a_session_ends_when_it_passes_its_cost_cap(world: ScriptWorld) -> None:
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
    ("minimum", "message"),
    [("MIN_FREE_BYTES", "MB are free on the disk of"), ("MIN_FREE_FILES", "more files")],
)
def test_a_session_ends_when_the_disk_is_nearly_full(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch, minimum: str, message: str
) -> None:
    if minimum == "MIN_FREE_FILES" and os.statvfs(world.workspace).f_files == 0:
        pytest.skip("this file system does not count files")
    view = world.start("gate")
    wait_until(lambda: world.state(view) is SessionState.RUNNING)
    monkeypatch.setattr(session_run, minimum, 1 << 62)
    view = world.wait(view)
    assert view.state is SessionState.FAILED
    assert message in view.summary


# Transcript and events


@pytest.mark.long
def test_output_is_published_while_the_session_runs(world: ScriptWorld, bus: EventBus) -> None:
    subscription = bus.subscribe(lambda: None)
    script = (
        "import os, time\n"
        "for n in range(1200):\n"
        "    print('line', n, flush=True); time.sleep(0.0005)\n"
        "    while n == 600 and not os.path.exists('go'): time.sleep(0.01)"
    )
    view = world.start(lambda live: run_python(live, script) and "done")
    wait_until(lambda: len(world.texts(view)) > 10)
    assert world.state(view) is SessionState.RUNNING
    (world.workspace / "go").touch()
    assert world.wait(view).state is SessionState.SUCCEEDED
    assert world.texts(view) == [f"line {number}" for number in range(1200)]
    events = [event for event in subscription.drain() if isinstance(event, SessionOutput)]
    seconds = float(world.texts(view, ["exit"])[0].split("·")[1].split()[0])
    assert 1 < len(events) <= seconds * 10 + 3
    assert events[-1].last_line == world.sessions.get(view.id).lines
    page = world.sessions.transcript(view.id, after=1100, limit=3)
    assert [(line.number, line.text) for line in page] == [
        (number, f"line {number - 2}") for number in (1101, 1102, 1103)
    ]


def test_the_watch_ends_with_the_last_session(world: ScriptWorld) -> None:
    world.run(lambda live: "done")
    wait_for_threads("clawpy-session-watch")


# The queue


def test_the_limit_on_running_sessions_holds_and_the_queue_keeps_its_order(world: ScriptWorld) -> None:
    views = [world.start("gate") for _ in range(5)]
    wait_until(lambda: len(world.runner.started_ids) == 2)
    assert [world.state(view) for view in views] == [SessionState.RUNNING] * 2 + [SessionState.QUEUED] * 3
    assert {view.id for view in world.sessions.running()} == {views[0].id, views[1].id}
    with pytest.raises(Refusal, match="has not started"):
        world.sessions.reply(views[3].id, "not yet")
    world.sessions.stop(views[3].id, "changed my mind")
    assert world.state(views[3]) is SessionState.CANCELLED
    world.runner.gate.set()
    for index in (0, 1, 2, 4):
        assert world.wait(views[index]).state is SessionState.SUCCEEDED
    assert sorted(world.runner.started_ids[:2]) == sorted(view.id for view in views[:2])
    assert sorted(world.runner.started_ids[2:]) == sorted([views[2].id, views[4].id])


def test_a_session_that_begins_while_the_running_ones_are_read_is_listed_once(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_begin = threading.Event()
    begin, read = world.sessions.begin, world.sessions.load_rows

    def begin_late(session_id: str, sandbox: str) -> SessionView | None:
        may_begin.wait(10)
        return begin(session_id, sandbox)

    def read_slowly(limit: int | None = None, **equal: str | None) -> list[SessionRow]:
        rows = read(limit, **equal)
        may_begin.set()
        wait_until(lambda: world.state(view) is SessionState.RUNNING)
        return rows

    monkeypatch.setattr(world.sessions, "begin", begin_late)
    view = world.start("gate")
    monkeypatch.setattr(world.sessions, "load_rows", read_slowly)
    assert [(running.id, running.state) for running in world.sessions.running()] == [(view.id, SessionState.RUNNING)]


def test_a_session_that_waits_for_a_person_lets_another_run(make_world: MakeWorld) -> None:
    world = make_world(settings=Settings(max_running_sessions=1))
    answered = threading.Event()

    def ask(live: LiveSession) -> str:
        with live.pause_clock():
            wait_until(lambda: answered.is_set() or live.stop_requested)
        return "answered"

    waiting = world.start(ask)
    second = world.run(lambda live: "done meanwhile")
    assert second.state is SessionState.SUCCEEDED
    assert world.state(waiting) is SessionState.RUNNING
    answered.set()
    assert world.wait(waiting).summary == "answered"


def close_with_queue(world: ScriptWorld, number: int) -> list[SessionView]:
    """Close an engine after the start of so many sessions, of which two run."""
    views = [world.start("gate") for _ in range(number)]
    wait_until(lambda: len(world.runner.started_ids) == 2)
    world.sessions.close()
    return views


def test_close_ends_running_sessions_and_keeps_the_queue(world: ScriptWorld) -> None:
    views = close_with_queue(world, 3)
    assert [world.state(view) for view in views] == [SessionState.CANCELLED] * 2 + [SessionState.QUEUED]
    with pytest.raises(Refusal, match="closing"):
        world.start("gate")


def test_recover_without_resume_keeps_the_queue(make_world: MakeWorld) -> None:
    views = close_with_queue(make_world(), 4)

    brief = make_world()
    assert [message.partition("(")[0] for message in brief.sessions.recover(resume=False)] == [
        "“do it” waits for the console "
    ] * 2
    brief.sessions.stop(views[2].id, "undone")
    brief.sessions.close()
    assert [brief.state(view) for view in views[2:]] == [SessionState.CANCELLED, SessionState.QUEUED]
    assert brief.runner.started_ids == []

    lasting = make_world()
    lasting.runner.gate.set()
    lasting.sessions.recover()
    assert lasting.sessions.wait(views[3].id, 20).state is SessionState.SUCCEEDED


def test_stop_all_ends_sessions_that_wait_for_another_engine(make_world: MakeWorld) -> None:
    views = close_with_queue(make_world(), 3)
    brief = make_world()
    brief.sessions.recover(resume=False)
    assert brief.sessions.stop_all("enough") == 1
    assert brief.state(views[2]) is SessionState.CANCELLED
