"""The base class of events, and helpers for their sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar, dataclass_transform

Kind = TypeVar("Kind", bound="Event")

MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact. `subject` is the id of what it is about, `workspace` the path it belongs to ("" for none).

    A class with `volatile = True` is never stored: it only feeds screens. `topics` are the parts of what a screen knows
    that it makes old.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of event by its name."""
    volatile: ClassVar[bool] = False
    topics: ClassVar[tuple[str, ...]] = ()
    subject: str = ""
    workspace: str = ""

    def __init_subclass__(cls) -> None:
        Event.kinds[cls.__name__] = cls

    @property
    def kind(self) -> str:
        """The name under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields besides subject and workspace, JSON-able."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("subject", "workspace")
        }

    def sentence(self) -> str:
        """A sentence about the event, on one line; "" if another event says it."""
        return ""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(kind: type[Kind]) -> type[Kind]:
    """Makes a class of events: its fields are given by name and never change."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def because(reason: str) -> str:
    return f"; {reason}" if reason else ""


def listed(errors: Sequence[str]) -> str:
    return "".join(f"; {error}" for error in errors)


def joined(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`, each name once."""
    each = list(dict.fromkeys(names))
    more = len(each) - MAX_NAMES
    return ", ".join(each[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "") or "nobody"


def by(who: str) -> str:
    """Who decided: you, or the engine by itself."""
    return {"operator": "you", "autonomy": "the engine", "api": "a program"}.get(who, who)


def money(microusd: int) -> str:
    return f"${microusd / 1e6:.2f}"


def local(instant: str) -> str:
    """An instant in your own time."""
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"
