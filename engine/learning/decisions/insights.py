"""Reads the figures of predictions (SPEC 8.5) for a period and a workspace, with the state of calibration (8.6) and of
training (8.4).

`metrics` computes them. The time of a card is that of its decision, or of its creation if there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

import sqlalchemy
from sqlalchemy import column, table
from sqlmodel import Session

from engine.clock import Clock
from engine.learning.decisions.metrics import (
    BEFORE,
    NEWEST,
    CardFigures,
    Outcome,
    compute_metrics,
    count_per_slice,
    find_drift,
    make_bucket,
    select_decided,
)
from engine.model import COLD_START, CalibrationCheck, DecidedBy, Insights, Phase, Source, TrainingView
from engine.storage.database import Database
from engine.storage.rows import UtcDateTime

CARDS = table(
    "predictions",
    *(column(name) for name in ("id", "source", "target_channel", "confidence", "status", "decided_by", "outcome")),
    *(column(name) for name in ("kind", "workspace")),
    column("created_at", UtcDateTime()),
    column("decided_at", UtcDateTime()),
    column("discarded_at", UtcDateTime()),
)
COSTS = table("cost_entries", column("prediction_id"), column("amount_microusd"), column("state"))
SIGNALS = table("decisions", column("prediction_id"), column("signal"), column("taken_back_at"))

AT: Any = sqlalchemy.func.coalesce(CARDS.c.decided_at, CARDS.c.created_at, type_=UtcDateTime())


class Figures:
    """Reads the figures of the operator's decisions and their results. From any thread; nothing is cached."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        phase: Callable[[], Phase],
        check: Callable[[], CalibrationCheck],
        threshold: Callable[[], float],
        earning: Callable[[str], str],
        training: Callable[[], TrainingView],
    ) -> None:
        """`threshold()` is the minimum confidence of a card that may run by itself. `earning(workspace)` says what else
        is missing for that; "" means all workspaces."""
        self._database = database
        self._clock = clock
        self._phase = phase
        self._check = check
        self._threshold = threshold
        self._earning = earning
        self._training = training

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        """The figures of the last `days` (> 0; None for all time) and of `workspace` ("" for all)."""
        local = self._clock.local()
        now, zone = self._clock.now(), local.tzinfo
        assert zone is not None
        since = None if days is None else _days_ago(local, days)
        with self._database.read() as session:
            cards = _load_cards(session, since, workspace, zone)
            newest = _load_newest(session, workspace)
        began = since if since is not None else cards[0].at if cards else now
        threshold = self._threshold()
        return Insights(
            days=days,
            workspace=workspace,
            metrics=compute_metrics(cards),
            over_time=count_per_slice(cards, began, now, zone),
            phase=self._phase(),
            check=self._check(),
            threshold=threshold,
            at_threshold=make_bucket(threshold, 1.0, select_decided(cards)),
            earning=self._earning(workspace),
            drift=find_drift(newest),
            training=self._training(),
        )


def _days_ago(local: datetime, days: int) -> datetime:
    """The local midnight at which the last `days` days begin, including today."""
    day = local.date() - timedelta(days=days - 1)
    return datetime(day.year, day.month, day.day, tzinfo=local.tzinfo)


def _load_cards(session: Session, since: datetime | None, workspace: str, zone: tzinfo) -> list[CardFigures]:
    taken_back = (
        sqlalchemy.select(SIGNALS.c.prediction_id)
        .where(SIGNALS.c.signal.in_(("undone", "discarded")), SIGNALS.c.taken_back_at.is_(None))
        .scalar_subquery()
    )
    spent = (
        sqlalchemy.select(sqlalchemy.func.coalesce(sqlalchemy.func.sum(COSTS.c.amount_microusd), 0))
        .where(COSTS.c.prediction_id == CARDS.c.id, COSTS.c.state == "settled")
        .scalar_subquery()
    )
    query = sqlalchemy.select(
        CARDS.c.source, CARDS.c.target_channel, CARDS.c.confidence, CARDS.c.status, CARDS.c.outcome,
        CARDS.c.decided_by, CARDS.c.id.in_(taken_back), AT, spent, CARDS.c.kind,
        CARDS.c.discarded_at.is_not(None),
    ).order_by(AT)  # fmt: skip
    if since is not None:
        query = query.where(since <= AT)
    if workspace:
        query = query.where(CARDS.c.workspace == workspace)
    autonomous = DecidedBy.AUTONOMY.value
    cards = []
    for source, channel, confidence, status, outcome, by, undone, at, cost, kind, discarded in session.execute(query):
        counted_as = Outcome.DISCARDED if discarded else _read_outcome(status, outcome)
        cards.append(
            CardFigures(
                source, channel, confidence, counted_as, by == autonomous, bool(undone), at.astimezone(zone), cost,
                kind, stated=confidence != COLD_START,
            )
        )  # fmt: skip
    return cards


def _load_newest(session: Session, workspace: str) -> list[tuple[str, bool]]:
    """(kind, approved) of a person's newest decisions, oldest first."""
    query = (
        sqlalchemy.select(CARDS.c.kind, CARDS.c.status)
        .where(
            CARDS.c.status.in_(("confirmed", "executed", "rejected")),
            CARDS.c.decided_at.is_not(None),
            CARDS.c.decided_by != DecidedBy.AUTONOMY.value,
            CARDS.c.source != Source.OPERATOR.value,
        )
        .order_by(CARDS.c.decided_at.desc())
        .limit(NEWEST + BEFORE)
    )
    if workspace:
        query = query.where(CARDS.c.workspace == workspace)
    rows = session.execute(query).all()
    return [(kind, status != "rejected") for kind, status in reversed(rows)]


def _read_outcome(status: str, outcome: str | None) -> Outcome:
    if outcome == "cannot_run":
        return Outcome.CANNOT_RUN
    if status in ("confirmed", "executed"):
        return Outcome.APPROVED
    if outcome == "withdrawn":
        return Outcome.WITHDRAWN
    if status in ("rejected", "expired"):
        return Outcome(status)
    return Outcome.PENDING
