"""Passes the engine's events on to the app, at most ten times a second.

A message names the topics that changed, which the app then reads again. It also has the events that become toasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.message import Message
from textual.notifications import SeverityLevel

from clawpy_console import formats
from engine.model import PROBLEM_FOUND, SessionState, describe_outcome

if TYPE_CHECKING:
    from engine.events import Event, EventBus, SessionEnded

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

MAX_TOASTS = 20
"""Maximum number of such events in one message."""


@dataclass
class EngineChanged(Message):
    """The engine reported events since the last message."""

    topics: frozenset[str]
    """The topics that changed."""
    sessions: frozenset[str]
    """The sessions that wrote output."""
    toast_events: tuple[Event, ...]
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
        if not events:
            return
        topics = frozenset(topic for event in events if event.kind != "SessionOutput" for topic in event.topics)
        sessions = frozenset(event.subject for event in events if event.kind == "SessionOutput")
        toast_events = [event for event in events if event.kind in TOAST_KINDS][-MAX_TOASTS:]
        self._post(EngineChanged(topics, sessions, tuple(toast_events)))


# Toasts


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


class Toast(NamedTuple):
    """A toast about one fact."""

    text: str
    severity: SeverityLevel
    about: str = ""
    """What it is about: it takes the place of an earlier toast about the same."""
    alerts: bool = True
    """Whether it also rings, and shows in the terminal, while the console does not have the focus."""
    workspace: str = ""
    """The workspace of the event, "" for none."""


def make_toasts(events: Sequence[Event]) -> Iterator[Toast]:
    """The toasts about `events`, in their order. A session that ends and leaves changes records both at once, and gets
    one toast."""
    ended = {event.subject for event in events if event.kind == "SessionEnded"}
    event: Any  # each kind has its own fields
    files: dict[str, int] = {}  # the number of changed files, by session
    for event in events:
        if event.kind == "ChangeSetReady":
            files[event.session_id] = event.files
    for event in events:
        if event.kind == "SessionEnded":
            yield _make_session_toast(event, files.get(event.subject, 0))._replace(workspace=event.workspace)
        elif event.kind == "ChangeSetReady" and event.session_id in ended:
            continue  # the toast about the end of the session tells of it
        elif (toast := _make_toast(event)) is not None:
            yield toast._replace(workspace=event.workspace)


def _make_session_toast(event: SessionEnded, changed_files: int) -> Toast:
    """The toast about the end of a session that changed so many files."""
    outcome, severity = SESSION_OUTCOMES.get(describe_outcome(event.state, event.result), (event.state, "error"))
    is_in_summary = event.summary.lower().startswith(f"{outcome.lower()} ")  # "stopped by you"
    text = f"{outcome}{event.summary[len(outcome) :]}" if is_in_summary else f"{outcome}: {event.summary}"
    if not changed_files:
        return Toast(text, severity, about="stop" if event.state == SessionState.CANCELLED else "")
    return Toast(f"{text} · {_describe_files_to_land(changed_files)}", "error" if severity == "error" else "warning")


def _describe_files_to_land(files: int) -> str:
    return f"{formats.count(files, 'changed file')} to land  (2)"


def _make_toast(event: Any) -> Toast | None:
    """The toast about an event that is not the end of a session, None for no toast."""
    match event.kind:
        case "ChangeSetReady":
            return Toast(_describe_files_to_land(event.files), "warning")
        case "PermissionAsked":
            return Toast(f"Permission needed: {event.title}  (2)", "warning")
        case "NotificationsGivenUp":
            count = formats.count(event.number, "notification")
            return Toast(f"{count} not delivered to the {event.subject}: {event.reason}", "warning")
        case "FaultReported":
            return Toast(f"{event.where}: {event.message}", "error")
        case "TrainingMoved" if event.state in TRAINING_OUTCOMES:
            outcome, severity = TRAINING_OUTCOMES[event.state]
            return Toast(f"training: {outcome}; {event.note}  (7)", severity)
        case "CostWarned":
            share = 100 * event.spent // max(1, event.cap)
            spent, cap = formats.money(event.spent), formats.money(event.cap)
            return Toast(f"cost: {share} % of the {event.window} cap ({spent} of {cap})", "warning")
        case "HoldPlaced":
            return Toast(f"{event.subject or 'held'}: {event.reason}", "warning", about=event.subject)
        case "HoldLifted":
            return Toast(f"The {event.subject} ended.", "information", about=event.subject, alerts=False)
    return None
