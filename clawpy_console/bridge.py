"""Engine events on their way to the screen: from any thread, coalesced, at most ten times a second.

The engine's bus wakes us from its own threads; we look at the events on the event loop, say which topics moved, and
throw the events away. Screens then read the ports again. A burst of a thousand events is one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from engine.events import Event, EventBus

INTERVAL = 0.1
"""Seconds between two batches: a kind of event reaches the screen at most ten times a second."""

OF_SCREENS = frozenset({"training"})
"""Topics of which nothing is kept in `AppState`; one screen reads them for itself."""

NOTICED = frozenset(
    {
        "SessionEnded",
        "ChangeSetReady",
        "PermissionAsked",
        "FaultReported",
        "NotificationsGivenUp",
        "CostWarned",
        "HoldPlaced",
        "HoldLifted",
        "PredictionCreated",
        "TrainingMoved",
    }
)
"""Kinds that may be worth a word to the operator; handed on one by one, in order."""


@dataclass
class EngineMoved(Message):
    """Topics of `AppState` that have to be read again."""

    topics: frozenset[str]


@dataclass
class OutputGrew(Message):
    """Sessions that wrote new transcript lines."""

    sessions: frozenset[str]


@dataclass
class Noticed(Message):
    """One event that may deserve a toast, a bell or a notification of the terminal."""

    event: Any


class Bridge:
    """Listens to one bus for one app. Made and closed on the event loop."""

    def __init__(self, bus: EventBus, post: Callable[[Message], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._last = float("-inf")
        self._closed = False
        self._subscription = bus.subscribe(self._wake)

    @property
    def dropped(self) -> int:
        """Events that the screen never saw because it was too slow; the ledger has them all."""
        return self._subscription.dropped

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._subscription.close()

    def _wake(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._due)

    def _due(self) -> None:
        wait = self._last + INTERVAL - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._closed:
            return
        self._last = self._loop.time()
        topics: set[str] = set()
        output: set[str] = set()
        noticed: list[Event] = []
        for event in self._subscription.drain():
            if event.kind == "SessionOutput":
                output.add(event.subject)
                continue
            topics.update(event.topics)
            if event.kind in NOTICED:
                noticed.append(event)
        if topics:
            self._post(EngineMoved(frozenset(topics)))
        if output:
            self._post(OutputGrew(frozenset(output)))
        for one in noticed[-20:]:
            self._post(Noticed(one))
