"""Meetings in calendar files, and how relevant the next one is (SPEC 2.2)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from engine.model import Refusal
from engine.prediction.context_reader import CalendarReader
from engine.prediction.signals import MEETINGS_AHEAD, Meeting, make_calendar_signal
from tests.prediction.sensing import NOW

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
    return CalendarReader().read_meetings([file], at.astimezone(BERLIN))


def test_a_repeated_meeting_in_its_own_zone_and_when_it_was_last_held(tmp_path: Path):
    file = write_calendar(tmp_path, STANDUP)
    monday = datetime(2026, 1, 5, 11, tzinfo=BERLIN)
    assert read_meetings(file) == [Meeting("Stand-up", monday, datetime(2026, 1, 1, 11, tzinfo=BERLIN))]
    assert read_meetings(file, datetime(2026, 1, 2, 9, tzinfo=UTC)) == []
    summer = datetime(2026, 7, 6, 8, tzinfo=UTC)
    assert read_meetings(file, summer)[0].begins == datetime(2026, 7, 6, 9, tzinfo=UTC)


@pytest.mark.usefixtures("alarm_after_a_minute")
def test_an_event_that_repeats_every_second_holds_up_no_check(tmp_path: Path):
    every = ",".join(str(number) for number in range(60))
    rules = (
        ["RRULE:FREQ=SECONDLY"],
        [f"RRULE:FREQ=HOURLY;BYMINUTE={every};BYSECOND={every}"],
        ["RRULE:FREQ=MINUTELY", "RRULE:FREQ=DAILY"],
    )
    events = [format_event("ticks", "DTSTART:19700101T100000Z", *lines) for lines in rules]
    nested = f"BEGIN:X-BOX\n{events[0]}END:X-BOX\n"
    assert read_meetings(write_calendar(tmp_path, STANDUP, *events, nested))[0].name == "Stand-up"


def test_whole_days_cancelled_and_free_events_are_no_meetings(tmp_path: Path):
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


@pytest.mark.parametrize("content", [b"rubbish", b"\xff\xfe\x00", b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n"])
def test_a_file_that_is_no_calendar_is_named(tmp_path: Path, content: bytes):
    file = tmp_path / "broken.ics"
    file.write_bytes(content)
    with pytest.raises(Refusal, match=r"broken\.ics") as refused:
        CalendarReader().read_meetings([str(file)], NOW)
    assert refused.value.code == "unreadable_calendar"
    with pytest.raises(Refusal, match=r"gone\.ics"):
        CalendarReader().read_meetings([str(tmp_path / "gone.ics")], NOW)


@pytest.mark.parametrize(
    "wait, relevance",
    [
        (timedelta(0), 1.0),
        (timedelta(hours=1), 0.75),
        (MEETINGS_AHEAD - timedelta(seconds=1), 1 / 14400),
        (MEETINGS_AHEAD, 0.0),
    ],
)
def test_a_meeting_is_less_relevant_the_later_it_begins(wait: timedelta, relevance: float):
    assert make_calendar_signal([Meeting("review", NOW + wait)], NOW).relevance == pytest.approx(relevance)
