"""What a surface did not get, from the queue: tried again at a word, or let go (SPEC 9.3, 10.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.values import Waiting

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def ask_to_retry(app: ConsoleApp, engine: Any, waiting: Waiting) -> None:
    """Ask whether to send it now; what is overtaken by now is not sent."""

    def retry() -> None:
        app.ask(lambda: engine.notify.retry_waiting(waiting.id), lambda _: app.renew(["changes"]))

    question = f"{words.one_line(waiting.title)}\n\nIf it is fixed, `clawpy notify test` checks it."
    app.confirm("Try again?", question, "try again", retry)


def let_go(app: ConsoleApp, engine: Any, waiting: Waiting) -> None:
    """The operator does not need it any more."""
    app.ask(lambda: engine.notify.dismiss_waiting(waiting.id), lambda _: app.renew(["changes"]))
