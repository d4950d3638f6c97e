"""A question before something that cannot be taken back. Its yes is a key of its own, never Enter."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog


class Confirm(Dialog[bool]):
    """Asks; True when `key` was pressed, False on Escape or n. Other keys do nothing; Enter says so."""

    def __init__(self, title: str, question: str, *, key: str, word: str) -> None:
        super().__init__()
        self._title, self._question, self._key, self._word = title, question, key, word

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            yield Static(Content(self._question), markup=False)
            yield Static(
                Content.assemble(
                    "\n", (self._key, "bold $wants"), f" {self._word}     ", ("esc", "$accent"), " cancel"
                ),
                classes="note",
                markup=False,
            )

    def on_key(self, event: events.Key) -> None:
        if event.key == "f12":
            return
        event.stop()
        if event.character == self._key:
            self.dismiss(True)
        elif event.key in ("escape", "n"):
            self.dismiss(False)
        elif event.key == "enter":
            self.not_by_enter(f"{self._key} {self._word}")
