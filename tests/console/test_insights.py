"""The insights screen: what it says, each key, and that nothing is sent before it was said what."""

from __future__ import annotations

import dataclasses
import threading
from datetime import timedelta

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.insights import screen as insights
from engine.events import TrainingMoved
from engine.home import Home
from engine.learning.decisions.metrics import Outcome
from engine.model import CalibrationCheck, Phase, Refusal
from tests.console.conftest import at, live, screen_text, sees, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, SHOP
from tests.console.stand_in_insights import run
from tests.console.test_snapshots import SIZES
from tests.support.texts import says


async def to_insights(pilot: Pilot, *keys: str) -> None:
    await live(pilot)
    await pilot.press("7")
    await until(pilot, lambda: getattr(pilot.app.screen, "_insights", None) is not None, "for the figures")
    await pilot.press(*keys)
    await pilot.pause()


def looking(*keys: str):
    async def before(pilot: Pilot) -> None:
        await to_insights(pilot, *keys)
        await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for workers")
        await pilot.pause(0.1)

    return before


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks(console: ConsoleApp, snap_compare, size: str) -> None:
    assert snap_compare(console, terminal_size=SIZES[size], run_before=looking())


@pytest.mark.long
@pytest.mark.parametrize("pane", ["right", "third"])
def test_panes_when_narrow(console: ConsoleApp, snap_compare, pane: str) -> None:
    keys = ("tab",) if pane == "right" else ("shift+tab",)
    assert snap_compare(console, terminal_size=SIZES["80x24"], run_before=looking(*keys))


@pytest.mark.long
def test_without_colour(home: Home, engine: StandIn, snap_compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = ConsoleApp(lambda: engine, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    assert snap_compare(app, terminal_size=SIZES["120x40"], run_before=looking("shift+tab"))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_before_any_card(console: ConsoleApp, engine: StandIn, snap_compare, size: str) -> None:
    engine.insights.cards = []
    engine.insights.phase = Phase(0, 0, "0 of 30 decisions made; 30 more and the Twin joins in")
    engine.insights.check = CalibrationCheck(0, False, "0 of 100 decisions were held out")
    empty = dataclasses.replace(engine.insights.training, runs=(), model="", pairs=0, needed=50)
    engine.insights.training = empty
    assert snap_compare(console, terminal_size=SIZES[size], run_before=looking())


async def test_the_error_stands_beside_the_threshold_and_the_phase_says_why(console: ConsoleApp) -> None:
    async with at(console, to_insights):
        text = screen_text(console)
        says(
            text,
            "error       ✓ 0.041",
            "acts from   0.80: you approved 100% of 8 cards",
            "phase       2: its calibration holds on 212",
        )


async def test_cards_that_were_withdrawn_are_told_so_that_all_add_up(console: ConsoleApp, engine: StandIn) -> None:
    newest = engine.insights.cards[-1]
    outcomes = [Outcome.WITHDRAWN, Outcome.WITHDRAWN, Outcome.EXPIRED, Outcome.CANNOT_RUN]
    engine.insights.cards = [dataclasses.replace(newest, outcome=outcome) for outcome in outcomes]
    async with at(console, to_insights) as pilot:
        told = "0 approved, 0 dismissed, 1 expired, 2 withdrawn, 1 could not run"
        shown = console.screen.query_one("#left-text").render
        await until(pilot, lambda: told in " ".join(shown().plain.split()))


async def test_period_and_workspace_change_what_is_read(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_insights) as pilot:
        assert ("insights", 30, "") in engine.noted
        await pilot.press("p")
        await sees(pilot, "last 90 days:")
        await pilot.press("p")
        await sees(pilot, "all time:")
        await pilot.press("w")
        await until(pilot, lambda: ("insights", None, SHOP) in engine.noted)
        await sees(pilot, "Cards of shop")


@pytest.mark.long
async def test_nothing_is_sent_before_it_is_said_what_and_where(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, to_insights, "t") as pilot:
        await sees(pilot, "Train a Twin model?")
        text = " ".join(screen_text(console).replace("│", " ").split())
        for said in ("112 preference pairs, 184 kB", "(https://api.together.xyz/v1)", "Qwen/Qwen3-8B",
                     "$1.00 is reserved", "26 decisions"):  # fmt: skip
            assert said in text, said
        await pilot.press("up", "enter", "t")
        assert ("launch",) not in engine.noted
        await pilot.press("X")
        await until(pilot, lambda: ("launch",) in engine.noted)


@pytest.mark.long
async def test_a_key_pressed_twice_while_the_engine_looks_opens_one_dialog(
    console: ConsoleApp, engine: StandIn
) -> None:
    looked, offer = threading.Event(), engine.training.offer
    engine.training.offer = lambda: (looked.wait(5), offer())[1]  # type: ignore[method-assign]
    async with at(console, to_insights, "t", "t") as pilot:
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
    async with at(console, to_insights, "t", size=(80, 24)) as pilot:
        await sees(pilot, "clawpy key set together")


async def test_a_training_under_way_is_stopped_by_the_same_key(console: ConsoleApp, engine: StandIn) -> None:
    view = engine.insights.training
    engine.insights.training = dataclasses.replace(view, active=run(2, "started"), runs=(run(2, "started"), *view.runs))
    async with at(console, to_insights, "s", size=(80, 24)) as pilot:
        assert "Swap" not in screen_text(console)
        await pilot.press("t")
        await sees(pilot, "Stop the training?")
        await pilot.press("X")
        await until(pilot, lambda: ("cancel",) in engine.noted)


@pytest.mark.parametrize(("state", "called"), [("kept_old", "adopt"), ("adopted", "restore_former")])
async def test_models_are_swapped_in_and_out(console: ConsoleApp, engine: StandIn, state: str, called: str) -> None:
    newer = run(2, state, updated_at=NOW - timedelta(days=1), former_model="together:me/twin-1")
    view = engine.insights.training
    engine.insights.training = dataclasses.replace(view, runs=(newer, *view.runs))
    async with at(console, to_insights, "s") as pilot:
        await sees(pilot, "me/twin-2")
        assert (called,) not in engine.noted
        await pilot.press("y")
        await until(pilot, lambda: (called,) in engine.noted)


async def test_the_end_of_a_training_is_told_and_read(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insights, "DEBOUNCE_S", 0.05)
    async with at(console, to_insights) as pilot:
        engine.insights.training = dataclasses.replace(engine.insights.training, pairs=7)
        said = "agrees with 71% of 23 held-back decisions"
        engine.bus.publish(TrainingMoved(subject="train_1", state="kept_old", note=said))
        told = "training: the new model is not used; agrees with 71%"
        await until(
            pilot, lambda: any(notification.message.startswith(told) for notification in console._notifications)
        )
        await pilot.press("shift+tab")
        await sees(pilot, "7 of 100 new")
