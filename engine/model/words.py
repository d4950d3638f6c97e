"""Plain English for cards and evidence: counts, spans, times, lists; hostile text made harmless and short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from engine.model.text import count as count
from engine.model.text import sanitise

_WORD = re.compile(r"[^\W\d_]{4,}")


def counted(items: Sequence[object], noun: str) -> str:
    """`the file` for one, `the 3 files` for more: how a sentence names things it then lists."""
    return f"the {noun}" if len(items) == 1 else f"the {count(len(items), noun)}"


def span(length: timedelta) -> str:
    """One unit, rounded down: `under a minute`, `5 min`, `3 h`, `4 days`. Below zero counts as zero."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 60:
        return "under a minute"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} days"


def moment(when: datetime, now: datetime) -> str:
    """A time as one says it in the zone of `now`: `11:02`, `yesterday 11:02`, `12 March`, `12 March 2024`."""
    local = when.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"{local:%H:%M}"
    if local.date() == now.date() - timedelta(days=1):
        return f"yesterday {local:%H:%M}"
    return f"{local.day} {local:%B}" + ("" if local.year == now.year else f" {local.year}")


@lru_cache(2_000)
def plain(text: str, longest: int = 60) -> str:
    """Hostile text on one line, without controls and undecodable bytes, cut to `longest` characters by an ellipsis."""
    line = " ".join(sanitise(text).encode(errors="replace").decode().split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def tail(path: str, longest: int = 32) -> str:
    """The end of a path, which says more than its beginning."""
    line = plain(path, 4096)
    return line if len(line) <= longest else "…" + line[1 - longest :]


def listing(names: Iterable[str], shown: int = 2, longest: int = 32) -> str:
    """`a`, `a and b`, `a, b and 3 more`; the names as paths are shortened from the left."""
    every = [tail(name, longest) for name in names]
    if len(every) <= shown:
        return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)
    return f"{', '.join(every[:shown])} and {len(every) - shown} more"


def words_of(text: str) -> set[str]:
    """The words of at least four letters, in lower case; what counts as sharing a subject."""
    return {word.casefold() for word in _WORD.findall(text)}
