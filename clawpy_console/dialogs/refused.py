"""Why the engine cannot be opened, how to mend it, and the way to try again."""

from __future__ import annotations

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


class Refused(Dialog[None]):
    """Shows a refusal in full. `r` tries again, `q` leaves."""

    app: ConsoleApp

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self._refusal = refusal

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content("The engine could not start")
            dialog.border_subtitle = Content(self._refusal.code)
            yield Static(Content.styled(self._refusal.message, "bold $ink"), markup=False)
            if self._refusal.fix:
                yield Static(Content.assemble("\n", ("→ ", "$accent"), self._refusal.fix), markup=False)
            keys = Content.assemble("\n", ("r", "bold $accent"), " try again     ", ("q", "bold $accent"), " leave")
            yield Static(keys, classes="note", markup=False)

    def on_key(self, event: events.Key) -> None:
        if event.character == "r":
            event.stop()
            self.dismiss()
            self.app.begin()
        elif event.character == "q" or event.key == "escape":
            event.stop()
            self.app.exit(return_code=1)
