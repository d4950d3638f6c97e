"""The training on the insights screen: nothing is sent before it was said what, and models are swapped."""

from __future__ import annotations

import dataclasses
import threading
from datetime import timedelta

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.insights import screen as insights
from engine.events import TrainingMoved
from engine.model import Refusal, TrainingOffer
from tests.console.conftest import at, screen_text, toasts, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stand_in_insights import run
from tests.console.test_insights import open_insights
from tests.support.texts import assert_contains

WHAT_IS_SENT = (
    "112 preference pairs, 184 kB", "(https://api.together.xyz/v1)", "Qwen/Qwen3-8B", "$1.00 is reserved",
    "26 decisions",
)  # fmt: skip


@pytest.mark.long
async def test_nothing_is_sent_before_it_is_said_what_and_where(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, open_insights, "t") as pilot:
        await wait_for_text(pilot, "Train a Twin model?")
        text = " ".join(screen_text(console).replace("│", " ").split())
        assert_contains(text, *WHAT_IS_SENT)
        await pilot.press("up", "enter", "t")
        assert ("launch",) not in engine.noted
        await pilot.press("X")
        await until(pilot, lambda: ("launch",) in engine.noted)


@pytest.mark.long
async def test_a_key_pressed_twice_while_the_engine_looks_opens_one_dialog(
    console: ConsoleApp, engine: StandIn
) -> None:
    looked, offer = threading.Event(), engine.training.offer

    def offer_later() -> TrainingOffer:
        looked.wait(5)
        return offer()

    engine.training.offer = offer_later  # type: ignore[method-assign]
    async with at(console, open_insights, "t", "t") as pilot:
        looked.set()
        await until(pilot, lambda: len(console.screen_stack) > 1)
        await until(pilot, lambda: not any(worker.is_running for worker in console.workers))
        assert len(console.screen_stack) == 2
        await pilot.press("escape")
        assert len(console.screen_stack) == 1
        await pilot.press("t")
        await until(pilot, lambda: len(console.screen_stack) == 2)  # and the next press asks anew


async def test_what_is_missing_for_a_training_is_said(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["offer"] = Refusal("no_key", "together has no key", "clawpy key set together")
    async with at(console, open_insights, "t", size=(80, 24)) as pilot:
        await wait_for_text(pilot, "clawpy key set together")


async def test_a_training_under_way_is_stopped_by_the_same_key(console: ConsoleApp, engine: StandIn) -> None:
    view = engine.insights.training
    engine.insights.training = dataclasses.replace(view, active=run(2, "started"), runs=(run(2, "started"), *view.runs))
    async with at(console, open_insights, "s", size=(80, 24)) as pilot:
        assert "Swap" not in screen_text(console)
        await pilot.press("t")
        await wait_for_text(pilot, "Stop the training?")
        await pilot.press("X")
        await until(pilot, lambda: ("cancel",) in engine.noted)


@pytest.mark.parametrize(("state", "called"), [("kept_old", "adopt"), ("adopted", "restore_former")])
async def test_models_are_swapped_in_and_out(console: ConsoleApp, engine: StandIn, state: str, called: str) -> None:
    newer = run(2, state, updated_at=NOW - timedelta(days=1), former_model="together:me/twin-1")
    view = engine.insights.training
    engine.insights.training = dataclasses.replace(view, runs=(newer, *view.runs))
    async with at(console, open_insights, "s") as pilot:
        await wait_for_text(pilot, "me/twin-2")
        assert (called,) not in engine.noted
        await pilot.press("y")
        await until(pilot, lambda: (called,) in engine.noted)


async def test_the_end_of_a_training_is_told_and_read(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insights, "DEBOUNCE_S", 0.05)
    async with at(console, open_insights) as pilot:
        engine.insights.training = dataclasses.replace(engine.insights.training, pairs=7)
        said = "agrees with 71% of 23 held-back decisions"
        engine.bus.publish(TrainingMoved(subject="train_1", state="kept_old", note=said))
        told = "training: the new model is not used; agrees with 71%"
        await until(pilot, lambda: told in toasts(console))
        await pilot.press("shift+tab")
        await wait_for_text(pilot, "7 of 100 new")
