"""Times, money, counts and texts as short words, for screens and verbs; and the words of a filter in texts.

In sentences times and money are written as in `engine.wording`; here they must fit into a few cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath

from rich.cells import cell_len, set_cell_size

from engine.wording import MICRO
from engine.wording import count as count  # also used as `formats.count`
from engine.wording import short_span as short_span  # and as `formats.short_span`


def age(length: timedelta) -> str:
    """How long ago something was, in one unit: `now`, `4m`, `3h`, `2d`."""
    return "now" if length < timedelta(minutes=1) else short_span(length)


def duration(length: timedelta) -> str:
    """The time that something took, or has run: `<1s`, `14s`, `4m 12s`, `1h 02m`, `2d 3h`. See `age` for an age."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds}s" if seconds else "<1s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    hours, seconds_of_hour = divmod(seconds, 3600)
    return f"{hours}h {seconds_of_hour // 60:02}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def clock_time(at: datetime) -> str:
    """Local hour and minute: `14:30`."""
    return at.astimezone().strftime("%H:%M")


def moment(at: datetime, now: datetime) -> str:
    """`14:30` today, `Mon 14:30` within a week, else `5 Jan`. For sentences see `engine.wording.moment`."""
    local = at.astimezone()
    today = now.astimezone()
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%a %H:%M") if abs(today - local) < timedelta(days=6) else f"{local.day} {local:%b}"


def money(amount: int) -> str:
    """Micro-dollars as `$0.05`; below a cent `<$0.01`; nothing is `$0`. For sentences see `engine.wording.money`."""
    if amount == 0:
        return "$0"
    return f"${amount / MICRO:.2f}" if amount >= MICRO // 100 else "<$0.01"


def cap_amount(amount: int) -> str:
    """A cap without cents where it has none: `2`, `20`, `0.50`."""
    dollars, fraction = divmod(amount, MICRO)
    return str(dollars) if fraction == 0 else f"{amount / MICRO:.2f}"


def tokens(number: int) -> str:
    """`940`, `3.2k`, `1.4M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def percentage_points(share: float) -> str:
    """A difference of shares in percentage points, with its sign: `+24`, `±0`."""
    value = round(share * 100)
    return f"{value:+d}" if value else "±0"


def workspace_name(workspace: str) -> str:
    """A workspace by the last part of its path, on one line."""
    return one_line(PurePath(workspace).name or workspace)


def one_line(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())


def crop(text: str, width: int) -> str:
    """`text` cut to `width` cells, with an ellipsis; counts cells, so that emoji never shift a column."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"[:width]


def fit_to_width(text: str, width: int) -> str:
    """`text` cropped or padded to exactly `width` cells."""
    return set_cell_size(crop(text, width), width)


def list_first(texts: Sequence[str], limit: int) -> list[str]:
    """At most `limit` of the texts, and how many more there are."""
    more = [f"and {len(texts) - limit:,} more"] if len(texts) > limit else []
    return [*texts[:limit], *more]


def has_words(text: str, words: Iterable[str]) -> bool:
    """Whether `text` contains all `words`, which are in lower case."""
    text = text.lower()
    return all(word in text for word in words)
