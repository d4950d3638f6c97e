"""Lines of a screen: tabs, the keys that can be pressed now, the words of a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.reactive import Reactive, reactive
from textual.widget import Widget
from textual.widgets import Input

from clawpy_console.keys import KEY_LINE, shown_key

if TYPE_CHECKING:
    from clawpy_console.console import Console


class Tabs(Widget):
    """Names in a row, with brackets around the current one, and a hint at the end. A click calls `ACTION` with a
    name."""

    ACTION: ClassVar[str]
    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; }"

    auto_links = Reactive(False)
    tabs: reactive[tuple[tuple[str, str], ...]] = reactive(())
    current: reactive[str] = reactive("")
    hint: reactive[str] = reactive("")

    def show(self, tabs: Sequence[tuple[str, str]], current: str, hint: str = "") -> None:
        """Show `tabs`, each a name and its text. `current` is the name of the one in brackets."""
        self.tabs, self.current, self.hint = tuple(tabs), current, hint

    def render(self) -> Content:
        parts = [
            (f"[{text}]", f"bold $accent @click={self.ACTION}('{name}')")
            if name == self.current
            else (f" {text} ", f"$grey @click={self.ACTION}('{name}')")
            for name, text in self.tabs
        ]
        return Content.assemble(*parts, (f"  {self.hint}" if self.hint else "", "$faint"))


class TabLine(Tabs):
    """The tabs of a pane."""

    ACTION = "screen.show_tab"


class Columns(Tabs):
    """The columns of a screen, for a terminal that has room for one."""

    ACTION = "screen.show_column"


GAP_CELLS = 2
"""Cells between two keys."""

LAST_ACTIONS = ("app.help", "app.quit")
"""The actions that are always at the right end of the line: the list of all keys, and quitting."""


class KeyLine(Widget):
    """Shows the active bindings that have a label, those of the focus first. A click presses the key."""

    app: Console

    DEFAULT_CSS = "KeyLine { dock: bottom; height: 1; padding: 0 1; background: $background; }"

    auto_links = Reactive(False)
    keys: reactive[tuple[tuple[str, str, str], ...]] = reactive(())

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.update_keys())
        self.call_after_refresh(self.update_keys)

    def update_keys(self) -> None:
        """Take over the bindings that are active now."""
        if not self.is_attached or not self.screen.is_current:
            return
        active = {binding.id for _, binding, enabled, _ in self.screen.active_bindings.values() if enabled}
        self.keys = tuple(
            (action.id, shown_key(action.id, self.app.keymap), action.label)
            for action in KEY_LINE
            if action.id in active
        )

    def render(self) -> Content:
        """The keys that fit, and those of `LAST_ACTIONS` at the right end."""
        shown = [(id, _pressed(id, key, label)) for id, key, label in self.keys if id != "app.stop"]  # that is on top
        last_keys = Content("").join(piece for id, piece in shown if id in LAST_ACTIONS)
        room = self.size.width - last_keys.cell_length
        line = Content("")
        for id, piece in shown:
            if line.cell_length + piece.cell_length > room:
                break
            if id not in LAST_ACTIONS:
                line += piece
        return (line + " " * (room + GAP_CELLS - line.cell_length) + last_keys).rstrip()


def _pressed(action_id: str, key: str, label: str) -> Content:
    """A key with its label, and the gap after them. A click does what the key does."""
    piece = Content.assemble((key, "$accent"), " ", (label, "$grey")).stylize(f"@click=screen.press('{action_id}')")
    return piece + " " * GAP_CELLS


def has_words(text: str, words: Iterable[str]) -> bool:
    """Whether `text` contains all `words`, which are in lower case."""
    text = text.lower()
    return all(word in text for word in words)


class Filter(Input):
    """The line for the words of a filter. It is shown while the operator types in it, and while it holds words."""

    DEFAULT_CSS = "Filter { display: none; height: 3; margin: 0 1; &.-shown { display: block; } }"

    def __init__(self, placeholder: str = "") -> None:
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
