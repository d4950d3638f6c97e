"""Meetings of real `.ics` files: repeated ones, zones, exceptions; and the card that prepares for one (SPEC 2.1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from engine.model import Refusal
from engine.prediction.calendars import AHEAD, CalendarReader, Meeting
from engine.prediction.signals import calendar_signal
from engine.prediction.templates.history import PREPARATION_TIME, prepare_meeting
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit

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


def event(name: str, begins: str, *lines: str) -> str:
    return "\n".join(["BEGIN:VEVENT", f"UID:{name}", f"SUMMARY:{name}", begins, *lines, "END:VEVENT", ""])


def calendar(folder: Path, *events: str) -> str:
    file = folder / "work.ics"
    file.write_text("BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:test\n" + "".join(events) + "END:VCALENDAR\n")
    return str(file)


def meetings(file: str, at: datetime = NOW) -> list[Meeting]:
    found = CalendarReader().meetings([file], at.astimezone(BERLIN))
    assert found is not None
    return found


def test_a_repeated_meeting_in_its_own_zone_and_when_it_was_last_held(tmp_path: Path) -> None:
    file = calendar(tmp_path, STANDUP)
    monday = datetime(2026, 1, 5, 11, tzinfo=BERLIN)
    # Friday the 2nd is an exception, so it was last held on Thursday.
    assert meetings(file) == [Meeting("Stand-up", monday, datetime(2026, 1, 1, 11, tzinfo=BERLIN))]
    assert meetings(file, datetime(2026, 1, 2, 9, tzinfo=UTC)) == []
    summer = datetime(2026, 7, 6, 8, tzinfo=UTC)
    assert meetings(file, summer)[0].begins == datetime(2026, 7, 6, 9, tzinfo=UTC)


def test_what_is_no_meeting(tmp_path: Path) -> None:
    at = "DTSTART:20260105T100000Z"
    file = calendar(
        tmp_path,
        event("holiday", "DTSTART;VALUE=DATE:20260105"),
        event("cancelled", at, "STATUS:CANCELLED"),
        event("lunch", at, "TRANSP:TRANSPARENT"),
        event("over", "DTSTART:20260105T090000Z"),
        event("far", "DTSTART:20260105T133000Z"),
        event("floating", "DTSTART:20260105T120000"),
        event("last", "DTSTART:20260105T132959Z"),
    )
    assert [meeting.name for meeting in meetings(file)] == ["floating", "last"]


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
    [(timedelta(0), 1.0), (timedelta(hours=1), 0.75), (AHEAD - timedelta(seconds=1), 1 / 14400), (AHEAD, 0.0)],
)
def test_relevance_fades_over_four_hours(wait: timedelta, relevance: float) -> None:
    found = calendar_signal([Meeting("review", NOW + wait)], NOW)
    assert found.relevance == pytest.approx(relevance)


def test_a_meeting_is_prepared_for_within_the_hour(repository: Repository, tmp_path: Path) -> None:
    dated_commit(repository, "round the cart", {"cart.py": "1"}, NOW - timedelta(hours=20))
    world = World(repository.path)
    context = world.sense()
    with_meeting = [Meeting("Stand-up", NOW + PREPARATION_TIME, NOW - timedelta(days=3))]

    def offered(found: list[Meeting]) -> list[str]:
        return [proposal.prompt for proposal in prepare_meeting(replace(context, meetings=tuple(found)))]

    [prompt] = offered(with_meeting)
    assert prompt.startswith("Prepare for “Stand-up” at ")
    assert "sum up 1 commit since" in prompt
    assert offered([Meeting("Stand-up", NOW + PREPARATION_TIME + timedelta(seconds=1))]) == []
    assert offered([Meeting("Stand-up", NOW + PREPARATION_TIME, NOW - timedelta(hours=1))]) == []  # nothing since
    assert offered([]) == []
