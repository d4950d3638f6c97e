"""The base class of events, and the bus: in memory, and publishing never waits for a subscriber."""

from __future__ import annotations

import logging
import re
import string
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, dataclass_transform

from engine.model.text import count

MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact. `subject` is the id of what it is about, `workspace` the path it belongs to ("" for none).

    A class is made a frozen dataclass of named fields. It says in its head which `topics` it makes old (the parts of
    what a screen knows), its sentence in `says`, and whether it is `volatile`: never stored, only for screens.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of event by its name."""
    volatile: ClassVar[bool] = False
    topics: ClassVar[tuple[str, ...]] = ()
    says: ClassVar[str] = ""
    subject: str = ""
    workspace: str = ""

    def __init_subclass__(cls, *, topics: str = "", says: str = "", volatile: bool = False) -> None:
        cls.topics, cls.says, cls.volatile = tuple(topics.split()), says, volatile
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
        return _Sentence().vformat(self.says, (), vars(self))


class _Sentence(string.Formatter):
    """Fills in `says`: `{cost:money}` is what `money` makes of the field, `{files:count file}` counts them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        name, _, argument = format_spec.partition(" ")
        if name not in _FORMATS:
            return format(value, format_spec)
        return _FORMATS[name](value, argument) if argument else _FORMATS[name](value)


def because(reason: str) -> str:
    return f"; {reason}" if reason else ""


def listed(errors: Sequence[str]) -> str:
    return "".join(f"; {error}" for error in errors)


def counted(items: int | Sequence[object], noun: str) -> str:
    return count(items if isinstance(items, int) else len(items), noun)


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


log = logging.getLogger(__name__)


_FORMATS: Mapping[str, Callable[..., str]] = {
    "because": because,
    "by": by,
    "count": counted,
    "joined": joined,
    "len": lambda items: str(len(items)),
    "listed": listed,
    "local": local,
    "money": money,
    "or": lambda value, other: str(value or other),
    "words": lambda value: re.sub("[-_]", " ", value),
}


class Subscription:
    """A bounded queue of events for one reader. When it is full the oldest is dropped and counted."""

    def __init__(self, bus: EventBus, wake: Callable[[], None], capacity: int) -> None:
        self._bus = bus
        self._wake = wake
        self._events: deque[Event] = deque()
        self._capacity = capacity
        self._lock = threading.Lock()
        self._awake = False
        self.dropped = 0

    def _offer(self, event: Event) -> None:
        with self._lock:
            if len(self._events) >= self._capacity:
                self._events.popleft()
                self.dropped += 1
            self._events.append(event)
            wake = not self._awake
            self._awake = True
        if wake:
            self._wake()

    def drain(self) -> list[Event]:
        """All events since the last drain, oldest first; the next event wakes the reader again."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            self._awake = False
        return events

    def close(self) -> None:
        """Stop receiving."""
        self._bus._remove(self)


class EventBus:
    """Carries facts to whoever listens, from any thread, without ever waiting for a listener."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, wake: Callable[[], None], *, capacity: int = 10_000) -> Subscription:
        """Listen. `wake` is called once per batch, from the publishing thread, and must return at once
        (for a screen: `loop.call_soon_threadsafe`); the reader then calls `drain`."""
        subscription = Subscription(self, wake, capacity)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)

    def publish(self, event: Event) -> None:
        """Hand `event` to every reader. A reader whose `wake` raises is reported and taken off."""
        for subscription in self._subscriptions:
            try:
                subscription._offer(event)
            except Exception:
                log.exception("a listener failed on %s and was taken off the bus", event.kind)
                self._remove(subscription)
