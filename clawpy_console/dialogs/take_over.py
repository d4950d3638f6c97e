"""The home is held by a headless engine: take over from it (SPEC 7.5)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog
from engine.values import Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

KEYS = (
    ("t", "take over; running work finishes first"),
    ("T", "take over now; running work becomes cards again"),
    ("r", "try again"),
    ("q", "leave"),
)


class TakeOver(Dialog[None]):
    """Asks what to do about the other engine, and waits for it to end. Escape ends the waiting, then leaves."""

    app: ConsoleApp

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self._refusal = refusal
        self._waiting = False
        self._enough = threading.Event()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content("Another engine is already running")
            yield Static(Content.styled(self._refusal.message, "bold $ink"), markup=False)
            yield Static("", id="waiting", markup=False)
            yield Static(Content("\n").join([Content(""), *(_key(*one) for one in KEYS)]), classes="note", markup=False)

    def on_key(self, event: events.Key) -> None:
        if event.key == "f12":
            return
        event.stop()
        if self._waiting:
            if event.key == "escape":
                self._enough.set()
        elif event.character in ("t", "T"):
            self._take(finish=event.character == "t")
        elif event.character == "r":
            self._again()
        elif event.character == "q" or event.key == "escape":
            self.app.exit(return_code=1)

    def _take(self, *, finish: bool) -> None:
        from engine import take_over

        self._waiting = True
        self._enough.clear()
        self._say("waiting until it has finished what runs; esc ends the waiting" if finish else "it is ending")
        self.app.ask(
            lambda: take_over(self.app.home, finish=finish, enough=self._enough.is_set), self._taken, self._refused
        )

    def _taken(self, free: bool) -> None:
        self._waiting = False
        if free:
            self._again()
        else:
            self._say("it finishes its running work and then stops; try again later")

    def _refused(self, refusal: Refusal) -> None:
        self._waiting = False
        self._say(str(refusal))

    def _say(self, text: str) -> None:
        self.query_one("#waiting", Static).update(Content(f"\n{text}"))

    def _again(self) -> None:
        self.dismiss()
        self.app.begin()

    def on_unmount(self) -> None:
        self._enough.set()


def _key(key: str, words: str) -> Content:
    return Content.assemble((key, "bold $accent"), f"  {words}")
