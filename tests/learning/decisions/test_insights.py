"""The figures of a home: which cards they include, and how rates and drift are computed (SPEC 8.5)."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.insights import MIN_DRIFT, NEWEST_DECISIONS, InsightsReader
from engine.model import (
    CalibrationCheck,
    DecidedBy,
    DecisionSignal,
    Insights,
    Outcome,
    Phase,
    Source,
    Status,
    TrainingView,
)
from engine.prediction.card_rows import CardRow, make_decided_card
from engine.storage.database import Database, Transaction
from tests.support.card_rows import make_card_row

# Which cards are included


@pytest.fixture
def reader(database: Database, clock: FakeClock) -> InsightsReader:
    """A reader of the figures of an engine that has made forty decisions."""
    return InsightsReader(
        database,
        clock,
        read_phase=lambda: Phase(1, 40, "forty"),
        read_calibration=lambda: CalibrationCheck(40, is_calibrated=False, reason="forty"),
        read_threshold=lambda: 0.8,
        missing_for=lambda workspace: f"for {workspace or 'all'}",
        read_training=lambda: TrainingView(0, 50, "", None, (), "", enabled=False, automatic=False),
    )


AddDecidedCards = Callable[..., None]


@pytest.fixture
def add_decided_cards(database: Database, clock: FakeClock) -> AddDecidedCards:
    """Adds cards that were decided `ago`, each with the decision if a person made it."""
    names, decisions = map(str, itertools.count()), Decisions(database, clock)

    def store(tx: Transaction, row: CardRow):
        tx.insert(row)
        if row.decided_by == DecidedBy.OPERATOR:
            is_dismissed = row.status == Status.DISMISSED
            signal = DecisionSignal.DISMISSED if is_dismissed else DecisionSignal.APPROVED
            decisions.record(tx, signal, make_decided_card(row, DecidedBy.OPERATOR), at=row.decided_at)

    def add(number: int = 1, ago: timedelta = timedelta(0), **fields: object):
        at = clock.now() - ago
        for name in itertools.islice(names, number):
            decided = {"status": Status.EXECUTED, "decided_at": at, "decided_by": DecidedBy.OPERATOR}
            database.write(partial(store, row=make_card_row(f"pred_{name}", at, **decided | fields)))

    return add


def count_approvals(insights: Insights) -> tuple[int, int]:
    """The number of approvals in the metrics, and in all slices of time."""
    return insights.metrics.approved, sum(part.approved for part in insights.over_time)


def test_days_begin_at_local_midnight_and_include_today(
    add_decided_cards: AddDecidedCards, reader: InsightsReader, clock: FakeClock
):
    since_midnight = clock.local() - clock.local().replace(hour=0, minute=0, second=0, microsecond=0)
    add_decided_cards(ago=timedelta(days=6) + since_midnight)
    add_decided_cards(ago=timedelta(days=6) + since_midnight + timedelta(seconds=1))
    assert count_approvals(reader.read(7)) == (1, 1)
    assert count_approvals(reader.read(8)) == (2, 2)
    assert count_approvals(reader.read(None)) == (2, 2)
    assert len(reader.read(7).over_time) == 7


def test_what_was_withdrawn_or_could_not_run_counts_in_no_rate(
    add_decided_cards: AddDecidedCards, reader: InsightsReader
):
    undecided = {"decided_at": None, "decided_by": None}
    add_decided_cards(status=Status.EXPIRED, outcome=Outcome.WITHDRAWN, **undecided)
    add_decided_cards(2, status=Status.EXPIRED, **undecided)
    add_decided_cards(3, outcome=Outcome.CANNOT_RUN)
    result = reader.read(7).metrics
    assert (result.total, result.expired, result.approved, result.approval_rate) == (6, 2, 0, None)


def test_rates_are_of_decisions_of_a_person(add_decided_cards: AddDecidedCards, reader: InsightsReader):
    add_decided_cards(2, confidence=0.7)
    add_decided_cards(status=Status.DISMISSED, confidence=0.4)
    add_decided_cards(3, decided_by=DecidedBy.AUTONOMY, confidence=0.9)
    result = reader.read(7).metrics
    assert (result.total, result.approved, result.rejected, result.auto_executed) == (6, 2, 1, 3)
    assert result.approval_rate == pytest.approx(2 / 3)
    assert (result.approved_confidence, result.rejected_confidence) == (pytest.approx(0.7), 0.4)
    assert result.auto_success_rate == 1.0


def test_drift_is_of_decisions_of_a_person_however_old(add_decided_cards: AddDecidedCards, reader: InsightsReader):
    old = timedelta(days=90)
    add_decided_cards(NEWEST_DECISIONS, old, decided_by=DecidedBy.AUTONOMY, status=Status.DISMISSED)
    add_decided_cards(NEWEST_DECISIONS, old, source=Source.OPERATOR)
    add_decided_cards(MIN_DRIFT - 1, old, status=Status.DISMISSED)
    assert reader.read(7).drift.words == "1 more decision until changes of taste can be detected"
    add_decided_cards(status=Status.DISMISSED)
    drift = reader.read(7).drift
    assert (drift.decisions, drift.shifts) == (MIN_DRIFT, ())
    assert drift.words == "too few earlier decisions to detect changes of taste"
    assert reader.read(7, "/blog").drift.decisions == 0
