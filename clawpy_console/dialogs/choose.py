"""One of a few things, each with a key of its own."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog


class Choose(Dialog[str | None]):
    """Gives the value whose key was pressed, None on Escape. `options` are key, value, what it means. `by_key` gives
    the key instead, where two values may read the same."""

    def __init__(
        self, title: str, options: Sequence[tuple[str, str, str]], *, present: str, by_key: bool = False
    ) -> None:
        super().__init__()
        self._title, self._options, self._present, self._by_key = title, options, present, by_key

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            wide = max(len(value) for _, value, _ in self._options) + 2
            lines = []
            for key, value, meaning in self._options:
                here = value == self._present
                lines.append(
                    Content.assemble(
                        (f"{key}  ", "bold $accent"),
                        (f"{'●' if here else '○'} {value:<{wide}}", "bold $ink" if here else "$ink"),
                        (meaning, "$grey"),
                    )
                )
            yield Static(Content("\n").join(lines), markup=False)
            yield Static(Content.assemble("\n", ("esc", "$accent"), " cancel"), classes="note", markup=False)

    def on_key(self, event: events.Key) -> None:
        if event.key == "f12":
            return
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self.not_by_enter("its key takes it")
        for key, value, _ in self._options:
            if event.character == key:
                self.dismiss(key if self._by_key else value)
