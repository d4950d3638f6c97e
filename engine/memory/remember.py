"""Lines of JSON as things to remember (SPEC 9.8): `{"id", "text", "speaker", "timestamp", "session", "agent"}`. Pure.

A line that cannot be read is named with its number and stops nothing. What the caller imports is kept for ever: he
asked for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from engine.frozen import frozen
from engine.memory.checking import check
from engine.model import NewMemory, Refusal, Retention

_FORMATS = (
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
class BadLine:
    """A line that was passed over, or `kept` in part, and why, in words."""

    line: int
    message: str
    kept: bool = False


def read(lines: Sequence[str], *, first: int, source: str) -> tuple[list[NewMemory], list[BadLine]]:
    """What lines say, `first` being the number of the first, `source` the name of their file. Empty lines say
    nothing."""
    items, bad = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            one, note = _one(line, f"{source}:{number}" if source else "")
            items.append(check(one))
            if note:
                bad.append(BadLine(number, note, kept=True))
        except (Refusal, ValueError, RecursionError) as error:
            said = error.message if isinstance(error, Refusal) else str(error) or "nested too deeply"
            bad.append(BadLine(number, said[:300]))
    return items, bad


def _one(line: str, source: str) -> tuple[NewMemory, str]:
    try:
        found = json.loads(line)
    except ValueError as error:
        where = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"not JSON: {where}") from error
    if not isinstance(found, dict) or not isinstance(found.get("text"), str):
        raise ValueError('each line must be an object with "text"')
    note = ""
    try:
        at = instant(found.get("timestamp"))
    except ValueError as error:
        at, note = None, f"{error}; stored without its time"
    one = NewMemory(
        found["text"],
        speaker=_word(found, "speaker"),
        at=at,
        session=_word(found, "session"),
        agent=_word(found, "agent"),
        source=source,
        retention=Retention.FOREVER,
        ref=_word(found, "id"),
    )
    return one, note


def _word(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'"{name}" must be a string')
    return str(value)


def instant(value: Any) -> datetime | None:
    """A time as people and programs write it: ISO 8601, seconds or milliseconds since 1970, mail dates, a few more.
    One without a zone is taken for UTC. Raises ValueError."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > MILLISECONDS else value, UTC)
        if isinstance(value, str):
            at = _written(value.strip())
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{str(value)[:60]!r} is not a time") from error
    raise ValueError(f"{str(value)[:60]!r} is not a time")


def _written(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    plain = _WEEKDAY.sub("", text)
    for form in _FORMATS:
        try:
            return datetime.strptime(plain, form)  # noqa: DTZ007 (the zone is added by the caller)
        except ValueError:
            continue
    return parsedate_to_datetime(text)
