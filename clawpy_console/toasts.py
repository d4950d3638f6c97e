"""The toasts about what happened in the engine: which events become toasts, and how they are worded.

For example the end of a session becomes `Finished: 12 tests passed · 2 changed files to land`. `ConsoleApp` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from textual.notifications import SeverityLevel

from clawpy_console import formats
from clawpy_console.fields import WORDS
from engine.model import SessionState, describe_outcome


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
    screen: str = ""
    """The screen that shows more, "" for none."""


MAX_TOASTS = 20
"""Maximum number of toasts about events that came together; those about the latest are shown."""


def make_toasts(events: Sequence[Any]) -> list[Toast]:
    """The toasts about `events`, all of kinds in `TOAST_MAKERS`, in their order. A session that ends and leaves changes
    records both at once, and gets one toast."""
    toasts = []
    ended = {event.subject for event in events if event.kind == "SessionEnded"}
    changes = {event.session_id: event for event in events if event.kind == "ChangeSetReady"}
    for event in events:
        if event.kind == "ChangeSetReady" and event.session_id in ended:
            continue  # the toast about the end of the session tells of it
        toast = TOAST_MAKERS[event.kind](event)
        if toast is None:
            continue
        if event.kind == "SessionEnded" and event.subject in changes:
            toast = _add_files_to_land(toast, changes[event.subject])
        toasts.append(toast._replace(workspace=event.workspace))
    return toasts[-MAX_TOASTS:]


def _add_files_to_land(toast: Toast, event: Any) -> Toast:
    """The toast about the end of a session that left these changes."""
    severity: SeverityLevel = "error" if toast.severity == "error" else "warning"
    return toast._replace(text=f"{toast.text} · {_describe_files_to_land(event)}", severity=severity, screen="work")


SESSION_OUTCOMES = WORDS["session_toast"]
"""The first words of the toast about the end of a session, by its outcome."""


def _make_session_toast(event: Any) -> Toast:
    outcome, severity = SESSION_OUTCOMES.get(describe_outcome(event.state, event.result), (event.state, "error"))
    about = "stop" if event.state == SessionState.CANCELLED else ""
    text = f"{outcome}: {event.summary}".replace(f": {outcome.lower()} ", " ", 1)  # "stopped by you"
    return Toast(text, severity, about=about)


def _describe_files_to_land(event: Any) -> str:
    """The files of changes that wait; those that cannot be landed are counted alone."""
    to_land = event.files - event.refused
    parts = [f"{formats.count(to_land, 'changed file')} to land"] if to_land else []
    parts += [f"{formats.count(event.refused, 'file')} that cannot be landed"] if event.refused else []
    return ", ".join(parts)


TRAINING_OUTCOMES = WORDS["training_toast"]
"""The toast about the end of a training, by its state."""


def _make_training_toast(event: Any) -> Toast | None:
    """The toast about a training, None before its end."""
    if event.state not in TRAINING_OUTCOMES:
        return None
    outcome, severity = TRAINING_OUTCOMES[event.state]
    return Toast(f"training: {outcome}; {event.note}", severity, screen="insights")


def _make_cost_toast(event: Any) -> Toast:
    share = 100 * event.spent // max(1, event.cap)
    spent = formats.money(event.spent)
    cap = formats.money(event.cap)
    return Toast(f"cost: {share} % of the {event.window} cap ({spent} of {cap})", "warning")


def _make_delivery_toast(event: Any) -> Toast:
    count = formats.count(event.number, "notification")
    return Toast(f"{count} not delivered to the {event.subject}: {event.reason}", "warning")


TOAST_MAKERS: Mapping[str, Callable[[Any], Toast | None]] = {
    "SessionEnded": _make_session_toast,
    "ChangeSetReady": lambda event: Toast(_describe_files_to_land(event), "warning", screen="work"),
    "PermissionAsked": lambda event: Toast(f"Permission needed: {event.title}", "warning", screen="work"),
    "FaultReported": lambda event: Toast(f"{event.where}: {event.message}", "error"),
    "NotificationsGivenUp": _make_delivery_toast,
    "CostWarned": _make_cost_toast,
    "HoldPlaced": lambda event: Toast(f"{event.subject or 'held'}: {event.reason}", "warning", about=event.subject),
    "HoldLifted": lambda event: Toast(f"The {event.subject} ended.", "information", about=event.subject, alerts=False),
    "TrainingMoved": _make_training_toast,
}
"""The kinds of events that may become toasts, each with the function that words it."""
