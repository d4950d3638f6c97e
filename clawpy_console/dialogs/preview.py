"""A dialog with a pane beside the input that shows what the input would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from textual.containers import VerticalScroll

from clawpy_console.dialogs.base import Answer, Dialog
from clawpy_console.fields import Field
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.parts import drawn

if TYPE_CHECKING:
    from engine import Engine

T = TypeVar("T")


class PreviewDialog(Dialog[Answer]):
    """Its subclass composes a `Drawn` `#change` in a `VerticalScroll` `#pane`, a `Static` `#said` and a `KeyLine`."""

    DEFAULT_CSS = """
    PreviewDialog #body { height: 1fr; }
    PreviewDialog #pane { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    PreviewDialog #change { height: auto; }
    PreviewDialog #said { height: auto; padding: 0 1; }
    PreviewDialog KeyLine { background: $surface; dock: bottom; padding: 0; }
    """

    def preview(self, call: Callable[[Engine], T], then: Callable[[T], object], *, wait: float) -> None:
        """Work out the preview in a thread, after `wait` seconds; a newer one takes its place."""
        self.read(call, then, self.refuse, group="preview", wait=wait)

    def show(self, fields: Iterable[Field]) -> None:
        """Show what would change."""
        listed = list(fields)
        self.query_one("#change", Drawn).show(lambda width: drawn(listed, width))

    def action_page(self, by: int) -> None:
        pane = self.query_one("#pane", VerticalScroll)
        pane.scroll_relative(y=by * max(1, pane.size.height - 1), animate=False)
