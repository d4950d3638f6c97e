"""Legal transitions, the order of the stack, its places, cool-downs, tiers that follow taste (SPEC 2.7, 2.9, 2.11)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Settings
from engine.model import (
    Assignment,
    Band,
    Card,
    Outcome,
    Refusal,
    Source,
    Status,
    Tier,
)
from engine.prediction.card_rules import (
    TRANSITIONS,
    MayDisplace,
    Move,
    Room,
    adjusted_tier,
    displaced_ids,
    ids_without_place,
    is_cooling_down,
    next_status,
    sort_cards,
    takes_place,
)
from engine.prediction.kinds import KINDS
from engine.statistics import wilson_lower_bound
from tests.conftest import MONDAY_MORNING as NOW

# Only legal transitions, one decision each, never more than five: whatever the operator does (SPEC 2.7, 2.9).


STEPS = {
    (Status.PENDING, Status.CONFIRMED),
    (Status.PENDING, Status.REJECTED),
    (Status.PENDING, Status.EXPIRED),
    (Status.CONFIRMED, Status.EXECUTED),
    (Status.CONFIRMED, Status.PENDING),
    (Status.REJECTED, Status.PENDING),
}
"""What SPEC 2.7 allows; the last two are undo."""


def test_the_table_holds_exactly_the_legal_steps() -> None:
    assert {(before, now) for (before, _), now in TRANSITIONS.items() if before is not now} == STEPS


@pytest.mark.parametrize(("status", "move"), list(product(Status, Move)))
def test_everything_else_is_refused_in_words(status: Status, move: Move) -> None:
    if (status, move) in TRANSITIONS:
        assert next_status("pred_x", status, move) is TRANSITIONS[status, move]
        return
    with pytest.raises(Refusal, match="pred_x") as refused:
        next_status("pred_x", status, move)
    assert refused.value.code == ("nothing_to_undo" if move in (Move.WAKE, Move.REOPEN) else "already_decided")


@pytest.mark.parametrize(
    ("approved", "decided", "enough"),
    [(11, 11, True), (19, 20, True), (26, 28, True), (0, 0, False), (10, 10, False), (18, 19, False), (25, 27, False)],
)
def test_how_many_approvals_of_like_cards_are_enough(approved: int, decided: int, enough: bool) -> None:
    assert (wilson_lower_bound(approved, decided) >= 0.8) is enough


@pytest.mark.parametrize(
    ("tier", "approved", "decided", "to"),
    [
        (Tier.CHECK, 11, 11, Tier.BLOCKS),
        (Tier.CHECK, 10, 10, Tier.CHECK),
        (Tier.UPKEEP, 11, 11, Tier.CHECK),
        (Tier.CHECK, 0, 11, Tier.UPKEEP),
        (Tier.CHECK, 0, 10, Tier.CHECK),
        (Tier.BLOCKS, 0, 11, Tier.CHECK),
        (Tier.BROKEN, 0, 100, Tier.BROKEN),
        (Tier.BROKEN, 100, 100, Tier.BROKEN),
    ],
)
def test_taste_moves_a_kind_by_one_tier_once_the_bound_supports_it(
    tier: Tier, approved: int, decided: int, to: Tier
) -> None:
    found, why = adjusted_tier(tier, approved, decided)
    assert found is to
    assert (f"you approved {approved} of {decided}" in why) is (found is not tier)


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


@pytest.mark.parametrize(
    ("taken", "workspaces", "left"),
    [(0, 1, 5), (4, 1, 1), (5, 1, 0), (6, 1, 0), (7, 3, 5), (11, 3, 1), (12, 3, 0), (13, 3, 0)],
)
def test_five_in_a_workspace_and_twelve_in_all(taken: int, workspaces: int, left: int) -> None:
    homes = ["/shop"] if workspaces == 1 else ["/other0", "/other1", "/other2"]
    room = Room(CAPS, [seat(f"t{number}", workspace=homes[number % workspaces]) for number in range(taken)], NOW)
    assert [room.take(seat(f"n{number}")) for number in range(left + 1)] == [[]] * left + [None]


def test_the_last_of_a_lower_tier_gives_way_one_that_was_not_seen_first() -> None:
    awake = [seat(f"t{number}", confidence=number / 10, shown=number == 0) for number in range(5)]
    assert Room(CAPS, awake, NOW).take(seat("broken", Tier.BROKEN)) == ["t1"]
    assert Room(CAPS, awake, NOW).take(seat("check")) is None
    assert Room(CAPS, awake, NOW).take(seat("check"), MayDisplace.ANY) == ["t1"]


@pytest.mark.parametrize("source", Source)
def test_an_upkeep_card_of_any_source_is_the_one(source: Source) -> None:
    there = seat("quarantine", Tier.UPKEEP, source=source)
    assert Room(CAPS, [there], NOW).take(seat("old_stash", Tier.UPKEEP)) is None
    assert Room(CAPS, [there], NOW).take(seat("old_stash", Tier.UPKEEP, source=Source.FOLLOW_UP)) == ["quarantine"]
    woken = seat("old_stash", Tier.UPKEEP, snoozed=NOW)
    assert ids_without_place([there, woken], NOW, CAPS) == {"old_stash"}
    assert ids_without_place([woken], NOW, CAPS) == set()
    assert displaced_ids([there, seat("old_stash", Tier.UPKEEP)], "old_stash", NOW, CAPS) == ["quarantine"]


@given(SEATS, SEATS)
def test_the_limits_hold_whatever_comes(taken: list[Card], coming: list[Card]) -> None:
    awake = [card for card in taken if not card.snoozed(NOW)]
    room, there = Room(CAPS, awake, NOW), {card.id: card for card in awake}
    was_full = not fits([card for card in awake if takes_place(card, NOW)])
    for card in coming:
        displaced = room.take(card) if takes_place(card, NOW) else None
        if displaced is not None:
            assert all(there.pop(gone).tier > card.tier for gone in displaced)
            assert card.tier is not Tier.UPKEEP or upkeep_of(card) not in map(upkeep_of, there.values())
            there[card.id] = card
    assert was_full or fits([card for card in there.values() if takes_place(card, NOW)])


@given(SEATS)
def test_those_who_never_slept_keep_their_seats_and_woken_ones_take_free_ones(seats: list[Card]) -> None:
    hidden = ids_without_place(seats, NOW, CAPS)
    shown = [card for card in seats if not card.snoozed(NOW) and card.id not in hidden]
    assert all(card.snoozed_until is not None for card in seats if card.id in hidden)
    woken = [card for card in shown if card.snoozed_until is not None and card.tier is Tier.UPKEEP]
    assert all(sum(upkeep_of(other) == upkeep_of(item) for other in shown) == 1 for item in woken)
    never_slept = [card for card in shown if card.snoozed_until is None and takes_place(card, NOW)]
    assert fits([card for card in shown if takes_place(card, NOW)]) or not fits(never_slept)


@given(SEATS, st.data())
@settings(max_examples=50)
def test_room_is_made_for_what_the_operator_brings_back(seats: list[Card], data: st.DataObject) -> None:
    hidden = ids_without_place(seats, NOW, CAPS)
    shown = [card for card in seats if not card.snoozed(NOW) and card.id not in hidden]
    if not shown:
        return
    returning = data.draw(st.sampled_from(shown))
    gone = displaced_ids(seats, returning.id, NOW, CAPS)
    rest = [card for card in shown if card.id not in gone]
    assert returning in rest
    assert returning.tier is not Tier.UPKEEP or [one for one in rest if upkeep_of(one) == upkeep_of(returning)] == [
        returning
    ]
    others = [card for card in shown if card is not returning and takes_place(card, NOW)]
    assert not fits(others) or fits([card for card in rest if takes_place(card, NOW)])


@pytest.mark.parametrize(
    ("kind", "status", "outcome", "shown", "undone", "days"),
    [
        ("lint", Status.EXECUTED, Outcome.SUCCEEDED, True, False, 7),
        ("lint", Status.EXECUTED, Outcome.FAILED, True, False, 1),
        ("lint", Status.EXECUTED, Outcome.CANCELLED, True, True, 7),
        ("lint", Status.EXPIRED, None, True, False, 1),
        ("lint", Status.EXPIRED, None, False, False, 0),
        ("lint", Status.EXPIRED, Outcome.WITHDRAWN, True, False, 0),
        ("secret", Status.EXECUTED, Outcome.SUCCEEDED, True, False, 0),
    ],
)
def test_cool_downs(kind: str, status: Status, outcome: Outcome | None, shown: bool, undone: bool, days: int) -> None:
    at = NOW if shown else None, NOW if undone else None
    over = NOW + timedelta(days=days)
    assert not is_cooling_down(over, kind, status, outcome, NOW, *at)
    assert days == 0 or is_cooling_down(over - timedelta(seconds=1), kind, status, outcome, NOW, *at)
    assert is_cooling_down(NOW, kind, status, outcome, None, None, None), "it is worked on"
