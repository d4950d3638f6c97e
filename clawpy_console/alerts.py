"""Telling a person who looks elsewhere: bell, terminal title, OSC 9 (SPEC 9.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.notifications import SeverityLevel

from clawpy_console import words
from engine.model import sanitise

if TYPE_CHECKING:
    from textual.app import App


TRAINED: dict[str, tuple[str, SeverityLevel]] = {
    "adopted": ("the new model is now used", "information"),
    "kept_old": ("the new model is not used", "warning"),
    "failed": ("failed", "error"),
}
"""How a training ends, for one who did not watch it."""


ENDED: dict[str, tuple[str, SeverityLevel]] = {
    "succeeded": ("Done", "information"),
    "failed": ("Failed", "error"),
    "cannot_run": ("Could not run", "warning"),
    "cancelled": ("Stopped", "warning"),
}
"""How a session ends, by its result."""


def sentence(event: Any) -> tuple[str, SeverityLevel] | None:
    """What an event says to the operator and how grave it is, or None."""
    match event.kind:
        case "SessionEnded":
            said, grave = ENDED.get(event.result or event.state, (event.state, "error"))
            return words.one_line(f"{said}: {event.summary}"), grave
        case "ChangeSetReady":
            return f"{words.count(event.files, 'changed file')} to land  (2)", "warning"
        case "PermissionAsked":
            return words.one_line(f"Permission needed: {event.title}  (2)"), "warning"
        case "NotificationsGivenUp":
            told = words.count(event.number, "notification")
            return words.one_line(f"{told} not delivered to the {event.subject}: {event.reason}"), "warning"
        case "FaultReported":
            return words.one_line(f"{event.where}: {event.message}"), "error"
        case "TrainingMoved" if event.state in TRAINED:
            said, grave = TRAINED[event.state]
            return words.one_line(f"training: {said}; {event.note}  (7)"), grave
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
