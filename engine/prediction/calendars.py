"""Reads meetings out of `.ics` files: RRULE, TZID, EXDATE and the rest by libraries that know them (SPEC 2.1)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.frozen import frozen
from engine.model import Refusal, sanitise
from engine.plain_files import read_plain

AHEAD = timedelta(hours=4)
"""A meeting that begins now weighs all, one in four hours nothing."""

BEHIND = timedelta(days=14)
"""So far back it is looked when the same meeting was held last."""

MAX_BYTES = 20 * 1024 * 1024
"""Bytes of a calendar that are read."""

UNNAMED = "a meeting"


@frozen
class Meeting:
    """One occurrence: `begins` in the operator's own zone; `before` when the same was held last, None if never."""

    name: str
    begins: datetime
    before: datetime | None = None


def nearest(meetings: Sequence[Meeting], now: datetime) -> Meeting | None:
    """The next one that has not begun, within `AHEAD`."""
    coming = [meeting for meeting in meetings if now <= meeting.begins < now + AHEAD]
    return min(coming, key=lambda meeting: (meeting.begins, meeting.name), default=None)


class CalendarReader:
    """Meetings of the calendars that the settings name. A file is parsed again only when it changed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: dict[Path, tuple[tuple[int, int], Any]] = {}

    def meetings(self, files: Sequence[str], local: datetime) -> list[Meeting] | None:
        """Those that begin within `AHEAD` of `local`, the earliest first; None when no file is named.

        Whole days, cancelled ones and those that do not make busy are no meetings. Raises `Refusal`
        `unreadable_calendar` that names the file.
        """
        if not files:
            return None
        with self._lock:
            meetings = [
                meeting
                for name in files
                for meeting in _meetings_around(self._read_calendar(Path(name).expanduser()), local)
            ]
        return sorted(meetings, key=lambda meeting: (meeting.begins, meeting.name))

    def _read_calendar(self, file: Path) -> Any:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            cached = self._parsed.get(file)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            if status.st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            import icalendar  # 0.3 s that only those pay who have a calendar

            calendar = icalendar.Calendar.from_ical(read_plain(file, MAX_BYTES))
        except (OSError, ValueError) as error:
            raise Refusal(
                "unreadable_calendar", f"{file}: {sanitise(str(error))[:200]}", "fix calendar.files in the settings"
            ) from error
        self._parsed[file] = (stamp, calendar)
        return calendar


def _meetings_around(calendar: Any, local: datetime) -> list[Meeting]:
    import recurring_ical_events

    events = filter(_is_meeting, recurring_ical_events.of(calendar).between(local - BEHIND, local + AHEAD))
    last_held: dict[str, datetime] = {}
    meetings = []
    for event in sorted(events, key=lambda event: _begin_of(event, local)):
        begins, uid = _begin_of(event, local), str(event.get("UID", ""))
        if begins >= local:
            name = sanitise(str(event.get("SUMMARY", ""))).strip() or UNNAMED
            meetings.append(Meeting(name, begins, last_held.get(uid)))
        last_held[uid] = begins
    return [meeting for meeting in meetings if meeting.begins < local + AHEAD]


def _is_meeting(event: Any) -> bool:
    if not isinstance(event["DTSTART"].dt, datetime):
        return False  # a whole day
    return str(event.get("STATUS", "")) != "CANCELLED" and str(event.get("TRANSP", "")) != "TRANSPARENT"


def _begin_of(event: Any, local: datetime) -> datetime:
    """When it begins, in the operator's zone, which is also that of times without one."""
    begins: datetime = event["DTSTART"].dt
    return begins.replace(tzinfo=local.tzinfo) if begins.tzinfo is None else begins.astimezone(local.tzinfo)
