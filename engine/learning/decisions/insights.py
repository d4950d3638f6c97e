"""The figures of predictions for a period and a workspace (SPEC 8.5): rates, calibration, groups, costs, the trend,
slices of time, and the drift of taste.

Rates include only decisions of a person, in the console or over the API. Cards that ran by themselves are counted
separately. Prompts typed by the operator are counted only among the sources. The time of a card is that of its
decision, or of its creation if there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time, timedelta, tzinfo
from enum import StrEnum
from math import ceil
from statistics import fmean
from typing import Any

from sqlmodel import Session

from engine.clock import Clock, PartOfDay, part_of_day
from engine.frozen import frozen, group_pairs
from engine.inference import Z_TWO_SIDED_95, compute_wilson_lower_bound, compute_wilson_upper_bound
from engine.learning.decisions.decisions import DECIDED_CARDS_SQL
from engine.model import (
    COLD_START_CONFIDENCE,
    CalibrationCheck,
    CardGroup,
    ConfidenceBucket,
    DecidedBy,
    DecisionSignal,
    DecisionSlice,
    Insights,
    Metrics,
    Outcome,
    Phase,
    Source,
    Status,
    TasteDrift,
    TasteShift,
    TrainingView,
)
from engine.storage import as_stored, ask
from engine.storage.database import Database
from engine.wording import count


class CountedAs(StrEnum):
    """What a card is counted as."""

    PENDING = ""
    APPROVED = "approved"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    CANNOT_RUN = "cannot_run"


@frozen
class CardFigures:
    """The values of one card that the metrics need."""

    source: str
    channel: str
    confidence: float
    counted_as: CountedAs
    is_autonomous: bool
    was_undone: bool
    """Whether its work was undone or discarded."""
    at: datetime
    """In the operator's time zone."""
    cost: int = 0
    """In micro-dollars."""
    kind: str = ""
    is_stated: bool = True
    """False if its confidence was that of a cold start."""

    @property
    def is_own(self) -> bool:
        """Whether the operator typed its prompt."""
        return self.source == Source.OPERATOR


@frozen
class InsightsReader:
    """Reads the figures of the operator's decisions and their results. From any thread; nothing is cached."""

    database: Database
    clock: Clock
    read_phase: Callable[[], Phase]
    read_calibration: Callable[[], CalibrationCheck]
    read_threshold: Callable[[], float]
    """Returns the minimum confidence of a card that may run by itself."""
    missing_for: Callable[[str], str]
    """Returns what else is missing for that in a workspace; "" means all workspaces."""
    read_training: Callable[[], TrainingView]

    def read(self, days: int | None = 7, workspace: str = "") -> Insights:
        """The figures of the last `days` (> 0; None for all time) and of `workspace` ("" for all)."""
        local = self.clock.local()
        now, zone = self.clock.now(), local.tzinfo
        assert zone is not None
        since = None
        if days is not None:  # the first of them begins at a local midnight, and the last is today
            since = datetime.combine(local.date() - timedelta(days=days - 1), time(), zone)
        with self.database.read() as session:
            values = {"since": "" if since is None else as_stored(since), "workspace": workspace}
            cards = [_make_figures(row, zone) for row in ask(session, _SELECT_CARDS, values)]
            newest = _load_newest(session, workspace)
        began = since if since is not None else cards[0].at if cards else now
        threshold = self.read_threshold()
        return Insights(
            days=days,
            workspace=workspace,
            metrics=compute_metrics(cards),
            over_time=count_per_slice(cards, began, now, zone),
            phase=self.read_phase(),
            check=self.read_calibration(),
            threshold=threshold,
            at_threshold=make_bucket(threshold, 1.0, select_decided(cards)),
            earning=self.missing_for(workspace),
            drift=find_drift(newest),
            training=self.read_training(),
        )


# Cards and costs are read by their columns, because their rows belong to packages that build on this one.

# Each card looks up its own decision, so that the figures of a few days do not read the decisions of all time.
_SELECT_CARDS = f"""
    SELECT source, target_channel, confidence, status, outcome, decided_by, kind, discarded_at IS NOT NULL,
           (status = '{Status.DISMISSED}' OR source = '{Source.OPERATOR}')
           AND EXISTS ({DECIDED_CARDS_SQL} AND prediction_id = predictions.id),
           status IN ('{Status.APPROVED}', '{Status.EXECUTED}') AND EXISTS (
               SELECT 1 FROM decisions
               WHERE signal IN ('{DecisionSignal.UNDONE}', '{DecisionSignal.DISCARDED}') AND taken_back_at IS NULL
               AND prediction_id = predictions.id
           ),
           coalesce(decided_at, created_at) AS at,
           (
               SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries
               WHERE prediction_id = predictions.id AND state = 'settled'
           )
    FROM predictions WHERE at >= :since AND :workspace IN ('', workspace) ORDER BY at
"""
"""Selects the cards from a time on ("" for all) and of a workspace ("" for all), oldest first. Whether a decision on a
card counts is not asked, and 0, where its status alone says it."""


