"""The event loop is never blocked, and a screen without changes is not drawn again (SPEC 11.4)."""

import asyncio
import gc
import statistics
import threading
import time

import pytest

from clawpy_console.app import ConsoleApp
from engine import open_engine
from engine.home import Home
from engine.model import SessionState
from tests.console.driving import until, until_loaded
from tests.support.busy_repository import make_busy_repository

pytestmark = pytest.mark.usefixtures("frames_at_60_hz")

LIMIT = 0.05
"""Seconds for which no call may hold the loop (SPEC 11.4)."""


@pytest.fixture(autouse=True)
def _freeze_garbage_of_other_tests():
    """What the tests before left behind is not collected on our time; the app freezes its own in a terminal."""
    gc.collect()
    gc.freeze()


class Watchdog:
    """The longest single callback of the event loop while it is active, in seconds of this thread's processor time:
    a busy machine is not taken for a busy loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.worst = 0.0
        self.culprit = ""
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.events.Handle):
            began = time.thread_time()
            run(handle)
            used = time.thread_time() - began
            if used > self.worst:
                self.worst, self.culprit = used, repr(handle)

        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)


ROUNDS = 5
KEYS = ("s", "u", "enter", "escape", "2", "1", "left", "u")


@pytest.mark.benchmark
async def test_the_loop_is_free_while_everything_happens_in_a_real_engine(
    home: Home, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    """The processor time of every single callback after a key; what counts is the median over the rounds, since a busy
    machine makes one of many slow, and a call that blocks does so each time."""
    paths = [str(make_busy_repository(tmp_path_factory.mktemp("busy") / "shop").path)]
    engine = await asyncio.to_thread(open_engine, home, workspaces=paths, start_schedule=False)
    app = ConsoleApp(lambda: engine, home, paths)
    app.animation_level = "none"
    over = threading.Event()

    def predict():
        while not over.wait(0.05):
            engine.checks.run(requested=True)

    async with app.run_test(size=(120, 40)) as pilot:
        await until_loaded(pilot)
        gc.freeze()  # as the app itself does in a terminal, once the engine is there
        await asyncio.to_thread(engine.checks.run, requested=True)
        card = next(card for card in engine.cards.list_pending() if card.assignment.flow == "run_tests")
        session = (await asyncio.to_thread(engine.cards.approve, card.id)).session_id or ""
        await until(pilot, lambda: app.screen.query_one("#live").last_line.startswith("line "))
        predicting = threading.Thread(target=predict, daemon=True)
        predicting.start()
        watchdog = Watchdog(monkeypatch)
        worst = {key: [] for key in KEYS}
        for key in KEYS * ROUNDS:
            watchdog.worst = 0.0
            app.simulate_key(key)
            await asyncio.sleep(0.08)
            worst[key].append(watchdog.worst)
        over.set()
        state = engine.sessions.get(session).state
        await asyncio.to_thread(engine.sessions.stop_all, "the test is over")
        await asyncio.to_thread(predicting.join, 10)
        await asyncio.to_thread(engine.close)
    medians = {key: statistics.median(values) for key, values in worst.items()}
    print("\nlongest callback after a key, median ms:", {key: round(value * 1000) for key, value in medians.items()})
    assert state is SessionState.RUNNING
    assert max(medians.values()) < LIMIT, medians
