"""A session from its permit to its end: its commands, what it prints, why it can fail, and its row (SPEC 3.7, 3.8)."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import EventBus
from engine.events.work import SessionOutput
from engine.execution.live_session import LiveSession
from engine.execution.runners import WorkFailed
from engine.execution.session_store import is_legal_transition
from engine.model import Refusal, SessionState, Verdict
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import MakeWorld, ScriptWorld, run_python
from tests.support.checks import refused, wait_until


def test_a_session_goes_from_its_permit_to_its_summary(world: ScriptWorld, database: Database):
    view = world.run(lambda live: run_python(live, "print('hello')\nprint('wörld')") and "said hello")
    assert (view.state, view.summary) == (SessionState.SUCCEEDED, "said hello")
    assert (view.sandbox, view.prediction_id, view.lines) == ("no sandbox", "pred_1", 5)
    assert world.read_lines(view) == ["hello", "wörld"]
    assert "; print(" in world.read_lines(view, ["command"])[0], "two lines do not look like one"
    kinds = [line.kind for line in world.sessions.read_transcript(view.id)]
    assert kinds == ["command", "output", "output", "exit", "note"]
    events = [entry.kind for entry in reversed(Ledger(database).read_newest())]
    assert events == ["SessionQueued", "SessionStarted", "SessionEnded"]
    assert [started.state for started in world.started] == [SessionState.RUNNING]
    assert [(ended.id, ended.state) for ended in world.ended] == [(view.id, SessionState.SUCCEEDED)]
    wait_until(lambda: not (world.home.cache / "scratch" / view.id).exists())


def test_a_permit_is_used_once_and_for_its_assignment_alone(world: ScriptWorld):
    assignment = world.make_assignment(lambda live: "done")
    used, unused = world.make_permit(assignment), world.make_permit(assignment)
    start = partial(world.sessions.start, agent="builder", without_sandbox=True)
    start(used, assignment)
    refused("permit_used", lambda: start(used, assignment))
    refused("permit_mismatch", lambda: start(unused, world.make_assignment("gate")))
    assert len(world.sessions.list_newest()) == 1


def test_a_session_that_cannot_start_uses_no_permit(world: ScriptWorld):
    good = world.make_assignment("gate")
    refused("unknown_channel", lambda: world.begin(replace(good, channel="nowhere")))
    refused("no_runner", lambda: world.begin(replace(good, runner="acp")))
    world.stop_reason = "F12 was pressed"
    with pytest.raises(Refusal, match="F12 was pressed"):
        world.start("gate")
    assert not world.permits.used
    assert world.sessions.list_newest() == []


@pytest.mark.parametrize(
    "error, message",
    [
        (WorkFailed("there is no test runner", "install pytest"), "there is no test runner (install pytest)"),
        (Refusal("git_failed", "git says no"), "git says no"),
        (KeyError("oh \x1b[31mdear"), "unexpected error: KeyError: "),
    ],
)
def test_an_error_of_the_runner_fails_the_session_with_its_message(world: ScriptWorld, error: Exception, message: str):
    def fail(live: LiveSession) -> str:
        raise error

    view = world.run(fail)
    assert view.state is SessionState.FAILED
    assert view.summary.startswith(message)
    assert "\x1b" not in view.summary
    assert world.read_lines(view, ["error"])[-1].startswith(message)


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCK])
def test_the_content_filter_is_asked_before_every_command(make_world: MakeWorld, verdict: Verdict):
    commands = []

    def judge(command: str) -> Verdict:
        commands.append(command)
        return verdict if "rm" in command else Verdict.ALLOW

    world = make_world(verdict=judge)
    (world.workspace / "precious").touch()
    view = world.run(
        lambda live: [live.execute(argv, cwd=live.folder) for argv in (["true"], ["rm", "precious"])] and "not reached"
    )
    assert view.state is SessionState.BLOCKED
    assert "a rule says so" in view.summary
    assert commands == ["true", "rm precious"]
    assert (world.workspace / "precious").exists()


@pytest.mark.long
def test_output_is_published_while_the_session_runs(world: ScriptWorld, bus: EventBus):
    """At most ten times a second, and complete."""
    subscription = bus.subscribe(lambda: None)
    script = (
        "import os, time\n"
        "for n in range(1200):\n"
        "    print('line', n, flush=True); time.sleep(0.0005)\n"
        "    while n == 600 and not os.path.exists('go'): time.sleep(0.01)"
    )
    view = world.start(lambda live: run_python(live, script) and "done")
    wait_until(lambda: len(world.read_lines(view)) > 10)
    assert world.get_state(view) is SessionState.RUNNING
    (world.workspace / "go").touch()
    assert world.wait(view).state is SessionState.SUCCEEDED
    assert world.read_lines(view) == [f"line {number}" for number in range(1200)]
    events = [event for event in subscription.drain() if isinstance(event, SessionOutput)]
    seconds = float(world.read_lines(view, ["exit"])[0].split("·")[1].split()[0])
    assert 1 < len(events) <= seconds * 10 + 3


def test_a_reply_that_nobody_reads_is_refused_with_the_way_out(world: ScriptWorld):
    view = world.start("gate")
    wait_until(lambda: world.runner.started_ids)
    refused("empty_prompt", lambda: world.sessions.reply(view.id, " \x1b[0m "))
    refusal = refused("no_conversation", lambda: world.sessions.reply(view.id, "go on"))
    assert refusal.fix == f"when it has ended, continue it: clawpy propose --continue {view.id} TEXT"
    world.runner.gate.set()
    world.wait(view)
    assert "is not running (finished)" in refused("not_running", lambda: world.sessions.reply(view.id, "go on")).message
    refused("unknown_session", lambda: world.sessions.reply("sess_nobody", "go on"))


def test_a_program_that_is_missing_is_named_with_its_fix(world: ScriptWorld):
    view = world.run(lambda live: live.execute(["no-such-program"], cwd=live.folder).output)
    assert view.state is SessionState.CANNOT_RUN
    assert "no-such-program" in view.summary


STATES = st.sampled_from(list(SessionState))


@given(st.lists(STATES, max_size=8))
def test_a_session_ends_at_most_once_and_never_runs_again(steps: list[SessionState]):
    state, ended = SessionState.QUEUED, 0
    for after in steps:
        if is_legal_transition(state, after):
            assert not state.is_over
            assert after is not SessionState.QUEUED
            state = after
            ended += after.is_over
    assert ended <= 1
