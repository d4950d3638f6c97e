"""What keeps the stack quiet (SPEC 2.9): how many cards in a workspace and in all, cool-downs of work. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.config import Settings
from engine.values import Outcome, Source, Status

LIFE = timedelta(hours=24)
"""A card expires after this long; quiet hours are not counted (SPEC 2.7)."""

SNOOZE = timedelta(hours=2)
"""How long a snooze is unless said."""

ON_TOP = 1.0
"""Rank of what the operator wrote himself: no sum of signals is higher."""

SUGGESTED = "suggested"
"""The kind of what an agent or a program put there: like each other, and like nothing that the engine predicts."""

SUGGESTED_MOST = 3
"""So many of these are pending at most: the places are not theirs alone."""

_EXEMPT = (Source.OPERATOR, Source.FOLLOW_UP)


@dataclass(frozen=True, slots=True)
class Seat:
    """What the limit needs to know of a pending card. `rank` is the sum of its signals' shares, then its urgency."""

    id: str
    workspace: str
    source: Source
    snoozed_until: datetime | None
    shown: bool
    rank: tuple[float, float]
    created_at: datetime


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
    """How many more cards the stack takes, workspace by workspace. `taken` names the workspace of each that counts."""

    def __init__(self, caps: Caps, taken: Collection[str]) -> None:
        self._caps = caps
        self._taken = Counter(taken)

    def left(self, workspace: str) -> int:
        """How many more cards of this workspace fit."""
        in_all = self._caps.in_all - self._taken.total()
        return max(0, min(self._caps.workspace - self._taken[workspace], in_all))

    def most(self, workspaces: Collection[str]) -> int:
        """How many more cards of all these workspaces together fit at most."""
        in_all = max(0, self._caps.in_all - self._taken.total())
        return min(in_all, sum(self.left(one) for one in set(workspaces)))

    def take(self, workspace: str) -> bool:
        """Take a place for a card of this workspace; False when there is none."""
        if not self.left(workspace):
            return False
        self._taken[workspace] += 1
        return True


def is_snoozed(seat: Seat, now: datetime) -> bool:
    """True until the instant its snooze ends."""
    return seat.snoozed_until is not None and seat.snoozed_until > now


def counts(seat: Seat, now: datetime) -> bool:
    """True for a card that takes a place: not snoozed, not the operator's own, not a follow-up."""
    return seat.source not in _EXEMPT and not is_snoozed(seat, now)


def order(seats: Sequence[Seat]) -> list[Seat]:
    """The stack from the top: what the operator wrote, the newest first, for he wants to decide on it now; then by
    rank, highest first, ties by urgency, then the older card, then the id: it is stable."""
    own = [seat for seat in seats if seat.source is Source.OPERATOR]
    others = [seat for seat in seats if seat.source is not Source.OPERATOR]
    return [
        *sorted(own, key=lambda seat: (seat.created_at, seat.id), reverse=True),
        *sorted(others, key=lambda seat: (-seat.rank[0], -seat.rank[1], seat.created_at, seat.id)),
    ]


def overdue_for_a_seat(seats: Sequence[Seat], now: datetime, caps: Caps) -> set[str]:
    """Ids of woken cards for which there is no seat yet: they stay asleep until a card is decided.

    Cards that never slept keep their seats; of the woken ones the highest ranked sit down first.
    """
    counted = [seat for seat in order(seats) if counts(seat, now)]
    room = Room(caps, [seat.workspace for seat in counted if seat.snoozed_until is None])
    return {seat.id for seat in counted if seat.snoozed_until is not None and not room.take(seat.workspace)}


def makes_room(seats: Sequence[Seat], returning: str, now: datetime, caps: Caps) -> list[str]:
    """Whom a card that the operator brings back (`returning`, already among `seats`) displaces: the lowest ranked of
    the others, unseen ones first, of its own workspace while that has too many. Woken cards without a seat are not
    displaced."""
    waiting = overdue_for_a_seat(seats, now, caps)
    counted = [seat for seat in order(seats) if counts(seat, now) and seat.id not in waiting]
    home = next((seat.workspace for seat in counted if seat.id == returning), None)
    here = sum(seat.workspace == home for seat in counted)
    others = sorted((seat for seat in reversed(counted) if seat.id != returning), key=lambda seat: seat.shown)
    own = [seat.id for seat in others if seat.workspace == home][: max(0, here - caps.workspace)]
    rest = [seat.id for seat in others if seat.id not in own]
    return own + rest[: max(0, len(counted) - len(own) - caps.in_all)]


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
