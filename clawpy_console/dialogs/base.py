"""The base of dialogs: the screen behind them, dimmed once; a pane that previews a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Static

from clawpy_console.fields import Field
from clawpy_console.widgets.base_screen import BaseScreen
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.status import Frame

if TYPE_CHECKING:
    from engine import Engine
    from engine.model import Refusal


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer], BaseScreen[Answer]):  # styles come by the first base
    """A modal screen over a picture of the one behind it.

    Textual draws that picture anew whenever a part of the dialog is drawn, and mixes colours for each of its
    thousands of segments, which would hold the event loop. Here it is drawn once for a size and a colour. A dialog
    that fills the terminal anyway has the class `-alone`: nothing is drawn behind it.

    The state line and the banner are above every dialog, and stay live: a stop is seen whatever is open.
    """

    FRAMED = True
    _picture: tuple[object, list[Strip]] | None = None

    def on_mount(self) -> None:
        if self.FRAMED:
            self.mount(Frame(self.app.current_mode), before=0)

    def on_screen_resume(self) -> None:
        self._picture = None
        self.call_after_refresh(self.app.draw_frames)

    def on_resize(self, event: events.Resize) -> None:
        self.app.draw_frames()

    def frame(self, title: str, subtitle: str = "", *, classes: str = "") -> Vertical:
        """The box that holds the widgets of the dialog."""
        frame = Vertical(classes=f"dialog {classes}")
        frame.border_title, frame.border_subtitle = Content(title), Content(subtitle)
        return frame

    def show_status(self, text: str, style: str = "$wants") -> None:
        """Say something in the line `#status`; "" for nothing."""
        self.query_one("#status", Static).update(Content.styled(text, style))

    def show_refusal(self, refusal: Refusal) -> None:
        """Say why it cannot be done."""
        self.show_status(f"✗ {refusal}", "$wrong")

    def action_close(self) -> None:
        self.dismiss(None)

    def show_enter_hint(self, how: str) -> None:
        """Enter was pressed where it does nothing, so that nothing is done by accident: `how` says what does."""
        self.query_one(".dialog").border_subtitle = Content(f"⏎ does nothing here: {how}")

    def draw_on_picture(self, picture: list[Strip]) -> list[Strip]:
        """The picture behind the dialog, made of that of the screen there."""
        return picture

    def render_lines(self, crop: Region) -> list[Strip]:
        """The picture behind the dialog."""
        key = (self.size, self.styles.background)
        if self._picture is None or self._picture[0] != key:
            behind = self.render()
            if not isinstance(behind, BackgroundScreen):
                return super().render_lines(crop)
            self._picture = (key, self.draw_on_picture(_dimmed(behind.screen._compositor.render_strips(), behind)))
        lines = self._picture[1][crop.y : crop.bottom]
        return lines if crop.column_span == (0, self.size.width) else [line.crop(crop.x, crop.right) for line in lines]


def _dimmed(strips: list[Strip], behind: BackgroundScreen) -> list[Strip]:
    dim: dict[Style | None, Style | None] = {}

    def dimmed(segment: Segment) -> Segment:
        if segment.style not in dim:
            [item] = behind.process_segments([Segment(" ", segment.style)], behind.color)
            dim[segment.style] = item.style
        return Segment(segment.text, dim[segment.style])

    return [Strip([dimmed(segment) for segment in strip], strip.cell_length) for strip in strips]


T = TypeVar("T")


class PreviewDialog(Dialog[Answer]):
    """Shows a preview. Subclasses compose a `ReflowingText` `#change` in a `VerticalScroll` `#pane`, a `Static`
    `#status` and a `KeyLine`."""

    DEFAULT_CSS = """
    PreviewDialog #body { height: 1fr; }
    PreviewDialog #pane { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    PreviewDialog #change { height: auto; }
    PreviewDialog #status { height: auto; padding: 0 1; }
    PreviewDialog KeyLine { background: $surface; dock: bottom; padding: 0; }
    """

    def preview(self, call: Callable[[Engine], T], on_result: Callable[[T], object], *, wait: float) -> None:
        """Work out the preview in a thread, after `wait` seconds; a newer one takes its place."""
        self.read(call, on_result, self.show_refusal, group="preview", wait=wait)

    def show(self, fields: Iterable[Field]) -> None:
        """Show what would change."""
        self.query_one("#change", ReflowingText).show_fields(fields)

    def action_page(self, by: int) -> None:
        pane = self.query_one("#pane", VerticalScroll)
        pane.scroll_relative(y=by * max(1, pane.size.height - 1), animate=False)
