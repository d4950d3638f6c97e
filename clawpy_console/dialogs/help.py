"""The list of keys: those of the focused pane first, then all others by group."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console.dialogs.base import Dialog
from clawpy_console.formats import fit_to_width
from clawpy_console.keys import ACTIONS, GROUPS, Action, shown_keys
from clawpy_console.widgets.bars import Filter, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText

KEY_CELLS, ID_CELLS = 9, 24
"""Cells of the key and of the id, which is left out where there is no room for it."""


class Help(Dialog[None]):
    """The keys of the focused pane first, then all others by group, with the id that `[keys]` in the configuration
    uses. What you type shows only those with these words."""

    DEFAULT_CSS = """
    Help .dialog { height: 96%; padding: 0 2; }
    Help #all { height: 1fr; }
    Help Filter { margin: 0; }
    """

    _filter = getters.query_one(Filter)
    _pane = getters.query_one("#all", VerticalScroll)

    def __init__(self, active_ids: Iterable[str]) -> None:
        """`active_ids`: ids of the actions that work in the focused pane."""
        super().__init__()
        self._active_ids = frozenset(active_ids)

    def compose(self) -> ComposeResult:
        with self.frame("Keys", self._subtitle("close"), classes="-keys"):
            yield Filter("Type a word or a key. ↑ ↓ scroll, esc closes.")
            with VerticalScroll(id="all", can_focus=False):
                yield ReflowingText(id="keys")

    def on_mount(self) -> None:
        self._filter.open()
        self._draw()

    def _subtitle(self, escape_hint: str) -> str:
        return f"esc {escape_hint} · change a key: clawpy config set 'keys.\"ID\"' KEY"

    def _draw(self) -> None:
        terms = self._filter.words
        self.query_one("#keys", ReflowingText).show(lambda width: list(self._lines(width, terms)))

    def _lines(self, width: int, terms: list[str]) -> Iterable[Content]:
        active = [action for action in ACTIONS if action.id in self._active_ids and action.group != "app"]
        groups = [("In this pane, now", active)]
        groups += [(title, [action for action in ACTIONS if action.group == group]) for group, title in GROUPS.items()]
        shown: list[Action] = []
        for title, actions in groups:
            matches = [action for action in actions if action not in shown and self._matches(action, terms)]
            if matches:
                yield from [Content("")] if shown else []
                yield Content.styled(title, "bold $accent")
                yield from (self._row(item, width) for item in matches)
                shown += matches
        if not shown:
            yield Content.styled("No match.", "$grey")

    def _matches(self, action: Action, terms: list[str]) -> bool:
        keys = f"{shown_keys(action.id, self.app.keymap)} {action.keys}"
        text = f"{keys} {action.label} {action.tooltip} {action.id} {GROUPS[action.group]}"
        return has_words(text, terms)

    def _row(self, action: Action, width: int) -> Content:
        key, id_cells = shown_keys(action.id, self.app.keymap), ID_CELLS if width >= 80 else 0
        room = width - 2 - max(KEY_CELLS, cell_len(key) + 1) - id_cells
        return Content.assemble(
            (f"  {key}{' ' * max(1, KEY_CELLS - cell_len(key))}", "bold $ink"),
            (fit_to_width(action.tooltip, room), "$grey"),
            (f" {action.id}" if id_cells else "", "$faint"),
        )

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if event.value.endswith("?"):  # the key that opened it
            self.dismiss()
            return
        self._draw()
        self.query_one(".dialog").border_subtitle = Content(self._subtitle("clear" if event.value else "close"))
        self._pane.scroll_home(animate=False)

    def on_key(self, event: events.Key) -> None:
        pane, line = self._pane, self._filter
        match event.key:
            case "escape" if line.value:
                line.value = ""
            case "escape" | "enter":
                self.dismiss()
            case "up" | "down" | "pageup" | "pagedown":
                by = max(1, pane.size.height - 1) if event.key.startswith("page") else 1
                pane.scroll_relative(y=by if event.key.endswith("down") else -by, animate=False, immediate=True)
