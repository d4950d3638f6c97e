"""A few words that have to be read, and maybe copied: they stay until they are closed."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog


class Told(Dialog[None]):
    """Shows `text`; y copies it, Escape or Enter closes."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            yield Static(Content(self._text), markup=False)
            keys = Content.assemble("\n", ("y", "$accent"), " copy it     ", ("esc", "$accent"), " close")
            yield Static(keys, classes="note", markup=False)

    def on_key(self, event: events.Key) -> None:
        if event.key == "f12":
            return
        event.stop()
        if event.character == "y":
            self.app.copy_to_clipboard(self._text)
        elif event.key in ("escape", "enter"):
            self.dismiss()
