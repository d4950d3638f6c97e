"""Jump mode: a label on each tab, pane, row and button in sight. Typing a label goes there.

`ConsoleApp` opens it on the screen in sight, whose widgets say themselves what a click on their parts does (`spots`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Offset
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from clawpy_console.screens.dialog import Dialog
from engine.frozen import frozen


@frozen
class Spot:
    """A place on the screen, and what a click there does: None only focuses `widget`."""

    widget: Widget
    on_screen: Offset
    act: Callable[[], object] | None = None

    def go(self) -> None:
        """Focus the widget, and do what a click does."""
        if self.widget.focusable:
            self.widget.focus()
        if self.act is not None:
            self.widget.call_later(self.act)


def find_spots(screen: Screen[object]) -> list[Spot]:
    """The places of `screen` that can be jumped to, in reading order: texts that can be clicked, the `spots` of widgets
    that have any, and widgets that take the focus."""
    clickable = _find_clickable_texts(screen)
    spots = [*clickable, *_find_widget_spots(screen, without={spot.widget for spot in clickable})]
    return sorted(spots, key=lambda spot: (spot.on_screen.y, spot.on_screen.x))


KEY_HINT_ACTIONS = ("screen.press(", "app.stop_everything(", "app.resume(")
"""The beginnings of the actions that a click on a key hint does. A hint gets no label: its own key is as short."""


def _find_clickable_texts(screen: Screen[object]) -> list[Spot]:
    """The first cell of each text with a `@click` action, except key hints."""
    spots_by_action: dict[tuple[Widget, str], Spot] = {}
    for y, strip in enumerate(screen._compositor.render_strips()):
        x = 0
        for text, style, _ in strip:
            action = style.meta.get("@click") if style else None
            if action and not action.startswith(KEY_HINT_ACTIONS):
                widget, _ = screen.get_widget_at(x, y)
                spot = Spot(widget, Offset(x, y), partial(widget.run_action, action))
                spots_by_action.setdefault((widget, action), spot)
            x += cell_len(text)
    return list(spots_by_action.values())


def _find_widget_spots(screen: Screen[object], without: Collection[Widget]) -> list[Spot]:
    """The visible `spots` of widgets, which are relative to the widget's own corner. A widget that has none but takes
    the focus has one at its corner."""
    spots: list[Spot] = []
    for widget, (region, clip) in screen._compositor.visible_widgets.items():
        if widget in without:
            continue
        corner = [(Offset(0, 0), None)] if widget.focusable else []
        spots_by_offset = {}
        for offset, act in getattr(widget, "spots", []) or corner:
            position = region.offset + offset
            if clip.contains_point(position) and region.contains_point(position):
                spots_by_offset[offset] = Spot(widget, position, act)
        spots += spots_by_offset.values()
    return spots


LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""The letters of labels, those under the fingers first."""


def make_labels(count: int) -> list[str]:
    """`count` labels of one letter, or all of two letters where those are too few; at most 676."""
    labels = list(LETTERS) if count <= len(LETTERS) else [first + second for first in LETTERS for second in LETTERS]
    return labels[:count]


class Jump(Dialog[Spot | None]):
    """Gives the spot whose label was typed, None on any other key."""

    HAS_FRAME = False
    COMPONENT_CLASSES = {"jump--label"}
    DEFAULT_CSS = """
    Jump { background: $background 50%; }
    Jump > .jump--label { background: $accent; color: $background; text-style: bold; }
    Jump:ansi > .jump--label { text-style: bold reverse; }
    """

    def __init__(self, spots_on_screen: list[Spot]) -> None:
        super().__init__()
        self._spots = dict(zip(make_labels(len(spots_on_screen)), spots_on_screen, strict=False))
        self._typed = ""

    def on_mount(self) -> None:
        self._size_when_opened = self.app.size

    def draw_on_picture(self, picture: list[Strip]) -> list[Strip]:
        """Draw what is left to type of each label that begins with what was typed, in the gap before its spot if that
        is free, so that the word stays readable."""
        style = self.get_component_rich_style("jump--label")
        for label, spot in self._spots.items():
            x, y = spot.on_screen
            if label.startswith(self._typed) and y < len(picture):  # a smaller terminal closes it after this drawing
                line = picture[y]
                letters = label[len(self._typed) :]
                if x >= len(letters) and not line.crop(x - len(letters), x).text.strip():
                    x -= len(letters)
                line_after = line.crop(x + len(letters), line.cell_length)
                picture[y] = Strip.join([line.crop(0, x), Strip([Segment(letters, style)]), line_after])
        return picture

    def on_resize(self, event: events.Resize) -> None:
        """Close, because the labels would stand beside their places. Textual sends this for the first layout, too."""
        if event.size != self._size_when_opened:
            self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Go to the spot whose label is typed whole; close at a key that begins no label."""
        event.stop()
        typed = self._typed + (event.character or "")
        if event.is_printable and typed in self._spots:
            self.dismiss(self._spots[typed])
        elif event.is_printable and any(label.startswith(typed) for label in self._spots):
            self._typed = typed
            self._picture = None
            self.refresh()
        else:
            self.dismiss(None)

    def on_click(self) -> None:
        self.dismiss(None)
