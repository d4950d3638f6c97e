"""A decision with a reason: what it changes, and the line in which you type why (SPEC 5.4, 6.5)."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console.dialogs.preview import PreviewDialog
from clawpy_console.fields import Field
from clawpy_console.keys import bindings, shown_key
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine


class Decide(PreviewDialog[str | None]):
    """Gives the reason that was typed, "" for none; None on Escape. Enter decides nothing, and says so. `told` is what
    the decision changes, `reason` stands in the line already."""

    BINDINGS = bindings("deciding", "preview")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    Decide .dialog { width: 100; }
    Decide #pane { height: auto; max-height: 60vh; padding: 0; }
    Decide #reason { height: 3; margin: 1 0 0 0; }
    Decide KeyLine { dock: none; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, told: Sequence[Field], reason: str) -> None:
        super().__init__()
        self._title, self._told, self._reason = title, told, reason

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            with VerticalScroll(id="pane", can_focus=False):
                yield Drawn(id="change")
            asks = "Reason, in a few words (kept with it)"
            yield Input(self._reason, placeholder=asks, select_on_focus=False, id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._told)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.not_by_enter(f"{shown_key('deciding.decide', self.app.keymap)} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())
