"""Metrics of predictions (SPEC 8.5): counts, rates, mean confidence, calibration, trend and cost, with the figures of
SPEC 8.4 and 8.6, for a period and a workspace.

Rates are about what a person decided, here or over the API. Cards that ran by themselves are counted separately, and
prompts typed by the operator only among the sources. A card's time is when it was decided, else when it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from statistics import fmean
from typing import Any

import sqlalchemy
from sqlalchemy import column, table
from sqlmodel import Session

from engine.clock import Clock
from engine.frozen import frozen
from engine.model import (
    COLD_START,
    CalibrationCheck,
    ConfidenceBucket,
    DecidedBy,
    Drift,
    Group,
    Insights,
    Metrics,
    PartOfDay,
    Phase,
    Shift,
    Slice,
    Source,
    TrainingView,
    part_of_day,
)
from engine.model.text import count
from engine.statistics import wilson_lower_bound, wilson_upper_bound
from engine.storage.database import Database
from engine.storage.types import UtcDateTime

BUCKETS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 1.0))
"""Shares of confidence: from the lower end, up to the upper one without it; the last includes 1.0."""

Z_TWO_SIDED_95 = 1.96

TREND_FROM = 10
"""Minimum number of decisions in each half of the time for a trend to be told."""

TREND = 0.05
"""Minimum difference from the first half that is not taken for chance."""

SLICE_DAYS = (1, 7, 14, 28, 91, 364)
"""Days that a slice of time may have."""

SLICES = 31
"""At most so many slices."""

NEWEST, BEFORE, DRIFT_FROM, KIND_FROM = 50, 200, 20, 4
"""The newest so many decisions are compared with so many before them; of fewer than `DRIFT_FROM`, or of a kind with
fewer than `KIND_FROM` on either side, nothing is said."""

APPROVED, REJECTED, EXPIRED, WITHDRAWN = "approved", "rejected", "expired", "withdrawn"
DISCARDED, CANNOT_RUN = "discarded", "cannot_run"


@frozen
class CardFigures:
    """One card as metrics see it. `word` is approved, rejected, discarded, expired, withdrawn or cannot_run, "" while
    it is pending; `undone` when its work was taken back or thrown away. `stated` is False when its confidence was that
    of a cold start. `cost` in micro-dollars."""

    source: str
    channel: str
    confidence: float
    word: str
    autonomous: bool
    undone: bool
    at: datetime
    cost: int = 0
    kind: str = ""
    stated: bool = True

    @property
    def own(self) -> bool:
        """Typed by the operator himself."""
        return self.source == Source.OPERATOR.value


def metrics(cards: Sequence[CardFigures], zone: tzinfo | None = None) -> Metrics:
    """What these cards, the oldest first, come to; hours and parts of the day are those of `zone`, else of UTC."""
    predictions = [card for card in cards if not card.own]
    persons = by_person(predictions)
    approved = [card for card in persons if card.word == APPROVED]
    rejected = [card for card in persons if card.word == REJECTED]
    auto = [card for card in predictions if card.autonomous and card.word in (APPROVED, DISCARDED)]
    undone = sum(card.undone for card in auto)

    def local(card: CardFigures) -> datetime:
        return card.at if zone is None else local_time(card.at, zone)

    return Metrics(
        total=len(predictions),
        approved=len(approved),
        rejected=len(rejected),
        discarded=sum(card.word == DISCARDED for card in persons),
        expired=sum(card.word == EXPIRED for card in predictions),
        withdrawn=sum(card.word == WITHDRAWN for card in predictions),
        cannot_run=sum(card.word == CANNOT_RUN for card in predictions),
        undecided=sum(not card.word for card in predictions),
        own=len(cards) - len(predictions),
        auto_executed=len(auto),
        auto_undone=undone,
        approval_rate=_share(len(approved), len(persons)),
        auto_success_rate=_share(len(auto) - undone, len(auto)),
        confidence=_mean(predictions),
        approved_confidence=_mean(approved),
        rejected_confidence=_mean(rejected),
        calibration=tuple(bucket(low, high, persons) for low, high in BUCKETS),
        trend=_trend(persons),
        sources=_most_first(_groups(cards, lambda card: card.source)),
        channels=_most_first(_groups(cards, lambda card: card.channel)),
        kinds=_most_first(_groups(predictions, lambda card: card.kind)),
        parts=_in_order(
            _groups(persons, lambda card: part_of_day(local(card)).value), [card.value for card in PartOfDay]
        ),
        hours=_in_order(_groups(persons, lambda card: f"{local(card).hour:02}"), [f"{card:02}" for card in range(24)]),
        spent=sum(card.cost for card in cards),
        cost_per_accepted=_cost(cards),
    )


def local_time(at: datetime, zone: tzinfo) -> datetime:
    """`at` in `zone`; unchanged when it is: a zone with clock changes is slow to ask."""
    return at if at.tzinfo is zone else at.astimezone(zone)


def by_person(cards: Iterable[CardFigures]) -> list[CardFigures]:
    """Predictions that a person approved or rejected, or approved and then discarded the work of."""
    return [
        card for card in cards if card.word in (APPROVED, REJECTED, DISCARDED) and not card.autonomous and not card.own
    ]


def bucket(low: float, high: float, persons: Iterable[CardFigures]) -> ConfidenceBucket:
    """The cards of confidence from `low` on, below `high`, which is itself included when it is 1."""
    inside = [card for card in persons if low <= card.confidence < high or card.confidence == high == 1.0]
    approved = sum(card.word == APPROVED for card in inside)
    return ConfidenceBucket(
        low,
        high,
        len(inside),
        _share(approved, len(inside)),
        _mean(inside),
        *_interval(approved, len(inside)),
        sum(not card.stated for card in inside),
    )


def over_time(cards: Sequence[CardFigures], since: datetime, until: datetime, zone: tzinfo) -> tuple[Slice, ...]:
    """What a person decided from the local day of `since` to that of `until`, both included, in slices of equal days,
    the oldest first; the newest ends with the day of `until`."""
    first, last = since.astimezone(zone).date(), until.astimezone(zone).date()
    days = max(1, (last - first).days + 1)
    step = next((length for length in SLICE_DAYS if -(-days // length) <= SLICES), -(-days // SLICES))
    many = -(-days // step)
    begins = [last - timedelta(days=step * (many - number) - 1) for number in range(many + 1)]
    approved, rejected = [0] * many, [0] * many
    for card in by_person(cards):
        place = many - 1 - (last - local_time(card.at, zone).date()).days // step
        if 0 <= place < many:
            (approved if card.word == APPROVED else rejected)[place] += 1
    midnights = [datetime(day.year, day.month, day.day, tzinfo=zone) for day in begins]
    return tuple(
        Slice(midnights[number], midnights[number + 1], approved[number], rejected[number]) for number in range(many)
    )


def drift(decisions: Sequence[tuple[str, bool]]) -> Drift:
    """Which kinds of card are decided otherwise than before: (kind, approved), the oldest first. A kind is where the
    95 % intervals of its share approved, lately and before, have nothing in common."""
    newest, before = decisions[-NEWEST:], decisions[-NEWEST - BEFORE : -NEWEST]
    if len(newest) < DRIFT_FROM:
        return Drift(
            len(newest), f"{count(DRIFT_FROM - len(newest), 'more decision')} until changes of taste can be detected"
        )
    shifts = []
    for kind in sorted({kind for kind, _ in newest}):
        now, then = ([yes for name, yes in part if name == kind] for part in (newest, before))
        if min(len(now), len(then)) >= KIND_FROM:
            (low, high), (least, most) = (_interval(sum(part), len(part)) for part in (now, then))
            if low > most or high < least:
                shifts.append(Shift(kind, sum(now), len(now), sum(then) / len(then)))
    what = "your taste changed in" if shifts else "no change:"
    after = "" if shifts else " were like the earlier ones"
    return Drift(len(newest), f"{what} the last {len(newest)} decisions{after}", tuple(shifts))


def _interval(approved: int, decided: int) -> tuple[float, float]:
    of = approved, decided, Z_TWO_SIDED_95
    return wilson_lower_bound(*of), wilson_upper_bound(*of)


def _trend(persons: Sequence[CardFigures]) -> str:
    """Whether the newer half was approved more often than the older one: improving, declining, steady or unknown."""
    half = len(persons) // 2
    if half < TREND_FROM:
        return "unknown"
    before, after = (fmean(card.word == APPROVED for card in part) for part in (persons[:half], persons[half:]))
    if abs(after - before) < TREND:
        return "steady"
    return "improving" if after > before else "declining"


def _groups(cards: Iterable[CardFigures], by: Callable[[CardFigures], str]) -> list[Group]:
    by_name: dict[str, list[CardFigures]] = {}
    for card in cards:
        by_name.setdefault(by(card), []).append(card)
    groups = []
    for name, members in by_name.items():
        persons = [card for card in members if not card.autonomous]
        approved = sum(card.word == APPROVED for card in persons)
        rejected = sum(card.word in (REJECTED, DISCARDED) for card in persons)
        groups.append(
            Group(name, len(members), approved, rejected, _share(approved, approved + rejected), _cost(members))
        )
    return groups


def _most_first(groups: Iterable[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.predictions, group.name)))


def _in_order(groups: Iterable[Group], names: Sequence[str]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: names.index(group.name)))


def _cost(cards: Sequence[CardFigures]) -> float | None:
    """What all of it cost for each card that was accepted and not taken back."""
    accepted = sum(card.word == APPROVED and not card.undone for card in cards)
    return sum(card.cost for card in cards) / accepted if accepted else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(cards: Sequence[CardFigures]) -> float | None:
    return fmean(card.confidence for card in cards) if cards else None


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


def _cards(session: Session, since: datetime | None, workspace: str, zone: tzinfo) -> list[CardFigures]:
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
        word = DISCARDED if discarded else _word(status, outcome)
        when, stated = local_time(at, zone), confidence != COLD_START
        cards.append(
            CardFigures(source, channel, confidence, word, by == autonomous, bool(undone), when, cost, kind, stated)
        )
    return cards


def _newest(session: Session, workspace: str) -> list[tuple[str, bool]]:
    """(kind, approved) of the newest decisions of a person, the oldest first."""
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


def _word(status: str, outcome: str | None) -> str:
    if outcome == "cannot_run":
        return CANNOT_RUN
    if status in ("confirmed", "executed"):
        return APPROVED
    return WITHDRAWN if outcome == "withdrawn" else {"rejected": REJECTED, "expired": EXPIRED}.get(status, "")
