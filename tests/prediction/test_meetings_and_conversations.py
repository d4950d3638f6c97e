"""What is read outside of the repository: meetings of calendars and conversations with agents (SPEC 2.1, 2.2)."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from engine.clock import FakeClock
from engine.model import Refusal
from engine.prediction.context_reader import CalendarReader
from engine.prediction.signals import Meeting
from engine.prediction.threads import Threads, find_final_question
from tests.support import MONDAY_MORNING as NOW
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)

SHOP = "/home/me/shop"


def make_claude_line(speaker: str, text: str, **fields: Any) -> str:
    """A line of a transcript of Claude Code with these other fields."""
    message = {"role": speaker, "content": [{"type": "text", "text": text}]}
    stamp = (NOW - timedelta(minutes=5)).isoformat()
    line = {"type": speaker, "uuid": text, "sessionId": "s1", "cwd": SHOP, "timestamp": stamp, "message": message}
    return json.dumps(line | fields) + "\n"


class Transcripts:
    """A folder of transcripts of other agents."""

    def __init__(self, folder: Path):
        self.folder, self.clock = folder, FakeClock(NOW)
        self.threads = Threads(
            lambda: [str(folder)],
            self.clock,
            is_own_folder=lambda folder: folder.startswith("/ours"),
            secrets=lambda: ["hunter2-hunter2"],
        )

    def write(self, text: str, name: str = "s1", ago: timedelta = timedelta(minutes=5)) -> Path:
        """Write a transcript that grew some time `ago`; returns its path."""
        path = self.folder / "projects" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, ((NOW - ago).timestamp(),) * 2)
        return path


@pytest.fixture
def transcripts(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path)


@pytest.mark.parametrize(
    "text, question",
    TABLE["questions"],
)
def test_the_question_that_a_text_ends_with(text: str, question: str):
    assert find_final_question(text) == question


def test_an_open_question_is_found_with_what_it_is_about(transcripts: Transcripts):
    transcripts.write(
        make_claude_line("user", "Add the cart")
        + make_claude_line("assistant", "Added. Shall I use hunter2-hunter2 for the tests?")
    )
    [thread] = transcripts.threads.read_newest(SHOP)
    assert (thread.agent, thread.about, thread.unanswered) == ("Claude Code", "Add the cart", False)
    assert thread.question.startswith("Shall I use")
    assert "hunter2-hunter2" not in thread.question
    assert thread.at == NOW - timedelta(minutes=5)
    assert transcripts.threads.read_newest("/home/me/blog") == []


def test_the_folder_of_codex_is_that_of_its_first_line(transcripts: Transcripts):
    meta = {"type": "session_meta", "payload": {"id": "x", "cwd": SHOP}}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Next?"}]}
    lines = [meta, {"timestamp": NOW.isoformat(), "type": "response_item", "payload": message}]
    transcripts.write("".join(json.dumps(line) + "\n" for line in lines), "rollout-1")
    [thread] = transcripts.threads.read_newest(SHOP)
    assert (thread.agent, thread.session, thread.question) == ("Codex", "codex:rollout-1", "Next?")


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
def test_an_event_that_repeated_too_often_holds_up_no_check(tmp_path: Path):
    every = ",".join(str(number) for number in range(60))
    rules = (
        ["RRULE:FREQ=SECONDLY"],
        [f"RRULE:FREQ=HOURLY;BYMINUTE={every};BYSECOND={every}"],
        ["RRULE:FREQ=MINUTELY", "RRULE:FREQ=DAILY"],
        ["RRULE:FREQ=HOURLY"],
    )
    events = [format_event("ticks", "DTSTART:19700101T100000Z", *lines) for lines in rules]
    nested = f"BEGIN:X-BOX\n{events[0]}END:X-BOX\n"
    ends = "DTSTART:19900105T110000Z"
    old = [format_event(rule, ends, f"RRULE:FREQ={rule}") for rule in ("YEARLY", "WEEKLY;BYDAY=MO", "DAILY")]
    over = [format_event(end, ends, f"RRULE:FREQ=HOURLY;{end}") for end in ("COUNT=8", "UNTIL=19900201T000000Z")]
    meetings = read_meetings(write_calendar(tmp_path, STANDUP, *events, *old, *over, nested))
    assert sorted(meeting.name for meeting in meetings) == ["DAILY", "Stand-up", "WEEKLY;BYDAY=MO", "YEARLY"]


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
    refusal = refused("unreadable_calendar", lambda: CalendarReader().read_meetings([str(file)], NOW))
    assert "broken.ics" in refusal.message
    with pytest.raises(Refusal, match=r"gone\.ics"):
        CalendarReader().read_meetings([str(tmp_path / "gone.ics")], NOW)
