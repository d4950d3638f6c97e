"""The base of screens and dialogs: drawn whole when they come up, and any pane zooms to the full screen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual import events
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from clawpy_console.keys import format_key

if TYPE_CHECKING:
    from textual.widgets import TextArea

    from clawpy_console.console import Console
    from engine import Engine
    from engine.model import Refusal

Answer = TypeVar("Answer")
T = TypeVar("T")


class BaseScreen(Screen[Answer]):
    """A screen that is drawn whole when it comes up, and styled no more often than needed.

    Textual draws the whole of a screen that comes up. It forgets to do so if a layout falls into the same frame: then
    it draws only what the layout moved, and a dialog that is gone stays in sight. Here the whole screen is drawn.
    Textual also draws a dialog again for each change behind it. Here a screen behind a dialog of ours draws nothing:
    the dialog shows a picture of it.

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

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
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
            text, self.typed_ahead = self.typed_ahead, ""
            type_into(self.focused, text)

    def on_screen_resume(self) -> None:
        self.refresh()
        self._dirty_widgets.add(self)

    def _compositor_refresh(self) -> None:
        if self.app.screen is self or not isinstance(self.app.screen, BaseScreen):
            super()._compositor_refresh()
        else:
            self._dirty_widgets.clear()
            self._compositor._dirty_regions.clear()

    def can_show_results(self) -> bool:
        """Whether what was read can still be drawn: while the app ends the widgets are gone."""
        return True

    def read(
        self,
        call: Callable[[Engine], T],
        on_result: Callable[[T], object],
        on_refusal: Callable[[Refusal], object] | None = None,
        *,
        group: str,
        wait: float = 0.0,
    ) -> None:
        """Call the engine in a thread, after `wait` seconds. A newer call of the same `group` replaces this one."""

        def show_result(result: T) -> None:
            if self.can_show_results():
                on_result(result)

        if self.app.engine is not None:
            work = partial(self.app.run_in_thread, partial(call, self.app.engine), show_result, on_refusal, wait=wait)
            _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

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
        zoomed, focused = self.maximized, self.focused
        if zoomed is not None and focused is not None and zoomed not in focused.ancestors_with_self:
            self.maximized = self._find_zoomable_pane()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "zoom":
            return self.focused is not None and not isinstance(self.focused, Input)
        if action == "zoom_back":
            return self.maximized is not None and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)


def type_into(widget: Widget, text: str) -> None:
    """Type `text` into `widget`, in place of its selection. Does nothing if the widget takes no text."""
    if not widget.check_consume_key("a", "a"):
        return
    if isinstance(widget, Input):
        widget.replace(text, *sorted(widget.selection))
    else:
        area: TextArea = widget  # type: ignore[assignment]  # importing it takes longer than the first frame may
        area.replace(text, *area.selection, maintain_selection_offset=False)
