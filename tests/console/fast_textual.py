"""Patches that make Textual quick in tests: nothing is parsed, drawn or cached that nobody sees, and a test only waits
for the end of the work. Apps end as on a terminal."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import RenderableType
from textual import active_app
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen

TESTS = Path(__file__).parents[1]


def apply_all(patch: pytest.MonkeyPatch) -> None:
    """Apply every patch of this module."""
    parse_style_sheets_once(patch)
    wait_until_idle_only(patch)
    end_apps_as_on_a_terminal(patch)
    draw_frames_on_demand(patch)
    disable_line_caches(patch)


def parse_style_sheets_once(patch: pytest.MonkeyPatch) -> None:
    """Parse each style sheet once: the same text with the same variables gives the same rules."""
    parse, parsed_rules = Stylesheet._parse_rules, dict[tuple[Any, ...], list[RuleSet]]()

    def parse_once(self: Stylesheet, *arguments: Any, **options: Any) -> list[RuleSet]:
        key = (arguments, *sorted(options.items()), *sorted(self._variables.items()))
        if key not in parsed_rules:
            parsed_rules[key] = parse(self, *arguments, **options)
        return parsed_rules[key]

    patch.setattr(Stylesheet, "_parse_rules", parse_once)


def draw_frames_on_demand(patch: pytest.MonkeyPatch) -> None:
    """Draw no frame that nobody sees: that took a quarter of the time. A test that reads the screen draws it then, and
    the last screen of each test is drawn, so that a fault in drawing is found."""
    render_update, run_test = Compositor.render_update, App.run_test

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


def end_apps_as_on_a_terminal(patch: pytest.MonkeyPatch) -> None:
    """End an app as `App.run_async` does: its messages and workers come to their end before its screens go.
    `App.run_test` removes the screens at once, under what still works on them."""
    run_test = App.run_test

    @asynccontextmanager
    async def run_and_exit(self: App[Any], **options: Any) -> AsyncIterator[Pilot[Any]]:
        async with run_test(self, **options) as pilot:
            yield pilot
            if not self._exit:
                self.exit()
            assert self._task is not None
            await asyncio.wait([self._task])

    patch.setattr(App, "run_test", run_and_exit)


class _NoCache:
    """A cache that keeps nothing."""

    def get(self, key: object, default: object = None) -> object:
        return default

    def __setitem__(self, key: object, value: object) -> None:
        pass


def disable_line_caches(patch: pytest.MonkeyPatch) -> None:
    """Make no caches for the next frame, which tests seldom draw: Textual makes seven for each line."""
    no_cache = _NoCache()
    patch.setattr("textual.strip.FIFOCache", lambda size: no_cache)


# Waiting


def wait_until_idle_only(patch: pytest.MonkeyPatch) -> None:
    """Wait for the end of the work itself. Textual's pilot takes 20 ms of little work for that end: slow on an idle
    machine, wrong on a busy one."""
    patch.setattr(asyncio, "to_thread", _track_to_thread)
    patch.setattr("textual.app.wait_for_idle", until_idle)
    patch.setattr("textual.pilot.wait_for_idle", until_idle)
    patch.setattr(Pilot, "_wait_for_screen", until_idle)
    patch.setattr("textual.screen.UPDATE_PERIOD", 0.5)
    patch.setattr("clawpy_console.app.WORDS_IGNORED_S", 60.0)  # a busy machine takes a second from key to key


async def until_idle(*_: object) -> bool:
    """Let the app do all that it can do now: messages, calls in threads, and the frame that is due. Calls that a test
    blocks are not waited for."""
    loop, app = asyncio.get_running_loop(), active_app.get()
    end = loop.time() + 20
    deadline = loop.time() + 0.05
    while True:
        await asyncio.sleep(0)
        if loop._ready:  # type: ignore[attr-defined]
            continue
        calls = [call for call in _running_calls if call.get_loop() is loop]
        if calls and loop.time() < end and not all(_is_blocked_by_test(_running_calls[call]) for call in calls):
            await asyncio.wait(calls, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            deadline = loop.time() + 0.05
            continue
        if app._batch_count and loop.time() < deadline:  # nothing is drawn until its end, which may wait for a timer
            await asyncio.sleep(0.001)
            continue
        screen = app.screen_stack[-1] if app.screen_stack else None
        if screen is None or app._batch_count or not _needs_drawing(screen):
            return True
        screen._on_timer_update()


def _needs_drawing(screen: Screen[Any]) -> bool:
    """Whether there is something to draw."""
    return bool(
        screen._layout_required or screen._scroll_required or screen._repaint_required or screen._recompose_required
        or screen._dirty_widgets or screen._callbacks
    )  # fmt: skip


_running_calls: dict[asyncio.Task[Any], list[int]] = {}
"""Calls in threads that have not ended yet, each with its thread once it has begun."""

_to_thread = asyncio.to_thread


async def _track_to_thread(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """In place of `asyncio.to_thread`: remember the call until it ends."""
    threads = []

    def run() -> Any:
        threads.append(threading.get_ident())
        return work(*arguments, **options)

    call = asyncio.ensure_future(_to_thread(run))
    _running_calls[call] = threads
    call.add_done_callback(_running_calls.pop)
    return await call


def _is_blocked_by_test(threads: list[int]) -> bool:
    """Whether a call in the last of these threads waits for what a test does later."""
    frame = sys._current_frames().get(threads[-1]) if threads else None
    is_waiting = False
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame, is_waiting = frame.f_back, True
    return frame is not None and is_waiting and Path(frame.f_code.co_filename).is_relative_to(TESTS)
