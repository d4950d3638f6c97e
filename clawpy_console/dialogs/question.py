"""Questions: a text, and one key for each answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog
from clawpy_console.widgets.reflowing_text import ReflowingText

if TYPE_CHECKING:
    from clawpy_console.console import Console


class Answer(NamedTuple):
    """One answer to a question."""

    key: str
    label: str
    """The verb of what it does, or the value that it chooses."""
    detail: str = ""
    """More about that."""


CANCEL = Answer("escape", "cancel")

MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}
"""The keys that move the cursor, with their step."""

MAX_KEYS_IN_HINT = 3
"""Maximum number of answers that a hint names."""


class Question(Dialog[Answer | None]):
    """Gives the answer that was chosen, None on Escape.

    The cursor begins at the answer that changes nothing: the one with the label `present`, else `cancel`. Enter
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
        present: str = "",
        cancel: Answer = CANCEL,
    ) -> None:
        super().__init__()
        self._title, self._text = title, Content(text) if isinstance(text, str) else text
        self._answers = (*answers, cancel)
        self._present = present
        self._cursor = next((at for at, answer in enumerate(answers) if answer.label == present), len(answers))

    def compose(self) -> ComposeResult:
        with self.frame(self._title):
            if self._text:
                with VerticalScroll(id="text", can_focus=False):
                    yield Static(self._text, markup=False)
            yield ReflowingText(id="answers")

    def on_mount(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.query_one("#answers", ReflowingText).show(self._lines)

    def _lines(self, width: int) -> list[Content]:
        lines, label_cells = [], max(len(answer.label) for answer in self._answers) + 2
        for at, (key, label, detail) in enumerate(self._answers):
            dot = ("● " if label == self._present else "○ ") if self._present and detail else ""
            has_cursor = at == self._cursor
            head = Content.assemble(
                ("▸ " if has_cursor else "  ", "$accent"),
                (f"{'esc' if key == 'escape' else key:<5}", "bold $wants" if key.isupper() else "bold $accent"),
                (f"{dot}{label:<{label_cells}}", "bold $ink" if has_cursor else "$ink"),
            )
            first, *rest = Content.styled(detail, "$grey").wrap(max(10, width - head.cell_length)) or [Content("")]
            rows = [head + first, *(Content(" " * head.cell_length) + item for item in rest)]
            click = f"@click=screen.choose({at})"
            lines += [row.pad_right(max(0, width - row.cell_length)).stylize(click) for row in rows]
        return lines

    def action_choose(self, at: int) -> None:
        """Choose the answer at this place."""
        self.dismiss(None if at == len(self._answers) - 1 else self._answers[at])

    def on_key(self, event: events.Key) -> None:
        keys = [answer.key for answer in self._answers]
        if event.character in keys:
            self.action_choose(keys.index(event.character or ""))
        elif event.key in MOVES:
            self._cursor = (self._cursor + MOVES[event.key]) % len(keys)
            self._draw()
        elif event.key in ("pageup", "pagedown"):
            for pane in self.query("#text"):
                pane.scroll_page_up(animate=False) if event.key == "pageup" else pane.scroll_page_down(animate=False)
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self._choose_at_cursor()
        elif event.is_printable:
            self._show_hint(f"{event.character} does nothing here. {self._key_hint}")
        else:
            return  # such as F12, which stops everything
        event.stop()

    def _choose_at_cursor(self) -> None:
        key = self._answers[self._cursor].key
        if key.isupper():
            self._show_hint(f"Enter does not do this. Press {key}.")
        else:
            self.action_choose(self._cursor)

    @property
    def _key_hint(self) -> str:
        """`X: discard · n: cancel`; with many answers only how to choose one."""
        if len(self._answers) > MAX_KEYS_IN_HINT:
            return "Press the key of an answer."
        return " · ".join(f"{'esc' if key == 'escape' else key}: {label}" for key, label, _ in self._answers)

    def _show_hint(self, text: str) -> None:
        self.query_one(".dialog").border_subtitle = Content(text)


def confirm(
    app: Console,
    title: str,
    question: str | Content,
    verb: str,
    act: Callable[[], object],
    *,
    risky: bool = False,
) -> None:
    """Ask a question, and call `act` when the operator presses y, or X if `act` is `risky` because it cannot be undone.
    Escape, n and Enter close the question."""
    answers = [Answer("X" if risky else "y", verb)]
    app.ask(Question(title, answers, text=question, cancel=Answer("n", "cancel")), lambda _: act())


def show_text(app: Console, title: str, text: str) -> None:
    """Show a text that can be copied, until the operator closes it."""
    dialog = Question(title, [Answer("c", "copy")], text=text, cancel=Answer("escape", "close"))
    app.ask(dialog, lambda _: app.copy_to_clipboard(text))
