"""The order of the pending cards (SPEC 2.11), their maximum number (2.9), and the tier that follows from the operator's
decisions (2.5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from engine.config import Settings
from engine.model import Card, Source, Tier
from engine.prediction.kinds import is_ordered, kind_of
from engine.safety.gate import MIN_APPROVAL_BOUND
from engine.statistics import wilson_lower_bound

MAX_SUGGESTED = 3
"""Maximum number of pending cards of agents and programs."""

MAX_SAME_KIND = 4
"""Maximum number of pending cards of one kind in a workspace."""

FRESHNESS_STEPS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""Steps of the age of evidence. Cards of the same step are ordered by kind (`kinds.Kind.place`), not by minutes."""


class Room:
    """The free places of the stack. `awake` are the pending cards that are not snoozed, also those without a place."""

    def __init__(self, settings: Settings, awake: Iterable[Card]) -> None:
        self._settings = settings
        self._awake = list(awake)

    def take(self, card: Card, now: datetime) -> list[str] | None:
        """Take a place for this card; returns the ids of the cards that it displaces, or None if there is no place.

        A workspace has one upkeep card at most (SPEC 2.11). If all places are taken, the last card of a lower tier is
        displaced, preferably one that was not shown yet.
        """
        seated = [other for other in self._awake if takes_place(other, now)]
        if _other_upkeep(card, self._awake):
            return None
        if not takes_place(card, now):
            self._awake.append(card)
            return []
        if sum((other.workspace, other.kind) == (card.workspace, card.kind) for other in seated) >= MAX_SAME_KIND:
            return None
        displaced: set[str] = set()
        limits = (self._settings.max_pending_cards, card.workspace), (self._settings.max_pending_cards_in_all, None)
        for limit, workspace in limits:
            others = [other for other in seated if workspace in (None, other.workspace) and other.id not in displaced]
            if len(others) < limit:
                continue
            lower = [other for other in reversed(sort_cards(others, now)) if other.tier > card.tier]
            if not lower:
                return None
            displaced.add(min(lower, key=lambda other: other.shown_at is not None).id)
        self._awake = [other for other in self._awake if other.id not in displaced] + [card]
        return sorted(displaced)

    def leave(self, card: Card) -> None:
        """Free the place of this card."""
        self._awake.remove(card)


def _other_upkeep(card: Card, awake: Iterable[Card]) -> list[str]:
    """Ids of the other upkeep cards in the workspace of this upkeep card."""
    if card.tier is not Tier.UPKEEP:
        return []
    seat = (card.workspace, card.tier)
    return [other.id for other in awake if (other.workspace, other.tier) == seat and other.id != card.id]


def takes_place(card: Card, now: datetime) -> bool:
    """Whether a card takes a place: it is not snoozed, not the operator's own prompt or order, not a follow-up."""
    exempt = card.source in (Source.OPERATOR, Source.FOLLOW_UP) or is_ordered(card.kind)
    return not (exempt or card.snoozed(now))


def sort_cards(cards: Iterable[Card], now: datetime) -> list[Card]:
    """The stack from the top (SPEC 2.11): the operator's own prompts, newest first, then by tier, confidence and age of
    the evidence; equal cards by kind, age and id."""
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
            kind_of(card.kind).tier is not card.tier,  # cards that were moved here come after those of this tier
            kind_of(card.kind).place,
            card.created_at,
            card.id,
        )
    )
    return [*own_prompts, *others]


def ids_without_place(cards: Sequence[Card], now: datetime, settings: Settings) -> set[str]:
    """Ids of woken cards without a place: they stay hidden until another card is decided.

    Cards that were not snoozed keep their places; the woken ones get the free ones in order. A woken upkeep card also
    waits while its workspace shows another.
    """
    awake = [card for card in sort_cards(cards, now) if not card.snoozed(now)]
    shown = [card for card in awake if card.snoozed_until is None]
    waiting = set()
    for card in awake:
        if card.snoozed_until is None:
            continue
        seated = [other for other in shown if takes_place(other, now)]
        in_workspace = sum(other.workspace == card.workspace for other in seated)
        full = in_workspace >= settings.max_pending_cards or len(seated) >= settings.max_pending_cards_in_all
        if _other_upkeep(card, shown) or (full and takes_place(card, now)):
            waiting.add(card.id)
        else:
            shown.append(card)
    return waiting


def displaced_ids(cards: Sequence[Card], returning: str, now: datetime, settings: Settings) -> list[str]:
    """Ids of the cards that the card `returning`, already in `cards`, displaces: the other upkeep card if it is one,
    and the last of the others, unseen ones first, of its own workspace while that has too many. Woken cards without a
    place are not displaced."""
    waiting = ids_without_place(cards, now, settings)
    shown = [card for card in sort_cards(cards, now) if not card.snoozed(now) and card.id not in waiting]
    returning_card = next((card for card in shown if card.id == returning), None)
    upkeep = _other_upkeep(returning_card, shown) if returning_card else []
    counted = [card for card in shown if takes_place(card, now) and card.id not in upkeep]
    home = returning_card.workspace if returning_card and takes_place(returning_card, now) else None
    in_home = sum(card.workspace == home for card in counted)
    others = [card for card in reversed(counted) if card.id != returning]
    others.sort(key=lambda card: card.shown_at is not None)
    home_ids = [card.id for card in others if card.workspace == home][: max(0, in_home - settings.max_pending_cards)]
    rest_ids = [card.id for card in others if card.id not in home_ids]
    return upkeep + home_ids + rest_ids[: max(0, len(counted) - len(home_ids) - settings.max_pending_cards_in_all)]


def adjusted_tier(tier: Tier, approved: int, decided: int) -> tuple[Tier, str]:
    """(tier, reason) of a kind in a workspace after the operator's decisions; reason "" if it stays (SPEC 2.11).

    One up if the one-sided 95 % Wilson bound of the share approved is at least 0.8 (from 11 of 11 on), one down if that
    of the share dismissed is. Nothing moves into tier 1 or out of it.
    """
    reason = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and wilson_lower_bound(approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {reason}"
    if tier in (Tier.BLOCKS, Tier.CHECK) and wilson_lower_bound(decided - approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {reason}"
    return tier, ""
