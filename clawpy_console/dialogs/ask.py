"""Every question of the console: a text, and one key for each answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console.dialogs.base import Dialog
from clawpy_console.widgets.reflowing_text import ReflowingText

if TYPE_CHECKING:
    from clawpy_console.console import Console


Answer = tuple[str, str, str]
"""Its key, what it does, and more about that."""


class Ask(Dialog[str | None]):
    """Gives the key of the answer that was chosen, None on Escape.

    The cursor begins at the answer that changes nothing: the `present` one, else `cancel`. Enter takes the answer under
    the cursor, but never one whose key is an upper-case letter: what cannot be undone has its key alone.
    """

    DEFAULT_CSS = """
    Ask #text { height: auto; max-height: 60vh; margin: 0 0 1 0; scrollbar-size-vertical: 1; }
    """

    def __init__(
        self,
        title: str,
        text: str | Content,
        answers: Sequence[Answer],
        *,
        present: str = "",
        cancel: tuple[str, str] = ("escape", "cancel"),
    ) -> None:
        super().__init__()
        self._title, self._text = title, Content(text) if isinstance(text, str) else text
        self._answers: tuple[Answer, ...] = (*answers, (*cancel, ""))
        self._present = present
        self._at = next((at for at, answer in enumerate(answers) if answer[1] == present), len(answers))

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
        lines, wide = [], max(len(word) for _, word, _ in self._answers) + 2
        for at, (key, word, more) in enumerate(self._answers):
            dot = ("● " if word == self._present else "○ ") if self._present and more else ""
            here = at == self._at
            head = Content.assemble(
                ("▸ " if here else "  ", "$accent"),
                (f"{'esc' if key == 'escape' else key:<5}", "bold $wants" if key.isupper() else "bold $accent"),
                (f"{dot}{word:<{wide}}", "bold $ink" if here else "$ink"),
            )
            first, *rest = Content.styled(more, "$grey").wrap(max(10, width - head.cell_length)) or [Content("")]
            answer = [head + first, *(Content(" " * head.cell_length) + item for item in rest)]
            lines += [
                line.pad_right(max(0, width - line.cell_length)).stylize(f"@click=screen.choose({at})")
                for line in answer
            ]
        return lines

    def action_choose(self, at: int) -> None:
        """Take the answer at this place."""
        self.dismiss(None if at == len(self._answers) - 1 else self._answers[at][0])

    def on_key(self, event: events.Key) -> None:
        keys = [key for key, _, _ in self._answers]
        if event.character in keys:
            self.action_choose(keys.index(event.character or ""))
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key in ("up", "k", "down", "j"):
            self._at = (self._at + (-1 if event.key in ("up", "k") else 1)) % len(keys)
            self._draw()
        elif event.key == "enter" and keys[self._at].isupper():
            self.query_one(".dialog").border_subtitle = Content(f"Enter does not do this. Press {keys[self._at]}.")
        elif event.key == "enter":
            self.action_choose(self._at)
        elif event.key in ("pageup", "pagedown"):
            for pane in self.query("#text"):
                pane.scroll_page_up(animate=False) if event.key == "pageup" else pane.scroll_page_down(animate=False)
        elif not event.is_printable:
            return  # such as F12, which stops everything
        event.stop()


def confirm(
    app: Console,
    title: str,
    question: str | Content,
    verb: str,
    then: Callable[[], object],
    *,
    risky: bool = False,
) -> None:
    """Ask first: y calls `then`. What is `risky`, since it cannot be undone, has X in place of y. Escape, n and
    Enter do nothing."""
    key = "X" if risky else "y"
    dialog = Ask(title, question, ((key, verb, ""),), cancel=("n", "cancel"))

    def on_answer(answer: str | None) -> None:
        if answer == key:
            then()

    app.push_screen(dialog, on_answer)


def show_text(app: Console, title: str, text: str) -> None:
    """Show a few words that have to be read, and maybe copied, until they are closed."""
    dialog = Ask(title, text, (("c", "copy", ""),), cancel=("escape", "close"))
    app.push_screen(dialog, lambda answer: app.copy_to_clipboard(text) if answer else None)
