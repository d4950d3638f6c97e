"""What is asked when the engine cannot be opened: try again, or take over from the one that runs (SPEC 7.5)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console.dialogs.ask import Answer, Ask
from engine.values import Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

TRY_AGAIN: Answer = ("r", "try again", "")
QUIT = ("q", "quit")


def show_refusal(app: ConsoleApp, refusal: Refusal) -> None:
    """Say in full why the engine could not be opened, and how to fix it."""

    def answered(key: str | None) -> None:
        if key:
            app.begin()
        else:
            app.exit(return_code=1)

    fix = Content.assemble("\n\n", ("→ ", "$accent"), refusal.fix) if refusal.fix else ""
    text = Content.assemble((refusal.message, "bold $ink"), fix)
    app.push_screen(Ask("The engine could not start", text, (TRY_AGAIN,), cancel=QUIT), answered)


def ask_to_take_over(app: ConsoleApp, refusal: Refusal) -> None:
    """A headless engine holds the home: ask whether to take over from it, and wait until it has ended."""

    def answered(key: str | None) -> None:
        if key is None:
            app.exit(return_code=1)
        elif key == "r":
            app.begin()
        else:
            _take_over(app, finish=key == "t")

    answers = (
        ("t", "take over", "running work finishes first"),
        ("T", "take over now", "running work becomes cards again"),
        TRY_AGAIN,
    )
    app.push_screen(Ask("Another engine is already running", str(refusal), answers, cancel=QUIT), answered)


def _take_over(app: ConsoleApp, *, finish: bool) -> None:
    from engine import take_over

    stop_waiting = threading.Event()
    how = "It finishes its running work first." if finish else "Its running work becomes cards again."
    waiting = Ask("Waiting for the other engine to stop", how, (), cancel=("escape", "do not wait"))

    def answered(refusal: Refusal | None) -> None:
        if waiting in app.screen_stack:
            waiting.dismiss(None)
        if refusal is None:
            app.begin()
        else:
            ask_to_take_over(app, refusal)

    def ended(free: bool) -> None:
        answered(None if free else Refusal("home_held", "The other engine still finishes its work.", ""))

    def enough() -> bool:
        return stop_waiting.is_set() or not app.is_running

    app.push_screen(waiting, lambda _: stop_waiting.set())
    app.ask(lambda: take_over(app.home, finish=finish, enough=enough), ended, answered)
