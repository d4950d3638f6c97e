"""The order of the cards of a stack, and their places (SPEC 2.5, 2.11)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.settings import Settings
from engine.model import Assignment, Card, Source, Tier
from engine.prediction import KINDS
from engine.prediction.stack import (
    NO_PLACE,
    Room,
    Seating,
    find_displaced_ids,
    find_ids_without_place,
    sort_cards,
    takes_place,
)
from tests.support import MONDAY_MORNING as NOW
from tests.support import read_table
from tests.support.card_rows import make_card

TABLE = read_table(__file__)

LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def make_stack_card(
    name: str,
    tier: Tier = Tier.CHECK,
    confidence: float = 0.4,
    *,
    kind: str = "",
    ago: timedelta = timedelta(0),
    snoozed: datetime | None = None,
    shown: bool = False,
    workspace: str = "/shop",
    **fields: Any,
) -> Card:
    """A pending card that can run, whose evidence arose some time `ago`, with these other fields."""
    return make_card(
        name, NOW, kind=kind or name, tier=tier, confidence=confidence, evidence_at=NOW - ago, snoozed_until=snoozed,
        assignment=Assignment("", "", workspace, ""), shown_at=NOW if shown else None, **{"can_run": True} | fields,
    )  # fmt: skip


CARDS = st.lists(
    st.builds(
        make_stack_card,
        st.uuids().map(str),
        st.sampled_from(Tier),
        st.floats(0, 1),
        kind=st.sampled_from(sorted(KINDS)),
        ago=st.timedeltas(timedelta(0), timedelta(days=40)),
        snoozed=st.sampled_from([None, LATER, EARLIER, NOW]),
        source=st.sampled_from(Source),
        shown=st.booleans(),
        workspace=st.sampled_from(["/shop", "/site", "/tool", "/docs"]),
    ),
    max_size=30,
    unique_by=lambda card: card.id,
)


# The order


def test_the_order_is_tier_then_confidence_then_freshness():
    """Your own prompts come first, the newest on top, and what cannot run comes last."""
    older = replace(make_stack_card("older", source=Source.OPERATOR), created_at=NOW - timedelta(hours=2))
    stack = [
        make_stack_card("own", source=Source.OPERATOR),
        older,
        make_stack_card("broken", Tier.AT_RISK, 0.1, ago=timedelta(days=30)),
        make_stack_card("likely", confidence=0.7, ago=timedelta(days=30)),
        make_stack_card("fresh", confidence=0.5),
        make_stack_card("stale", confidence=0.5, ago=timedelta(days=2)),
        make_stack_card("upkeep", Tier.UPKEEP, 1.0),
        make_stack_card("blocked", Tier.AT_RISK, can_run=False),
    ]
    assert sort_cards(reversed(stack), NOW) == stack


@pytest.mark.long
@given(CARDS)
def test_the_order_does_not_depend_on_the_order_before(cards: list[Card]):
    assert sort_cards(cards, NOW) == sort_cards(cards[::-1], NOW)
    tiers = [card.tier for card in sort_cards(cards, NOW) if card.source is not Source.OPERATOR]
    assert tiers == sorted(tiers)


# Places

CAPS = Settings(max_pending_cards=5, max_pending_cards_in_all=12)


def group_upkeep(card: Card) -> tuple[str, bool]:
    """The workspace of a card, and whether it is upkeep. A workspace has only one upkeep card."""
    return card.workspace, card.tier is Tier.UPKEEP


def is_within_caps(cards: list[Card]) -> bool:
    """Whether no workspace has more than five of these cards, and all together have at most twelve."""
    return len(cards) <= CAPS.max_pending_cards_in_all and all(
        sum(other.workspace == card.workspace for other in cards) <= CAPS.max_pending_cards for card in cards
    )


@pytest.mark.parametrize(
    "card, takes_a_place",
    [
        (make_stack_card("a"), True),
        (make_stack_card("a", snoozed=LATER), False),
        (make_stack_card("a", snoozed=NOW), True),
        (make_stack_card("a", source=Source.OPERATOR), False),
        (make_stack_card("a", source=Source.FOLLOW_UP), False),
        (make_stack_card("a", kind="heartbeat-1a2b3c4d"), False),
        (make_stack_card("a", kind="prepare_meeting"), False),
    ],
)
def test_snoozed_own_ordered_and_follow_up_cards_take_no_place(card: Card, takes_a_place: bool):
    assert takes_place(card, NOW) is takes_a_place


@pytest.mark.parametrize("taken, others, left", TABLE["places"])
def test_a_workspace_has_five_places_and_all_together_twelve(taken: int, others: Sequence[str], left: int):
    cards = [make_stack_card(f"t{number}", workspace=others[number % len(others)]) for number in range(taken)]
    room = Room(CAPS, cards, NOW)
    seatings = [room.take(make_stack_card(f"n{number}")) for number in range(left + 1)]
    assert seatings == [Seating(has_place=True)] * left + [NO_PLACE]


def test_the_last_card_of_a_lower_tier_gives_its_place_one_that_was_not_shown_first():
    awake = [make_stack_card(f"t{number}", confidence=number / 10, shown=number == 0) for number in range(5)]
    assert Room(CAPS, awake, NOW).take(make_stack_card("broken", Tier.AT_RISK)) == Seating(
        has_place=True, displaced=("t1",)
    )
    assert Room(CAPS, awake, NOW).take(make_stack_card("check")) == NO_PLACE


def test_a_workspace_has_one_upkeep_card():
    present, new = make_stack_card("quarantine", Tier.UPKEEP), make_stack_card("old_stash", Tier.UPKEEP)
    assert Room(CAPS, [present], NOW).take(new) == NO_PLACE
    next_step = replace(new, source=Source.FOLLOW_UP)
    assert Room(CAPS, [present], NOW).take(next_step) == Seating(has_place=True, displaced=("quarantine",))


@given(CARDS)
def test_woken_cards_take_free_places_only(cards: list[Card]):
    hidden = find_ids_without_place(cards, NOW, CAPS)
    visible = [card for card in cards if not card.is_snoozed(NOW) and card.id not in hidden]
    assert all(card.snoozed_until is not None for card in cards if card.id in hidden)
    woken = [card for card in visible if card.snoozed_until is not None and card.tier is Tier.UPKEEP]
    assert all(sum(group_upkeep(other) == group_upkeep(card) for other in visible) == 1 for card in woken)
    never_slept = [card for card in visible if card.snoozed_until is None and takes_place(card, NOW)]
    if is_within_caps(never_slept):
        assert is_within_caps([card for card in visible if takes_place(card, NOW)])


@given(CARDS, st.data())
@settings(max_examples=50)
def test_a_returning_card_displaces_others_within_the_limits(cards: list[Card], data: st.DataObject):
    hidden = find_ids_without_place(cards, NOW, CAPS)
    visible = [card for card in cards if not card.is_snoozed(NOW) and card.id not in hidden]
    if not visible:
        return
    returning = data.draw(st.sampled_from(visible))
    displaced = find_displaced_ids(cards, returning.id, NOW, CAPS)
    rest = [card for card in visible if card.id not in displaced]
    assert returning in rest
    if returning.tier is Tier.UPKEEP:
        assert [card for card in rest if group_upkeep(card) == group_upkeep(returning)] == [returning]
    others = [card for card in visible if card is not returning and takes_place(card, NOW)]
    if is_within_caps(others):
        assert is_within_caps([card for card in rest if takes_place(card, NOW)])
