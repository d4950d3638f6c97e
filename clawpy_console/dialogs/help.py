"""Every key and what it does, written from the table of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console.actions import ACTIONS, GROUPS, shown_key
from clawpy_console.dialogs.base import Dialog

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


class Help(Dialog[None]):
    """The keys by group, with the id that `[keys]` in the configuration uses."""

    app: ConsoleApp  # type: ignore[assignment]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog -keys") as dialog:
            dialog.border_title = Content("Keys")
            dialog.border_subtitle = Content(f"esc closes · change them in {self.app.home.config_file} under [keys]")
            yield Static(self._text(), markup=False)

    def _text(self) -> Content:
        lines: list[Content] = []
        for group, title in GROUPS.items():
            lines += (
                [Content(""), Content.styled(title, "bold $accent")]
                if lines
                else [Content.styled(title, "bold $accent")]
            )
            for action in ACTIONS:
                if action.group == group:
                    first = shown_key(action.id, self.app.keymap)
                    keys = self.app.keymap.get(action.id, action.keys).split(",")[1:]
                    key = " ".join([first, *(one.strip() for one in keys if len(one.strip()) == 1)])
                    lines.append(
                        Content.assemble(
                            (f"  {key:<8} ", "bold $ink"), (f"{action.tooltip:<48} ", "$grey"), (action.id, "$faint")
                        )
                    )
        return Content("\n").join(lines)

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "question_mark", "q", "enter"):
            event.stop()
            self.dismiss()