def _make_figures(row: tuple[Any, ...], zone: tzinfo) -> CardFigures:
    """The figures in a row of `_SELECT_CARDS`."""
    source, channel, confidence, status, outcome, decided_by, kind, is_discarded, is_decision, is_undone, at, cost = row
    is_autonomous = decided_by == DecidedBy.AUTONOMY
    if source == Source.OPERATOR and not is_autonomous and not is_decision:
        counted_as = CountedAs.PENDING  # nobody decided the prompts of the demo
    elif is_discarded:
        counted_as = CountedAs.DISCARDED
    else:
        counted_as = _count_as(status, outcome, is_decision=bool(is_decision))
    return CardFigures(
        source=source,
        channel=channel,
        confidence=confidence,
        counted_as=counted_as,
        is_autonomous=is_autonomous,
        was_undone=bool(is_undone),
        at=datetime.fromisoformat(at).astimezone(zone),
        cost=cost,
        kind=kind,
        is_stated=confidence != COLD_START_CONFIDENCE,
    )


def _count_as(status: str, outcome: str | None, *, is_decision: bool) -> CountedAs:
    """What a card is counted as, if its work was not discarded. A dismissal that is no decision of a person says that
    the work was done already."""
    if outcome == Outcome.CANNOT_RUN:
        return CountedAs.CANNOT_RUN
    if status in (Status.APPROVED, Status.EXECUTED):
        return CountedAs.APPROVED
    if outcome == Outcome.WITHDRAWN or (status == Status.DISMISSED and not is_decision):
        return CountedAs.WITHDRAWN
    return CountedAs(status) if status in (Status.DISMISSED, Status.EXPIRED) else CountedAs.PENDING


BUCKETS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 1.0))
"""Ranges of confidence. Each includes its lower end but not its upper end, except the last one, which includes 1.0."""


def compute_metrics(cards: Sequence[CardFigures]) -> Metrics:
    """The metrics of these cards, which are ordered oldest first."""
    predictions = [card for card in cards if not card.is_own]
    decided_by_you = select_decided(predictions)
    by_outcome = group_pairs((card.counted_as, card) for card in decided_by_you)
    approved, rejected = by_outcome.get(CountedAs.APPROVED, []), by_outcome.get(CountedAs.REJECTED, [])
    ran = (CountedAs.APPROVED, CountedAs.DISCARDED)
    autonomous = [card for card in predictions if card.is_autonomous and card.counted_as in ran]
    undone = sum(card.was_undone for card in autonomous)
    counts = Counter(card.counted_as for card in predictions)
    return Metrics(
        total=len(predictions),
        approved=len(approved),
        rejected=len(rejected),
        discarded=len(by_outcome.get(CountedAs.DISCARDED, [])),
        expired=counts[CountedAs.EXPIRED],
        withdrawn=counts[CountedAs.WITHDRAWN],
        cannot_run=counts[CountedAs.CANNOT_RUN],
        undecided=counts[CountedAs.PENDING],
        own=len(cards) - len(predictions),
        auto_executed=len(autonomous),
        auto_undone=undone,
        approval_rate=_divide(len(approved), len(decided_by_you)),
        auto_success_rate=_divide(len(autonomous) - undone, len(autonomous)),
        confidence=_compute_mean_confidence(predictions),
        approved_confidence=_compute_mean_confidence(approved),
        rejected_confidence=_compute_mean_confidence(rejected),
        calibration=tuple(make_bucket(low, high, decided_by_you) for low, high in BUCKETS),
        trend=_describe_trend(decided_by_you),
        sources=_group_cards(cards, lambda card: card.source),
        channels=_group_cards(cards, lambda card: card.channel),
        kinds=_group_cards(predictions, lambda card: card.kind),
        parts=_group_cards(decided_by_you, lambda card: part_of_day(card.at).value, rank=PART_NAMES.index),
        hours=_group_cards(decided_by_you, lambda card: f"{card.at.hour:02}", rank=str),
        spent=sum(card.cost for card in cards),
        cost_per_accepted=_compute_cost_per_accepted(cards),
    )


