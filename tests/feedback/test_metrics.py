"""SPEC 8.5: what is counted, and what the rates are of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.feedback.metrics import TREND_FROM, Decided, metrics

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def card(
    word: str, confidence: float = 0.5, *, itself: bool = False, undone: bool = False, source: str = "template",
    channel: str = "koji-core", cost: int = 0,
) -> Decided:  # fmt: skip
    return Decided(source, channel, confidence, word, itself, undone, NOW, cost)


def test_rates_are_of_what_a_person_decided() -> None:
    found = metrics(
        [card("approved", 0.7), card("approved", 0.5), card("rejected", 0.4), card("expired", 0.3), card("", 0.6),
         card("approved", 0.9, itself=True), card("approved", 0.9, itself=True, undone=True)]
    )  # fmt: skip
    assert (found.total, found.approved, found.rejected, found.expired) == (7, 2, 1, 1)
    assert found.approval_rate == pytest.approx(2 / 3)
    assert (found.auto_executed, found.auto_undone, found.auto_success_rate) == (2, 1, 0.5)
    assert (found.approved_confidence, found.rejected_confidence) == (pytest.approx(0.6), 0.4)
    assert found.confidence == pytest.approx(4.3 / 7)


def test_nothing_decided_has_no_rate() -> None:
    found = metrics([])
    assert (found.approval_rate, found.auto_success_rate, found.confidence, found.cost_per_accepted) == (None,) * 4
    assert found.trend == "unknown"


@pytest.mark.parametrize(
    ("confidence", "bucket"),
    [(0.3, "0.3-0.4"), (0.3999, "0.3-0.4"), (0.4, "0.4-0.5"), (0.7999, "0.7-0.8"), (0.8, "0.8-1.0"), (1.0, "0.8-1.0")],
)
def test_buckets_at_their_bounds(confidence: float, bucket: str) -> None:
    found = metrics([card("approved", confidence), card("rejected", confidence)])
    assert [(one.name, one.approval_rate) for one in found.calibration if one.predictions] == [(bucket, 0.5)]


def test_below_the_first_bucket_nothing_is_counted() -> None:
    assert sum(one.predictions for one in metrics([card("approved", 0.2999)]).calibration) == 0


@pytest.mark.parametrize(
    ("older", "newer", "is_"),
    [(5, 5, "steady"), (5, 6, "improving"), (6, 5, "declining"), (0, 10, "improving")],
)
def test_the_trend_compares_the_halves(older: int, newer: int, is_: str) -> None:
    halves = [["approved"] * good + ["rejected"] * (TREND_FROM - good) for good in (older, newer)]
    cards = [card(word) for half in halves for word in half]
    assert metrics(cards).trend == is_
    assert metrics(cards[1:]).trend == "unknown"


def test_cost_is_spread_over_what_was_accepted_and_kept() -> None:
    found = metrics(
        [card("approved", cost=300), card("rejected", cost=100), card("approved", cost=200, undone=True),
         card("approved", source="twin-model", channel="garden")]
    )  # fmt: skip
    assert found.cost_per_accepted == 300
    assert [(one.name, one.predictions, one.approval_rate, one.cost_per_accepted) for one in found.sources] == [
        ("template", 3, pytest.approx(2 / 3), 600.0), ("twin-model", 1, 1.0, 0.0),
    ]  # fmt: skip


@given(st.lists(st.builds(card, st.sampled_from(["approved", "rejected", "expired", ""]), st.floats(0, 1),
                          itself=st.booleans(), undone=st.booleans(), source=st.sampled_from("ab"))))  # fmt: skip
def test_the_parts_add_up(cards: list[Decided]) -> None:
    found = metrics(cards)
    assert (
        sum(one.predictions for one in found.sources) == sum(one.predictions for one in found.channels) == found.total
    )
    assert sum(one.predictions for one in found.calibration) <= found.approved + found.rejected
    assert found.auto_undone <= found.auto_executed
