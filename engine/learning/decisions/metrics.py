"""Computes the figures of predictions from cards (SPEC 8.5): counts, rates, calibration, slices of time, drift. Pure.

Rates include only decisions of a person, in the console or over the API. Cards that ran by themselves are counted
separately. Prompts typed by the operator are counted only among the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from math import ceil
from statistics import fmean

from engine.frozen import frozen
from engine.model import ConfidenceBucket, Drift, Group, Metrics, PartOfDay, Shift, Slice, Source, part_of_day
from engine.model.text import count
from engine.statistics import wilson_lower_bound, wilson_upper_bound

BUCKETS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 1.0))
"""Ranges of confidence. Each includes its lower end but not its upper end, except the last one, which includes 1.0."""

Z_TWO_SIDED_95 = 1.96

MIN_TREND_HALF = 10
"""Minimum number of decisions in each half of the time for a trend."""

MIN_TREND = 0.05
"""Minimum difference from the first half that is not regarded as chance."""

SLICE_DAYS = (1, 7, 14, 28, 91, 364)
"""Lengths in days that a slice of time may have."""

MAX_SLICES = 31

NEWEST = 50
"""Number of the newest decisions that drift compares with the `BEFORE` decisions before them."""

BEFORE = 200

MIN_DRIFT = 20
"""Minimum number of the newest decisions for drift."""

MIN_DRIFT_KIND = 4
"""Minimum number of decisions on a kind, among the newest and among those before."""


class Outcome(StrEnum):
    """The result of a card in the metrics."""

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
    outcome: Outcome
    autonomous: bool
    undone: bool
    """Whether its work was undone or discarded."""
    at: datetime
    """In the operator's time zone."""
    cost: int = 0
    """In micro-dollars."""
    kind: str = ""
    stated: bool = True
    """False if its confidence was that of a cold start."""

    @property
    def own(self) -> bool:
        """Whether the operator typed its prompt."""
        return self.source == Source.OPERATOR.value


def compute_metrics(cards: Sequence[CardFigures]) -> Metrics:
    """The metrics of these cards, which are ordered oldest first."""
    predictions = [card for card in cards if not card.own]
    persons = select_decided(predictions)
    approved = [card for card in persons if card.outcome == Outcome.APPROVED]
    rejected = [card for card in persons if card.outcome == Outcome.REJECTED]
    auto = [card for card in predictions if card.autonomous and card.outcome in (Outcome.APPROVED, Outcome.DISCARDED)]
    undone = sum(card.undone for card in auto)
    outcomes = Counter(card.outcome for card in predictions)
    return Metrics(
        total=len(predictions),
        approved=len(approved),
        rejected=len(rejected),
        discarded=sum(card.outcome == Outcome.DISCARDED for card in persons),
        expired=outcomes[Outcome.EXPIRED],
        withdrawn=outcomes[Outcome.WITHDRAWN],
        cannot_run=outcomes[Outcome.CANNOT_RUN],
        undecided=outcomes[Outcome.PENDING],
        own=len(cards) - len(predictions),
        auto_executed=len(auto),
        auto_undone=undone,
        approval_rate=_share(len(approved), len(persons)),
        auto_success_rate=_share(len(auto) - undone, len(auto)),
        confidence=_mean(predictions),
        approved_confidence=_mean(approved),
        rejected_confidence=_mean(rejected),
        calibration=tuple(make_bucket(low, high, persons) for low, high in BUCKETS),
        trend=_describe_trend(persons),
        sources=_sort_by_size(_group_cards(cards, lambda card: card.source)),
        channels=_sort_by_size(_group_cards(cards, lambda card: card.channel)),
        kinds=_sort_by_size(_group_cards(predictions, lambda card: card.kind)),
        parts=_sort_by_name(_group_cards(persons, lambda card: part_of_day(card.at).value), list(PartOfDay)),
        hours=_sort_by_name(
            _group_cards(persons, lambda card: f"{card.at.hour:02}"), [f"{hour:02}" for hour in range(24)]
        ),
        spent=sum(card.cost for card in cards),
        cost_per_accepted=_cost_per_accepted(cards),
    )


def select_decided(cards: Iterable[CardFigures]) -> list[CardFigures]:
    """The cards that a person approved or dismissed, including those whose work was discarded later."""
    decided = (Outcome.APPROVED, Outcome.REJECTED, Outcome.DISCARDED)
    return [card for card in cards if card.outcome in decided and not card.autonomous and not card.own]


def make_bucket(low: float, high: float, persons: Iterable[CardFigures]) -> ConfidenceBucket:
    """The cards with a confidence of at least `low` and below `high`; a `high` of 1 is included."""
    inside = [card for card in persons if low <= card.confidence < high or card.confidence == high == 1.0]
    approved = sum(card.outcome == Outcome.APPROVED for card in inside)
    return ConfidenceBucket(
        low,
        high,
        len(inside),
        _share(approved, len(inside)),
        _mean(inside),
        *_interval(approved, len(inside)),
        sum(not card.stated for card in inside),
    )


