"""How good the predictions are, as the insights screen and `clawpy metrics` tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clawpy_console.cli.printing.style import field_lines, plain
from clawpy_console.fields import Field, predictions, spark
from clawpy_console.widgets.reflowing_text import render_fields
from engine import document
from engine.model import ConfidenceBucket, Drift, Group, Insights, Shift, Slice
from tests.console.stand_in import StandIn
from tests.support.texts import assert_contains

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def read() -> Insights:
    return StandIn().insights.read(30)


def text(fields: Iterable[Field]) -> str:
    return plain("\n".join(field_lines(fields)))


def bucket(stated: float, rate: float, decided: int = 20, unstated: int = 0) -> dict[str, Any]:
    item = ConfidenceBucket(0.6, 0.7, decided, rate, stated, rate - 0.1, rate + 0.1, unstated)
    empty = StandIn().insights.read(30)
    with_it = dataclasses.replace(empty.metrics, calibration=(item,))
    return document(dataclasses.replace(empty, metrics=with_it))["calibration"][0]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (bucket(0.65, 0.74), "✓ stated 65%"),
        (bucket(0.65, 0.7501), "▲ too low: 65%"),
        (bucket(0.65, 0.5499), "▼ too high: 65%"),
        (bucket(0.65, 0.65, 4), "few decisions"),
        (bucket(0.4, 0.9, 3, unstated=3), "cold start"),
    ],
)
def test_the_verdict_on_a_range_of_confidence(found: dict[str, Any], said: str) -> None:
    assert predictions.calibration_verdict(found)[0] == said


def test_nothing_decided_none_approved_and_some_look_different(read: Insights) -> None:
    assert spark([None, 0.0, 0.5, 1.0], 1.0) == "·▁▅█"
    days = [FIRST + timedelta(days=number) for number in range(5)]
    decided = ((0, 0), (0, 3), (1, 1), (3, 0))
    slices = tuple(Slice(days[at], days[at + 1], *counts) for at, counts in enumerate(decided))
    told = text(predictions.over_time_fields(document(dataclasses.replace(read, over_time=slices))))
    assert_contains(told, "approval since 1 Jan", "·▁▅█", "at most 3")
    nothing = dataclasses.replace(read, over_time=slices[:1])
    assert list(predictions.over_time_fields(document(nothing))) == []  # no plot without data


def test_a_table_has_the_first_groups_and_a_cost_where_there_is_one(read: Insights) -> None:
    groups = tuple(Group(f"a name of some length {at}", 1000 * at, at, 1, 0.5, 90_000) for at in range(3))
    told = text(predictions.table_fields(document(with_sources(read, groups)), ("sources",), limit=2))
    assert_contains(told, "SOURCE", "1,000       2      50%  $0.09")
    assert told.endswith("and 1 more")
    free = tuple(dataclasses.replace(group, cost_per_accepted=None) for group in groups)
    assert "cost" not in text(predictions.table_fields(document(with_sources(read, free)), ("sources",)))


def with_sources(read: Insights, groups: tuple[Group, ...]) -> Insights:
    return dataclasses.replace(read, metrics=dataclasses.replace(read.metrics, sources=groups))


@pytest.mark.parametrize("width", [40, 58, 80, 120])
def test_every_line_fits(read: Insights, width: int) -> None:
    item = document(read)
    fields = [
        *predictions.head_fields(item),
        *predictions.over_time_fields(item),
        *predictions.calibration_fields(item),
        *predictions.hours_fields(item),
    ]
    fields += [
        *predictions.drift_fields(item["drift"]),
        *predictions.table_fields(item, ("sources", "channels", "kinds", "partsOfDay")),
    ]
    assert max(line.cell_length for line in render_fields(fields, width)) <= width


def test_a_change_of_taste_is_told_by_kind(read: Insights) -> None:
    drift = Drift(50, "your taste changed", (Shift("run_tests", 1, 20, 0.8), Shift("bisect", 19, 20, 0.3)))
    told = text(predictions.drift_fields(document(dataclasses.replace(read, drift=drift))["drift"]))
    assert_contains(
        told,
        "your taste changed",
        "▼ less  Tests of what changed: approved 1 of 20, before 80%",
        "▲ more  Test that broke: approved 19 of 20, before 30%",
    )
