"""Dialogs over a dimmed picture of the screen behind them: their base, a preview of a change, questions.

Most dialogs of the console are a `Question` with `Answer`s, each with its key. `confirm` and `show_text` make
usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget

from clawpy_console.fields import Field
from clawpy_console.screens import BaseScreen
from clawpy_console.widgets.frame import Frame
from clawpy_console.widgets.texts import PlainText, ReflowingText

if TYPE_CHECKING:
    from clawpy_console.console import Console, EngineCall, OnRefusal, OnResult
    from engine.model import Refusal


Result = TypeVar("Result")
T = TypeVar("T")


class Dialog(ModalScreen[Result], BaseScreen[Result]):  # styles come by the first base
    """A modal screen over a picture of the one behind it.

    Textual draws that picture anew whenever a part of the dialog is drawn, and mixes colours for each of its
    thousands of segments, which would hold the event loop. Here it is drawn once for a size and a colour. A dialog
    that fills the terminal anyway has the class `-alone`: nothing is drawn behind it.

    The state line and the banner are above every dialog, and stay live: a stop is seen whatever is open.
    """

    HAS_FRAME = True
    _picture: tuple[object, list[Strip]] | None = None
    _is_submitting = False
    _is_finished = False  # its work is done while another dialog covers it

    def on_mount(self) -> None:
        if self.HAS_FRAME:
            self.mount(Frame(self.app.current_mode), before=0)

    def on_screen_resume(self) -> None:
        self._picture = None
        self.call_after_refresh(self.app.draw_frames)
        if self._is_finished:
            self.finish()

    def on_resize(self, event: events.Resize) -> None:
        self._picture = None
        self.call_after_refresh(self.refresh)  # the screen behind gets its new size after this one
        self.app.draw_frames()

    def make_frame(self, title: str, subtitle: str = "", *, classes: str = "") -> Vertical:
        """The box that holds the widgets of the dialog."""
        frame = Vertical(classes=f"dialog {classes}")
        frame.border_title = Content(title)
        frame.border_subtitle = Content(subtitle)
        return frame

    def show_status(self, text: str, style: str = "$wants") -> None:
        """Say something in the line `#status`; "" for nothing."""
        self.query_one("#status", PlainText).update(Content.styled(text, style))

    def show_refusal(self, refusal: Refusal) -> None:
        """Say why it cannot be done; as a toast, if the dialog was closed before the engine answered."""
        if self.is_running:
            self.show_status(f"✗ {refusal}", "$wrong")
        else:
            self.app.show_toast(refusal, "warning")

    def submit(self, call: EngineCall[T], on_result: OnResult[T], on_refusal: OnRefusal | None = None) -> None:
        """Have the engine do what the dialog is for. Then the dialog is closed, and `on_result` gets the result, also
        if the operator closed the dialog before. A refusal goes to `on_refusal`, by default to `show_refusal`.

        Does nothing until the engine has answered the call before: the key was pressed twice.
        """
        if self._is_submitting:
            return
        self._is_submitting = True

        def on_submitted(result: T) -> None:
            self._is_submitting = False
            self.finish()
            on_result(result)

        def on_refused(refusal: Refusal) -> None:
            self._is_submitting = False
            (on_refusal or self.show_refusal)(refusal)

        self.app.call_engine(call, on_submitted, on_refused)

    def finish(self) -> None:
        """Close the dialog, whose work is done: now, or as soon as the dialogs above it are closed."""
        self._is_finished = not self.is_active and self in self.app.screen_stack
        self.dismiss()

    def action_close(self) -> None:
        self.dismiss(None)

    def show_hint(self, text: str) -> None:
        """Say in the frame what a key does that was pressed, or which key does something."""
        self.query_one(".dialog").border_subtitle = Content.styled(text, "bold $wants")

    def draw_on_picture(self, picture: list[Strip]) -> list[Strip]:
        """The picture behind the dialog, made of that of the screen there."""
        return picture

    def render_lines(self, crop: Region) -> list[Strip]:
        """The picture behind the dialog."""
        size = self._compositor.size  # `self.size` can be that of the next frame already
        key = (size, self.styles.background)
        if self._picture is None or self._picture[0] != key:
            behind = self.render()
            if not isinstance(behind, BackgroundScreen):
                return super().render_lines(crop)
            self._picture = (key, self.draw_on_picture(_dim_picture(behind, size)))
        lines = self._picture[1][crop.y : crop.bottom]
        return lines if crop.column_span == (0, size.width) else [line.crop(crop.x, crop.right) for line in lines]


def _dim_picture(behind: BackgroundScreen, size: Size) -> list[Strip]:
    """The picture of a screen in the colours that it has behind a dialog of this size. After a resize the screen is
    still as large as before: it is cut, or filled up with blanks."""
    dim_style_by_style: dict[Style | None, Style | None] = {}

    def dim(segment: Segment) -> Segment:
        if segment.style not in dim_style_by_style:
            [dim_segment] = behind.process_segments([Segment(" ", segment.style)], behind.color)
            dim_style_by_style[segment.style] = dim_segment.style
        return Segment(segment.text, dim_style_by_style[segment.style])

    strips = behind.screen._compositor.render_strips()[: size.height]
    lines = [Strip([dim(segment) for segment in strip], strip.cell_length) for strip in strips]
    lines += [Strip.blank(size.width)] * (size.height - len(lines))
    return [line.adjust_cell_length(size.width) for line in lines]


class PreviewDialog(Dialog[Result]):
    """Shows a preview. Subclasses compose its pane, a `PlainText` `#status` and a `KeyLine`."""

    DEFAULT_CSS = """
    PreviewDialog #body { height: 1fr; }
    PreviewDialog #pane { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    PreviewDialog #change { height: auto; }
    PreviewDialog #status { height: auto; padding: 0 1; }
    PreviewDialog KeyLine { background: $surface; dock: bottom; padding: 0; }
    """

    def preview(self, call: EngineCall[T], on_result: OnResult[T], *, wait: float) -> None:
        """Work out the preview in a thread, after `wait` seconds; a newer one takes its place."""
        self.read(call, on_result, self.show_refusal, group="preview", wait=wait)

    def compose_pane(self) -> ComposeResult:
        """The pane of the preview."""
        with VerticalScroll(id="pane", can_focus=False):
            yield ReflowingText(id="change")

    def show(self, fields: Iterable[Field]) -> None:
        """Show what would change."""
        self.show_fields("#change", fields)

    def action_page(self, by: int) -> None:
        pane = self.query_one("#pane", VerticalScroll)
        pane.scroll_relative(y=by * max(1, pane.size.height - 1), animate=False)


class Answer(NamedTuple):
    """One answer to a question."""

    key: str
    label: str
    """The verb of what it does, or the value that it chooses."""
    detail: str = ""
    """More about that."""


CANCEL = Answer("escape", "cancel")
"""The answer that changes nothing, where a question has no other."""

CURSOR_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1}
"""The keys that move the cursor, with their step."""

SCROLL_BY_KEY = {
    "pageup": Widget.scroll_page_up, "pagedown": Widget.scroll_page_down,
    "home": Widget.scroll_home, "end": Widget.scroll_end,
}  # fmt: skip
"""The keys that scroll the text."""


class Question(Dialog[Answer | None]):
    """Gives the answer that was chosen, None on Escape.

    The cursor begins at the answer that changes nothing: the one with the label `current_label`, else `cancel`. Enter
    chooses the answer under the cursor. An answer whose key is an upper-case letter cannot be undone, so Enter does
    not choose it; only its key does.
    """

    DEFAULT_CSS = """
    Question #text { height: auto; max-height: 60vh; margin: 0 0 1 0; scrollbar-size-vertical: 1; }
    """

    def __init__(
        self,
        title: str,
        answers: Sequence[Answer],
        *,
        text: str | Content = "",
        current_label: str = "",
        cancel: Answer = CANCEL,
    ) -> None:
        super().__init__()
        self.title = title
        self._text = Content(text) if isinstance(text, str) else text
        self._answers = (*answers, cancel)
        self._current_label = current_label
        current_indexes = (index for index, answer in enumerate(answers) if answer.label == current_label)
        self._cursor = next(current_indexes, len(answers))

    def compose(self) -> ComposeResult:
        with self.make_frame(self.title or ""):
            if self._text:
                with VerticalScroll(id="text", can_focus=False):
                    yield PlainText(self._text)
            yield ReflowingText(id="answers")

    def on_mount(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.query_one("#answers", ReflowingText).show(self._make_lines)

    def _make_lines(self, width: int) -> list[Content]:
        """The answers, each with its detail beside it; a click on one chooses it."""
        lines = []
        for index, answer in enumerate(self._answers):
            head = self._make_answer_head(index, answer)
            indent = Content(" " * head.cell_length)
            details = Content.styled(answer.detail, "$grey").wrap(max(10, width - head.cell_length)) or [Content("")]
            rows = [head + details[0], *(indent + detail for detail in details[1:])]
            click = f"@click=screen.choose({index})"
            lines += [row.pad_right(max(0, width - row.cell_length)).stylize(click) for row in rows]
        return lines

    def _make_answer_head(self, index: int, answer: Answer) -> Content:
        """The cursor, the key and the label of an answer; with details a dot that marks the one in force."""
        key, label, detail = answer
        label_cells = max(len(answer.label) for answer in self._answers) + 2
        dot = ("● " if label == self._current_label else "○ ") if self._current_label and detail else ""
        has_cursor = index == self._cursor
        return Content.assemble(
            ("▸ " if has_cursor else "  ", "$accent"),
            (f"{'esc' if key == 'escape' else key:<5}", "bold $wants" if key.isupper() else "bold $accent"),
            (f"{dot}{label:<{label_cells}}", "bold $ink" if has_cursor else "$ink"),
        )

    def action_choose(self, index: int) -> None:
        """Choose the answer with this index; the last one cancels."""
        self.dismiss(None if index == len(self._answers) - 1 else self._answers[index])

    def on_key(self, event: events.Key) -> None:
        """Choose the answer of a key, move the cursor or scroll; say of other keys that they do nothing here."""
        keys = [answer.key for answer in self._answers]
        if event.character in keys:
            self.action_choose(keys.index(event.character or ""))
        elif event.key in CURSOR_STEPS:
            self._cursor = (self._cursor + CURSOR_STEPS[event.key]) % len(keys)
            self._draw()
        elif event.key in SCROLL_BY_KEY:
            for pane in self.query("#text"):
                SCROLL_BY_KEY[event.key](pane, animate=False)
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter" and (key := keys[self._cursor]).isupper():  # it cannot be undone
            self.show_hint(f"Enter does not do this. Press {key}.")
        elif event.key == "enter":
            self.action_choose(self._cursor)
        elif event.is_printable:
            self.show_hint(f"{event.character} does nothing here. Press the key of an answer.")
        else:
            return  # such as F12, which stops everything
        event.stop()


def confirm(
    app: Console, title: str, question: str | Content, verb: str, act: Callable[[], object], *, risky: bool = False
) -> None:
    """Ask a question, and call `act` when the operator presses y, or X if `act` is `risky` because it cannot be undone.
    Escape, n and Enter close the question."""
    answers = [Answer("X" if risky else "y", verb)]
    app.ask(Question(title, answers, text=question, cancel=Answer("n", "cancel")), lambda _: act())


def show_text(app: Console, title: str, text: str) -> None:
    """Show a text that can be copied, until the operator closes it."""
    dialog = Question(title, [Answer("c", "copy")], text=text, cancel=Answer("escape", "close"))
    app.ask(dialog, lambda _: app.copy_to_clipboard(text))
