"""The insights screen: figures, calibration, training, and each key (SPEC 8.4 to 8.6, 9.1)."""

import dataclasses
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.fields import draw_sparkline, predictions
from clawpy_console.keys import format_key
from clawpy_console.screens import insights
from clawpy_console.widgets.texts import render_fields
from engine import document
from engine.events import TrainingMoved
from engine.learning.decisions.insights import CountedAs
from engine.model import CardGroup, ConfidenceBucket, DecisionSlice, Insights, TasteDrift, TasteShift, TrainingRunView
from tests.console.driving import format_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, SHOP
from tests.console.stand_in_insights import make_run
from tests.console.stories import (
    CLOSED,
    Given,
    Stories,
    Until,
    answers,
    called,
    hides,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
)
from tests.support.helpers import assert_contains

DEFAULT_KEY = partial(format_key, keymap={})
"""The key of an action if none was changed."""


def with_training(newest_run: TrainingRunView | None = None, **fields: object) -> Given:
    """The training has these fields, and one more run."""

    def change(engine: StandIn):
        view = engine.insights.training
        runs = view.runs if newest_run is None else (newest_run, *view.runs)
        engine.insights.training = dataclasses.replace(view, runs=runs, **fields)

    return Given(change)


def with_cards_counted_as(*counted: CountedAs) -> Given:
    """One card for each of these."""

    def change(engine: StandIn):
        newest = engine.insights.cards[-1]
        engine.insights.cards = [dataclasses.replace(newest, counted_as=counted_as) for counted_as in counted]

    return Given(change)


def with_swappable_model(state: str) -> Given:
    """A run of the training in this state, whose model can be put in place of the former one."""
    return with_training(make_run(2, state, updated_at=NOW - timedelta(days=1), former_model="together:me/twin-1"))


READ = Until("the figures", lambda app: app.screen._insights)
STORIES: Stories = {
    "cards that were withdrawn are told, so that all add up": (
        with_cards_counted_as(CountedAs.WITHDRAWN, CountedAs.WITHDRAWN, CountedAs.EXPIRED, CountedAs.CANNOT_RUN),
        Until(
            "the counts",
            lambda app: (
                "0 approved, 0 dismissed, 1 expired, 2 withdrawn, 1 could not run"
                in " ".join(app.screen.query_one("#left-text").render().plain.split())
            ),
        ),
    ),
    "period and workspace change what is read": (
        called("insights", 30, ""),
        press("p"),
        sees("last 90 days:"),
        press("p"),
        sees("all time:"),
        press("w"),
        called("insights", None, SHOP),
        sees("Cards of shop"),
    ),
    "nothing is sent before it is said what and where": (
        press("t"),
        sees(
            "Train a Twin model?",
            "112 preference pairs, 184 kB",
            "(https://api.together.xyz/v1)",
            "Qwen/Qwen3-8B",
            "$1.00 is reserved",
            "26 decisions",
        ),
        press("up enter t"),
        never_called("launch"),
        press("X"),
        called("launch"),
    ),
    "what is missing for a training is said": (
        refused("offer", "together has no key", "clawpy key set together"),
        press("t"),
        sees("clawpy key set together"),
    ),
    "a training under way is stopped by the same key": (
        with_training(make_run(2, "started"), active=make_run(2, "started")),
        press("s"),
        hides("Swap"),
        press("t"),
        sees("Stop the training?"),
        press("X"),
        called("cancel"),
    ),
    **{
        f"a model is swapped {direction}": (
            with_swappable_model(state),
            press("s"),
            sees("me/twin-2"),
            never_called(call),
            press("y"),
            called(call),
        )
        for direction, state, call in (("in", "kept_old", "adopt"), ("out", "adopted", "restore_former"))
    },
}


test_story = pytest.mark.long(make_story_test(STORIES, press("7"), READ))


@pytest.mark.long
async def test_a_key_pressed_twice_opens_one_dialog(console: ConsoleApp, engine: StandIn):
    looked = hold_back(engine.training, "offer")
    one_dialog = Until(
        "one dialog", lambda app: len(app.screen_stack) == 2 and not any(item.is_running for item in app.workers)
    )
    await play(
        console,
        press("7"),
        READ,
        press("t t"),
        answers(looked),
        one_dialog,
        press("escape"),
        CLOSED,
        press("t"),
        one_dialog,
    )


