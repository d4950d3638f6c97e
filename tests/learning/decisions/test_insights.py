"""The figures as they are read from a home: what time, which workspace, whose decisions, stated or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.insights import (
    MIN_DRIFT,
    MIN_DRIFT_KIND,
    MIN_TREND_HALF,
    NEWEST,
    CardFigures,
    Figures,
    drift,
    metrics,
    over_time,
)
from engine.model import (
    COLD_START,
    CalibrationCheck,
    DecidedBy,
    Insights,
    Outcome,
    Phase,
    Shift,
    Source,
    Status,
    TrainingView,
)
from engine.prediction.card_rows import Prediction
from engine.storage.database import Database

SHOP, BLOG = "/shop", "/blog"
TRAINING = TrainingView(0, 50, "", None, (), "", False, False)

Decide = Callable[..., None]


@pytest.fixture
def decide(database: Database, clock: FakeClock) -> Decide:
    """Adds cards that were decided `ago`."""

    def add(count: int = 1, ago: timedelta = timedelta(0), **more: object) -> None:
        at = clock.now() - ago
        for _ in range(count):
            add.made += 1  # type: ignore[attr-defined]
            fields = {
                "id": f"pred_{add.made}",  # type: ignore[attr-defined]
                "prompt": "run", "target_agent": "a", "target_channel": "koji-core", "confidence": 0.7,
                "status": Status.EXECUTED, "source": Source.TEMPLATE, "created_at": at, "decided_at": at,
                "decided_by": DecidedBy.OPERATOR, "kind": "run_tests", "workspace": SHOP, "runner": "flow",
                "subject": str(add.made), "fingerprint": str(add.made), "expires_at": at,  # type: ignore[attr-defined]
            }  # fmt: skip
            row = Prediction(**(fields | more))
            database.write(lambda tx, row=row: tx.session.add(row))  # type: ignore[misc]

    add.made = 0  # type: ignore[attr-defined]
    return add


@pytest.fixture
def figures(database: Database, clock: FakeClock) -> Figures:
    return Figures(
        database,
        clock,
        phase=lambda: Phase(1, 40, "forty"),
        check=lambda: CalibrationCheck(40, False, "forty"),
        threshold=lambda: 0.8,
        earning=lambda workspace: f"for {workspace or 'all'}",
        training=lambda: TRAINING,
    )


def counted(read: Insights) -> tuple[int, int]:
    return read.metrics.approved, sum(one.approved for one in read.over_time)


def test_days_count_from_midnight_and_today_is_one(decide: Decide, figures: Figures, clock: FakeClock) -> None:
    into_today = clock.local() - clock.local().replace(hour=0, minute=0, second=0, microsecond=0)
    decide(ago=timedelta(days=6) + into_today)
    decide(ago=timedelta(days=6) + into_today + timedelta(seconds=1))
    assert counted(figures.read(7)) == (1, 1)
    assert counted(figures.read(8)) == (2, 2)
    assert counted(figures.read(None)) == (2, 2)
    assert len(figures.read(7).over_time) == 7


def test_one_workspace_or_all(decide: Decide, figures: Figures) -> None:
    decide(2)
    decide(3, workspace=BLOG, status=Status.REJECTED)
    assert figures.read(7).metrics.approval_rate == 0.4
    read = figures.read(7, SHOP)
    assert (read.metrics.total, read.metrics.approval_rate, read.earning) == (2, 1.0, "for /shop")


def test_cards_at_the_threshold_justify_it(decide: Decide, figures: Figures) -> None:
    decide(confidence=0.7999)
    decide(11, confidence=0.8)
    decide(confidence=0.9, decided_by=DecidedBy.AUTONOMY)
    at = figures.read(7).at_threshold
    assert (at.predictions, at.approval_rate) == (11, 1.0)
    assert at.at_least == pytest.approx(0.741, abs=0.001)


def test_a_cold_start_is_told_apart(decide: Decide, figures: Figures) -> None:
    decide(confidence=COLD_START)
    decide(confidence=0.41)
    [bucket] = [one for one in figures.read(7).metrics.calibration if one.predictions]
    assert (bucket.predictions, bucket.unstated) == (2, 1)


def test_withdrawn_cards_are_neither_expired_nor_waiting(decide: Decide, figures: Figures) -> None:
    none = {"decided_at": None, "decided_by": None}
    decide(status=Status.EXPIRED, outcome=Outcome.WITHDRAWN, **none)
    decide(2, status=Status.EXPIRED, **none)
    decide(3, status=Status.PENDING, **none)
    found = figures.read(7).metrics
    assert (found.total, found.expired, found.undecided, found.approval_rate) == (6, 2, 3, None)


def test_drift_is_of_persons_however_old(decide: Decide, figures: Figures) -> None:
    old = timedelta(days=90)
    decide(NEWEST, old, decided_by=DecidedBy.AUTONOMY, status=Status.REJECTED)
    decide(NEWEST, old, source=Source.OPERATOR)
    decide(MIN_DRIFT - 1, old, status=Status.REJECTED)
    assert figures.read(7).drift.words == "1 more decision until changes of taste can be detected"
    decide(status=Status.REJECTED)
    drift = figures.read(7).drift
    assert (drift.decisions, drift.changed) == (MIN_DRIFT, False)
    assert drift.words == "too few earlier decisions to detect changes of taste"
    assert figures.read(7, BLOG).drift.decisions == 0


# SPEC 8.5: what is counted, and what the rates are of.


NOW = datetime(2026, 1, 5, tzinfo=UTC)


def card(
    word: str, confidence: float = 0.5, *, autonomous: bool = False, undone: bool = False, source: str = "template",
    channel: str = "koji-core", cost: int = 0,
) -> CardFigures:  # fmt: skip
    return CardFigures(source, channel, confidence, word, autonomous, undone, NOW, cost)


def test_rates_are_of_what_a_person_decided() -> None:
    found = metrics(
        [card("approved", 0.7), card("approved", 0.5), card("rejected", 0.4), card("expired", 0.3), card("", 0.6),
         card("approved", 0.9, autonomous=True), card("approved", 0.9, autonomous=True, undone=True)]
    )  # fmt: skip
    assert (found.total, found.approved, found.rejected, found.expired) == (7, 2, 1, 1)
    assert found.approval_rate == pytest.approx(2 / 3)
    assert (found.auto_executed, found.auto_undone, found.auto_success_rate) == (2, 1, 0.5)
    assert (found.approved_confidence, found.rejected_confidence) == (pytest.approx(0.6), 0.4)
    assert found.confidence == pytest.approx(4.3 / 7)


@pytest.mark.parametrize(
    ("confidence", "bucket"),
    [(0.3, "0.3-0.4"), (0.3999, "0.3-0.4"), (0.4, "0.4-0.5"), (0.7999, "0.7-0.8"), (0.8, "0.8-1.0"), (1.0, "0.8-1.0")],
)
def test_buckets_at_their_bounds(confidence: float, bucket: str) -> None:
    found = metrics([card("approved", confidence), card("rejected", confidence)])
    assert [(one.name, one.approval_rate) for one in found.calibration if one.predictions] == [(bucket, 0.5)]


@pytest.mark.parametrize(
    ("older", "newer", "is_"),
    [(5, 5, "steady"), (5, 6, "improving"), (6, 5, "declining"), (0, 10, "improving")],
)
def test_the_trend_compares_the_halves(older: int, newer: int, is_: str) -> None:
    halves = [["approved"] * good + ["rejected"] * (MIN_TREND_HALF - good) for good in (older, newer)]
    cards = [card(word) for half in halves for word in half]
    assert metrics(cards).trend == is_
    assert metrics(cards[1:]).trend == "unknown"


def test_cost_is_spread_over_what_was_accepted_and_kept() -> None:
    found = metrics(
        [card("approved", cost=300), card("rejected", cost=100), card("approved", cost=200, undone=True),
         card("approved", source="twin-model", channel="garden")]
    )  # fmt: skip
    assert found.cost_per_accepted == 300
    assert [
        (source.name, source.predictions, source.approval_rate, source.cost_per_accepted) for source in found.sources
    ] == [
        ("template", 3, pytest.approx(2 / 3), 600.0), ("twin-model", 1, 1.0, 0.0),
    ]  # fmt: skip


def test_hours_and_parts_of_the_day_are_the_operators_own() -> None:
    found = metrics([replace(card("approved"), at=datetime(2026, 1, 5, 23, 30, tzinfo=UTC))], ZoneInfo("Asia/Tokyo"))
    assert [hour.name for hour in found.hours] == ["08"]
    assert [part.name for part in found.parts] == ["morning"]


@pytest.mark.parametrize(("days", "slices", "each"), [(1, 1, 1), (7, 7, 1), (31, 31, 1), (32, 5, 7), (90, 13, 7),
                                                      (400, 29, 14), (3650, 11, 364)])  # fmt: skip
def test_time_is_cut_into_slices_that_end_today(days: int, slices: int, each: int) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    until = datetime(2026, 11, 22, 15, tzinfo=berlin)
    found = over_time([], until - timedelta(days=days - 1), until, berlin)
    assert len(found) == slices
    assert found[-1].end == datetime(2026, 11, 23, tzinfo=berlin)
    assert {(one.end.date() - one.start.date()).days for one in found} == {each}
    assert all(one.end == two.start for one, two in pairwise(found))


def test_a_decision_belongs_to_its_local_day_also_when_the_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    late = replace(card("approved"), at=datetime(2026, 10, 25, 22, 30, tzinfo=UTC))  # 23:30 on a day of 25 hours
    early = replace(card("rejected"), at=datetime(2026, 10, 25, 23, 30, tzinfo=UTC))
    found = over_time([late, early], late.at, early.at, berlin)
    assert [(one.start.day, one.approved, one.rejected) for one in found] == [(25, 1, 0), (26, 0, 1)]
    assert (found[0].end.timestamp() - found[0].start.timestamp()) / 3600 == 25


def test_a_taste_that_turned_is_named_with_what_was_usual_before() -> None:
    before = [("garden", number % 5 > 0) for number in range(60)]
    now = [("garden", number == 7) for number in range(30)] + [("lint", True)] * 20
    found = drift([*before, *now])
    assert found.shifts == (Shift("garden", 1, 30, 0.8),)
    assert "taste changed" in found.words


@pytest.mark.parametrize(("lately", "told"), [(MIN_DRIFT_KIND - 1, 0), (MIN_DRIFT_KIND, 1)])
def test_a_kind_that_was_hardly_decided_on_is_not_looked_at(lately: int, told: int) -> None:
    before = [("garden", True)] * 60
    now = [("garden", False)] * lately + [("lint", True)] * (NEWEST - lately)
    assert len(drift([*before, *now]).shifts) == told
