"""Words values for people: numbers, money, times, and lists of names.

Screens, verbs, events and refusals use it, so that a count or a time reads the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engine.text import one_line, shorten_path

if TYPE_CHECKING:
    from pydantic import ValidationError

MICRO = 1_000_000
"""Micro-dollars of a dollar."""


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with a noun: `1 file`, `0 files`, `3,210 files`. `plural` is needed if it is irregular: `2 branches`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + ('es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's')}"


def describe_first(reasons: Sequence[str]) -> str:
    """The first reason, and how many others there are; "" for none, as after forgetting."""
    if not reasons:
        return ""
    return reasons[0] + (f", and for {count(len(reasons) - 1, 'other reason')}" if reasons[1:] else "")


def failures(failed: int, errors: int) -> str:
    """ "1 test failed", "2 tests failed, 1 error", "1 error"."""
    tests = f"{count(failed, 'test')} failed" if failed or not errors else ""
    return ", ".join(filter(None, [tests, count(errors, "error") if errors else ""]))


def money(amount: int) -> str:
    """Micro-dollars as dollars and cents."""
    return f"${amount / MICRO:.2f}"


def to_microusd(dollars: float) -> int:
    """Dollars as whole micro-dollars, rounded half to even."""
    return round(dollars * MICRO)


def to_dollars(amount: float) -> float:
    """Micro-dollars as dollars with six decimals, for JSON."""
    return round(amount / MICRO, 6)


def seconds_in_words(seconds: float) -> str:
    """`2.4 s`, `<0.1 s`."""
    return "<0.1 s" if seconds < 0.05 else f"{seconds:.1f} s"


def span(length: timedelta) -> str:
    """A span of time in one unit, rounded down: `under a minute`, `5 min`, `3 h`, `4 days`. A negative span counts as
    zero."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 60:
        return "under a minute"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} days"


def short_span(length: timedelta) -> str:
    """The same in a few characters: `0m`, `4m`, `3h`, `2d`."""
    minutes = max(0, int(length.total_seconds() // 60))
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def moment(when: datetime, now: datetime) -> str:
    """A time in words in the zone of `now`: `11:02`, `yesterday 11:02`, `12 March`, `12 March 2024`."""
    local = when.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"{local:%H:%M}"
    if local.date() == now.date() - timedelta(days=1):
        return f"yesterday {local:%H:%M}"
    return f"{local.day} {local:%B}" + ("" if local.year == now.year else f" {local.year}")


def local_time(instant: str) -> str:
    """An instant in ISO format as local time, to the minute."""
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"


def article(noun: str) -> str:
    """`a` or `an`, by the first letter: `an archive`. A `u` is read as in `user`."""
    return "an" if noun[0] in "aeioAEIO" else "a"


def capitalised(sentence: str) -> str:
    """`sentence` with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def because(*reasons: str) -> str:
    """The end of a sentence: `; reason` for each reason that is not empty."""
    return "".join(f"; {reason}" for reason in reasons if reason)


def in_words(name: str) -> str:
    """`not-now` and `kept_old` with spaces."""
    return re.sub("[-_]", " ", name)


def join_names(names: Iterable[str], shown: int = 8) -> str:
    """`a`, `a and b`, `a, b and 3 more`; every name sanitised."""
    clean = [one_line(name) for name in names]
    if len(clean) <= shown:
        return " and ".join(filter(None, [", ".join(clean[:-1]), *clean[-1:]]))
    return f"{', '.join(clean[:shown])} and {len(clean) - shown} more"


def join_shortened(names: Iterable[str], shown: int = 2, max_length: int = 32) -> str:
    """The names as `join_names` writes them, each cut from the left to `max_length` characters."""
    return join_names((shorten_path(name, max_length) for name in names), shown)


def describe_validation_faults(error: ValidationError) -> list[str]:
    """The errors that pydantic found in a document, in words: the place, the expected value, and the actual value."""
    return [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, not {str(fault['input'])[:60]!r}"
        for fault in error.errors(include_url=False)
    ]


def mark_approved(text: str, *, is_quote: bool) -> str:
    """A text for a prompt. A quote is marked as approved by the operator."""
    return f"{text} (approved by the operator)" if is_quote else text
