"""The stack of pending cards (SPEC 2.9, 2.11): the order of the cards, and the places that they take.

The functions are pure; only `Room` keeps which places were taken. Checks, suggestions and undone decisions ask for a
place; the console and the verbs show the cards in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from engine.config.settings import Settings
from engine.frozen import frozen
from engine.model import Card, Source, Tier
from engine.prediction import get_kind, is_ordered
from engine.text import hex_hash

FRESHNESS_STEPS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""Limits between groups of evidence by age. Cards in the same group are ordered by kind (`Kind.place`), so that
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
"""The answer if there is no place."""


class Room:
    """The places of the stack. `pending` includes cards without a place; snoozed ones are left out."""

    def __init__(self, settings: Settings, pending: Iterable[Card], now: datetime) -> None:
        self._settings = settings
        self._awake = [card for card in pending if not card.is_snoozed(now)]
        self._now = now

    def take(self, card: Card, may_displace: MayDisplace = MayDisplace.LOWER_TIERS) -> Seating:
        """Take a place for this card.

        A workspace has at most one upkeep card (SPEC 2.11), which only a next step may displace. The same holds for a
        kind with `one_at_a_time`. If all places are taken, the last card that may be displaced gives its place,
        preferably one that was not shown yet.
        """
        displaced = self._find_rivals(card)
        is_next_step = may_displace is MayDisplace.LOWER_TIERS and card.source is Source.FOLLOW_UP
        if displaced and not (is_next_step or may_displace is MayDisplace.ANY):
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


def _may_lose_place(other: Card, card: Card, may_displace: MayDisplace) -> bool:
    """Whether `other` may lose its place to `card`."""
    if may_displace is MayDisplace.LOWER_TIERS:
        return other.tier > card.tier  # a lower tier has a higher number
    return may_displace is MayDisplace.ANY


def takes_place(card: Card, now: datetime) -> bool:
    """Whether a card takes a place. Snoozed cards, the operator's own prompts and orders, and follow-ups do not."""
    exempt = card.source in (Source.OPERATOR, Source.FOLLOW_UP) or is_ordered(card.kind)
    return not (exempt or card.is_snoozed(now))


def find_ids_without_place(cards: Iterable[Card], now: datetime, settings: Settings) -> set[str]:
    """The ids of cards whose snooze ended and for which there is no place. They stay hidden until another card is
    decided. Cards that were never snoozed keep their places, and the others get the free ones in order."""
    awake = [card for card in sort_cards(cards, now) if not card.is_snoozed(now)]
    woken = [card for card in awake if card.snoozed_until is not None]
    room = Room(settings, [card for card in awake if card.snoozed_until is None], now)
    return {card.id for card in woken if not room.take(card, MayDisplace.NONE).has_place}


def find_displaced_ids(cards: Sequence[Card], returning: str, now: datetime, settings: Settings) -> tuple[str, ...]:
    """The ids of the cards that the card with the id `returning` displaces. `cards` contains it already.

    An upkeep card displaces the other upkeep card. If there are too many cards, the last of the others is displaced.
    """
    hidden = find_ids_without_place(cards, now, settings)
    card = next(card for card in cards if card.id == returning)
    others = [other for other in cards if other is not card and other.id not in hidden]
    return Room(settings, others, now).take(card, MayDisplace.ANY).displaced
