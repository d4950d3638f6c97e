"""A prompt of one's own, for one of the workspaces."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static, TextArea

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings

FLOWS = "text for an agent, or a flow: lint, bisect test=… good=…"


class OwnPrompt(Dialog[tuple[str, str] | None]):
    """Gives `(prompt, workspace)`, or None. ctrl+s makes the card, ctrl+w takes the next workspace.

    `text` stands there to begin with, and `refused` under it: what was wrong with it. `left` is what stood there when
    it was closed.
    """

    BINDINGS = bindings("prompt")
    DEFAULT_CSS = "OwnPrompt #refused { color: $wrong; height: auto; }"

    def __init__(self, workspaces: Sequence[str], workspace: str, text: str = "", refused: str = "") -> None:
        super().__init__()
        self._text, self._refused = text, refused
        self.left = ""
        self._workspaces = list(workspaces) or [""]
        self._at = self._workspaces.index(workspace) if workspace in self._workspaces else 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content("New prompt")
            yield Static(id="place", classes="note", markup=False)
            area = TextArea(self._text, id="text", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
            area.styles.height = 8
            yield area
            if self._refused:
                yield Static(Content(f"✗ {self._refused}"), id="refused")
            yield Static(FLOWS, classes="note", markup=False)
            other = [Content.assemble(("^w", "$accent"), " next workspace     ")] if len(self._workspaces) > 1 else []
            keys = Content.assemble(("^s", "$accent"), " create card     ", *other, ("esc", "$accent"), " cancel")
            yield Static(keys, classes="note", markup=False)

    def on_mount(self) -> None:
        self._show_place()
        area = self.query_one("#text", TextArea)
        area.move_cursor(area.document.end)
        area.focus()

    def _show_place(self) -> None:
        more = f"  ({self._at + 1} of {len(self._workspaces)})" if len(self._workspaces) > 1 else ""
        place = words.name(self._workspaces[self._at])
        self.query_one("#place", Static).update(Content.assemble("for ", (place, "bold $ink"), more))

    def action_make(self) -> None:
        if text := self.query_one("#text", TextArea).text.strip():
            self.dismiss((text, self._workspaces[self._at]))

    def action_next_place(self) -> None:
        self._at = (self._at + 1) % len(self._workspaces)
        self._show_place()

    def action_close(self) -> None:
        self.left = self.query_one("#text", TextArea).text.strip()
        self.dismiss(None)
