"""Passes the engine's events on to the app, as one message at most ten times a second.

The message names the topics that changed, which the app then reads again, and holds the events that become toasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from engine.events import Event, EventBus


BATCH_INTERVAL_S = 0.1
"""Minimum number of seconds between two messages."""

TOAST_KINDS = frozenset(
    {
        "SessionEnded",
        "ChangeSetReady",
        "PermissionAsked",
        "FaultReported",
        "NotificationsGivenUp",
        "CostWarned",
        "HoldPlaced",
        "HoldLifted",
        "TrainingMoved",
    }
)
"""Kinds of events that may become toasts; they are passed on one by one, in order."""

MAX_SHOWN = 20
"""Maximum number of such events in one message."""


@dataclass
class EngineChanged(Message):
    """The engine reported events since the last message."""

    topics: frozenset[str]
    """The topics that changed."""
    sessions: frozenset[str]
    """The sessions that wrote output."""
    shown: tuple[Event, ...]
    """The events of `TOAST_KINDS`."""


class Bridge:
    """Listens to the bus of one engine for one app. Created and closed on the event loop."""

    def __init__(self, bus: EventBus, post: Callable[[EngineChanged], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._delivered_at = float("-inf")
        self._closed = False
        self._subscription = bus.subscribe(self._wake)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._subscription.close()

    def _wake(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        """Deliver now or at the end of the interval. A later timer finds nothing to deliver, so none is cancelled."""
        wait = self._delivered_at + BATCH_INTERVAL_S - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._closed:
            return
        self._delivered_at = self._loop.time()
        events = self._subscription.drain()
        output = [event for event in events if event.kind == "SessionOutput"]
        others = [event for event in events if event.kind != "SessionOutput"]
        if events:
            topics = frozenset(topic for event in others for topic in event.topics)
            shown = [event for event in others if event.kind in TOAST_KINDS]
            self._post(EngineChanged(topics, frozenset(event.subject for event in output), tuple(shown[-MAX_SHOWN:])))