def count_per_slice(cards: Sequence[CardFigures], since: datetime, until: datetime, zone: tzinfo) -> tuple[Slice, ...]:
    """A person's decisions from the local day of `since` to that of `until`, both included, in slices of equal length,
    oldest first. The newest slice ends with the day of `until`."""
    first, last = since.astimezone(zone).date(), until.astimezone(zone).date()
    days = max(1, (last - first).days + 1)
    length = next((length for length in SLICE_DAYS if ceil(days / length) <= MAX_SLICES), ceil(days / MAX_SLICES))
    slices = ceil(days / length)
    begins = [last - timedelta(days=length * (slices - index) - 1) for index in range(slices + 1)]
    approved, rejected = [0] * slices, [0] * slices
    for card in select_decided(cards):
        index = slices - 1 - (last - card.at.date()).days // length
        if 0 <= index < slices:
            (approved if card.outcome == Outcome.APPROVED else rejected)[index] += 1
    midnights = [datetime(day.year, day.month, day.day, tzinfo=zone) for day in begins]
    return tuple(map(Slice, midnights, midnights[1:], approved, rejected))


def find_drift(decisions: Sequence[tuple[str, bool]]) -> Drift:
    """The kinds of card on which the operator decides differently than before. A kind is one of them if the 95 %
    intervals of the share approved among the newest decisions and among those before do not overlap. `decisions` are
    (kind, approved), oldest first."""
    newest, before = decisions[-NEWEST:], decisions[-NEWEST - BEFORE : -NEWEST]
    if len(newest) < MIN_DRIFT:
        missing = count(MIN_DRIFT - len(newest), "more decision")
        return Drift(len(newest), f"{missing} until changes of taste can be detected")
    shifts = []
    compared_kinds = 0
    for kind in sorted({kind for kind, _ in newest}):
        new = [approved for name, approved in newest if name == kind]
        old = [approved for name, approved in before if name == kind]
        if min(len(new), len(old)) < MIN_DRIFT_KIND:
            continue
        compared_kinds += 1
        new_low, new_high = _interval(sum(new), len(new))
        old_low, old_high = _interval(sum(old), len(old))
        if new_low > old_high or new_high < old_low:
            shifts.append(Shift(kind, sum(new), len(new), sum(old) / len(old)))
    if not compared_kinds:
        return Drift(len(newest), "too few earlier decisions to detect changes of taste")
    if shifts:
        return Drift(len(newest), f"your taste changed in the last {len(newest)} decisions", tuple(shifts))
    return Drift(len(newest), f"no change: the last {len(newest)} decisions were like the earlier ones")


def _interval(approved: int, decided: int) -> tuple[float, float]:
    low = wilson_lower_bound(approved, decided, Z_TWO_SIDED_95)
    return low, wilson_upper_bound(approved, decided, Z_TWO_SIDED_95)


def _describe_trend(persons: Sequence[CardFigures]) -> str:
    """The change of the share approved from the older half to the newer: improving, declining, steady or unknown."""
    half = len(persons) // 2
    if half < MIN_TREND_HALF:
        return "unknown"
    halves = persons[:half], persons[half:]
    before, after = (fmean(card.outcome == Outcome.APPROVED for card in part) for part in halves)
    if abs(after - before) < MIN_TREND:
        return "steady"
    return "improving" if after > before else "declining"


def _group_cards(cards: Iterable[CardFigures], by: Callable[[CardFigures], str]) -> list[Group]:
    by_name: dict[str, list[CardFigures]] = {}
    for card in cards:
        by_name.setdefault(by(card), []).append(card)
    groups = []
    for name, members in by_name.items():
        persons = [card for card in members if not card.autonomous]
        approved = sum(card.outcome == Outcome.APPROVED for card in persons)
        rejected = sum(card.outcome in (Outcome.REJECTED, Outcome.DISCARDED) for card in persons)
        groups.append(
            Group(
                name,
                len(members),
                approved,
                rejected,
                _share(approved, approved + rejected),
                _cost_per_accepted(members),
            )
        )
    return groups


def _sort_by_size(groups: Iterable[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (-group.predictions, group.name)))


def _sort_by_name(groups: Iterable[Group], names: Sequence[str]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: names.index(group.name)))


def _cost_per_accepted(cards: Sequence[CardFigures]) -> float | None:
    """The cost of all cards, divided by the number of cards that were approved and not undone."""
    accepted = sum(card.outcome == Outcome.APPROVED and not card.undone for card in cards)
    return sum(card.cost for card in cards) / accepted if accepted else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(cards: Sequence[CardFigures]) -> float | None:
    return fmean(card.confidence for card in cards) if cards else None
