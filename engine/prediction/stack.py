"""The order of the stack (SPEC 2.11), how many cards it holds (2.9), and where your taste moves a kind (2.5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from engine.config import Settings
from engine.model import Card, Source, Tier
from engine.prediction.kinds import is_ordered, kind_of
from engine.prediction.twin import LIKE_APPROVED_FROM
from engine.statistics import wilson_lower_bound

SUGGESTED_MOST = 3
"""Maximum number of pending cards of agents and programs: the places are not theirs alone."""

MOST_ALIKE = 4
"""Maximum number of pending cards of one kind in a workspace: never five of the five."""

FRESH = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""How fresh evidence is goes in steps: of the last hour, the last day, the last week, older. Within a step it is not
minutes that matter, but what a card is about (`kinds.Kind.place`)."""


class Room:
    """The places of the stack. `awake`: the pending cards that are not snoozed, also those that take no place."""

    def __init__(self, settings: Settings, awake: Iterable[Card]) -> None:
        self._settings = settings
        self._awake = list(awake)

    def take(self, card: Card, now: datetime) -> list[str] | None:
        """Take a place for this card: ids of the cards that lose theirs to it, or None when there is none for it.

        One upkeep card in a workspace is enough (SPEC 2.11). Where all places are taken, the last card of a lower tier
        makes room, one that was not shown yet before others.
        """
        seated = [other for other in self._awake if takes_place(other, now)]
        if _other_upkeep(card, self._awake):
            return None
        if not takes_place(card, now):
            self._awake.append(card)
            return []
        if sum((other.workspace, other.kind) == (card.workspace, card.kind) for other in seated) >= MOST_ALIKE:
            return None
        displaced: set[str] = set()
        limits = (self._settings.max_pending_cards, card.workspace), (self._settings.max_pending_cards_in_all, None)
        for most, workspace in limits:
            among = [other for other in seated if workspace in (None, other.workspace) and other.id not in displaced]
            if len(among) < most:
                continue
            lower = [other for other in reversed(order(among, now)) if other.tier > card.tier]
            if not lower:
                return None
            displaced.add(min(lower, key=lambda other: other.shown_at is not None).id)
        self._awake = [other for other in self._awake if other.id not in displaced] + [card]
        return sorted(displaced)

    def leave(self, card: Card) -> None:
        """Give the place of this card back."""
        self._awake.remove(card)


def _other_upkeep(card: Card, awake: Iterable[Card]) -> list[str]:
    """Ids of the upkeep cards, of any source, beside which this one would be a second one in its workspace."""
    if card.tier is not Tier.UPKEEP:
        return []
    seat = (card.workspace, card.tier)
    return [other.id for other in awake if (other.workspace, other.tier) == seat and other.id != card.id]


def takes_place(card: Card, now: datetime) -> bool:
    """True for a card that takes a place: not snoozed, not the operator's own prompt or order, not a follow-up."""
    exempt = card.source in (Source.OPERATOR, Source.FOLLOW_UP) or is_ordered(card.kind)
    return not (exempt or card.snoozed(now))


def order(cards: Iterable[Card], now: datetime) -> list[Card]:
    """The stack from the top (SPEC 2.11): what the operator wrote, the newest first, for it is to be decided now; then
    by tier, confidence and freshness. What is left is stable: the kind, the older card, the id."""
    own_prompts: list[Card] = []
    others: list[Card] = []
    for card in cards:
        (own_prompts if card.source is Source.OPERATOR else others).append(card)
    own_prompts.sort(key=lambda card: (card.created_at, card.id), reverse=True)
    others.sort(
        key=lambda card: (
            card.tier,
            -card.confidence,
            sum(now - (card.evidence_at or card.created_at) > age for age in FRESH),
            kind_of(card.kind).tier is not card.tier,  # what taste or circumstances moved comes after what belongs here
            kind_of(card.kind).place,
            card.created_at,
            card.id,
        )
    )
    return [*own_prompts, *others]


def waiting_for_a_place(cards: Sequence[Card], now: datetime, settings: Settings) -> set[str]:
    """Ids of woken cards for which there is no place yet: they stay asleep until a card is decided.

    Cards that never slept keep their places; of the woken ones the first in the order sit down first. An upkeep card
    that takes no place waits as well while its workspace shows another.
    """
    awake = [card for card in order(cards, now) if not card.snoozed(now)]
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


def displaced_by(cards: Sequence[Card], returning: str, now: datetime, settings: Settings) -> list[str]:
    """Ids of the cards that a returning card (`returning`, already in `cards`) displaces: the other upkeep card when it
    is one, and the last of the others, unseen ones first, of its own workspace while that has too many. Woken cards
    without a place are not displaced."""
    waiting = waiting_for_a_place(cards, now, settings)
    shown = [card for card in order(cards, now) if not card.snoozed(now) and card.id not in waiting]
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
    """The tier that the operator's taste gives to a kind in a workspace, and why, "" when it stays (SPEC 2.11).

    One up where the one-sided 95 % Wilson bound of the share approved is at least 0.8 (from 11 of 11 on), one down
    where that of the share dismissed is. What is broken is a fact: nothing moves into tier 1 or out of it.
    """
    reason = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and wilson_lower_bound(approved, decided) >= LIKE_APPROVED_FROM:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {reason}"
    if tier in (Tier.BLOCKS, Tier.CHECK) and wilson_lower_bound(decided - approved, decided) >= LIKE_APPROVED_FROM:
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {reason}"
    return tier, ""
