"""The event loop is never blocked: watched while the engine streams, cards are swiped and screens are changed."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from clawpy_console.app import ConsoleApp
from engine.events import CycleFinished, SessionOutput
from engine.model import TranscriptLine
from tests.console.conftest import running, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW

pytestmark = pytest.mark.usefixtures("frames_by_the_clock")

LIMIT = 0.05


@pytest.fixture(autouse=True)
def _only_our_own_garbage() -> None:
    """What the tests before left behind is not collected on our time; the app freezes its own in a terminal."""
    gc.collect()
    gc.freeze()


class Watchdog:
    """The longest single callback of the event loop while it is active, in seconds of this thread's processor time:
    a busy machine is not taken for a busy loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worst = 0.0
        self.culprit = ""
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.events.Handle) -> None:
            began = time.thread_time()
            run(handle)
            used = time.thread_time() - began
            if used > self.worst:
                self.worst, self.culprit = used, repr(handle)

        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)


@pytest.mark.long
async def test_a_slow_port_does_not_block_the_loop(console: ConsoleApp, engine: StandIn) -> None:
    slow, asked, answer = engine.cards.pending, threading.Event(), threading.Event()

    def pending(**more):
        asked.set()
        assert answer.wait(20)
        return slow(**more)

    async with running(console) as pilot:
        engine.cards.pending = pending  # type: ignore[method-assign]
        console.reload(["cards"])
        await until(pilot, asked.is_set)
        await pilot.press("2")
        assert console._is_reading
        assert console.current_mode == "work"
        answer.set()
        await until(pilot, lambda: not console._is_reading)


@pytest.mark.benchmark  # it judges time
async def test_streaming_a_thousand_lines_a_second_leaves_the_loop_free(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = engine.sessions.all[0].id
    lines = engine.sessions.transcripts[session]
    async with running(console, "escape") as pilot:
        watchdog = Watchdog(monkeypatch)
        for burst in range(40):
            start = len(lines)
            lines.extend(TranscriptLine(start + n + 1, NOW, "output", f"line {start + n} " * 8) for n in range(25))
            engine.bus.publish(SessionOutput(subject=session, last_line=len(lines), text=""))
            engine.bus.publish(CycleFinished(created=0, withdrawn=0, seconds=0.1))
            await asyncio.sleep(0.025)
            if burst % 10 == 5:
                console.screen.query_one("#stack").action_decide("dismiss")
        live_view = console.screen.query_one("#live")
        await until(pilot, lambda: live_view.last_line == lines[-1].text)
        assert watchdog.worst < LIMIT, watchdog.culprit


async def test_nothing_ticks_faster_than_a_second_and_a_still_screen_is_not_drawn_again(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console) as pilot:
        await until(pilot, lambda: not any(worker.is_running for worker in console.workers), "for the greeting")
        assert all(timer._interval >= 1 for timer in console._timers)
        drawn: list[str] = []
        for widget in console.screen.query("*"):
            original = widget.refresh
            widget.refresh = lambda *a, _o=original, _w=widget, **k: (drawn.append(repr(_w)), _o(*a, **k))[1]
        console._tick()
        await pilot.pause()
        assert drawn == []
