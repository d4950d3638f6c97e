"""Shared by the tests of the console: an app over the stand-in engine, in its own home, at a fixed time in UTC."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_textual_snapshot import SVGImageExtension
from rich.console import RenderableType
from textual import active_app
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual._styles_cache import StylesCache
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen

from clawpy_console.app import ConsoleApp
from clawpy_console.cli.demo import make_project
from engine import Engine, open_engine
from engine.clock import FakeClock
from engine.home import Home
from engine.services import Overrides
from tests.conftest import MONDAY_MORNING
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW

TESTS = Path(__file__).parents[1]

SVGImageExtension.file_extension = "svg"  # syrupy 7 renamed it


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="package", autouse=True)
def _parse_style_sheets_once() -> Iterator[None]:
    """Parse each style sheet once: the same text with the same variables gives the same rules."""
    parse, parsed_rules = Stylesheet._parse_rules, dict[tuple[Any, ...], list[RuleSet]]()

    def parse_once(self: Stylesheet, *arguments: Any, **options: Any) -> list[RuleSet]:
        key = (arguments, *sorted(options.items()), *sorted(self._variables.items()))
        if key not in parsed_rules:
            parsed_rules[key] = parse(self, *arguments, **options)
        return parsed_rules[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture(autouse=True)
def _forget_drawn_widgets() -> Iterator[None]:
    """Empty a cache of Textual that keeps what the last thousand widgets drew: it slows garbage collections down."""
    yield
    StylesCache.get_inner_outer.cache_clear()


_running_calls: dict[asyncio.Task[Any], list[int]] = {}
"""Calls in threads that have not ended yet, each with its thread once it has begun."""

_to_thread = asyncio.to_thread


async def _track_to_thread(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """In place of `asyncio.to_thread`: remember the call until it ends."""
    threads: list[int] = []

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


@pytest.fixture(scope="package", autouse=True)
def _pilot_waits_until_idle() -> Iterator[None]:
    """Wait for the end of the work itself. Textual's pilot takes 20 ms of little work for that end: slow on an idle
    machine, wrong on a busy one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", _track_to_thread)
        patch.setattr("textual.app.wait_for_idle", until_idle)
        patch.setattr("textual.pilot.wait_for_idle", until_idle)
        patch.setattr(Pilot, "_wait_for_screen", until_idle)
        patch.setattr("textual.screen.UPDATE_PERIOD", 0.5)
        patch.setattr("clawpy_console.app.WORDS_IGNORED_S", 60.0)  # a busy machine takes a second from key to key
        yield


@pytest.fixture(scope="package", autouse=True)
def _draw_frames_on_demand() -> Iterator[None]:
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compositor, "render_update", render_full_update)
        patch.setattr(App, "run_test", run_and_draw)
        yield


class _NoCache:
    """A cache that keeps nothing."""

    def get(self, key: object, default: object = None) -> object:
        return default

    def __setitem__(self, key: object, value: object) -> None:
        pass


@pytest.fixture(scope="package", autouse=True)
def _disable_line_caches() -> Iterator[None]:
    """Make no caches for the next frame, which tests seldom draw: Textual makes seven for each line."""
    no_cache = _NoCache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textual.strip.FIFOCache", lambda size: no_cache)
        yield


@pytest.fixture
def frames_at_60_hz(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw frames as in a terminal, for tests of the event loop."""
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 1 / 60)


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture
def console(home: Home, engine: StandIn) -> ConsoleApp:
    """The app over the stand-in engine. Run it with `async with console.run_test() as pilot`."""
    return make_console(home, lambda: engine)


def make_console(
    home: Home, open_engine: Callable[[], Any], workspaces: Sequence[str] = (), **options: Any
) -> ConsoleApp:
    """A console in `home` without animations, opened for `workspaces`; at the fixed time, if no other is given."""
    app = ConsoleApp(open_engine, home, workspaces, **{"now": lambda: NOW} | options)
    app.animation_level = "none"
    return app


@pytest.fixture
def demo_engine(home: Home) -> Iterator[Engine]:
    """A real engine, with the clock at a fixed time, that looks after the project of the demo."""
    at = MONDAY_MORNING + timedelta(hours=4)
    engine = open_engine(
        home,
        workspaces=[str(make_project(home.root.parent / "shop", at))],
        clock=FakeClock(at),
        start_schedule=False,
        overrides=Overrides(throw_away=True, unreachable=True),
    )
    yield engine
    engine.close()


def read_toasts(app: ConsoleApp) -> str:
    """The texts of all toasts, line by line."""
    return "\n".join(notification.message for notification in app._notifications)


@pytest.fixture
def plain_console(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch) -> ConsoleApp:
    """The same on a terminal without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    return make_console(console.home, console._open_engine)


@pytest.fixture
def compare_snapshot(snap_compare: Callable[..., bool]) -> object:
    """See `tests.console.snapshots.CompareSnapshot`."""
    from tests.console.snapshots import make_comparison

    return make_comparison(snap_compare)


async def until(pilot: Pilot, condition: Callable[[], object], description: str = "") -> None:
    """Let the app run until `condition` holds; fails after twenty seconds, with its `description`."""
    deadline = time.monotonic() + 20
    await until_idle()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain {description}"
        await asyncio.sleep(0.005)
        await until_idle()


async def until_loaded(pilot: Pilot) -> None:
    """Wait until the engine is open and everything was read once."""
    app = pilot.app
    await until(pilot, lambda: app.state.phase and not app._is_reading, "for the engine")  # type: ignore[attr-defined]


@asynccontextmanager
async def running(
    console: ConsoleApp, *keys: str, size: tuple[int, int] = (120, 40), notifications: bool = False
) -> AsyncIterator[Pilot]:
    """The console once everything was read; `keys` are pressed then."""
    async with console.run_test(size=size, notifications=notifications) as pilot:
        await until_loaded(pilot)
        await pilot.press(*keys)
        yield pilot


async def wait_for_text(pilot: Pilot, *texts: str) -> None:
    """Wait until all of these texts are on the screen."""
    for text in texts:
        await until(pilot, lambda text=text: text in read_screen(pilot.app), f"for {text!r}")


def read_screen(app: App[Any]) -> str:
    """The text on the screen, line by line."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())
