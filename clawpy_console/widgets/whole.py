"""A screen that is drawn whole when it comes up."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import Screen

Answer = TypeVar("Answer")


class WholeScreen(Screen[Answer]):
    """A screen that never shows what another one left.

    Textual asks for the whole of a screen to be drawn when it comes up, and forgets it when a layout falls into the
    same frame: only what the layout moved is drawn then, and a dialog that is gone stays in sight.
    """

    _owed = False

    def on_mount(self) -> None:
        self.screen_layout_refresh_signal.subscribe(self, self._laid_out, immediate=True)

    def on_screen_resume(self) -> None:
        self._owed = True
        self.call_after_refresh(self._drawn)

    def _laid_out(self, _: object) -> None:
        if self._owed:
            self.refresh()

    def _drawn(self) -> None:
        self._owed = False
