"""Passes the engine's events on to the app, as one message at most ten times a second.

The message names the topics that changed, which the app then reads again. Some events are also shown to the operator:
as a toast, and as a bell and a notification of the terminal while it is not in front (SPEC 9.7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message
from textual.notifications import SeverityLevel

from clawpy_console import formats
from clawpy_console.formats import one_line
from engine.model import PROBLEM_FOUND, outcome_in_words, sanitise

if TYPE_CHECKING:
    from textual.app import App

    from engine.events import Event, EventBus


BATCH_INTERVAL_S = 0.1
"""Minimum number of seconds between two messages."""

SCREEN_TOPICS = frozenset({"training"})
"""Topics that are not in `AppState`, because a screen reads them itself."""

SHOWN_KINDS = frozenset(
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
"""Kinds of events that may be shown to the operator; they are passed on one by one, in order."""

MAX_SHOWN = 20
"""Maximum number of such events in one message."""


@dataclass
class EngineMoved(Message):
    """What the engine reported since the last message."""

    topics: frozenset[str]
    """The topics that changed."""
    sessions: frozenset[str]
    """The sessions that wrote output."""
    shown: tuple[Event, ...]
    """The events of `SHOWN_KINDS`."""


class Bridge:
    """Listens to the bus of one engine for one app. Created and closed on the event loop."""

    def __init__(self, bus: EventBus, post: Callable[[EngineMoved], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._delivered_at = float("-inf")
        self._closed = False
        self._subscription = bus.subscribe(self._wake)

    @property
    def dropped(self) -> int:
        """Number of events that the app missed because it was too slow; the ledger has them all."""
        return self._subscription.dropped

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._subscription.close()

    def _wake(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
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
            shown = [event for event in others if event.kind in SHOWN_KINDS]
            self._post(EngineMoved(topics, frozenset(event.subject for event in output), tuple(shown[-MAX_SHOWN:])))


TRAINING_OUTCOMES: dict[str, tuple[str, SeverityLevel]] = {
    "adopted": ("the new model is now used", "information"),
    "kept_old": ("the new model is not used", "warning"),
    "failed": ("failed", "error"),
}
"""The toast about the end of a training, by its state."""


SESSION_OUTCOMES: dict[str, tuple[str, SeverityLevel]] = {
    "succeeded": ("Done", "information"),
    PROBLEM_FOUND: ("Problem found", "warning"),
    "failed": ("Failed", "error"),
    "cannot_run": ("Could not run", "warning"),
    "cancelled": ("Stopped", "warning"),
}
"""The first words of the toast about the end of a session, by its outcome."""


def toast_of(event: Any) -> tuple[str, SeverityLevel] | None:
    """The text and severity of the toast about an event, None for no toast."""
    match event.kind:
        case "SessionEnded":
            outcome, severity = SESSION_OUTCOMES.get(
                outcome_in_words(event.state, event.result), (event.state, "error")
            )
            return one_line(f"{outcome}: {event.summary}"), severity
        case "ChangeSetReady":
            return f"{formats.count(event.files, 'changed file')} to land  (2)", "warning"
        case "PermissionAsked":
            return one_line(f"Permission needed: {event.title}  (2)"), "warning"
        case "NotificationsGivenUp":
            count = formats.count(event.number, "notification")
            return one_line(f"{count} not delivered to the {event.subject}: {event.reason}"), "warning"
        case "FaultReported":
            return one_line(f"{event.where}: {event.message}"), "error"
        case "TrainingMoved" if event.state in TRAINING_OUTCOMES:
            outcome, severity = TRAINING_OUTCOMES[event.state]
            return one_line(f"training: {outcome}; {event.note}  (7)"), severity
        case "CostWarned":
            share = 100 * event.spent // max(1, event.cap)
            spent, cap = formats.money(event.spent), formats.money(event.cap)
            return f"cost: {share} % of the {event.window} cap ({spent} of {cap})", "warning"
        case "HoldPlaced":
            return one_line(f"{event.subject or 'held'}: {event.reason}"), "warning"
    return None


def write_to_terminal(app: App[Any], sequence: str) -> None:
    """Write an escape sequence to the terminal between two frames.

    Textual has no public method for this; its own `copy_to_clipboard` uses the driver too.
    """
    driver = app._driver
    if driver is not None and not driver.is_headless:
        driver.write(sequence)


def set_terminal_title(app: App[Any], text: str) -> None:
    """Set the title of the terminal."""
    write_to_terminal(app, f"\x1b]2;{sanitise(one_line(text))}\x1b\\")


def notify_terminal(app: App[Any], text: str) -> None:
    """Show a notification of the terminal (OSC 9); terminals without them ignore it."""
    write_to_terminal(app, f"\x1b]9;{sanitise(one_line(text))[:200]}\x1b\\")
