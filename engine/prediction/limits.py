"""The order of the stack (SPEC 2.11) and what keeps it quiet (SPEC 2.9): how many cards in a workspace and in all,
cool-downs of work. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.config import Settings
from engine.model import Outcome, Source, Status, Tier
from engine.prediction.kinds import is_ordered, kind_of

ActiveTime = Callable[[datetime, timedelta], datetime]
"""`active_time(start, span)`: the instant when `span` has passed since `start`, quiet hours not counted. Pure."""

LIFE = timedelta(hours=24)
"""A card expires after this long; quiet hours are not counted (SPEC 2.7)."""

SNOOZE = timedelta(hours=2)
"""How long a snooze is unless said."""

SUGGESTED_MOST = 3
"""So many cards of agents and programs are pending at most: the places are not theirs alone."""

MOST_ALIKE = 4
"""So many cards of one kind are pending in a workspace at most: never five of the five."""

_EXEMPT = (Source.OPERATOR, Source.FOLLOW_UP)


@dataclass(frozen=True, slots=True)
class Seat:
    """A pending card as the order, the limits and the cycle look at it. `fresh_at`: when what it is about arose."""

    id: str
    workspace: str
    kind: str
    source: Source
    tier: Tier
    confidence: float
    fresh_at: datetime
    snoozed_until: datetime | None
    shown: bool
    created_at: datetime
    subject: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Caps:
    """How many cards may be pending: in one workspace, and in all."""

    workspace: int
    in_all: int

    @classmethod
    def of(cls, settings: Settings) -> Caps:
        """As the settings have them."""
        return cls(settings.max_pending_cards, settings.max_pending_cards_in_all)


class Room:
    """The places of the stack. `awake`: the pending cards that are not snoozed, also those that take no place."""

    def __init__(self, caps: Caps, awake: Iterable[Seat]) -> None:
        self._caps = caps
        self._awake = list(awake)

    def take(self, seat: Seat, now: datetime) -> list[str] | None:
        """Take a place for this card: ids of the cards that lose theirs to it, or None when there is none for it.

        One upkeep card in a workspace is enough (SPEC 2.11). Where all places are taken, the last card of a lower tier
        makes room, one that was not shown yet before others.
        """
        taken = [one for one in self._awake if counts(one, now)]
        if _other_upkeep(seat, self._awake):
            return None
        if not counts(seat, now):
            self._awake.append(seat)
            return []
        if sum((one.workspace, one.kind) == (seat.workspace, seat.kind) for one in taken) >= MOST_ALIKE:
            return None
        displaced: set[str] = set()
        for most, home in ((self._caps.workspace, seat.workspace), (self._caps.in_all, None)):
            among = [one for one in taken if home in (None, one.workspace) and one.id not in displaced]
            if len(among) < most:
                continue
            lower = [one for one in reversed(order(among, now)) if one.tier > seat.tier]
            if not lower:
                return None
            displaced.add(min(lower, key=lambda one: one.shown).id)
        self._awake = [one for one in self._awake if one.id not in displaced] + [seat]
        return sorted(displaced)

    def leave(self, seat: Seat) -> None:
        """Give the place of this card back."""
        self._awake.remove(seat)


def _other_upkeep(seat: Seat, awake: Iterable[Seat]) -> list[str]:
    """Ids of the upkeep cards, of any source, beside which this one would be a second one in its workspace."""
    if seat.tier is not Tier.UPKEEP:
        return []
    return [one.id for one in awake if (one.workspace, one.tier) == (seat.workspace, seat.tier) and one.id != seat.id]


def is_snoozed(seat: Seat, now: datetime) -> bool:
    """True until the instant its snooze ends."""
    return seat.snoozed_until is not None and seat.snoozed_until > now


def counts(seat: Seat, now: datetime) -> bool:
    """True for a card that takes a place: not snoozed, not the operator's own or ordered by him, not a follow-up."""
    return not (seat.source in _EXEMPT or is_ordered(seat.kind) or is_snoozed(seat, now))


