"""The rules of cards: transitions, cool-downs, places in the stack, order and tiers (SPEC 2.5, 2.7, 2.9, 2.11).

The functions are pure; only `Room` keeps which places were taken. `card_store` and the cycle apply them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from engine.config import Settings
from engine.frozen import frozen
from engine.model import Card, Outcome, Refusal, SessionState, Source, Status, Tier
from engine.model.base import hex_hash
from engine.prediction.kinds import get_kind, is_ordered
from engine.safety.gate import MIN_APPROVAL_BOUND
from engine.statistics import wilson_lower_bound

LIFETIME = timedelta(hours=24)
"""Time after which a card expires, not counting quiet hours (SPEC 2.7)."""

DEFAULT_SNOOZE, MAX_SNOOZE = timedelta(hours=2), timedelta(days=30)
"""Default and maximum length of a snooze."""


# -- transitions


class Move(StrEnum):
    """A transition of a card."""

    APPROVE = "approved"
    DISMISS = "dismissed"
    SNOOZE = "snoozed"
    WAKE = "woken"  # a snooze is undone
    EXPIRE = "expired"  # its time is over
    WITHDRAW = "withdrawn"  # its evidence is gone
    REOPEN = "reopened"  # a decision is undone before it had an effect
    EXECUTE = "executed"  # its session has ended


TRANSITIONS: dict[tuple[Status, Move], Status] = {
    (Status.PENDING, Move.APPROVE): Status.APPROVED,
    (Status.PENDING, Move.DISMISS): Status.DISMISSED,
    (Status.PENDING, Move.SNOOZE): Status.PENDING,
    (Status.PENDING, Move.WAKE): Status.PENDING,
    (Status.PENDING, Move.EXPIRE): Status.EXPIRED,
    (Status.PENDING, Move.WITHDRAW): Status.EXPIRED,
    (Status.APPROVED, Move.REOPEN): Status.PENDING,
    (Status.DISMISSED, Move.REOPEN): Status.PENDING,
    (Status.APPROVED, Move.EXECUTE): Status.EXECUTED,
}
"""The legal transitions; all others are refused."""

OUTCOMES: dict[SessionState, Outcome] = {
    SessionState.SUCCEEDED: Outcome.SUCCEEDED,
    SessionState.FAILED: Outcome.FAILED,
    SessionState.CANNOT_RUN: Outcome.CANNOT_RUN,
    SessionState.CANCELLED: Outcome.CANCELLED,
    SessionState.BLOCKED: Outcome.BLOCKED,
    SessionState.INTERRUPTED: Outcome.FAILED,
}
"""The outcome of a card by the final state of its session."""

_IN_WORDS = {
    Status.PENDING: "is still pending",
    Status.APPROVED: "was already approved",
    Status.DISMISSED: "was already dismissed",
    Status.EXPIRED: "has expired",
    Status.EXECUTED: "was already executed",
}
"""The statuses of a card in refusals."""


def compute_next_status(card_id: str, status: Status, move: Move) -> Status:
    """The status after `move`. Raises `Refusal` `already_decided`, or `nothing_to_undo` for `WAKE` and `REOPEN`."""
    new_status = TRANSITIONS.get((status, move))
    if new_status is not None:
        return new_status
    message = f"card {card_id} {_IN_WORDS[status]} and cannot be {move.value}"
    if move in (Move.WAKE, Move.REOPEN):
        raise Refusal("nothing_to_undo", message)
    undoable = status in (Status.APPROVED, Status.DISMISSED)
    raise Refusal("already_decided", message, f"undo it first: clawpy undo {card_id}" if undoable else "")


# -- cool-downs

MAX_COOL_DOWN = timedelta(days=7)
"""Maximum time of `is_cooling_down`."""


@frozen
class EarlierCard:
    """A card whose evidence is proposed again. `closed_at` is None while it is pending or its work runs."""

    fingerprint: str
    kind: str
    status: Status
    outcome: Outcome | None
    closed_at: datetime | None
    shown_at: datetime | None
    undone_at: datetime | None


def is_cooling_down(card: EarlierCard, now: datetime) -> bool:
    """Whether it is too early to make another card with the same evidence as this card.

    That is so for 7 days after work that succeeded or was undone, since the same evidence would propose it again; for a
    day after work that ended in any other way; and for a day after a card that was shown and expired. A card that was
    never shown has no cool-down, and neither has a kind that comes back until its reason is gone. Pending cards are
    compared by subject elsewhere, and mutes (`dismissals`) follow from dismissed ones.
    """
    if card.closed_at is None:
        return card.status is not Status.PENDING
    days = 0
    if card.status is Status.EXECUTED:
        days = 7 if card.undone_at or card.outcome is Outcome.SUCCEEDED else 1
    elif card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN and card.shown_at:
        days = 1
    return now < card.closed_at + timedelta(days=days) and not get_kind(card.kind).comes_back


# -- order

FRESHNESS_STEPS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""Limits between groups of evidence by age. Cards in the same group are ordered by kind (`kinds.Kind.place`), so that
a few minutes make no difference."""


