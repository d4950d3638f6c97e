"""Seats and cool-downs (SPEC 2.9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prediction.limits import ON_TOP, Caps, Room, Seat, cool_down, counts, makes_room, order, overdue_for_a_seat
from engine.values import Outcome, Source, Status

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def seat(
    name: str,
    rank: float = 0.5,
    *,
    snoozed: datetime | None = None,
    source: Source = Source.TEMPLATE,
    shown: bool = False,
    urgency: float = 0.0,
    workspace: str = "/shop",
) -> Seat:
    return Seat(name, workspace, source, snoozed, shown, (rank, urgency), NOW)


SEATS = st.lists(
    st.builds(
        seat,
        st.uuids().map(str),
        st.floats(0, 1),
        snoozed=st.sampled_from([None, LATER, EARLIER, NOW]),
        source=st.sampled_from(Source),
        shown=st.booleans(),
        workspace=st.sampled_from(["/shop", "/site", "/tool", "/docs"]),
    ),
    max_size=30,
    unique_by=lambda one: one.id,
)


@pytest.mark.parametrize(
    ("one", "takes_a_place"),
    [
        (seat("a"), True),
        (seat("a", snoozed=LATER), False),
        (seat("a", snoozed=NOW), True),
        (seat("a", source=Source.OPERATOR), False),
        (seat("a", source=Source.FOLLOW_UP), False),
        (seat("a", source=Source.PREDICTOR_HOOK), True),
    ],
)
def test_who_takes_a_place(one: Seat, takes_a_place: bool) -> None:
    assert counts(one, NOW) is takes_a_place


def test_order_is_rank_then_urgency_and_stable() -> None:
    stack = [seat("c", 0.2), seat("b", 0.7, urgency=0.1), seat("d", 0.7, urgency=0.9), seat("a", 0.2)]
    assert [one.id for one in order(stack)] == ["d", "b", "a", "c"]
    assert order(stack) == order(stack[::-1])


def test_what_the_operator_wrote_lies_on_top_the_newest_first() -> None:
    older = replace(seat("e", ON_TOP, source=Source.OPERATOR), created_at=NOW - timedelta(hours=2))
    newer = replace(seat("f", ON_TOP, source=Source.OPERATOR), created_at=NOW - timedelta(hours=1))
    assert [one.id for one in order([seat("a", 0.9), older, newer])] == ["f", "e", "a"]


def test_only_what_the_operator_wrote_lies_on_top() -> None:
    seats = [seat("a", 0.1), seat("b", 0.4, source=Source.PREDICTOR_HOOK), seat("c", 0.0, source=Source.OPERATOR)]
    assert [one.id for one in order(seats)] == ["c", "b", "a"]
    assert [counts(one, NOW) for one in seats] == [True, True, False]


CAPS = Caps(5, 12)


def fits(seats: list[Seat]) -> bool:
    """Whether no workspace has more than five and all together not more than twelve."""
    return len(seats) <= CAPS.in_all and all(
        sum(other.workspace == one.workspace for other in seats) <= CAPS.workspace for one in seats
    )


@pytest.mark.parametrize(("taken", "left"), [(0, 5), (4, 1), (5, 0), (6, 0)])
def test_five_in_a_workspace(taken: int, left: int) -> None:
    assert Room(CAPS, ["/shop"] * taken).left("/shop") == left


@pytest.mark.parametrize(("taken", "left"), [(7, 5), (11, 1), (12, 0), (13, 0)])
def test_twelve_in_all(taken: int, left: int) -> None:
    room = Room(CAPS, [f"/other{number % 3}" for number in range(taken)])
    assert room.left("/shop") == left
    assert [room.take("/shop") for _ in range(left + 1)] == [True] * left + [False]


@given(SEATS)
def test_those_who_never_slept_keep_their_seats_and_woken_ones_take_free_ones(seats: list[Seat]) -> None:
    asleep = overdue_for_a_seat(seats, NOW, CAPS)
    never_slept = [one for one in seats if counts(one, NOW) and one.snoozed_until is None]
    awake = [one for one in seats if counts(one, NOW) and one.id not in asleep]
    assert all(one.snoozed_until is not None for one in seats if one.id in asleep)
    assert fits(awake) or not fits(never_slept)


@given(SEATS, st.data())
def test_room_is_made_for_whom_the_operator_brings_back(seats: list[Seat], data: st.DataObject) -> None:
    awake = [one for one in seats if counts(one, NOW) and one.id not in overdue_for_a_seat(seats, NOW, CAPS)]
    others = [one for one in awake if one.id != (awake[0].id if awake else "")]
    if not awake or not fits(others):
        return  # a stack that is too full already is the cycle's business
    returning = awake[0]
    gone = makes_room(seats, returning.id, NOW, CAPS)
    assert returning.id not in gone
    assert fits([one for one in awake if one.id not in gone])
    assert {one.workspace for one in seats if one.id in gone} <= {returning.workspace} or len(awake) > CAPS.in_all


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
