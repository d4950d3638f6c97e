"""The seven full screens and the dialogs. A screen draws `AppState` and calls the engine; it holds no rule.

Here are the bases: `BaseScreen` of screens and dialogs, `ConsoleScreen` of the full screens, and `FilteredScreen` of
those with a list that is filtered. A screen is drawn whole when it comes up, and any pane zooms. A full screen has a
status line, a key line, and panes to move between.

Each full screen has a module of its name, and modules for its actions, rows and dialogs beside it. `dialog` has the
base of dialogs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events, getters, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from clawpy_console.keys import GROUP_TITLES, Action, find_key_line_actions, format_key, is_on_screen, make_bindings
from clawpy_console.state import AppState
from clawpy_console.widgets.frame import Columns, Frame, KeyLine
from clawpy_console.widgets.texts import Filter, PlainText, ReflowingText, type_into
from clawpy_console.widgets.transcript import Transcript

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from clawpy_console.console import Console, EngineCall, OnRefusal, OnResult
    from clawpy_console.fields import Field
    from engine.model import Refusal

Result = TypeVar("Result")
T = TypeVar("T")

CURSOR_DEBOUNCE_S = 0.06
"""Seconds that the cursor stays on a row before what it stands for is read."""

FILTER_DEBOUNCE_S = 0.15
"""Seconds without a key in a filter after which the list is read again."""


class GuardedScreen(Screen[Result]):
    """A screen that stands a key pressed twice, and the end of the app while it comes up.

    Textual closes the screen below when a screen is closed twice. When the app ends, it mounts no widgets any more, but
    still tells the screen that it has them.
    """

    async def on_event(self, event: events.Event) -> None:
        """See `MessagePump.on_event`. When the app ends, nothing is drawn any more, and keys do nothing."""
        unwanted = (events.InputEvent, events.Mount, events.Resize, events.ScreenResume)
        if not (self.app._exit and isinstance(event, unwanted)):
            await super().on_event(event)

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """See `Screen.dismiss`. Does nothing while this screen is not in front."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class BaseScreen(GuardedScreen[Result]):
    """A screen that is drawn whole when it comes up, and styled no more often than needed.

    Textual draws the whole of a screen that comes up. It forgets to do so if a layout falls into the same frame: then
    it draws only what the layout moved, and a dialog that is gone stays in sight. Here the whole screen is drawn.
    Textual also draws a dialog again for each change behind it. Here a screen behind a dialog of ours draws nothing:
    the dialog shows a picture of it. In a batch of changes, such as that before the first frame, Textual draws a whole
    screen and then drops it. Here nothing is drawn until it can be shown.

    Textual also matches every widget of a screen that comes up with every style rule, as if the theme had changed
    meanwhile. Here that happens only if the theme did change. A new screen gets its classes for the size of the
    terminal before its widgets exist, so that these are styled once, when they are mounted.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall"), (50, "-high")]

    ALLOW_IN_MAXIMIZED_VIEW = "Frame, KeyLine"
    ESCAPE_TO_MINIMIZE = False  # a binding of ours does it: it is shown, can be remapped, and leaves Escape to a filter

    app: Console
    typed_ahead = ""
    """The text that was typed before anything had the focus here: it goes into the text that gets it first."""

    def __init__(self, **options: str | None) -> None:
        """`options`: see `Screen`."""
        super().__init__(**options)
        # Textual's own count too, else it reads every style sheet twice more for a screen it has not seen.
        self._style_version = self._css_update_count = self.app._css_update_count  # when this screen was last up
        width, height = self.app.size
        for size, breakpoints in ((width, self.HORIZONTAL_BREAKPOINTS), (height, self.VERTICAL_BREAKPOINTS)):
            self.add_class(*[word for least, word in sorted(breakpoints or ()) if least <= size][-1:], update=False)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.ScreenResume):
            event.refresh_styles = self._style_version != self.app._css_update_count
            self._style_version = self.app._css_update_count
        await super().on_event(event)

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """See `Screen.set_focus`."""
        super().set_focus(widget, scroll_visible, from_app_focus)
        if self.focused is not None:
            text = self.typed_ahead
            self.typed_ahead = ""
            type_into(self.focused, text)

    def on_screen_resume(self) -> None:
        self.refresh()
        self._dirty_widgets.add(self)

    def _compositor_refresh(self) -> None:
        if self.app._batch_count:
            return
        if self.app.screen is self or not isinstance(self.app.screen, BaseScreen):
            super()._compositor_refresh()
        else:
            self._dirty_widgets.clear()
            self._compositor._dirty_regions.clear()

    def can_show_results(self) -> bool:
        """Whether what was read can still be drawn: a screen that is closed loses its widgets one after the other."""
        return self.is_running

    def read(
        self,
        call: EngineCall[T],
        on_result: OnResult[T],
        on_refusal: OnRefusal | None = None,
        *,
        group: str,
        wait: float = 0.0,
    ) -> None:
        """Call the engine in a thread, after `wait` seconds. A newer call of the same `group` replaces this one."""

        def show_result(result: T) -> None:
            if self.can_show_results():
                on_result(result)

        def show_refusal(refusal: Refusal) -> None:
            if self.can_show_results() and on_refusal is not None:
                on_refusal(refusal)

        if self.app.engine is not None:
            on_failure = None if on_refusal is None else show_refusal
            work = partial(self.app.run_in_thread, partial(call, self.app.engine), show_result, on_failure, wait=wait)
            _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

    def show_content(self, selector: str, content: Content) -> None:
        """Show `content` in the `PlainText` at `selector`."""
        self.query_one(selector, PlainText).replace(content)

    def show_fields(self, selector: str, fields: Iterable[Field]) -> None:
        """Show `fields` in the `ReflowingText` at `selector`."""
        self.query_one(selector, ReflowingText).show_fields(fields)

    @property
    def now(self) -> datetime:
        """The present time."""
        return self.app.now()

    def key_of(self, action_id: str) -> str:
        """The key of an action, as the key line writes it."""
        return format_key(action_id, self.app.keymap)

    async def action_press(self, action_id: str) -> None:
        """Do what the key of `action_id` does. Clicks in the key line call this."""
        for active in list(self.active_bindings.values()):
            if active.binding.id == action_id:
                await self.app.run_action(active.binding.action, active.node)
                return

    # Zoom

    def _find_zoomable_pane(self) -> Widget | None:
        """The largest part of the screen that contains the focus and no other widget that can take it, except a line to
        type in. None while the operator types in such a line."""
        pane = self.focused
        if pane is None or isinstance(pane, Input):
            return None
        others = [widget for widget in self.focus_chain if widget is not pane and not isinstance(widget, Input)]
        shared = {node for other in others for node in other.ancestors_with_self}
        for node in pane.ancestors:
            if node is self or node in shared or not isinstance(node, Widget):
                break
            pane = node
        return pane

    def action_zoom(self) -> None:
        """Show the pane in focus alone, on the whole screen; again shows all panes."""
        self.maximized = self._find_zoomable_pane() if self.maximized is None else None
        self.refresh_bindings()

    def action_zoom_back(self) -> None:
        """Show all panes again."""
        self.action_zoom()

    def on_descendant_focus(self) -> None:
        """The zoom goes with the focus."""
        zoomed = self.maximized
        focused = self.focused
        if zoomed is not None and focused is not None and zoomed not in focused.ancestors_with_self:
            self.maximized = self._find_zoomable_pane()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "zoom":
            return self.focused is not None and not isinstance(self.focused, Input)
        if action == "zoom_back":
            return self.maximized is not None and not isinstance(self.focused, Input)
        return self.offers(action, *parameters)

    def offers(self, action: str, *parameters: object) -> bool:
        """Whether the key of an action can do something now. A key that cannot is not shown in the key line."""
        return True


class ConsoleScreen(BaseScreen[None]):
    """A full screen: status line, banner, body, key line.

    A narrow terminal shows only the column of the pane in focus: the screen has the class `-at-COLUMN`.
    """

    app: CardConsole

    BINDINGS = make_bindings("panes", "zoom")

    MODE: ClassVar[str] = ""

    PURPOSE: ClassVar[str] = ""
    """The sentence at the top."""

    PANES: ClassVar[Mapping[str, str]] = {}
    """The panes in the order of Tab, by the id of the widget that takes the focus: the column of each, "" for none."""

    OWN_TOPICS: ClassVar[frozenset[str]] = frozenset()
    """The topics after whose change `read_again` is called."""

    READ_DEBOUNCE_S: ClassVar[float] = 0.0
    """Seconds from a report of such a topic until that."""

    _is_complete = False
    """True once everything that was composed is mounted."""

    _key_line: KeyLine

    def __init__(self) -> None:
        super().__init__()
        if self.AUTO_FOCUS and (column := self.PANES[self.AUTO_FOCUS[1:]]):
            self.add_class(f"-at-{column}", update=False)

    def compose(self) -> ComposeResult:
        yield Frame(self.MODE)
        if self.PURPOSE:
            yield PlainText(self.PURPOSE, id="purpose")
            yield Columns(id="tabs")
        yield from self.compose_body()
        self._key_line = KeyLine()
        yield self._key_line

    def compose_body(self) -> ComposeResult:
        """The widgets between the status line and the key line."""
        raise NotImplementedError

    @property
    def state(self) -> AppState:
        return self.app.state

    @property
    def is_ready(self) -> bool:
        """True while the screen's widgets can be drawn on."""
        # Read for each binding at each key: a query would look at the whole tree.
        return self._is_complete and self._key_line in self.children and self.is_attached and self.is_running

    @property
    def pane(self) -> str:
        """The pane that has the focus, "" for none."""
        return self.focused.id or "" if self.focused is not None and self.focused.id in self.PANES else ""

    def on_mount(self) -> None:
        # Textual calls this as well as the `on_mount` of a subclass, after everything that was composed is mounted. The
        # screen comes up next, and is drawn then.
        self._is_complete = True

    def on_screen_resume(self) -> None:
        self.read_again()
        self.refresh_state(frozenset())

    def on_resize(self, event: events.Resize) -> None:
        self.tick()

    def refresh_state(self, changed: frozenset[str]) -> None:
        """Draw the state, times included. `changed` names the fields of `AppState` that changed; empty means all."""
        self.tick()
        if "holds" in changed:
            self._key_line.update_keys()
        self.draw(changed)
        self.draw_columns()

    def draw(self, changed: frozenset[str]) -> None:
        """Bring the body up to date."""

    def tick(self) -> None:
        """Draw what depends on the time: the lines on top, and `draw_times`."""
        self.query_one(Frame).draw()
        if self.is_ready:
            self.draw_times()

    def draw_times(self) -> None:
        """Bring the parts of the body that depend on the time up to date."""

    def can_show_results(self) -> bool:
        return self.is_ready or not self._is_complete

    def read_again(self, wait: float = 0.0) -> None:
        """Read what only this screen shows, after `wait` seconds. Called when the screen comes up, and for
        `OWN_TOPICS`."""

    def refresh_topics(self, topics: frozenset[str]) -> None:
        """Called when the engine reports `topics`, also when the state of the console stays the same."""
        if topics & self.OWN_TOPICS:
            self.read_again(self.READ_DEBOUNCE_S)

    def refresh_output(self, sessions: frozenset[str]) -> None:
        """Called when these sessions wrote more output."""
        if sessions:
            for transcript in self.query(Transcript):
                if transcript.session_id in sessions:
                    transcript.pull()

    def on_descendant_focus(self) -> None:
        self._show_column(self.pane)
        if self.is_ready:
            self.draw_columns()

    def make_column_titles(self) -> Mapping[str, str]:
        """The title of each column, for a narrow terminal, which shows one column."""
        return {}

    def draw_columns(self) -> None:
        """On a narrow terminal, draw which column is shown, the others, and the key that leads to the next."""
        for line in self.query_children(Columns):
            current = next((column for column in self.PANES.values() if self.has_class(f"-at-{column}")), "")
            line.show(list(self.make_column_titles().items()), current, self.key_of("panes.next"))

    def action_show_column(self, name: str) -> None:
        """Go to the first pane of this column that takes the focus."""
        self.go_to_first(pane for pane, column in self.PANES.items() if column == name)

    def _show_column(self, pane: str) -> None:
        """Make the column of `pane` the one that a narrow terminal shows."""
        if column := self.PANES.get(pane):
            self.update_classes({f"-at-{item}": item == column for item in self.PANES.values() if item})

    def _go_to_neighbour(self, step: int) -> None:
        """Go to the next pane that takes the focus, or with -1 to the previous one."""
        panes = list(self.PANES)[::step]
        start = panes.index(self.pane) + 1 if self.pane else 0
        self.go_to_first([*panes[start:], *panes[:start]])

    def go_to_first(self, panes: Iterable[str]) -> None:
        """Go to the first of `panes` that takes the focus."""
        for pane in panes:
            if self.go_to(pane):
                return

    def go_to(self, pane: str) -> bool:
        """Put the focus on `pane`; False when it cannot take the focus."""
        self._show_column(pane)
        target = self.query_one(f"#{pane}")
        is_hidden = any(not node.display for node in target.ancestors_with_self if isinstance(node, Widget))
        if is_hidden or not target.can_focus:
            return False
        self.set_focus(target)
        return True

    def action_next_pane(self) -> None:
        self._go_to_neighbour(1)

    def action_previous_pane(self) -> None:
        self._go_to_neighbour(-1)

    def action_copy_id(self) -> None:
        if text := self.find_text_to_copy():
            self.app.copy_to_clipboard(text)
            self.app.show_toast(f"Copied {text}")

    def explain_disabled_key(self, key: str, character: str) -> str:
        """What a key does, and that it cannot be done now; "" for a key that works or is in no key line."""
        names = {key} if key.startswith("alt+") else {key, character}  # Alt and a letter is not the letter
        actions = find_key_line_actions(names, self.app.keymap)
        if not actions or key in self.active_bindings:
            return ""
        action = next((action for action in actions if is_on_screen(action, self.MODE)), None)
        if action is None:
            name = character.strip() or key
            return f"{name} does nothing on this screen. {self.key_of('app.help')} shows the keys that do."
        return f"{self.key_of(action.id)}: {action.tooltip} ({GROUP_TITLES[action.group]}). It cannot be done now."

    def find_text_to_copy(self) -> str:
        """The text that `y` copies, such as the id under the cursor; "" for none."""
        return ""

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.step_back():
            event.stop()

    def step_back(self) -> bool:
        """Escape was pressed: go back one step. False when there is none."""
        return self.leave()

    def leave(self) -> bool:
        """Go back one step of this screen's own. False when there is none."""
        return False


