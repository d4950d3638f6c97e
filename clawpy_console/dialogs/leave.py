"""Leaving the console: stop, or let the engine work on without it (SPEC 7.5)."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog


class Leave(Dialog[str]):
    """Asks how to leave: "stop", "keep" (a headless engine goes on, if it `may_go_on`), or "" to stay. Enter
    only says that it does nothing."""

    def __init__(self, running: int, *, may_go_on: bool) -> None:
        super().__init__()
        self._sessions = running
        self._may_go_on = may_go_on

    def compose(self) -> ComposeResult:
        stops = f"; that stops {words.count(self._sessions, 'running session')}" if self._sessions else ""
        first = "; running work finishes first" if self._sessions else ""
        goes_on = Content.assemble(("k", "bold $accent"), f"    quit the console, keep the engine running{first}")
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content("Quit?")
            yield Static(
                Content("\n").join(
                    [
                        Content.assemble(("Q", "bold $wants"), f"    quit and stop the engine{stops}"),
                        *([goes_on] if self._may_go_on else []),
                        Content.assemble(("esc", "$accent"), "  cancel"),
                    ]
                ),
                markup=False,
            )

    def on_key(self, event: events.Key) -> None:
        if event.key == "f12":
            return
        event.stop()
        if event.character == "Q" or (event.character == "k" and self._may_go_on):
            self.dismiss("stop" if event.character == "Q" else "keep")
        elif event.key in ("escape", "n"):
            self.dismiss("")
        elif event.key == "enter":
            self.not_by_enter("press Q or k" if self._may_go_on else "press Q")
