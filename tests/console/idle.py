"""Waits until an app has done all that it can do now.

It reads private parts of the event loop and of Textual: `_ready` of the loop, `_batch_count` of an app, and what
`_needs_drawing` asks of a screen. What the next release changes there, is mended here.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import active_app
from textual.app import App
from textual.screen import Screen

TESTS = Path(__file__).parents[1]

MAX_CALLS_S = 20
"""Seconds after which calls in threads are no longer waited for."""

MAX_BATCH_S = 0.05
"""Seconds after the last call in which a batch of updates is waited for. It may wait for a timer itself."""


async def until_idle(*_: object) -> bool:
    """Let the app do its messages, its calls in threads, and the frame that is due. Calls that a test blocks are not
    waited for. Takes and returns what the functions of Textual do whose place it takes."""
    loop = asyncio.get_running_loop()
    app = active_app.get()
    calls_end = loop.time() + MAX_CALLS_S
    batch_end = loop.time() + MAX_BATCH_S
    while True:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        if loop.time() < calls_end and (calls := _find_unblocked_calls(loop)):
            await asyncio.wait(calls, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            batch_end = loop.time() + MAX_BATCH_S
        elif app._batch_count and loop.time() < batch_end:
            await asyncio.sleep(0.001)
        elif screen := _find_screen_to_draw(app):
            screen._on_timer_update()
        else:
            return True


def _find_screen_to_draw(app: App[Any]) -> Screen[Any] | None:
    """The screen in front, if there is something to draw on it. Within a batch nothing is drawn."""
    screen = app.screen_stack[-1] if app.screen_stack and not app._batch_count else None
    return screen if screen is not None and _needs_drawing(screen) else None


def _needs_drawing(screen: Screen[Any]) -> bool:
    return bool(
        screen._layout_required or screen._scroll_required or screen._repaint_required or screen._recompose_required
        or screen._dirty_widgets or screen._callbacks
    )  # fmt: skip


# Calls in threads

_running_calls: dict[asyncio.Task[Any], list[int]] = {}
"""Calls in threads that have not ended yet, each with its thread once it has begun."""

_to_thread = asyncio.to_thread


async def track_to_thread(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """In place of `asyncio.to_thread`: remember the call until it ends."""
    threads = []

    def run() -> Any:
        threads.append(threading.get_ident())
        return work(*arguments, **options)

    call = asyncio.ensure_future(_to_thread(run))
    _running_calls[call] = threads
    call.add_done_callback(_running_calls.pop)
    return await call


def _find_unblocked_calls(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    """The running calls of this loop; none if a test blocks them all."""
    calls = [call for call in _running_calls if call.get_loop() is loop]
    return [] if all(_is_blocked_by_test(_running_calls[call]) for call in calls) else calls


def _is_blocked_by_test(threads: list[int]) -> bool:
    """Whether a call in the last of these threads waits for what a test does later."""
    frame = sys._current_frames().get(threads[-1]) if threads else None
    is_waiting = False
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
        is_waiting = True
    return frame is not None and is_waiting and Path(frame.f_code.co_filename).is_relative_to(TESTS)
