"""Engine events on their way to the screen: from any thread, coalesced, at most ten times a second.

The engine's bus wakes us from its own threads; we look at the events on the event loop, say which topics moved, and
throw the events away. Screens then read the ports again. A burst of a thousand events is one message. Some are worth a
word to an operator who looks elsewhere: a toast, a bell, a title, a notification of the terminal (SPEC 9.7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message
from textual.notifications import SeverityLevel

from clawpy_console import words
from engine.model import PROBLEM_FOUND, outcome_in_words, sanitise

if TYPE_CHECKING:
    from textual.app import App

    from engine.events import Event, EventBus


BATCH_INTERVAL_S = 0.1
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
        wait = self._last + BATCH_INTERVAL_S - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._closed:
            return
        self._last = self._loop.time()
        events = self._subscription.drain()
        facts = [event for event in events if event.kind != "SessionOutput"]
        if events:
            self._post(
                EngineMoved(
                    frozenset(topic for fact in facts for topic in fact.topics),
                    frozenset(event.subject for event in events if event.kind == "SessionOutput"),
                    tuple([fact for fact in facts if fact.kind in NOTICED][-20:]),
                )
            )


TRAINED: dict[str, tuple[str, SeverityLevel]] = {
    "adopted": ("the new model is now used", "information"),
    "kept_old": ("the new model is not used", "warning"),
    "failed": ("failed", "error"),
}
"""How a training ends, for one who did not watch it."""


ENDED: dict[str, tuple[str, SeverityLevel]] = {
    "succeeded": ("Done", "information"),
    PROBLEM_FOUND: ("Problem found", "warning"),
    "failed": ("Failed", "error"),
    "cannot_run": ("Could not run", "warning"),
    "cancelled": ("Stopped", "warning"),
}
"""How a session ends, by its outcome."""


def sentence(event: Any) -> tuple[str, SeverityLevel] | None:
    """What an event says to the operator and how grave it is, or None."""
    match event.kind:
        case "SessionEnded":
            outcome, severity = ENDED.get(outcome_in_words(event.state, event.result), (event.state, "error"))
            return words.one_line(f"{outcome}: {event.summary}"), severity
        case "ChangeSetReady":
            return f"{words.count(event.files, 'changed file')} to land  (2)", "warning"
        case "PermissionAsked":
            return words.one_line(f"Permission needed: {event.title}  (2)"), "warning"
        case "NotificationsGivenUp":
            count = words.count(event.number, "notification")
            return words.one_line(f"{count} not delivered to the {event.subject}: {event.reason}"), "warning"
        case "FaultReported":
            return words.one_line(f"{event.where}: {event.message}"), "error"
        case "TrainingMoved" if event.state in TRAINED:
            outcome, severity = TRAINED[event.state]
            return words.one_line(f"training: {outcome}; {event.note}  (7)"), severity
        case "CostWarned":
            share = 100 * event.spent // max(1, event.cap)
            spent, cap = words.money(event.spent), words.money(event.cap)
            return f"cost: {share} % of the {event.window} cap ({spent} of {cap})", "warning"
        case "HoldPlaced":
            return words.one_line(f"{event.subject or 'held'}: {event.reason}"), "warning"
    return None


def terminal(app: App[Any], sequence: str) -> None:
    """Write an escape sequence to the terminal between two frames.

    Textual has no public door for this (its own `copy_to_clipboard` goes the same way), so this is the one place.
    """
    driver = app._driver
    if driver is not None and not driver.is_headless:
        driver.write(sequence)


def title(app: App[Any], text: str) -> None:
    """Set the terminal's title."""
    terminal(app, f"\x1b]2;{sanitise(words.one_line(text))}\x1b\\")


def notify(app: App[Any], text: str) -> None:
    """A notification of the terminal itself (OSC 9); terminals that know nothing of it ignore it."""
    terminal(app, f"\x1b]9;{sanitise(words.one_line(text))[:200]}\x1b\\")
