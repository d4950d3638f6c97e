"""Every key and what it does, written from the table of actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import ACTIONS, BY_ID, GROUPS, shown_key
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

KEY, ID = 9, 24
"""Cells of the key and of the id, which goes where there is no room for it."""

SCROLLS = {"up": -1, "k": -1, "down": 1, "j": 1}


class Help(Dialog[None]):
    """The keys by group, those that work on the screen behind first, with the id that `[keys]` in the configuration
    uses. `/` shows only those with the words that are typed."""

    app: ConsoleApp
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Help #all { height: auto; max-height: 100%; }
    Help Filter { margin: 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._here: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -keys") as dialog:
            dialog.border_title = Content("Keys")
            dialog.border_subtitle = Content(
                f"/ filter · esc close · change keys in {self.app.home.config_file} under [keys]"
            )
            yield Filter("words or a key")
            with VerticalScroll(id="all", can_focus=False):
                yield Drawn(id="keys")

    def on_mount(self) -> None:
        behind = self.app.screen_stack[-2]
        found = (BY_ID.get(active.binding.id or "") for active in behind.active_bindings.values())
        self._here = frozenset(one.group for one in found if one is not None)
        self._draw()

    def _draw(self) -> None:
        wanted = self.query_one(Filter).words
        self.query_one("#keys", Drawn).show(lambda width: list(self._lines(width, wanted)))

    def _lines(self, width: int, wanted: list[str]) -> Iterable[Content]:
        named = ID if width >= 80 else 0
        order = sorted(GROUPS, key=lambda group: (group not in self._here, group == "app"))  # else as in the table
        first = True
        for group in order:
            rows = [row for one in ACTIONS if one.group == group and (row := self._row(one.id, width, named, wanted))]
            if rows:
                yield from [] if first else [Content("")]
                yield Content.assemble(
                    (GROUPS[group], "bold $accent"), ("" if group in self._here else "  elsewhere", "$faint")
                )
                yield from rows
                first = False
        if first:
            yield Content.styled("No match.", "$grey")

    def _row(self, action_id: str, width: int, named: int, wanted: list[str]) -> Content | None:
        action, keymap = BY_ID[action_id], self.app.keymap
        others = keymap.get(action_id, action.keys).split(",")[1:]
        key = " ".join([shown_key(action_id, keymap), *(one.strip() for one in others if len(one.strip()) == 1)])
        searched = f"{key} {action.keys} {action.label} {action.tooltip} {action_id} {GROUPS[action.group]}".lower()
        if not all(word in searched for word in wanted):
            return None
        room = width - 2 - max(KEY, cell_len(key) + 1) - named
        text = words.fit(action.tooltip, room) if named else words.crop(action.tooltip, room)
        return Content.assemble(
            (f"  {key}{' ' * max(1, KEY - cell_len(key))}", "bold $ink"),
            (text, "$grey"),
            (f" {action_id}" if named else "", "$faint"),
        )

    @on(Input.Changed, "#filter")
    def _typed(self) -> None:
        self._draw()
        self.query_one("#all").scroll_home(animate=False)

    @on(Input.Submitted, "#filter")
    def _entered(self) -> None:
        self.set_focus(None)

    def on_key(self, event: events.Key) -> None:
        pane, line = self.query_one("#all", VerticalScroll), self.query_one(Filter)
        if event.key == "escape" and line.has_class("-shown"):
            line.put_away()
            self.set_focus(None)
            self._draw()
        elif line.has_focus:
            return
        elif event.key in ("escape", "question_mark", "q", "enter"):
            self.dismiss()
        elif event.key == "slash":
            line.open()
        elif event.key in SCROLLS:
            pane.scroll_relative(y=SCROLLS[event.key], animate=False)
        elif event.key in ("pagedown", "space", "pageup"):
            page = max(1, pane.size.height - 1)
            pane.scroll_relative(y=-page if event.key == "pageup" else page, animate=False)
        elif event.key in ("home", "g"):
            pane.scroll_home(animate=False)
        elif event.key in ("end", "G"):
            pane.scroll_end(animate=False)
        else:
            return
        event.stop()
        event.prevent_default()
