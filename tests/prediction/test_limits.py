"""The order of the stack, seats and cool-downs (SPEC 2.9, 2.11)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Settings
from engine.model import Assignment, Band, Card, Outcome, Source, Status, Tier
from engine.prediction.card_rules import Room, cool_down, displaced_ids, ids_without_place, sort_cards, takes_place
from engine.prediction.kinds import KINDS

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def seat(
    name: str,
    tier: Tier = Tier.CHECK,
    confidence: float = 0.4,
    *,
    kind: str = "",
    ago: timedelta = timedelta(0),
    snoozed: datetime | None = None,
    source: Source = Source.TEMPLATE,
    shown: bool = False,
    workspace: str = "/shop",
) -> Card:
    return Card(
        name, kind or name, tier, Assignment("", "", workspace, ""), "", confidence, Band.CARD, None, "",
        Status.PENDING, source, NOW, LATER, evidence_at=NOW - ago, snoozed_until=snoozed,
        shown_at=NOW if shown else None,
    )  # fmt: skip


SEATS = st.lists(
    st.builds(
        seat,
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
    unique_by=lambda one: one.id,
)


@pytest.mark.parametrize(
    ("card", "takes_a_place"),
    [
        (seat("a"), True),
        (seat("a", snoozed=LATER), False),
        (seat("a", snoozed=NOW), True),
        (seat("a", source=Source.OPERATOR), False),
        (seat("a", source=Source.FOLLOW_UP), False),
        (seat("a", source=Source.PREDICTOR_HOOK), True),
        (seat("a", kind="heartbeat-1a2b3c4d"), False),
        (seat("a", kind="prepare_meeting"), False),
    ],
)
def test_who_takes_a_place(card: Card, takes_a_place: bool) -> None:
    assert takes_place(card, NOW) is takes_a_place


def ids(seats: list[Card]) -> list[str]:
    return [card.id for card in sort_cards(seats, NOW)]


def test_the_order_is_tier_then_confidence_then_freshness() -> None:
    broken = seat("broken", Tier.BROKEN, 0.1, ago=timedelta(days=30))
    likely, unlikely = seat("likely", confidence=0.7, ago=timedelta(days=30)), seat("unlikely", confidence=0.6)
    fresh, stale = seat("fresh", confidence=0.5), seat("stale", confidence=0.5, ago=timedelta(days=2))
    upkeep = seat("upkeep", Tier.UPKEEP, 1.0)
    assert ids([upkeep, stale, fresh, unlikely, likely, broken]) == [
        "broken", "likely", "unlikely", "fresh", "stale", "upkeep",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(days=1), timedelta(days=7)])
def test_minutes_do_not_matter_within_a_step_of_freshness_but_the_kind_does(step: timedelta) -> None:
    check, lint = seat("leftovers", ago=step), seat("lint", ago=step - timedelta(seconds=1))
    assert ids([lint, check]) == ["leftovers", "lint"]
    assert ids([lint, replace(check, evidence_at=NOW - step - timedelta(seconds=1))]) == ["lint", "leftovers"]


@pytest.mark.long
@given(SEATS)
def test_the_order_is_total_and_does_not_depend_on_where_it_began(seats: list[Card]) -> None:
    assert sort_cards(seats, NOW) == sort_cards(seats[::-1], NOW)
    tiers = [card.tier for card in sort_cards(seats, NOW) if card.source is not Source.OPERATOR]
    assert tiers == sorted(tiers)


def test_what_the_operator_wrote_lies_on_top_the_newest_first() -> None:
    older = replace(seat("e", source=Source.OPERATOR), created_at=NOW - timedelta(hours=2))
    newer = replace(seat("f", source=Source.OPERATOR), created_at=NOW - timedelta(hours=1))
    assert ids([seat("a", Tier.BROKEN, 0.9), older, newer]) == ["f", "e", "a"]


CAPS = Settings(max_pending_cards=5, max_pending_cards_in_all=12)


def upkeep_of(card: Card) -> tuple[str, bool]:
    """Its workspace, and whether it is upkeep: of the latter there is one in each."""
    return card.workspace, card.tier is Tier.UPKEEP


def fits(seats: list[Card]) -> bool:
    """Whether no workspace has more than five and all together not more than twelve."""
    return len(seats) <= CAPS.max_pending_cards_in_all and all(
        sum(other.workspace == card.workspace for other in seats) <= CAPS.max_pending_cards for card in seats
    )


@pytest.mark.parametrize(("taken", "left"), [(0, 5), (4, 1), (5, 0), (6, 0)])
def test_five_in_a_workspace(taken: int, left: int) -> None:
    room = Room(CAPS, [seat(f"t{number}") for number in range(taken)])
    assert [room.take(seat(f"n{number}"), NOW) for number in range(left + 1)] == [[]] * left + [None]


@pytest.mark.parametrize(("taken", "left"), [(7, 5), (11, 1), (12, 0), (13, 0)])
def test_twelve_in_all(taken: int, left: int) -> None:
    room = Room(CAPS, [seat(f"t{number}", workspace=f"/other{number % 3}") for number in range(taken)])
    assert [room.take(seat(f"n{number}"), NOW) for number in range(left + 1)] == [[]] * left + [None]


@pytest.mark.parametrize("source", Source)
def test_an_upkeep_card_of_any_source_is_the_one(source: Source) -> None:
    there = seat("quarantine", Tier.UPKEEP, source=source)
    assert Room(CAPS, [there]).take(seat("old_stash", Tier.UPKEEP), NOW) is None
    woken = seat("old_stash", Tier.UPKEEP, snoozed=NOW)
    assert ids_without_place([there, woken], NOW, CAPS) == {"old_stash"}
    assert ids_without_place([woken], NOW, CAPS) == set()
    assert displaced_ids([there, seat("old_stash", Tier.UPKEEP)], "old_stash", NOW, CAPS) == ["quarantine"]


@pytest.mark.long
@given(SEATS, SEATS)
def test_the_limits_hold_whatever_comes(taken: list[Card], coming: list[Card]) -> None:
    room, there = Room(CAPS, []), {}
    for card in [*taken, *coming]:
        if not takes_place(card, NOW):
            continue  # the cycle makes none that takes no place
        displaced = room.take(card, NOW)
        if displaced is not None:
            assert all(there.pop(gone).tier > card.tier for gone in displaced)
            there[card.id] = card
    assert fits(list(there.values()))
    upkeep = [card.workspace for card in there.values() if card.tier is Tier.UPKEEP]
    assert len(upkeep) == len(set(upkeep))


@pytest.mark.long
@given(SEATS)
def test_those_who_never_slept_keep_their_seats_and_woken_ones_take_free_ones(seats: list[Card]) -> None:
    asleep = ids_without_place(seats, NOW, CAPS)
    never_slept = [card for card in seats if takes_place(card, NOW) and card.snoozed_until is None]
    awake = [card for card in seats if takes_place(card, NOW) and card.id not in asleep]
    assert all(card.snoozed_until is not None for card in seats if card.id in asleep)
    shown = [card for card in seats if not card.snoozed(NOW) and card.id not in asleep]
    woken = [card for card in shown if card.snoozed_until is not None and card.tier is Tier.UPKEEP]
    assert all(sum(upkeep_of(other) == upkeep_of(item) for other in shown) == 1 for item in woken)
    assert fits(awake) or not fits(never_slept)


@given(SEATS, SEATS)
@settings(max_examples=30)
def test_beside_whatever_is_awake_no_second_upkeep_card_comes(taken: list[Card], coming: list[Card]) -> None:
    awake = [card for card in taken if not card.snoozed(NOW)]
    room = Room(CAPS, awake)
    for card in coming:
        if takes_place(card, NOW) and (displaced := room.take(card, NOW)) is not None:
            assert card.tier is not Tier.UPKEEP or upkeep_of(card) not in map(upkeep_of, awake)
            awake = [*(other for other in awake if other.id not in displaced), card]


@given(SEATS, st.data())
@settings(max_examples=50)
def test_an_upkeep_card_that_comes_in_any_case_is_the_only_one(seats: list[Card], data: st.DataObject) -> None:
    asleep = ids_without_place(seats, NOW, CAPS)
    shown = [card for card in seats if not card.snoozed(NOW) and card.id not in asleep]
    upkeep = [card for card in shown if card.tier is Tier.UPKEEP]
    if upkeep:
        returning = data.draw(st.sampled_from(upkeep))
        displaced = displaced_ids(seats, returning.id, NOW, CAPS)
        rest = [card for card in shown if card.id not in displaced]
        assert [card for card in rest if upkeep_of(card) == upkeep_of(returning)] == [returning]


@given(SEATS, st.data())
def test_room_is_made_for_whom_the_operator_brings_back(seats: list[Card], data: st.DataObject) -> None:
    awake = [card for card in seats if takes_place(card, NOW) and card.id not in ids_without_place(seats, NOW, CAPS)]
    others = [card for card in awake if card.id != (awake[0].id if awake else "")]
    if not awake or not fits(others):
        return  # a stack that is too full already is the cycle's business
    returning = awake[0]
    gone = displaced_ids(seats, returning.id, NOW, CAPS)
    assert returning.id not in gone
    assert fits([card for card in awake if card.id not in gone])
    assert {card.workspace for card in seats if card.id in gone} <= {returning.workspace} or len(
        awake
    ) > CAPS.max_pending_cards_in_all


@pytest.mark.parametrize(
    ("status", "outcome", "shown", "undone", "days"),
    [
        (Status.EXECUTED, Outcome.SUCCEEDED, True, False, 7),
        (Status.EXECUTED, Outcome.FAILED, True, False, 1),
        (Status.EXECUTED, Outcome.CANCELLED, True, True, 7),
        (Status.EXPIRED, None, True, False, 1),
        (Status.EXPIRED, None, False, False, 0),
        (Status.EXPIRED, Outcome.WITHDRAWN, True, False, 0),
    ],
)
def test_cool_downs(status: Status, outcome: Outcome | None, shown: bool, undone: bool, days: int) -> None:
    assert cool_down(status, outcome, shown=shown, undone=undone) == timedelta(days=days)