FRESH = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""How fresh evidence is goes in steps: of the last hour, the last day, the last week, older. Within a step it is not
minutes that matter, but what a card is about (`kinds.Kind.place`)."""


def order(seats: Iterable[Seat], now: datetime) -> list[Seat]:
    """The stack from the top (SPEC 2.11): what the operator wrote, the newest first, for it is to be decided now; then
    by tier, confidence and freshness. What is left is stable: the kind, the older card, the id."""
    own: list[Seat] = []
    others: list[Seat] = []
    for seat in seats:
        (own if seat.source is Source.OPERATOR else others).append(seat)
    own.sort(key=lambda seat: (seat.created_at, seat.id), reverse=True)
    others.sort(
        key=lambda seat: (
            seat.tier,
            -seat.confidence,
            sum(now - seat.fresh_at > age for age in FRESH),
            kind_of(seat.kind).tier is not seat.tier,  # what taste or circumstances moved comes after what belongs here
            kind_of(seat.kind).place,
            seat.created_at,
            seat.id,
        )
    )
    return [*own, *others]


def overdue_for_a_seat(seats: Sequence[Seat], now: datetime, caps: Caps) -> set[str]:
    """Ids of woken cards for which there is no seat yet: they stay asleep until a card is decided.

    Cards that never slept keep their seats; of the woken ones the first in the order sit down first. An upkeep card
    that takes no place waits as well while its workspace shows another.
    """
    awake = [seat for seat in order(seats, now) if not is_snoozed(seat, now)]
    shown = [seat for seat in awake if seat.snoozed_until is None]
    waiting = set()
    for seat in awake:
        if seat.snoozed_until is None:
            continue
        taken = [one for one in shown if counts(one, now)]
        here = sum(one.workspace == seat.workspace for one in taken)
        full = here >= caps.workspace or len(taken) >= caps.in_all
        if _other_upkeep(seat, shown) or (full and counts(seat, now)):
            waiting.add(seat.id)
        else:
            shown.append(seat)
    return waiting


def makes_room(seats: Sequence[Seat], returning: str, now: datetime, caps: Caps) -> list[str]:
    """Whom a card that comes in any case (`returning`, already among `seats`) displaces: the other upkeep card when it
    is one, and the last of the others, unseen ones first, of its own workspace while that has too many. Woken cards
    without a seat are not displaced."""
    waiting = overdue_for_a_seat(seats, now, caps)
    shown = [seat for seat in order(seats, now) if not is_snoozed(seat, now) and seat.id not in waiting]
    back = next((seat for seat in shown if seat.id == returning), None)
    upkeep = _other_upkeep(back, shown) if back else []
    counted = [seat for seat in shown if counts(seat, now) and seat.id not in upkeep]
    home = back.workspace if back and counts(back, now) else None
    here = sum(seat.workspace == home for seat in counted)
    others = sorted((seat for seat in reversed(counted) if seat.id != returning), key=lambda seat: seat.shown)
    own = [seat.id for seat in others if seat.workspace == home][: max(0, here - caps.workspace)]
    rest = [seat.id for seat in others if seat.id not in own]
    return upkeep + own + rest[: max(0, len(counted) - len(own) - caps.in_all)]


def cool_down(status: Status, outcome: Outcome | None, *, shown: bool, undone: bool) -> timedelta:
    """How long the same evidence stays away after work on it, or after a card for it expired; new facts are new
    evidence and come at once. Dismissals keep whole subjects away: see `muting.py`.

    Done, or done and undone: 7 days, since the same facts would ask for the same work again. Any other end: a day.
    Ignored until it expired: a day; never seen: none.
    """
    if status is Status.EXECUTED:
        return timedelta(days=7) if undone or outcome is Outcome.SUCCEEDED else timedelta(days=1)
    if status is Status.EXPIRED and outcome is not Outcome.WITHDRAWN and shown:
        return timedelta(days=1)
    return timedelta(0)
