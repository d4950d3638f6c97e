"""A screen that is drawn whole when it comes up, and styled only when the styles changed."""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.screen import Screen

Answer = TypeVar("Answer")


class WholeScreen(Screen[Answer]):
    """A screen that never shows what another one left.

    Textual asks for the whole of a screen to be drawn when it comes up, and forgets it when a layout falls into the
    same frame: only what the layout moved is drawn then, and a dialog that is gone stays in sight.

    Textual also matches every widget of a screen that comes up with every style rule, and has what it matched drawn
    anew, as if the theme had changed meanwhile. Here that is done when it did. A new screen has its classes for the
    size of the terminal before its widgets are there, and these are styled once, as they are mounted.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall"), (50, "-high")]

    _owed = False

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        # Textual's own count too, else it reads every style sheet twice more for a screen it has not seen.
        self._styled = self._css_update_count = self.app._css_update_count  # when this screen was last up
        width, height = self.app.size
        for size, breakpoints in ((width, self.HORIZONTAL_BREAKPOINTS), (height, self.VERTICAL_BREAKPOINTS)):
            self.add_class(*[word for least, word in sorted(breakpoints or ()) if least <= size][-1:], update=False)

    def on_mount(self) -> None:
        self.screen_layout_refresh_signal.subscribe(self, self._laid_out, immediate=True)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.ScreenResume):
            event.refresh_styles = self._styled != self.app._css_update_count
            self._styled = self.app._css_update_count
        await super().on_event(event)

    def on_screen_resume(self) -> None:
        self._owed = True
        self.call_after_refresh(self._drawn)

    def _laid_out(self, _: object) -> None:
        if self._owed:
            self.refresh()

    def _drawn(self) -> None:
        self._owed = False