def sort_cards(cards: Iterable[Card], now: datetime) -> list[Card]:
    """The stack from the top (SPEC 2.11): by rank, with the cards that cannot run at the end."""
    return sorted(rank_cards(cards, now), key=lambda card: not card.can_run)


def rank_cards(cards: Iterable[Card], now: datetime) -> list[Card]:
    """The operator's own prompts, newest first; then the other cards by tier, confidence and age of the evidence, and
    if these are equal by kind and age. Cards that are equal in all of this have an order that is another each day:
    otherwise the same subject would always come first, and the Twin would learn little about the others."""
    own_prompts: list[Card] = []
    others: list[Card] = []
    for card in cards:
        (own_prompts if card.source is Source.OPERATOR else others).append(card)
    own_prompts.sort(key=lambda card: (card.created_at, card.id), reverse=True)
    others.sort(
        key=lambda card: (
            card.tier,
            -card.confidence,
            sum(now - (card.evidence_at or card.created_at) > age for age in FRESHNESS_STEPS),
            get_kind(card.kind).tier is not card.tier,  # cards that `adjust_tier` moved here come last
            get_kind(card.kind).place,
            card.created_at,
            hex_hash(f"{card.created_at.date()} {Path(card.workspace).name} {card.kind} {card.subject}"),
            card.about,
            card.id,
        )
    )
    return [*own_prompts, *others]


# -- places

MAX_SUGGESTED = 3
"""Maximum number of pending cards of agents and programs."""

MAX_SAME_KIND = 4
"""Maximum number of pending cards of one kind in a workspace."""


class MayDisplace(StrEnum):
    """Which cards may lose their place to a new card."""

    NONE = "none"
    LOWER_TIERS = "lower tiers"
    ANY = "any"


@frozen
class Seating:
    """Whether a card has got a place in the stack, and the ids of the cards that it displaced."""

    has_place: bool
    displaced: tuple[str, ...] = ()


NO_PLACE = Seating(False)


class Room:
    """The places of the stack. `awake` are the pending cards that are not snoozed, including those without a place."""

    def __init__(self, settings: Settings, awake: Iterable[Card], now: datetime) -> None:
        self._settings = settings
        self._awake = list(awake)
        self._now = now

    def take(self, card: Card, may_displace: MayDisplace = MayDisplace.LOWER_TIERS) -> Seating:
        """Take a place for this card.

        A workspace has at most one upkeep card (SPEC 2.11), which only a next step may displace. The same holds for a
        kind with `one_at_a_time`. If all places are taken, the last card that may be displaced gives its place,
        preferably one that was not shown yet.
        """
        displaced = self._find_rivals(card)
        if displaced and not _may_replace_rivals(card, may_displace):
            return NO_PLACE
        if takes_place(card, self._now):
            seated = [other for other in self._awake if takes_place(other, self._now)]
            nearby = [other for other in seated if other.workspace == card.workspace]
            same_kind = sum(other.kind == card.kind for other in nearby)
            if same_kind >= MAX_SAME_KIND and may_displace is not MayDisplace.ANY:
                return NO_PLACE
            limits = (self._settings.max_pending_cards, nearby), (self._settings.max_pending_cards_in_all, seated)
            for limit, cards in limits:
                others = [other for other in cards if other not in displaced]
                if len(others) >= limit:
                    last = self._find_last([other for other in others if _may_lose_place(other, card, may_displace)])
                    if last is None:
                        return NO_PLACE
                    displaced.append(last)
        self._awake = [other for other in self._awake if other not in displaced] + [card]
        return Seating(True, tuple(other.id for other in displaced))

    def leave(self, card: Card) -> None:
        """Free the place of this card."""
        self._awake.remove(card)

    def _find_rivals(self, card: Card) -> list[Card]:
        """The cards in the workspace of `card` that may not be beside it (see `find_exclusive_group`)."""
        group = find_exclusive_group(card)
        others = [other for other in self._awake if other.workspace == card.workspace]
        return [other for other in others if find_exclusive_group(other) == group] if group else []

    def _find_last(self, cards: Sequence[Card]) -> Card | None:
        """The last of the cards, preferably one that was not shown yet; None if there are none."""
        from_last = reversed(rank_cards(cards, self._now))
        return min(from_last, key=lambda card: card.shown_at is not None, default=None)


