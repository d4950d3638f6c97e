"""What every screen has: the frame, panes to move between, what is known, a list that words are filtered by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from clawpy_console.keys import GROUPS, bindings, labelled_action, shown_key
from clawpy_console.state import AppState
from clawpy_console.widgets.base_screen import BaseScreen
from clawpy_console.widgets.keyline import Columns, Filter, KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText, render_fields
from clawpy_console.widgets.status import Frame

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.fields import Field


T = TypeVar("T")


class ConsoleScreen(BaseScreen[None]):
    """A full screen: status line, banner, body, key line.

    `PANES` maps each pane, in the order of Tab, to the id of the widget that takes its focus. On a narrow terminal
    only the column of the pane in focus is shown: its class is `-at-COLUMN` on the screen. `PURPOSE` is the sentence
    at its top.
    """

    app: CardConsole

    BINDINGS = bindings("panes", "zoom")

    MODE: ClassVar[str] = ""
    PURPOSE: ClassVar[str] = ""
    PANES: ClassVar[Mapping[str, str]] = {}
    COLUMNS: ClassVar[Mapping[str, str]] = {}

    _complete = False
    _key_line: KeyLine

    def __init__(self) -> None:
        super().__init__()
        first = next((pane for pane, target in self.PANES.items() if f"#{target}" == self.AUTO_FOCUS), "")
        self.set_class(first in self.COLUMNS, f"-at-{self.COLUMNS.get(first)}", update=False)

    def compose(self) -> ComposeResult:
        yield Frame(self.MODE)
        if self.PURPOSE:
            yield Static(self.PURPOSE, id="purpose", markup=False)
            yield Columns(id="tabs")
        yield from self.body()
        self._key_line = KeyLine()
        yield self._key_line

    def body(self) -> ComposeResult:
        """The widgets between the status line and the key line."""
        raise NotImplementedError

    @property
    def state(self) -> AppState:
        return self.app.state

    @property
    def ready(self) -> bool:
        """True while the screen's widgets are there to be drawn on."""
        # Each key asks this for each binding, and a query would look at the whole tree.
        return self._complete and self._key_line in self.children and self.is_attached and self.is_running

    @property
    def pane(self) -> str:
        """The pane that has the focus."""
        node: Widget | None = self.focused
        return next((pane for pane, target in self.PANES.items() if node is not None and node.id == target), "")

    def on_mount(self) -> None:
        # Textual calls this besides the on_mount of a screen that has one of its own.
        self._complete = True  # mounted comes after everything composed was, panes within panes too
        self.refresh_state(frozenset())

    def on_screen_resume(self) -> None:
        self.refresh_state(frozenset())
        self._key_line.look()

    def on_resize(self, event: events.Resize) -> None:
        self.tick(self.app.now())

    def refresh_state(self, changed: frozenset[str]) -> None:
        """Draw what is known, times included. `changed` names the fields of `AppState` that moved; empty means all."""
        self.tick(self.app.now())
        if "holds" in changed:
            self._key_line.look()
        self.draw(changed)
        self.draw_columns()

    def draw(self, changed: frozenset[str]) -> None:
        """Bring the body up to date."""

    def tick(self, now: datetime) -> None:
        """Time passed: bring up to date what shows times."""
        self.app.draw_frame(self.query_one(Frame), now)

    def put(self, selector: str, content: Content) -> None:
        """Put `content` into the Static at `selector`; the same words again cost nothing."""
        static = self.query_one(selector, Static)
        shown = static.content
        if not (isinstance(shown, Content) and shown.is_same(content)):
            static.update(content, layout=static.styles.auto_dimensions)

    def show_fields(self, selector: str, fields: Iterable[Field]) -> None:
        """Show `fields` in the `ReflowingText` at `selector`."""
        listed = list(fields)
        self.query_one(selector, ReflowingText).show(lambda width: render_fields(listed, width))

    def takes_results(self) -> bool:
        return self.ready or not self._complete

    def engine_moved(self, topics: frozenset[str]) -> None:
        """The engine reported that these topics moved, whether or not what is known of them changed."""

    def output_grew(self, sessions: frozenset[str]) -> None:
        """These sessions wrote more."""

    def on_descendant_focus(self) -> None:
        self._show_column(self.pane)
        self._key_line.look()
        if self.ready:
            self.draw_columns()

    def columns(self) -> Mapping[str, str]:
        """A word for each column, for a narrow terminal, where one column is shown."""
        return {}

    def draw_columns(self) -> None:
        """On a narrow terminal: which column is shown, what is beside it, and the key that leads there."""
        for line in self.query_children(Columns):
            here = next((column for column in self.COLUMNS.values() if self.has_class(f"-at-{column}")), "")
            line.show(list(self.columns().items()), here, shown_key("panes.next", self.app.keymap))

    def action_show_column(self, name: str) -> None:
        """On a narrow terminal: go to this column."""
        any(self.go_to(pane) for pane, column in self.COLUMNS.items() if column == name)

    def _show_column(self, pane: str) -> None:
        """On a narrow terminal: the column of `pane`, and no other."""
        if (column := self.COLUMNS.get(pane)) is not None:
            self.update_classes({f"-at-{item}": item == column for item in self.COLUMNS.values()})

    def _go(self, by: int) -> None:
        panes = list(self.PANES)
        here = self.pane
        start = panes.index(here) if here else (-1 if by > 0 else 0)
        for step in range(1, len(panes) + 1):
            pane = panes[(start + by * step) % len(panes)]
            if self.go_to(pane):
                return

    def go_to(self, pane: str) -> bool:
        """Put the focus on `pane`; False when it cannot take it."""
        self._show_column(pane)
        target = self.query_one(f"#{self.PANES[pane]}")
        if not target.can_focus or any(
            not node.display for node in target.ancestors_with_self if isinstance(node, Widget)
        ):
            return False
        self.set_focus(target)
        return True

    def action_next_pane(self) -> None:
        self._go(1)

    def action_previous_pane(self) -> None:
        self._go(-1)

    async def action_press(self, action_id: str) -> None:
        """Do what the key of `action_id` does (clicks in the key line)."""
        for active in list(self.active_bindings.values()):
            if active.binding.id == action_id:
                await self.app.run_action(active.binding.action, active.node)
                return

    def action_copy_id(self) -> None:
        if text := self.copy_text():
            self.app.copy_to_clipboard(text)
            self.app.say(f"copied {text}")

    def explain_key(self, key: str, character: str) -> str:
        """What an action of the key line does that this key has no effect for now, and why; "" when there is none."""
        action = labelled_action(self.MODE, {key, character}, self.app.keymap)
        if action is None or key in self.active_bindings:
            return ""
        place = GROUPS[action.group].partition(", ")[2]
        reason = f"It works {place}." if place else self.reason_not(action.id)
        return f"{shown_key(action.id, self.app.keymap)}: {action.tooltip}. {reason}"

    def reason_not(self, action_id: str) -> str:
        """Why this action of the screen cannot be done now."""
        return "Nothing is stopped." if action_id == "app.resume" else "There is nothing here to do that with."

    def copy_text(self) -> str:
        """What `y` copies: the id of what is in focus."""
        return ""


class Filtering(ConsoleScreen):
    """Base of a screen with a `Filter` for the list of the pane `FILTERED`. Enter goes to the list, Escape shows all
    of it again."""

    FILTERED: ClassVar[str] = ""

    def filtered(self) -> None:
        """The words moved: show what has them."""
        raise NotImplementedError

    @property
    def filter(self) -> Filter:
        return self.query_one(Filter)

    @property
    def needle(self) -> list[str]:
        """The words that are asked for, in lower case; none before there is a line to type them in."""
        filters = self.query(Filter)
        return filters.first().words if filters else []

    def action_filter(self) -> None:
        self.go_to(self.FILTERED)
        self.filter.open()

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self.filtered()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self.filter.set_class(bool(self.needle), "-shown")
        self.go_to(self.FILTERED)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.filter.has_class("-shown"):
            event.stop()
            self.filter.put_away()
            self.filtered()
            self.go_to(self.FILTERED)
