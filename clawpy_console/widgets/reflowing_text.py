"""Lines whose wording depends on the width they get, and fields laid out as such lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from clawpy_console.fields import Field, label_width
from clawpy_console.formats import crop
from clawpy_console.widgets.row_view import selectable

LineRenderer = Callable[[int], Sequence[Content]]
"""`renderer(width)`: the lines for a width in cells; what is wider is cut."""


class ReflowingText(Widget):
    """Shows what its renderer gives for its present width, and asks again when the width changes.

    Only lines that changed are drawn again: a line that stands costs a key nothing.
    """

    DEFAULT_CSS = "ReflowingText { height: auto; }"

    auto_links = Reactive(False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._renderer: LineRenderer = lambda width: ()
        self._rendered: tuple[int, tuple[Content, ...]] = (0, ())  # a width, and the lines for it

    def show(self, renderer: LineRenderer) -> None:
        """Draw with `renderer` from now on; nothing happens on screen when the lines are the same."""
        width, before = self._rendered
        self._renderer = renderer
        now = tuple(renderer(max(1, width)))
        self._rendered = (width, now)
        if len(now) != len(before) and self.styles.is_auto_height:
            self.refresh(layout=True)
            return
        rows = max(len(now), len(before))
        changed = [y for y in range(rows) if not (y < len(now) and y < len(before) and now[y].is_same(before[y]))]
        if changed:
            self.refresh(*(Region(0, y, max(1, width), 1) for y in changed))

    def _lines(self, width: int) -> tuple[Content, ...]:
        width = max(1, width)
        if self._rendered[0] != width:
            self._rendered = (width, tuple(self._renderer(width)))
        return self._rendered[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        """All lines as one text: what is selected and copied."""
        return Content("\n").join(self._lines(self.content_size.width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        lines = self._lines(width)
        if y >= len(lines):
            return Strip.blank(width, self.visual_style.rich_style)
        [strip] = Visual.to_strips(self, lines[y], width, 1, self.visual_style, apply_selection=False)
        return Strip(selectable(self, strip, 0, y))


TONES = {"title": "bold $ink", "heading": "bold $faint"}
"""Styles of the tones that are no colour."""


def render_fields(fields: Iterable[Field], width: int) -> list[Content]:
    """Fields as lines of at most `width` cells, each wrapped below itself."""
    lines: list[Content] = []
    fields = list(fields)
    label = label_width(fields)
    for field in fields:
        style = TONES.get(field.tone, f"${field.tone}")
        if field.tone == "heading":
            lines += [Content("")] if lines else []
            lines.append(Content.styled(crop(field.text.upper(), width), style))
        elif field.name:
            first, *rest = Content.styled(field.text or " ", style).wrap(max(8, width - label))
            lines.append(Content.assemble((f"{field.name:<{label}}", "$faint"), first))
            lines += [Content.assemble(" " * label, line) for line in rest]
        else:
            lines += Content.styled(field.text or " ", style).wrap(max(8, width))
    return lines