def find_exclusive_group(card: Card) -> str:
    """The group of cards of which a workspace has only one: upkeep, or a kind with `one_at_a_time`. "" for any other
    card."""
    if card.tier is Tier.UPKEEP:
        return card.tier.word
    return card.kind if get_kind(card.kind).one_at_a_time else ""


def _may_replace_rivals(card: Card, may_displace: MayDisplace) -> bool:
    if may_displace is MayDisplace.LOWER_TIERS:
        return card.source is Source.FOLLOW_UP
    return may_displace is MayDisplace.ANY


def _may_lose_place(other: Card, card: Card, may_displace: MayDisplace) -> bool:
    """Whether `other` may lose its place to `card`."""
    if may_displace is MayDisplace.LOWER_TIERS:
        return other.tier > card.tier  # a lower tier has a higher number
    return may_displace is MayDisplace.ANY


def takes_place(card: Card, now: datetime) -> bool:
    """Whether a card takes a place. Snoozed cards, the operator's own prompts and orders, and follow-ups do not."""
    exempt = card.source in (Source.OPERATOR, Source.FOLLOW_UP) or is_ordered(card.kind)
    return not (exempt or card.snoozed(now))


def find_ids_without_place(cards: Iterable[Card], now: datetime, settings: Settings) -> set[str]:
    """The ids of cards whose snooze ended and for which there is no place. They stay hidden until another card is
    decided. Cards that were never snoozed keep their places, and the others get the free ones in order."""
    awake = [card for card in sort_cards(cards, now) if not card.snoozed(now)]
    room = Room(settings, [card for card in awake if card.snoozed_until is None], now)
    return {
        card.id for card in awake if card.snoozed_until is not None and not room.take(card, MayDisplace.NONE).has_place
    }


def find_displaced_ids(cards: Sequence[Card], returning: str, now: datetime, settings: Settings) -> tuple[str, ...]:
    """The ids of the cards that the card with the id `returning` displaces. `cards` contains it already.

    An upkeep card displaces the other upkeep card. If there are too many cards, the last of the others is displaced.
    """
    hidden = find_ids_without_place(cards, now, settings)
    shown = [card for card in cards if not card.snoozed(now) and card.id not in hidden]
    card = next(card for card in cards if card.id == returning)
    return Room(settings, [other for other in shown if other is not card], now).take(card, MayDisplace.ANY).displaced


# -- tiers


def adjust_tier(tier: Tier, approved: int, decided: int) -> tuple[Tier, str]:
    """(tier, reason) of a kind in a workspace after the operator's decisions (SPEC 2.11). The reason is "" if the tier
    stays.

    A kind moves up by one if the one-sided 95 % Wilson bound of the share approved is at least 0.8, which takes 11 of
    11. It moves down by one if that holds for the share dismissed. No kind moves into tier 1 or out of it.
    """
    reason = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and wilson_lower_bound(approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {reason}"
    if tier in (Tier.BLOCKS, Tier.CHECK) and wilson_lower_bound(decided - approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {reason}"
    return tier, ""