class FilteredScreen(ConsoleScreen):
    """A full screen with a list that a `Filter` is for: Enter goes to the list, Escape shows all of it again."""

    FILTER_PANE: ClassVar[str]
    """The list."""

    filter = getters.query_one(Filter)

    def apply_filter(self) -> None:
        """Show the rows that match the words of the filter, which changed."""
        raise NotImplementedError

    @property
    def filter_words(self) -> list[str]:
        """The words of the filter, in lower case; none before the filter is mounted."""
        return next((line.words for line in self.query(Filter)), [])

    def describe_empty_list(self, text: str) -> str:
        """What is said in place of the rows of the list, which is `text` while there is no filter."""
        return "No match." if self.filter_words else text

    def action_filter(self) -> None:
        self.go_to(self.FILTER_PANE)
        self.filter.open()

    @on(Input.Changed, "#filter")
    def _on_filter_changed(self) -> None:
        self.apply_filter()

    @on(Input.Submitted, "#filter")
    def _on_filter_submitted(self) -> None:
        self.filter.set_class(bool(self.filter_words), "-shown")
        self.go_to(self.FILTER_PANE)

    def step_back(self) -> bool:
        if not any(line.has_class("-shown") for line in self.query(Filter)):
            return super().step_back()
        self.filter.close()
        self.apply_filter()
        self.go_to(self.FILTER_PANE)
        return True


