"""Sessions: permit, commands, limits, transcript, transitions (SPEC 3.7, 3.8)."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus, SessionOutput
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import FlowError
from engine.execution.session_store import LEGAL_TRANSITIONS, is_legal_transition
from engine.model import Refusal, SessionState, Verdict
from engine.prediction.lifecycle import OUTCOMES
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import PYTHON, SLEEP, World, shell, until


def kinds(database: Database) -> list[str]:
    return [entry.kind for entry in reversed(Ledger(database).latest())]


# A whole life


def test_a_session_from_permit_to_summary(world: World, database: Database) -> None:
    view = world.run(lambda live: shell(live, "print('hello'); print('wörld')") and "said hello")
    assert view.state is SessionState.SUCCEEDED
    assert view.summary == "said hello"
    assert view.sandbox == "no sandbox"
    assert view.prediction_id == "pred_1"
    assert world.texts(view) == ["hello", "wörld"]
    assert [line.kind for line in world.sessions.transcript(view.id)] == ["command", "output", "output", "exit", "note"]
    assert view.lines == 5
    assert kinds(database) == ["SessionQueued", "SessionStarted", "SessionEnded"]
    assert [started.state for started in world.watcher.started] == [SessionState.RUNNING]
    ended, *more = world.watcher.ended
    assert (ended.id, ended.state, more) == (view.id, SessionState.SUCCEEDED, [])
    until(lambda: not (world.home.cache / "scratch" / view.id).exists())


def test_a_permit_is_good_once_and_for_one_thing(world: World) -> None:
    assignment = world.assignment(lambda live: "done")
    permit = world.permit(assignment)
    world.sessions.start(permit, assignment, agent="builder", without_sandbox=True)
    with pytest.raises(Refusal, match="used"):
        world.sessions.start(permit, assignment, agent="builder", without_sandbox=True)
    other = world.assignment("gate")
    with pytest.raises(Refusal) as refusal:
        world.sessions.start(permit, other, agent="builder", without_sandbox=True)
    assert refusal.value.code in ("permit_used", "permit_mismatch")
    assert len(world.sessions.list()) == 1


def test_what_cannot_start_is_refused_and_uses_no_permit(world: World) -> None:
    good = world.assignment("gate")
    for change, code in (
        ({"channel": "nowhere"}, "unknown_channel"),
        ({"runner": "acp"}, "no_runner"),
        ({"flow": None}, "no_runner"),
    ):
        bad = replace(good, **change)  # type: ignore[arg-type]
        with pytest.raises(Refusal) as refusal:
            world.sessions.start(world.permit(bad), bad, agent="builder", without_sandbox=True)
        assert refusal.value.code == code
    world.brakes.reason = "F12 was pressed"
    with pytest.raises(Refusal, match="F12 was pressed"):
        world.start("gate")
    assert not world.permits.used
    assert world.sessions.list() == []
    with pytest.raises(Refusal) as refusal:
        world.sessions.get("sess_nobody")
    assert refusal.value.code == "unknown_session"


def test_errors_of_every_kind_end_it_with_words(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def unable(live: LiveSession) -> str:
        raise FlowError("there is no test runner", "install pytest")

    def refused(live: LiveSession) -> str:
        raise Refusal("git_failed", "git says no")

    def broken(live: LiveSession) -> str:
        raise KeyError("oh \x1b[31mdear")

    for work, words in (
        (unable, "there is no test runner (install pytest)"),
        (refused, "git says no"),
        (broken, "unexpected error: KeyError: "),
    ):
        view = world.run(work)
        assert view.state is SessionState.FAILED
        assert view.summary.startswith(words)
        assert "\x1b" not in view.summary
        assert world.texts(view, ["error"])[-1].startswith(words)
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCK])
def test_the_content_filter_is_asked_before_every_command(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, verdict: Verdict
) -> None:
    commands: list[str] = []

    def judge(command: str) -> Verdict:
        commands.append(command)
        return verdict if "rm" in command else Verdict.ALLOW

    world = World(tmp_path, database, clock, bus, verdict=judge)
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
    world.sessions.close()


@pytest.mark.long
def test_command_results(world: World) -> None:
    results: dict[str, Any] = {}

    def work(live: LiveSession) -> str:
        results["code"] = live.execute([PYTHON, "-c", "raise SystemExit(5)"], cwd=live.folder).exit_code
        results["env"] = live.execute(
            [PYTHON, "-c", "import os; print(os.environ['EXTRA'])"], cwd=live.folder, env={"EXTRA": "yes"}
        ).output
        results["slow"] = live.execute([PYTHON, "-c", SLEEP], cwd=live.folder, timeout=0.3)
        live.execute([PYTHON, "-c", "print('hidden')"], cwd=live.folder, quiet=True)
        return "ok"

    view = world.run(work)
    assert results["code"] == 5
    assert results["env"] == "yes\n"
    assert results["slow"].timed_out
    assert results["slow"].exit_code == 124
    assert "hidden" not in world.texts(view)


# Limits


@pytest.mark.long
@pytest.mark.parametrize(
    ("channel", "span", "words"),
    [
        ({"session_minutes": 45, "session_silence_minutes": 60}, timedelta(minutes=45), "ran for 45 min"),
        ({}, timedelta(minutes=10), "printed nothing for 10 min"),
    ],
)
def test_time_limits_of_approved_sessions(
    tmp_path: Path,
    database: Database,
    clock: FakeClock,
    bus: EventBus,
    channel: dict[str, object],
    span: timedelta,
    words: str,
) -> None:
    world = World(tmp_path, database, clock, bus, channel=channel)
    view = world.start(lambda live: shell(live, SLEEP))
    until(lambda: world.texts(view))
    clock.advance(span - timedelta(microseconds=1))
    live = world.sessions._live[view.id]
    assert live.exceeded_limit() == ""
    clock.advance(timedelta(microseconds=1))
    ended = world.sessions.wait(view.id, 5)
    assert ended.state is SessionState.FAILED
    assert words in ended.summary
    world.sessions.close()


def test_cost_cap_ends_it_while_it_runs(world: World) -> None:
    spent: list[int] = []

    def work(live: LiveSession) -> str:
        for _ in range(100):
            live.charge(100_000, tokens=10)
            spent.append(1)
        return "not reached"

    view = world.run(work)
    assert view.state is SessionState.FAILED
    assert len(spent) == 10  # $1.00 is allowed, the next cent is not
    assert view.summary == "it spent $1.10 of $1.00"
    assert view.cost == 1_100_000
    assert view.tokens == 110


# Transcript and events


@pytest.mark.long
def test_output_streams_while_it_runs(world: World, bus: EventBus) -> None:
    subscription = bus.subscribe(lambda: None)
    script = "import time\nfor n in range(1200): print('line', n, flush=True); time.sleep(0.0005)"
    view = world.start(lambda live: shell(live, script) and "done")
    until(lambda: len(world.texts(view)) > 10)
    assert world.state(view) is SessionState.RUNNING
    assert world.sessions.wait(view.id, 30).state is SessionState.SUCCEEDED
    assert world.texts(view) == [f"line {n}" for n in range(1200)]
    events = [event for event in subscription.drain() if isinstance(event, SessionOutput)]
    seconds = float(world.texts(view, ["exit"])[0].split("·")[1].split()[0])
    assert 1 < len(events) <= seconds * 10 + 3
    assert events[-1].last_line == world.sessions.get(view.id).lines
    page = world.sessions.transcript(view.id, after=1100, limit=3)
    assert [(line.number, line.text) for line in page] == [(n, f"line {n - 2}") for n in (1101, 1102, 1103)]


def test_nothing_wakes_up_when_nothing_runs(world: World) -> None:
    world.run(lambda live: "done")
    until(lambda: not any(thread.name.startswith("clawpy-supervisor") for thread in threading.enumerate()))


# Transitions


STATES = st.sampled_from(list(SessionState))


@given(st.lists(STATES, max_size=8))
def test_whatever_is_asked_only_legal_steps_are_taken(steps: list[SessionState]) -> None:
    state, ended = SessionState.QUEUED, 0
    for after in steps:
        if is_legal_transition(state, after):
            assert not state.over
            assert after is not SessionState.QUEUED
            state = after
            ended += after.over
    assert ended <= 1
    assert set(LEGAL_TRANSITIONS) == {SessionState.QUEUED, SessionState.RUNNING}


@given(STATES)
def test_exactly_what_is_over_gives_its_card_an_outcome(state: SessionState) -> None:
    assert (state in OUTCOMES) == state.over
