"""The base of dialogs with an editor: no edit is lost by one key."""

from __future__ import annotations

from textual import on
from textual.widgets import TextArea

from clawpy_console.dialogs.base import Dialog


class EditDialog(Dialog[bool]):
    """Edits a text. Gives True when it was saved; an edit that is not saved needs the key that closes twice."""

    AUTO_FOCUS = "#text"

    original = ""
    """The text before the edit."""

    _confirming_close = False

    def editor(self, *, line_numbers: bool = False) -> TextArea:
        """The widget of the text."""
        return TextArea(self.original, id="text", soft_wrap=True, show_line_numbers=line_numbers, tab_behavior="focus")

    @property
    def text(self) -> str:
        """The text in the editor."""
        return self.query_one("#text", TextArea).text

    @on(TextArea.Changed, "#text")
    def _edited(self) -> None:
        self._confirming_close = False

    def action_close(self) -> None:
        if self.text == self.original or self._confirming_close:
            self.dismiss(False)
            return
        self._confirming_close = True
        self.show_status("▲ Not saved. Press the same key again to discard your edit.")