def select_decided(cards: Iterable[CardFigures]) -> list[CardFigures]:
    """The cards that a person approved or dismissed, including those whose work was discarded later."""
    decided = (CountedAs.APPROVED, CountedAs.REJECTED, CountedAs.DISCARDED)
    return [card for card in cards if card.counted_as in decided and not card.is_autonomous and not card.is_own]


def make_bucket(low: float, high: float, cards: Iterable[CardFigures]) -> ConfidenceBucket:
    """The cards with a confidence of at least `low` and below `high`; a `high` of 1 is included."""
    inside = [card for card in cards if low <= card.confidence < high or card.confidence == high == 1.0]
    approved = sum(card.counted_as == CountedAs.APPROVED for card in inside)
    at_least, at_most = _estimate_interval(approved, len(inside))
    return ConfidenceBucket(
        low,
        high,
        predictions=len(inside),
        approval_rate=_divide(approved, len(inside)),
        confidence=_compute_mean_confidence(inside),
        at_least=at_least,
        at_most=at_most,
        unstated=sum(not card.is_stated for card in inside),
    )


SLICE_DAYS = (1, 7, 14, 28, 91, 364)
"""Lengths in days that a slice of time may have."""

MAX_SLICES = 31
"""Maximum number of slices of time."""


def count_per_slice(
    cards: Sequence[CardFigures], since: datetime, until: datetime, zone: tzinfo
) -> tuple[DecisionSlice, ...]:
    """A person's decisions from the local day of `since` to that of `until`, both included, in slices of equal length,
    oldest first. The newest slice ends with the day of `until`."""
    first_day, last_day = since.astimezone(zone).date(), until.astimezone(zone).date()
    days = max(1, (last_day - first_day).days + 1)
    length = next((length for length in SLICE_DAYS if ceil(days / length) <= MAX_SLICES), ceil(days / MAX_SLICES))
    slices = ceil(days / length)
    begins = [last_day - timedelta(days=length * (slices - index) - 1) for index in range(slices + 1)]
    approved, rejected = Counter[int](), Counter[int]()
    for card in select_decided(cards):
        counts = approved if card.counted_as == CountedAs.APPROVED else rejected
        counts[slices - 1 - (last_day - card.at.date()).days // length] += 1
    midnights = [datetime.combine(day, time(), zone) for day in begins]
    return tuple(
        DecisionSlice(midnights[index], midnights[index + 1], approved[index], rejected[index])
        for index in range(slices)
    )


def _estimate_interval(approved: int, decided: int) -> tuple[float, float]:
    """The 95 % interval of a share approved."""
    low = compute_wilson_lower_bound(approved, decided, Z_TWO_SIDED_95)
    return low, compute_wilson_upper_bound(approved, decided, Z_TWO_SIDED_95)


def _may_differ_by_chance(newer: Sequence[bool], older: Sequence[bool]) -> bool:
    """Whether the 95 % intervals of the shares approved of newer and older decisions overlap."""
    newer_low, newer_high = _estimate_interval(sum(newer), len(newer))
    older_low, older_high = _estimate_interval(sum(older), len(older))
    return newer_low <= older_high and newer_high >= older_low


MIN_TREND_HALF = 10
"""Minimum number of decisions in each half of the time for a trend."""

MIN_TREND = 0.05
"""Difference from the first half below which the share approved is steady."""


def _describe_trend(cards: Sequence[CardFigures]) -> str:
    """The change of the share approved from the older half to the newer: improving, declining or steady; unknown with
    too few decisions, or for a difference that may be chance."""
    half = len(cards) // 2
    if half < MIN_TREND_HALF:
        return "unknown"
    decisions = [card.counted_as == CountedAs.APPROVED for card in cards]
    older, newer = decisions[:half], decisions[half:]
    before, after = fmean(older), fmean(newer)
    if abs(after - before) < MIN_TREND:
        return "steady"
    if _may_differ_by_chance(newer, older):
        return "unknown"
    return "improving" if after > before else "declining"


PART_NAMES = [part.value for part in PartOfDay]


def _group_cards(
    cards: Iterable[CardFigures], by: Callable[[CardFigures], str], *, rank: Callable[[str], Any] | None = None
) -> tuple[CardGroup, ...]:
    """The cards in groups whose names `by` returns, ordered by the `rank` of the name, or else the largest first."""
    by_name = group_pairs((by(card), card) for card in cards)
    names = sorted(by_name, key=rank or (lambda name: (-len(by_name[name]), name)))
    return tuple(_make_group(name, by_name[name]) for name in names)


def _make_group(name: str, cards: Sequence[CardFigures]) -> CardGroup:
    """The group of these cards. Cards that ran by themselves count neither as approved nor as rejected."""
    by_you = [card for card in cards if not card.is_autonomous]
    approved = sum(card.counted_as == CountedAs.APPROVED for card in by_you)
    rejected = sum(card.counted_as in (CountedAs.REJECTED, CountedAs.DISCARDED) for card in by_you)
    approval_rate = _divide(approved, approved + rejected)
    return CardGroup(name, len(cards), approved, rejected, approval_rate, _compute_cost_per_accepted(cards))


def _compute_cost_per_accepted(cards: Sequence[CardFigures]) -> float | None:
    """The cost of all cards, divided by the number of cards that were approved and not undone."""
    accepted = sum(card.counted_as == CountedAs.APPROVED and not card.was_undone for card in cards)
    return sum(card.cost for card in cards) / accepted if accepted else None


def _divide(part: int, whole: int) -> float | None:
    """A share, None of nothing."""
    return part / whole if whole else None


def _compute_mean_confidence(cards: Sequence[CardFigures]) -> float | None:
    """The mean confidence of cards, None without cards."""
    return fmean(card.confidence for card in cards) if cards else None


NEWEST_DECISIONS, EARLIER_DECISIONS = 50, 200
"""Number of the newest decisions for drift, and of those before, with which they are compared."""

# SQLite keeps the order of a CROSS JOIN. To look up the decision of each card takes twice as long here.
_SELECT_NEWEST = f"""
    SELECT kind, status <> '{Status.DISMISSED}'
    FROM ({DECIDED_CARDS_SQL}) CROSS JOIN predictions ON id = prediction_id
    WHERE status IN ('{Status.APPROVED}', '{Status.EXECUTED}', '{Status.DISMISSED}') AND decided_at IS NOT NULL
    AND decided_by <> '{DecidedBy.AUTONOMY}' AND source <> '{Source.OPERATOR}' AND :workspace IN ('', workspace)
    ORDER BY decided_at DESC LIMIT :limit
"""


def _load_newest(session: Session, workspace: str) -> list[tuple[str, bool]]:
    """(kind, approved) of a person's newest decisions, oldest first."""
    limit = NEWEST_DECISIONS + EARLIER_DECISIONS
    rows = ask(session, _SELECT_NEWEST, {"workspace": workspace, "limit": limit})
    return [(kind, bool(is_approved)) for kind, is_approved in reversed(rows)]


MIN_DRIFT = 20
"""Minimum number of the newest decisions for drift."""

MIN_DRIFT_KIND = 4
"""Minimum number of decisions on a kind, among the newest and among those before."""


def find_drift(decisions: Sequence[tuple[str, bool]]) -> TasteDrift:
    """The kinds of card on which the operator decides differently than before. A kind is one of them if the 95 %
    intervals of the share approved among the newest decisions and among those before do not overlap. `decisions` are
    (kind, approved), oldest first."""
    newest = decisions[-NEWEST_DECISIONS:]
    earlier = decisions[-NEWEST_DECISIONS - EARLIER_DECISIONS : -NEWEST_DECISIONS]
    if len(newest) < MIN_DRIFT:
        decisions_missing = count(MIN_DRIFT - len(newest), "more decision")
        return TasteDrift(len(newest), f"{decisions_missing} until changes of taste can be detected")
    newest_by_kind, earlier_by_kind = group_pairs(newest), group_pairs(earlier)
    compared = [
        kind
        for kind in sorted(newest_by_kind.keys() & earlier_by_kind)
        if min(len(newest_by_kind[kind]), len(earlier_by_kind[kind])) >= MIN_DRIFT_KIND
    ]
    if not compared:
        return TasteDrift(len(newest), "too few earlier decisions to detect changes of taste")
    shifts = tuple(
        TasteShift(kind, sum(newer), len(newer), sum(older) / len(older))
        for kind in compared
        if not _may_differ_by_chance(newer := newest_by_kind[kind], older := earlier_by_kind[kind])
    )
    if shifts:
        return TasteDrift(len(newest), f"your taste changed in the last {len(newest)} decisions", shifts)
    return TasteDrift(len(newest), f"no change: the last {len(newest)} decisions were like the earlier ones")
