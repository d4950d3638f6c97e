"""What keeps the stack quiet (SPEC 2.9): how many cards, one a fingerprint, cool-downs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

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
"""So many of these are pending at most: the five are not theirs alone."""

_EXEMPT = (Source.OPERATOR, Source.FOLLOW_UP)


@dataclass(frozen=True, slots=True)
class Seat:
    """What the limit needs to know of a pending card. `rank` is the sum of its signals' shares, then its urgency."""

    id: str
    source: Source
    snoozed_until: datetime | None
    shown: bool
    rank: tuple[float, float]
    created_at: datetime


def is_snoozed(seat: Seat, now: datetime) -> bool:
    """True until the instant its snooze ends."""
    return seat.snoozed_until is not None and seat.snoozed_until > now


def counts(seat: Seat, now: datetime) -> bool:
    """True for a card that is one of the five: not snoozed, not the operator's own, not a follow-up."""
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


def overdue_for_a_seat(seats: Sequence[Seat], now: datetime, most: int) -> set[str]:
    """Ids of woken cards for which there is no seat yet: they stay asleep until one of the `most` is decided.

    Cards that never slept keep their seats; of the woken ones the highest ranked sit down first.
    """
    counted = [seat for seat in order(seats) if counts(seat, now)]
    awake = [seat for seat in counted if seat.snoozed_until is None]
    woken = [seat for seat in counted if seat.snoozed_until is not None]
    return {seat.id for seat in woken[max(0, most - len(awake)) :]}


def makes_room(seats: Sequence[Seat], returning: str, now: datetime, most: int) -> list[str]:
    """Whom a card that the operator brings back (`returning`, already among `seats`) displaces: the lowest ranked of
    the others, unseen ones first, so that at most `most` are left. Woken cards without a seat are not displaced."""
    waiting = overdue_for_a_seat(seats, now, most)
    counted = [seat for seat in order(seats) if counts(seat, now) and seat.id not in waiting]
    excess = len(counted) - most
    if excess <= 0:
        return []
    others = [seat for seat in reversed(counted) if seat.id != returning]
    return [seat.id for seat in sorted(others, key=lambda seat: seat.shown)[:excess]]


def cool_down(status: Status, outcome: Outcome | None, *, shown: bool, undone: bool) -> timedelta:
    """How long the same evidence stays away after a card for it is over; new facts are new evidence and come at once.

    Turned down (dismissed, or executed and undone): 7 days. Done: 7 days as well, since the same facts would ask for
    the same work again. Failed, cancelled or blocked: a day. Ignored until it expired: a day; never seen: none.
    """
    if status is Status.REJECTED or undone:
        return timedelta(days=7)
    if status is Status.EXECUTED:
        return timedelta(days=7) if outcome is Outcome.SUCCEEDED else timedelta(days=1)
    if status is Status.EXPIRED and outcome is not Outcome.WITHDRAWN and shown:
        return timedelta(days=1)
    return timedelta(0)
