"""The base class of events, and the phrases that their sentences share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, dataclass_transform

MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact. `subject` is the id of what it is about, `workspace` the path it belongs to ("" for none).

    Every class of event is made a frozen dataclass with keyword arguments. `topics` are the parts of the screen that it
    makes out of date, separated by spaces. A `volatile` event is only for screens, and never stored.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of event by its name."""
    volatile: ClassVar[bool] = False
    topics: ClassVar[tuple[str, ...]] = ()
    subject: str = ""
    workspace: str = ""

    def __init_subclass__(cls, *, topics: str = "", volatile: bool = False) -> None:
        cls.topics, cls.volatile = tuple(topics.split()), volatile
        Event.kinds[cls.__name__] = dataclass(frozen=True, kw_only=True)(cls)

    @property
    def kind(self) -> str:
        """The name under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields besides subject and workspace, JSON-able."""
        return {name: value for name, value in vars(self).items() if name not in ("subject", "workspace")}

    def sentence(self) -> str:
        """A sentence about the event, on one line; "" if another event says it."""
        return ""


def because(*reasons: str) -> str:
    """The end of a sentence: `; reason` for each reason that is not empty."""
    return "".join(f"; {reason}" for reason in reasons if reason)


def name_list(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`, each name once; `nobody` for none."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - MAX_NAMES
    return ", ".join(unique[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "") or "nobody"


def decider(decided_by: str) -> str:
    """Who decided: you, the engine by itself, or a program."""
    return {"operator": "you", "autonomy": "the engine", "api": "a program"}.get(decided_by, decided_by)


def money(microusd: int) -> str:
    """Micro-dollars as dollars and cents."""
    return f"${microusd / 1e6:.2f}"


def local_time(instant: str) -> str:
    """An instant in ISO format as local time, to the minute."""
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"


def in_words(name: str) -> str:
    """`not-now` and `kept_old` with spaces."""
    return re.sub("[-_]", " ", name)
