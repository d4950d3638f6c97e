"""Reads memories from lines of JSON, for `clawpy remember` (SPEC 4).

A line that cannot be read is reported with its number; the other lines are stored. These memories never expire.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from engine.frozen import frozen
from engine.memory.store import check_memory
from engine.model import NewMemory, Refusal, Retention

_TIME_FORMATS = (
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d",
    "%I:%M %p on %d %B, %Y",
    "%d %B, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)
_WEEKDAY = re.compile(r"\s*\([A-Za-z]{3,9}\)")
MILLISECONDS = 10**11
"""A number above this is milliseconds since 1970; as seconds it would be after the year 5000."""


@frozen
class RejectedLine:
    """A line that was skipped, or `stored` without a part of it, with the reason in words."""

    line: int
    message: str
    stored: bool = False


def read_lines(lines: Sequence[str], *, first: int, source: str) -> tuple[list[NewMemory], list[RejectedLine]]:
    """The memories in the lines of a file, and the rejected lines. `first` is the number of the first line, `source`
    the name of the file. Empty lines are skipped."""
    items, rejected = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            memory, note = _parse_line(line, f"{source}:{number}" if source else "")
            items.append(check_memory(memory))
            if note:
                rejected.append(RejectedLine(number, note, stored=True))
        except (Refusal, ValueError, RecursionError) as error:
            message = error.message if isinstance(error, Refusal) else str(error) or "nested too deeply"
            rejected.append(RejectedLine(number, message[:300]))
    return items, rejected


def _parse_line(line: str, source: str) -> tuple[NewMemory, str]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        where = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"not JSON: {where}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise ValueError('each line must be an object with "text"')
    note = ""
    try:
        at = parse_time(fields.get("timestamp"))
    except ValueError as error:
        at, note = None, f"{error}; stored without its time"
    speaker, session, agent, ref = (_string_field(fields, name) for name in ("speaker", "session", "agent", "id"))
    text, retention = fields["text"], Retention.FOREVER
    memory = NewMemory(
        text, speaker=speaker, at=at, session=session, agent=agent, source=source, retention=retention, ref=ref
    )
    return memory, note


def _string_field(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'"{name}" must be a string')
    return str(value)


def parse_time(value: Any) -> datetime | None:
    """Read a time in a common format: ISO 8601, seconds or milliseconds since 1970, mail dates, and a few more. A time
    without a zone is in UTC. Raises ValueError."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > MILLISECONDS else value, UTC)
        if isinstance(value, str):
            at = _parse_time(value.strip())
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{str(value)[:60]!r} is not a time") from error
    raise ValueError(f"{str(value)[:60]!r} is not a time")


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    without_weekday = _WEEKDAY.sub("", text)
    for time_format in _TIME_FORMATS:
        try:
            return datetime.strptime(without_weekday, time_format)  # noqa: DTZ007 (the zone is added by the caller)
        except ValueError:
            continue
    return parsedate_to_datetime(text)
