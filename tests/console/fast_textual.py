"""Patches that make Textual quick in tests: nothing is parsed, drawn or cached that nobody sees, and a test only waits
for the end of the work (`tests.console.idle`). Apps end as on a terminal.

They replace private parts of Textual: `Compositor._dirty_regions`,
`App._exit` and `App._task`, `Pilot._wait_for_screen`. What the next release changes there, is mended here.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from tests.console.idle import track_to_thread, until_idle


def apply_all(patch: pytest.MonkeyPatch):
    """Apply every patch of this module."""
    wait_until_idle_only(patch)
    accept_slow_typing(patch)
    end_apps_as_on_a_terminal(patch)
    draw_frames_on_demand(patch)
    disable_line_caches(patch)


def wait_until_idle_only(patch: pytest.MonkeyPatch):
    """Wait for the end of the work itself. Textual's pilot takes 20 ms of little work for that end: slow on an idle
    machine, wrong on a busy one."""
    patch.setattr(asyncio, "to_thread", track_to_thread)
    patch.setattr("textual.app.wait_for_idle", until_idle)
    patch.setattr("textual.pilot.wait_for_idle", until_idle)
    patch.setattr(Pilot, "_wait_for_screen", until_idle)
    patch.setattr("textual.screen.UPDATE_PERIOD", 0.5)


def accept_slow_typing(patch: pytest.MonkeyPatch):
    """Let keys that come late belong together: a busy machine takes a second from key to key."""
    patch.setattr("clawpy_console.screens.IGNORED_WORDS_S", 60.0)


def draw_frames_on_demand(patch: pytest.MonkeyPatch):
    """Draw no frame that nobody sees: that took a quarter of the time. A test that reads the screen draws it then, and
    the last screen of each test is drawn, so that a fault in drawing is found."""
    render_update = Compositor.render_update
    run_test = App.run_test

    def render_full_update(
        self: Compositor, full: bool = False, screen_stack: list[Screen[Any]] | None = None, simplify: bool = False
    ) -> RenderableType | None:
        if full:
            return render_update(self, full, screen_stack, simplify)
        visible_screen_stack.set(screen_stack or [])
        self._dirty_regions.clear()
        return None

    @asynccontextmanager
    async def run_and_draw(self: App[Any], **options: Any) -> AsyncIterator[Pilot[Any]]:
        async with run_test(self, **options) as pilot:
            yield pilot
            if self.is_running and self.screen_stack:
                self.screen._compositor.render_strips()

    patch.setattr(Compositor, "render_update", render_full_update)
    patch.setattr(App, "run_test", run_and_draw)


def end_apps_as_on_a_terminal(patch: pytest.MonkeyPatch):
    """End an app as `App.run_async` does: its messages and workers come to their end before its screens go.
    `App.run_test` removes the screens at once, under what still works on them."""
    run_test = App.run_test

    @asynccontextmanager
    async def run_and_exit(self: App[Any], **options: Any) -> AsyncIterator[Pilot[Any]]:
        async with run_test(self, **options) as pilot:
            yield pilot
            if not self._exit:
                self.exit()
            await asyncio.wait([self._task])

    patch.setattr(App, "run_test", run_and_exit)


class _NoCache:
    """A cache that keeps nothing."""

    def get(self, key: object, default: object = None) -> object:
        return default

    def __setitem__(self, key: object, value: object):
        pass


def disable_line_caches(patch: pytest.MonkeyPatch):
    """Make no caches for the next frame, which tests seldom draw: Textual makes seven for each line."""
    no_cache = _NoCache()
    patch.setattr("textual.strip.FIFOCache", lambda size: no_cache)
