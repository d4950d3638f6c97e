"""An app that shows one widget of the console, and times the frames that it draws."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.screen import Screen
from textual.widget import Widget

from clawpy_console.appearance import find_shipped_folder, load_theme


class SilentTerminal(HeadlessDriver):
    """A terminal that gets every frame, and shows none."""

    @property
    def is_headless(self) -> bool:
        return False


class FrameCounter(App[None]):
    """An app with one widget, which counts the frames that it draws."""

    def __init__(self, widget: Widget):
        super().__init__(driver_class=SilentTerminal)
        self._widget = widget
        self.frames = 0

    def compose(self) -> ComposeResult:
        yield self._widget

    def on_mount(self):
        theme = load_theme(find_shipped_folder() / "clawpy-dark.toml")
        self.register_theme(theme)
        self.theme = theme.name
        self._widget.focus()

    def _display(self, screen: Screen[object], renderable: object):
        super()._display(screen, renderable)
        self.frames += renderable is not None

    async def time_frame(self, act: Callable[[], Awaitable[None]]) -> float:
        """Seconds from `act` to the next frame."""
        before, began = self.frames, time.perf_counter()
        await act()
        while self.frames == before:
            await asyncio.sleep(0.002)
            assert time.perf_counter() < began + 60, "nothing was drawn"
        return time.perf_counter() - began

    async def time_key(self, key: str) -> float:
        """Seconds from a key to the next frame."""

        async def press():
            self.post_message(events.Key(key, key if len(key) == 1 else None))

        return await self.time_frame(press)
