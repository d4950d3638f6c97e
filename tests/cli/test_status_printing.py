"""What `clawpy status` prints of the document of an engine: what happened while you were away, and what waits now (SPEC
9.3, 9.8)."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.cli.printing import format_time, render_document
from engine.activity import ActivitySince, BlockedWork
from engine.api.documents import document as as_json
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.home import Home
from engine.model import CheckResult, SessionState, Verdict, Waiting
from tests.api.stand_in import StandIn, make_session
from tests.conftest import MONDAY_MORNING as NOW

TIME = format_time(as_json(NOW))
NOTHING = {"ended_sessions": (), "blocked": (), "approved": 0, "approved_by_itself": 0, "rejected": 0, "spent": 0}


@pytest.fixture
def engine(home: Home, clock: FakeClock) -> Iterator[StandIn]:
    with closing(StandIn(home, clock)) as engine:
        yield engine


def print_status(engine: StandIn, **activity: Any) -> list[str]:
    """The lines of the status of an engine with this activity since `NOW`."""
    engine.read_activity = lambda: ActivitySince(instant=NOW, **NOTHING | {"waiting": ()} | activity)
    return render_document("status", dispatch(engine, "status", {})).splitlines()


def select_below(lines: list[str], beginning: str) -> list[str]:
    """The line that begins like this, and those that stand below it, farther in."""
    start = next(number for number, line in enumerate(lines) if line.startswith(beginning))
    rest = [number for number, line in enumerate(lines) if number > start and not line.startswith("    ")]
    return lines[start : min(rest, default=len(lines))]


def test_what_waits_is_named_in_one_line_each(engine: StandIn):
    engine.list_waiting = lambda: [
        Waiting("change_set", "change_1", "land 1 file?", NOW),
        Waiting("permission", "perm_1", "fix it\n" * 99, NOW),
    ]
    assert [line for line in print_status(engine) if "needs you" in line] == [
        "  needs you  change_1  land 1 file?",
        f"  needs you  perm_1  {'fix it ' * 14}f…",
    ]


def test_of_what_keeps_it_from_acting_the_first_is_named_and_the_others_are_counted(engine: StandIn):
    missing = ("autonomous mode is off", "quiet hours", "the Twin is still learning")
    engine.autonomy.describe_requirements = lambda workspaces: SimpleNamespace(
        missing=missing, words=f"does not act by itself yet: {', '.join(missing)}"
    )
    assert "  does not act by itself yet: autonomous mode is off, and for 2 other reasons" in print_status(engine)


def test_of_the_sessions_that_ran_the_five_newest_are_listed(engine: StandIn):
    states = [SessionState.FAILED, SessionState.CANNOT_RUN, *[SessionState.SUCCEEDED] * 6]
    ended = [
        make_session(f"sess_{number}", "", NOW, state=state, prompt=f"run {number}", mode="approved")
        for number, state in enumerate(states, 1)
    ]
    red = make_session("sess_0", "", NOW, prompt="run 0", check=CheckResult("pytest", passed=0, failed=1))
    by_itself = make_session("sess_9", "", NOW, prompt="run 9", mode="autonomous")
    assert select_below(print_status(engine, ended_sessions=(red, *ended, by_itself)), "  done") == [
        "  done       10 sessions, 1 found a problem, 2 did not finish",
        f"    {TIME}  finished  by itself: run 9",
        *(f"    {TIME}  finished  run {number}" for number in (8, 7, 6, 5)),
        "    and 5 earlier ones; `clawpy work` lists them",
    ]


def test_work_that_was_blocked_alike_is_one_line_with_one_reason(engine: StandIn):
    reason = "autonomous mode is off; quiet hours"
    blocked = 3 * (BlockedWork(NOW, "pred_1", "lint", "gate", Verdict.ASK, reason, "autonomy"),)
    assert select_below(print_status(engine, blocked=blocked), "  blocked") == [
        "  blocked    3 by the rails: gate 3",
        f"    {TIME}  gate  lint: autonomous mode is off, and for 1 other reason  (3 times)",
    ]


def test_decisions_are_counted_with_those_that_could_not_run(engine: StandIn):
    ended = (make_session("sess_1", "", NOW, state=SessionState.CANNOT_RUN, mode="approved"),)
    lines = print_status(engine, ended_sessions=ended, approved=8, decisions=7)
    assert [line for line in lines if line.startswith(("  approved", "  dismissed", "  learned"))] == [
        "  approved   8, 1 could not run",
        "  dismissed  0",
        "  learned    nothing new, from 7 decisions",
    ]


def test_nothing_is_said_of_a_time_in_which_nothing_happened(engine: StandIn):
    assert f"since {TIME}" not in print_status(engine)
