"""The figures of SPEC 8.4–8.6 put together, of the last days and one workspace: for screens, verbs and the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

import sqlalchemy
from sqlalchemy import column, table
from sqlmodel import Session

from engine.clock import Clock
from engine.learning.decisions.metrics import (
    APPROVED,
    BEFORE,
    CANNOT_RUN,
    DISCARDED,
    EXPIRED,
    NEWEST,
    REJECTED,
    WITHDRAWN,
    Decided,
    bucket,
    by_person,
    drift,
    local_time,
    metrics,
    over_time,
)
from engine.model import COLD_START, CalibrationCheck, DecidedBy, Insights, Phase, Source, TrainingView
from engine.storage.database import Database
from engine.storage.types import UtcDateTime

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
    """Reads what the operator decided and what it came to. From any thread; each call reads anew."""

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
        """`threshold()` is the confidence from which a card may act by itself; `earning(workspace)` says what else that
        needs, "" as the workspace being all of them."""
        self._database = database
        self._clock = clock
        self._phase = phase
        self._check = check
        self._threshold = threshold
        self._earning = earning
        self._training = training

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        """Of the last `days` (> 0; None for ever) and `workspace` ("" for all)."""
        local = self._clock.local()
        now, zone = self._clock.now(), local.tzinfo
        assert zone is not None
        since = None if days is None else _days_ago(local, days)
        with self._database.read() as session:
            cards = _cards(session, since, workspace, zone)
            newest = _newest(session, workspace)
        began = since if since is not None else cards[0].at if cards else now
        threshold = self._threshold()
        return Insights(
            days=days,
            workspace=workspace,
            metrics=metrics(cards, zone),
            over_time=over_time(cards, began, now, zone),
            phase=self._phase(),
            check=self._check(),
            threshold=threshold,
            at_threshold=bucket(threshold, 1.0, by_person(cards)),
            earning=self._earning(workspace),
            drift=drift(newest),
            training=self._training(),
        )


def _days_ago(local: datetime, days: int) -> datetime:
    """The local midnight from which on the last `days` days count, today's included."""
    day = local.date() - timedelta(days=days - 1)
    return datetime(day.year, day.month, day.day, tzinfo=local.tzinfo)


def _cards(session: Session, since: datetime | None, workspace: str, zone: tzinfo) -> list[Decided]:
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
    wanted = sqlalchemy.select(
        CARDS.c.source, CARDS.c.target_channel, CARDS.c.confidence, CARDS.c.status, CARDS.c.outcome,
        CARDS.c.decided_by, CARDS.c.id.in_(taken_back), AT, spent, CARDS.c.kind,
        CARDS.c.discarded_at.is_not(None),
    ).order_by(AT)  # fmt: skip
    if since is not None:
        wanted = wanted.where(since <= AT)
    if workspace:
        wanted = wanted.where(CARDS.c.workspace == workspace)
    itself = DecidedBy.AUTONOMY.value
    found = []
    for source, channel, confidence, status, outcome, by, undone, at, cost, kind, discarded in session.execute(wanted):
        word = DISCARDED if discarded else _word(status, outcome)
        when, stated = local_time(at, zone), confidence != COLD_START
        found.append(Decided(source, channel, confidence, word, by == itself, bool(undone), when, cost, kind, stated))
    return found


def _newest(session: Session, workspace: str) -> list[tuple[str, bool]]:
    """(kind, approved) of the newest decisions of a person, the oldest first."""
    wanted = (
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
        wanted = wanted.where(CARDS.c.workspace == workspace)
    rows = session.execute(wanted).all()
    return [(kind, status != "rejected") for kind, status in reversed(rows)]


def _word(status: str, outcome: str | None) -> str:
    if outcome == "cannot_run":
        return CANNOT_RUN
    if status in ("confirmed", "executed"):
        return APPROVED
    return WITHDRAWN if outcome == "withdrawn" else {"rejected": REJECTED, "expired": EXPIRED}.get(status, "")