def find_base_screen(widget: Widget) -> BaseScreen[Any]:
    """The screen of a widget that is only used on screens of ours."""
    assert isinstance(widget.screen, BaseScreen)
    return widget.screen


IGNORED_WORDS_S = 1.0
"""Seconds after the key of a field that is not there, and after each key ignored since, in which words are ignored."""

FIELD_ACTIONS = frozenset({"filter.open", "diff.comment", "work.reply"})
"""Actions that open a field for words."""


class TypeAhead:
    """What is typed before its text has the focus, and words for a text that did not open."""

    def __init__(self) -> None:
        self._ignored_until = 0.0

    def type(self, text: str, screen: Screen[Any]) -> None:
        """Type `text` where the focus is now; in a dialog that just opened, where it will be."""
        if screen.focused is not None:
            type_into(screen.focused, text)
        elif isinstance(screen, BaseScreen) and screen.is_modal:
            screen.typed_ahead += text

    def on_disabled_key(self, actions: Iterable[Action]) -> None:
        """A key could do none of its `actions`. If it opens a field, the words that follow are for nothing."""
        if any(action.id in FIELD_ACTIONS for action in actions):
            self._ignored_until = time.monotonic() + IGNORED_WORDS_S

    def ignores(self, event: events.Key) -> bool:
        """Whether a key belongs to words for a field that did not open, such as those typed after `/` on the cards."""
        now = time.monotonic()
        is_ignored = now < self._ignored_until and event.is_printable
        self._ignored_until = now + IGNORED_WORDS_S if is_ignored else 0.0
        return is_ignored


def find_next_choice(choices: Sequence[T], choice: T) -> T:
    """The choice that follows `choice`: the first one after the last, and after a value that is no choice."""
    return choices[(choices.index(choice) + 1) % len(choices)] if choice in choices else choices[0]
