"""The signals (SPEC 2.1, 2.2): what raises silence, tasks, sessions, conversations, work that waits and
meetings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from engine.git.github import GitHubState, PullRequest
from engine.git.state import FileState, GitState, Touch
from engine.model import CheckResult, Refusal, SessionState, Thread
from engine.prediction.context_reader import CalendarReader
from engine.prediction.signals import (
    ANY_NEW_FILE,
    MEETINGS_AHEAD,
    Meeting,
    OurWrite,
    compute_session_relevance,
    compute_thread_relevance,
    find_last_activity,
    find_related_task,
    make_calendar_signal,
    make_continuation_signal,
    make_conversations_signal,
    make_git_signal,
    make_silence_signal,
    make_tasks_signal,
)
from tests.prediction.sensing import NOW, make_session, task

HALF_HOUR = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("silence", "relevance"),
    [
        (None, 0.0),
        (timedelta(0), 0.0),
        (timedelta(minutes=15), 0.5),
        (timedelta(minutes=29, seconds=59), pytest.approx(1.0, abs=0.001)),
        (HALF_HOUR, 1.0),
        (timedelta(days=3), 1.0),
    ],
)
def test_silence_grows_to_one_at_the_threshold(silence: timedelta | None, relevance: float) -> None:
    assert make_silence_signal(silence, HALF_HOUR, NOW).relevance == relevance


EDIT, BEFORE = NOW - timedelta(minutes=5), NOW - timedelta(hours=2)
LANDING = OurWrite("cart.py", EDIT - timedelta(seconds=1), EDIT)
CHECK = OurWrite(ANY_NEW_FILE, EDIT, NOW)
MOMENT, DAY = timedelta(microseconds=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("last_input", "touch", "ours", "expected"),
    [
        (None, None, None, None),
        (NOW - timedelta(minutes=2), Touch("cart.py", EDIT), None, NOW - timedelta(minutes=2)),
        (BEFORE, Touch("cart.py", EDIT), None, EDIT),
        (None, Touch("cart.py", EDIT), LANDING, None),
        (None, Touch("other.py", EDIT), LANDING, EDIT),
        (None, Touch("cart.py", EDIT + MOMENT), LANDING, EDIT + MOMENT),
        (None, Touch("coverage.xml", EDIT, untracked=True), CHECK, None),
        (None, Touch("coverage.xml", EDIT - MOMENT, untracked=True), CHECK, EDIT - MOMENT),
        (None, Touch("cart.py", EDIT), CHECK, EDIT),
        (None, Touch("from the future", NOW + DAY), None, None),
        (None, Touch("a clock that is a bit off", NOW + timedelta(minutes=1)), None, NOW),
        (NOW + timedelta(hours=1), Touch("from the future", NOW + DAY), None, NOW),
    ],
)
def test_input_and_edits_are_activity_and_our_own_writes_are_none(
    last_input: datetime | None, touch: Touch | None, ours: OurWrite | None, expected: datetime | None
) -> None:
    assert find_last_activity(NOW, last_input, [touch] if touch else [], [ours] if ours else []) == expected


def test_the_stalest_task_counts_and_is_named_first() -> None:
    tasks = [task("ship it", timedelta(hours=1)), task("cart rounding", timedelta(days=4))]
    collected = make_tasks_signal(tasks, NOW)
    assert collected.evidence[0] == "“cart rounding”, unchanged since 1 January"
    assert collected.relevance == pytest.approx(0.3 + 0.7 * 4 / 7)
    assert make_tasks_signal([task("x", timedelta(days=7))], NOW).relevance == 1.0
    assert make_tasks_signal([task("x", timedelta(days=70))], NOW).relevance == 1.0


def test_a_task_is_related_to_a_text_with_a_word_of_its_title() -> None:
    tasks = [task("rounding in the cart", timedelta(days=7))]
    assert find_related_task(tasks, "Run the tests of cart.py") == tasks[0]
    assert find_related_task(tasks, "branches") is None


def test_a_session_that_was_left_open_is_more_relevant_than_one_that_ended_well() -> None:
    failed = make_session(state=SessionState.FAILED, ended_at=NOW)
    assert compute_session_relevance(failed, NOW) == 1.0
    assert compute_session_relevance(make_session(check=CheckResult("pytest", 3, 1), ended_at=NOW), NOW) == 0.8
    assert compute_session_relevance(make_session(ended_at=NOW), NOW) == 0.4
    assert compute_session_relevance(make_session(state=SessionState.RUNNING, ended_at=None), NOW) == 0.0
    assert make_continuation_signal([failed], NOW, {"run_tests"}).relevance == 1.0
    assert make_continuation_signal([failed], NOW, {"bisect"}).relevance == 0.0, "a card of another kind"
    assert compute_session_relevance(failed, NOW + timedelta(hours=12)) == pytest.approx(0.5)
    assert compute_session_relevance(failed, NOW + timedelta(hours=24)) == 0.0


def make_thread(ago: timedelta = timedelta(0), *, asks: str = "", unanswered: bool = False) -> Thread:
    """A conversation with another agent that grew last some time `ago`."""
    return Thread("claude-code:s1", "Claude Code", "/w", "Add the cart", asks, unanswered, NOW - ago)


def test_an_open_question_of_another_agent_is_as_relevant() -> None:
    assert compute_thread_relevance(make_thread(asks="Shall I?"), NOW) == 1.0
    assert compute_thread_relevance(make_thread(), NOW) == 0.4
    assert compute_thread_relevance(make_thread(timedelta(hours=12), asks="Shall I?"), NOW) == pytest.approx(0.5)
    assert compute_thread_relevance(make_thread(timedelta(hours=24), asks="Shall I?"), NOW) == 0.0
    assert make_conversations_signal([], [make_thread(asks="Shall I?")], NOW).relevance == 1.0


def test_a_conversation_that_an_agent_may_be_answering_is_not_relevant() -> None:
    assert compute_thread_relevance(make_thread(timedelta(minutes=9, seconds=59), unanswered=True), NOW) == 0.0
    assert compute_thread_relevance(make_thread(timedelta(minutes=10), unanswered=True), NOW) == pytest.approx(
        0.8, abs=0.01
    )


@pytest.mark.parametrize(
    ("state", "github", "stale", "relevance"),
    [
        (GitState(head="h"), None, False, 0.0),
        (GitState(head="h", operation="merge", files=(FileState("a"),)), None, False, 0.9),
        (GitState(head="h", ahead=2, behind_base=1), GitHubState(), True, 1 - 0.7 * 0.7 * 0.6),
        (GitState(head="h"), GitHubState((PullRequest(1, "t", "b", ("ci",)),)), False, 1 - 0.3 * 0.8),
    ],
)
def test_what_waits_in_the_repository_adds_up(
    state: GitState, github: GitHubState | None, stale: bool, relevance: float
) -> None:
    assert make_git_signal(state, github, tests_stale=stale).relevance == pytest.approx(relevance)


# Calendars

BERLIN = ZoneInfo("Europe/Berlin")
STANDUP = """BEGIN:VEVENT
UID:standup
SUMMARY:Stand-up
DTSTART;TZID=Europe/Berlin:20251201T110000
DTEND;TZID=Europe/Berlin:20251201T111500
RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR
EXDATE;TZID=Europe/Berlin:20260102T110000
END:VEVENT
"""
"""A meeting on working days, which was left out on Friday, 2 January."""


def format_event(name: str, begins: str, *lines: str) -> str:
    """An event with these further lines."""
    return "\n".join(["BEGIN:VEVENT", f"UID:{name}", f"SUMMARY:{name}", begins, *lines, "END:VEVENT", ""])


def write_calendar(folder: Path, *events: str) -> str:
    """Write a calendar with these events; returns its path."""
    file = folder / "work.ics"
    file.write_text("BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:test\n" + "".join(events) + "END:VCALENDAR\n")
    return str(file)


def read_meetings(file: str, at: datetime = NOW) -> list[Meeting]:
    """The next meetings in a calendar."""
    return CalendarReader().meetings([file], at.astimezone(BERLIN))


def test_a_repeated_meeting_in_its_own_zone_and_when_it_was_last_held(tmp_path: Path) -> None:
    file = write_calendar(tmp_path, STANDUP)
    monday = datetime(2026, 1, 5, 11, tzinfo=BERLIN)
    assert read_meetings(file) == [Meeting("Stand-up", monday, datetime(2026, 1, 1, 11, tzinfo=BERLIN))]
    assert read_meetings(file, datetime(2026, 1, 2, 9, tzinfo=UTC)) == []
    summer = datetime(2026, 7, 6, 8, tzinfo=UTC)
    assert read_meetings(file, summer)[0].begins == datetime(2026, 7, 6, 9, tzinfo=UTC)


def test_whole_days_cancelled_and_free_events_are_no_meetings(tmp_path: Path) -> None:
    at = "DTSTART:20260105T100000Z"
    file = write_calendar(
        tmp_path,
        format_event("holiday", "DTSTART;VALUE=DATE:20260105"),
        format_event("cancelled", at, "STATUS:CANCELLED"),
        format_event("lunch", at, "TRANSP:TRANSPARENT"),
        format_event("over", "DTSTART:20260105T090000Z"),
        format_event("far", "DTSTART:20260105T133000Z"),
        format_event("floating", "DTSTART:20260105T120000"),
        format_event("last", "DTSTART:20260105T132959Z"),
    )
    assert [meeting.name for meeting in read_meetings(file)] == ["floating", "last"]


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff\xfe\x00", b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n"])
def test_a_file_that_is_no_calendar_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.ics"
    file.write_bytes(content)
    with pytest.raises(Refusal, match=r"broken\.ics") as refused:
        CalendarReader().meetings([str(file)], NOW)
    assert refused.value.code == "unreadable_calendar"
    with pytest.raises(Refusal, match=r"gone\.ics"):
        CalendarReader().meetings([str(tmp_path / "gone.ics")], NOW)


@pytest.mark.parametrize(
    ("wait", "relevance"),
    [
        (timedelta(0), 1.0),
        (timedelta(hours=1), 0.75),
        (MEETINGS_AHEAD - timedelta(seconds=1), 1 / 14400),
        (MEETINGS_AHEAD, 0.0),
    ],
)
def test_a_meeting_is_less_relevant_the_later_it_begins(wait: timedelta, relevance: float) -> None:
    assert make_calendar_signal([Meeting("review", NOW + wait)], NOW).relevance == pytest.approx(relevance)
