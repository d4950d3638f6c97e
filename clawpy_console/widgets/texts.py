"""Widgets of text: plain texts, headings, lines whose wording depends on the width they get, and lines to type in.

A `PlainText` has one wording; a `ReflowingText` asks for its lines again when its width changes. Fields are drawn in
the latter by `render_fields`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input, Static

from clawpy_console.fields import Field, compute_label_width
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.widgets import WidgetOptions, make_selectable

if TYPE_CHECKING:
    from textual.widgets import TextArea

LineRenderer = Callable[[int], Sequence[Content]]
"""`renderer(width)`: the lines for a width in cells; what is wider is cut."""


class PlainText(Static):
    """A text in which square brackets are no markup."""

    def __init__(self, text: str | Content = "", **options: Unpack[WidgetOptions]) -> None:
        super().__init__(text, markup=False, **options)

    def replace(self, content: Content) -> None:
        """Show `content`, unless it is there already. The screen is laid out again only if the height changes."""
        before = self.content
        if not (isinstance(before, Content) and before.is_same(content)):
            width, height = self.content_size
            is_as_high = width > 0 and content.get_height(self.styles.get_rules(), width) == height
            self.update(content, layout=self.styles.auto_dimensions and not is_as_high)


class Heading(PlainText):
    """The heading of a pane."""

    DEFAULT_CLASSES = "heading"


class ReflowingText(Widget):
    """Shows what its renderer gives for its present width, and asks again when the width changes."""

    DEFAULT_CSS = "ReflowingText { height: auto; }"

    auto_links = Reactive(False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._renderer: LineRenderer = lambda width: ()
        self._width = 1  # the width of the lines
        self._lines: Sequence[Content] = ()

    def show(self, renderer: LineRenderer) -> None:
        """Draw with `renderer` from now on; nothing happens on screen when the lines are the same."""
        before = self._lines
        self._renderer = renderer
        self._lines = renderer(self._width)
        is_as_high = len(before) == len(self._lines)
        if not (is_as_high and all(line.is_same(other) for line, other in zip(before, self._lines, strict=True))):
            self.refresh(layout=not is_as_high and self.styles.is_auto_height)

    def show_fields(self, fields: Iterable[Field]) -> None:
        """Show fields, one below the other."""
        listed = list(fields)
        self.show(lambda width: render_fields(listed, width))

    def _get_lines(self, width: int) -> Sequence[Content]:
        if width != self._width and width:
            self._width = width
            self._lines = self._renderer(width)
        return self._lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._get_lines(width))

    def render(self) -> Content:
        """All lines as one text: what is selected and copied."""
        return Content("\n").join(self._get_lines(self.content_size.width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        lines = self._get_lines(width)
        if y >= len(lines) or not width:  # a pane that is hidden at this size is drawn once more with no width
            return Strip.blank(width, self.visual_style.rich_style)
        [strip] = Visual.to_strips(self, lines[y], width, 1, self.visual_style, apply_selection=False)
        return Strip(make_selectable(self, strip, 0, y))


STYLE_OF_TONE = {"title": "bold $ink", "heading": "bold $faint"}
"""Styles of the tones that are no colour."""


def wrap_text(text: str, style: str, width: int, max_lines: int) -> list[Content]:
    """`text` as at most `max_lines` lines of `width` cells; no lines for an empty text."""
    return limit_lines(Content.styled(one_line(text), style).wrap(width), max_lines, width) if text else []


def limit_lines(lines: list[Content], max_lines: int, width: int) -> list[Content]:
    """At most `max_lines` of the lines; the last one ends with an ellipsis where more follow."""
    if len(lines) <= max_lines:
        return lines
    if not max_lines:
        return []
    return [*lines[: max_lines - 1], (lines[max_lines - 1].rstrip() + " …").truncate(width, ellipsis=True)]


def render_fields(fields: Iterable[Field], width: int) -> list[Content]:
    """Fields as lines of at most `width` cells, each wrapped below itself."""
    lines: list[Content] = []
    listed = list(fields)
    label_cells = compute_label_width(listed)
    for field in listed:
        style = STYLE_OF_TONE.get(field.tone, f"${field.tone}")
        if field.tone == "heading":
            lines += [Content("")] if lines else []
            lines.append(Content.styled(crop(field.text.upper(), width), style))
            continue
        indent = label_cells if field.name else 0
        first, *rest = Content.styled(field.text or " ", style).wrap(max(8, width - indent))
        lines.append(Content.assemble((f"{field.name:<{indent}}", "$faint"), first))
        lines += [Content.assemble(" " * indent, line) for line in rest]
    return lines


def type_into(widget: Widget, text: str) -> None:
    """Type `text` into `widget`, in place of its selection. Does nothing if the widget takes no text."""
    if not widget.check_consume_key("a", "a"):
        return
    if isinstance(widget, Input):
        widget.replace(text, *sorted(widget.selection))
    else:
        area: TextArea = widget  # type: ignore[assignment]  # importing it takes longer than the first frame may
        area.replace(text, *area.selection, maintain_selection_offset=False)


class Filter(Input):
    """The line for the words of a filter. It is shown while the operator types in it, and while it holds words."""

    DEFAULT_CSS = "Filter { display: none; height: 3; margin: 0 1; &.-shown { display: block; } }"

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, id="filter")

    @property
    def words(self) -> list[str]:
        """The words that were typed, in lower case."""
        return self.value.lower().split()

    def open(self) -> None:
        """Show the line and give it the focus."""
        self.add_class("-shown")
        self.screen.set_focus(self)  # at once: the next key is text

    def close(self) -> None:
        """Empty the line and hide it."""
        with self.prevent(Input.Changed):
            self.value = ""
        self.remove_class("-shown")


class ReplyLine(Input):
    """The line in which a reply or a comment is written; hidden until `open`.

    What is sent goes to what the line was opened for, wherever the cursor stands by then.
    """

    BINDINGS = make_bindings("reply")
    DEFAULT_CSS = """
    ReplyLine { display: none; height: 3; margin: 0 1; border-title-color: $accent; border-subtitle-color: $grey;
        &.-shown { display: block; }
    }
    """

    class Closed(Message):
        """The line was closed."""

    _on_text: Callable[[str], object]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._about = ""  # the id of what the text is about, such as a session
        self._drafts: dict[str, str] = {}  # the texts about other things that were not sent, by their ids

    def open(
        self, about: str, title: str, on_text: Callable[[str], object], *, enter_hint: str, placeholder: str
    ) -> None:
        """Open the line with what was left there about the same thing. `on_text` gets what is sent."""
        if about != self._about:
            self._drafts[self._about], self.value = self.value, self._drafts.pop(about, "")
        self._about = about
        self._on_text = on_text
        self.border_title = Content(title)
        self.border_subtitle = Content(f"⏎ {enter_hint}")
        self.placeholder = placeholder
        self.add_class("-shown")
        self.screen.set_focus(self)  # at once: the next key is text

    def give_back(self, about: str, text: str) -> None:
        """Keep a text that was sent and refused, before what was typed about the same thing since."""
        draft = self.value if about == self._about else self._drafts.get(about, "")
        text = f"{text} {draft}".rstrip()
        if about == self._about:
            self.value = text
        else:
            self._drafts[about] = text

    def action_close(self) -> None:
        self.remove_class("-shown")
        self.post_message(self.Closed())

    async def action_submit(self) -> None:
        if text := self.value.strip():
            self.value = ""
            self.action_close()
            self._on_text(text)
