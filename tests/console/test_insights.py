"""The insights screen: figures, calibration, training, and each key (SPEC 8.4 to 8.6, 9.1)."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from clawpy_console.fields import cards as card_fields
from engine import document
from engine.model import ConfidenceBucket, TrainingRunView
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, SHOP
from tests.console.stand_in_insights import make_run
from tests.console.stories import (
    Given,
    Stories,
    Until,
    called,
    hides,
    make_story_test,
    never_called,
    press,
    refused,
    sees,
)


def with_training(newest_run: TrainingRunView | None = None, **fields: object) -> Given:
    """The training has these fields, and one more run."""

    def change(engine: StandIn):
        view = engine.insights.training
        runs = view.runs if newest_run is None else (newest_run, *view.runs)
        engine.insights.training = dataclasses.replace(view, runs=runs, **fields)

    return Given(change)


def with_swappable_model(state: str) -> Given:
    """A run of the training in this state, whose model can be put in place of the former one."""
    return with_training(make_run(2, state, updated_at=NOW - timedelta(days=1), former_model="together:me/twin-1"))


READ = Until("the figures", lambda app: app.screen._insights)
STORIES: Stories = {
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


# Fields


def make_bucket(stated: float, rate: float, decided: int = 20, unstated: int = 0) -> dict[str, Any]:
    item = ConfidenceBucket(0.6, 0.7, decided, rate, stated, rate - 0.1, rate + 0.1, unstated)
    return document(item)


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
    assert card_fields.judge_calibration(bucket_document)[0] == verdict
