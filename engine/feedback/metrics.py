"""How good the predictions are (SPEC 8.5): counts, rates, mean confidences, calibration by bucket, trend, cost.

Rates are of what a person decided, here or over the API; what ran by itself is counted apart. Times are when a card was
decided, or for those that nobody decided when it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any

import sqlalchemy
from sqlalchemy import column, table
from sqlmodel import Session

from engine.storage.database import Database
from engine.storage.types import UtcDateTime

BUCKETS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 1.0))
"""Of the seed (§7.6); from the lower end, up to but without the upper one, but for 1.0."""

TREND_FROM = 10
"""So many decisions in each half of the time, or there is no trend to tell."""

TREND = 0.05
"""So much better or worse than the first half is no chance any more."""

CARDS = table(
    "predictions",
    *(column(name) for name in ("id", "source", "target_channel", "confidence", "status", "decided_by", "outcome")),
    column("created_at", UtcDateTime()),
    column("decided_at", UtcDateTime()),
)
COSTS = table("cost_entries", column("prediction_id"), column("amount_microusd"), column("state"))
SIGNALS = table("decisions", column("prediction_id"), column("signal"), column("taken_back_at"))

APPROVED, REJECTED, EXPIRED = "approved", "rejected", "expired"


@dataclass(frozen=True, slots=True)
class Decided:
    """One card as metrics see it. `word` is approved, rejected or expired, "" while it is pending or withdrawn;
    `undone` when its work was taken back or thrown away. `cost` in micro-dollars."""

    source: str
    channel: str
    confidence: float
    word: str
    itself: bool
    undone: bool
    at: datetime
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Cards of a range of confidence: how many a person decided, and the share approved."""

    low: float
    high: float
    predictions: int
    approval_rate: float

    @property
    def name(self) -> str:
        """`0.3-0.4`."""
        return f"{self.low:.1f}-{self.high:.1f}"


@dataclass(frozen=True, slots=True)
class Group:
    """Cards of one source or channel. `cost_per_accepted` in micro-dollars, None while nothing was accepted."""

    name: str
    predictions: int
    approved: int
    rejected: int
    approval_rate: float | None
    cost_per_accepted: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """SPEC 8.5 in one value; rates and means in [0, 1], None where nothing stands behind them."""

    total: int
    approved: int
    rejected: int
    expired: int
    auto_executed: int
    auto_undone: int
    approval_rate: float | None
    auto_success_rate: float | None
    confidence: float | None
    approved_confidence: float | None
    rejected_confidence: float | None
    calibration: tuple[Bucket, ...]
    trend: str
    sources: tuple[Group, ...]
    channels: tuple[Group, ...]
    cost_per_accepted: float | None


def metrics(cards: Sequence[Decided]) -> Metrics:
    """What these cards come to. Pure."""
    persons = [one for one in cards if one.word in (APPROVED, REJECTED) and not one.itself]
    approved = [one for one in persons if one.word == APPROVED]
    rejected = [one for one in persons if one.word == REJECTED]
    auto = [one for one in cards if one.itself and one.word == APPROVED]
    undone = sum(one.undone for one in auto)
    return Metrics(
        total=len(cards),
        approved=len(approved),
        rejected=len(rejected),
        expired=sum(one.word == EXPIRED for one in cards),
        auto_executed=len(auto),
        auto_undone=undone,
        approval_rate=_share(len(approved), len(persons)),
        auto_success_rate=_share(len(auto) - undone, len(auto)),
        confidence=_mean(cards),
        approved_confidence=_mean(approved),
        rejected_confidence=_mean(rejected),
        calibration=tuple(_bucket(low, high, persons) for low, high in BUCKETS),
        trend=_trend(persons),
        sources=_groups(cards, "source"),
        channels=_groups(cards, "channel"),
        cost_per_accepted=_cost(cards),
    )


def read(database: Database, *, since: datetime | None = None) -> Metrics:
    """The metrics of what was decided, or else made, from `since` on."""
    with database.read() as session:
        return metrics(_cards(session, since))


def _cards(session: Session, since: datetime | None) -> list[Decided]:
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
    at: Any = sqlalchemy.func.coalesce(CARDS.c.decided_at, CARDS.c.created_at, type_=UtcDateTime())
    wanted = sqlalchemy.select(
        CARDS.c.source, CARDS.c.target_channel, CARDS.c.confidence, CARDS.c.status, CARDS.c.outcome,
        CARDS.c.decided_by, CARDS.c.id.in_(taken_back), at, spent,
    ).order_by(at)  # fmt: skip
    if since is not None:
        wanted = wanted.where(at >= since)
    return [
        Decided(source, channel, confidence, _word(status, outcome), by == "autonomy", bool(undone), decided_at, cost)
        for source, channel, confidence, status, outcome, by, undone, decided_at, cost in session.execute(wanted)
    ]


def _word(status: str, outcome: str | None) -> str:
    if status in ("confirmed", "executed"):
        return APPROVED
    return "" if outcome == "withdrawn" else {"rejected": REJECTED, "expired": EXPIRED}.get(status, "")


def _bucket(low: float, high: float, persons: Iterable[Decided]) -> Bucket:
    inside = [one for one in persons if low <= one.confidence < high or one.confidence == high == 1.0]
    return Bucket(low, high, len(inside), _share(sum(one.word == APPROVED for one in inside), len(inside)) or 0.0)


def _trend(persons: Sequence[Decided]) -> str:
    """Whether the newer half was approved more often than the older one: improving, declining, steady or unknown."""
    half = len(persons) // 2
    if half < TREND_FROM:
        return "unknown"
    before, after = (fmean(one.word == APPROVED for one in part) for part in (persons[:half], persons[half:]))
    if abs(after - before) < TREND:
        return "steady"
    return "improving" if after > before else "declining"


def _groups(cards: Sequence[Decided], by: str) -> tuple[Group, ...]:
    found: dict[str, list[Decided]] = {}
    for one in cards:
        found.setdefault(getattr(one, by), []).append(one)
    groups = []
    for name, these in found.items():
        persons = [one for one in these if not one.itself]
        approved, rejected = (sum(one.word == word for one in persons) for word in (APPROVED, REJECTED))
        rate = _share(approved, approved + rejected)
        groups.append(Group(name, len(these), approved, rejected, rate, _cost(these)))
    return tuple(sorted(groups, key=lambda one: (-one.predictions, one.name)))


def _cost(cards: Sequence[Decided]) -> float | None:
    """What all of it cost for each card that was accepted and not taken back."""
    accepted = sum(one.word == APPROVED and not one.undone for one in cards)
    return sum(one.cost for one in cards) / accepted if accepted else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(cards: Sequence[Decided]) -> float | None:
    return fmean(one.confidence for one in cards) if cards else None
