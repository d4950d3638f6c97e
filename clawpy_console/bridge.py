"""Engine events on their way to the screen: from any thread, coalesced, at most ten times a second.

The engine's bus wakes us from its own threads; we look at the events on the event loop, say which topics moved, and
throw the events away. Screens then read the ports again. A burst of a thousand events is one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """What the engine reported since the last message: topics of `AppState` that have to be read again, `sessions` that
    wrote new transcript lines, and the events that may deserve a toast, a bell or a notification of the terminal."""

    topics: frozenset[str]
    sessions: frozenset[str]
    noticed: tuple[Event, ...]


class Bridge:
    """Listens to one bus for one app. Made and closed on the event loop."""

    def __init__(self, bus: EventBus, post: Callable[[EngineMoved], object]) -> None:
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
        events = self._subscription.drain()
        facts = [one for one in events if one.kind != "SessionOutput"]
        if events:
            self._post(
                EngineMoved(
                    frozenset(topic for one in facts for topic in one.topics),
                    frozenset(one.subject for one in events if one.kind == "SessionOutput"),
                    tuple([one for one in facts if one.kind in NOTICED][-20:]),
                )
            )
