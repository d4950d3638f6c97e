"""A decision that changes how the system acts: what it changes, and why, before its key (SPEC 5.4, 6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings, shown_key
from clawpy_console.widgets.drawn import Draw, Drawn
from clawpy_console.widgets.keyline import KeyLine

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


class Decide(Dialog[str | None]):
    """Gives the reason that was typed, "" where none is asked for or given; None on Escape. Enter decides nothing,
    and says so.

    `asks` is what stands in the empty line of the reason, "" for a decision without one; `reason` stands there already.
    """

    app: ConsoleApp

    BINDINGS = bindings("deciding")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    Decide .dialog { width: 100; }
    Decide #what { height: auto; max-height: 60vh; scrollbar-size-vertical: 1; }
    Decide #reason { height: 3; margin: 1 0 0 0; }
    Decide KeyLine { background: $surface; dock: none; padding: 0; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, draw: Draw, *, asks: str = "", reason: str = "") -> None:
        super().__init__()
        self._title, self._draw, self._asks, self._reason = title, draw, asks, reason

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            with VerticalScroll(id="what", can_focus=False):
                yield Drawn(id="told")
            if self._asks:
                yield Input(self._reason, placeholder=self._asks, select_on_focus=False, id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#told", Drawn).show(self._draw)

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            self._entered()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.not_by_enter(f"{shown_key('deciding.decide', self.app.keymap)} decides")

    def action_page(self, by: int) -> None:
        pane = self.query_one("#what", VerticalScroll)
        pane.scroll_to(y=pane.scroll_offset.y + by * max(1, pane.size.height - 1), animate=False)

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip() if self._asks else "")

    def action_close(self) -> None:
        self.dismiss(None)