@pytest.mark.long
async def test_the_end_of_a_training_is_a_toast_and_new_figures(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(insights.InsightsScreen, "READ_DEBOUNCE_S", 0.05)

    def ends(app: ConsoleApp):
        engine.insights.training = dataclasses.replace(engine.insights.training, pairs=7)
        engine.bus.publish(TrainingMoved(subject="train_1", state="kept_old", note="agrees with 71% of 23"))

    lines = sees("training: the new model is not used; agrees with 71%")
    await play(console, press("7"), READ, ends, lines, press("shift+tab"), sees("7 of 100 new"))


# Fields

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def read() -> Insights:
    return StandIn().insights.read(30)


def replace_metrics(read: Insights, **figures: object) -> Insights:
    """Insights with these figures."""
    return dataclasses.replace(read, metrics=dataclasses.replace(read.metrics, **figures))


def make_bucket(stated: float, rate: float, decided: int = 20, unstated: int = 0) -> dict[str, Any]:
    item = ConfidenceBucket(0.6, 0.7, decided, rate, stated, rate - 0.1, rate + 0.1, unstated)
    return document(replace_metrics(StandIn().insights.read(30), calibration=(item,)))["calibration"][0]


def test_an_approved_card_that_could_not_run_is_not_called_undecided(read: Insights):
    message = insights.explain_no_figures(replace_metrics(read, approved=0, rejected=0, cannot_run=1), DEFAULT_KEY)
    assert message.startswith("1 could not run, so it counts in no rate. On mission control (1)")
    message = insights.explain_no_figures(replace_metrics(read, approved=0, rejected=0, cannot_run=0), DEFAULT_KEY)
    assert message.startswith("You have not decided any of these cards")


@pytest.mark.parametrize(
    "own, decisions, words",
    [(0, 4, "cards. On"), (4, 0, "cards. On"), (4, 4, "cards, only prompts of your own. On")],
)
def test_decisions_on_prompts_of_your_own_alone_are_named(read: Insights, own: int, decisions: int, words: str):
    undecided = replace_metrics(read, approved=0, rejected=0, cannot_run=0, own=own)
    phase = dataclasses.replace(read.phase, decisions=decisions)
    message = insights.explain_no_figures(dataclasses.replace(undecided, phase=phase), DEFAULT_KEY)
    assert message.startswith(f"You have not decided any of these {words}")


@pytest.mark.parametrize(
    "bucket_document, verdict",
    [
        (make_bucket(0.65, 0.74), "✓ stated 65%"),
        (make_bucket(0.65, 0.7501), "▲ too low: 65%"),
        (make_bucket(0.65, 0.5499), "▼ too high: 65%"),
        (make_bucket(0.65, 0.65, 4), "few decisions"),
        (make_bucket(0.4, 0.9, 3, unstated=3), "cold start"),
    ],
)
def test_the_verdict_on_a_range_of_confidence(bucket_document: dict[str, Any], verdict: str):
    assert predictions.judge_calibration(bucket_document)[0] == verdict


def test_no_decision_none_approved_and_some_approved_look_different(read: Insights):
    assert draw_sparkline([None, 0.0, 0.5, 1.0], 1.0) == "·▁▅█"
    days = [FIRST + timedelta(days=number) for number in range(5)]
    decided = ((0, 0), (0, 3), (1, 1), (3, 0))
    slices = tuple(DecisionSlice(days[at], days[at + 1], *counts) for at, counts in enumerate(decided))
    lines = format_text(predictions.make_daily_fields(document(dataclasses.replace(read, over_time=slices))))
    assert_contains(lines, "approval since 1 Jan", "·▁▅█", "at most 3")
    nothing = dataclasses.replace(read, over_time=slices[:1])
    assert list(predictions.make_daily_fields(document(nothing))) == []  # no plot without data


def test_a_table_shows_its_first_groups_and_a_cost_only_where_there_is_one(read: Insights):
    groups = tuple(CardGroup(f"a name of some length {at}", 1000 * at, at, 1, 0.5, 90_000) for at in range(9))
    lines = format_text(predictions.make_table_fields(document(replace_metrics(read, sources=groups)), ("sources",)))
    assert_contains(lines, "SOURCE", "1,000       2      50%  $0.09")
    assert lines.endswith("and 1 more")
    free = tuple(dataclasses.replace(group, cost_per_accepted=None) for group in groups)
    assert "cost" not in format_text(
        predictions.make_table_fields(document(replace_metrics(read, sources=free)), ("sources",))
    )


@pytest.mark.parametrize("width", [40, 58, 80, 120])
def test_every_line_fits(read: Insights, width: int):
    item = document(read)
    fields = [
        *predictions.make_summary_fields(item),
        *predictions.make_daily_fields(item),
        *predictions.make_calibration_fields(item),
        *predictions.make_hourly_fields(item),
    ]
    fields += [
        *predictions.make_drift_fields(item["drift"]),
        *predictions.make_table_fields(item, ("sources", "channels", "kinds", "partsOfDay")),
    ]
    assert max(line.cell_length for line in render_fields(fields, width)) <= width


def test_drift_names_the_kinds_of_cards_that_changed(read: Insights):
    drift = TasteDrift(
        50, "your taste changed", (TasteShift("run_tests", 1, 20, 0.8), TasteShift("bisect", 19, 20, 0.3))
    )
    lines = format_text(predictions.make_drift_fields(document(dataclasses.replace(read, drift=drift))["drift"]))
    assert_contains(
        lines,
        "your taste changed",
        "▼ less  Tests of what changed: approved 1 of 20, before 80%",
        "▲ more  Test that broke: approved 19 of 20, before 30%",
    )
