"""What agents found out waits among the rest, and goes up at a word (SPEC 1.8, 9.3), with the real engine."""

from __future__ import annotations

from clawpy_console.app import ConsoleApp
from engine import open_engine
from engine.home import Home
from engine.values import BubbleState, Learning, Score
from tests.console.conftest import live, screen_text, until

FOUND = Learning(
    "learning:1", "run the migrations before the tests", "backend tests", "backend_builder", "",
    Score(0.9, ("tests confirmed it",)), Score(0.8, ("a failure was avoided",)),
)  # fmt: skip


async def test_a_discovery_is_sent_up_from_what_waits(home: Home) -> None:
    app = ConsoleApp(lambda: open_engine(home, start_schedule=False), home, [])
    app.animation_level = "none"
    async with app.run_test(size=(160, 40)) as pilot:
        await live(pilot)
        engine = app.engine
        assert engine is not None
        assert engine.wisdom.offer(FOUND).state is BubbleState.QUEUED
        await until(pilot, lambda: any(one.kind == "bubble" for one in app.known.waiting))
        assert "WAITING FOR YOU  1" in screen_text(app)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: "Send it up now?" in screen_text(app))
        assert "run the migrations before the tests" in screen_text(app)
        await pilot.press("F")
        await until(pilot, lambda: not app.known.waiting)
        assert [one.state for one in engine.wisdom.bubbles()] == [BubbleState.FLUSHED]
        told = [one.text for one in engine.wisdom.profile("backend_lead").patterns if one.sources]
        assert told == ["run the migrations before the tests"]
