"""The figures as they are read from a home: what time, which workspace, whose decisions, stated or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.insights import Figures
from engine.learning.decisions.metrics import MIN_DRIFT, NEWEST
from engine.model import (
    COLD_START,
    CalibrationCheck,
    DecidedBy,
    Insights,
    Outcome,
    Phase,
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
    assert (drift.decisions, drift.changed) == (MIN_DRIFT, False)  # nothing is known of before
    assert figures.read(7, BLOG).drift.decisions == 0
