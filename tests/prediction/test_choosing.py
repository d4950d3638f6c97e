"""Which drafts may be shown, and where taste moves them (SPEC 2.5, 2.9, 2.11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.learning.decisions.card_features import NO_FEATURES
from engine.model import Assignment, ConfidenceParts, DecisionSignal, Randomness, RunnerInfo, Source, Tier
from engine.prediction.card_rows import make_row
from engine.prediction.selection import EXPLORED_AFTER, EXPLORED_BELOW, Draft, select_drafts
from engine.prediction.stack import adjusted_tier
from engine.prediction.twin import MIN_DECISIONS, ConfidenceEstimate
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING as NOW
from tests.prediction.deciding import SHOP, World, proposal, teach


def draft(name: str, total: float, *, kind: str = "run_tests", **more: Any) -> Draft:
    suggestion = proposal(name, kind=kind, **more)
    estimate = ConfidenceEstimate(ConfidenceParts(total, total, 0.5, total, total, stated=True), NO_FEATURES)
    assignment, info = Assignment(suggestion.prompt, "koji-core", SHOP, "flow", kind), RunnerInfo(True)
    row = make_row("", suggestion, assignment, info, now=NOW, expires_at=NOW, context="", estimate=estimate)
    return Draft(row, info)


class Draws(Randomness):
    """Chance that always says the same."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def uniform(self) -> float:
        return self._number


NEVER, ALWAYS = Draws(0.99), Draws(0.0)


def names(drafts: list[Draft]) -> list[Any]:
    return [proposal.row.facts["name"] for proposal in drafts]


def test_below_three_tenths_is_left_out() -> None:
    drafts = [draft("out", 0.299999), draft("in", 0.3)]
    assert names(select_drafts(drafts, {}, learning=True, randomness=NEVER)) == ["in"]


def test_what_is_broken_is_shown_whatever_the_twin_thinks_of_it() -> None:
    drafts = [draft("secret", 0.01, tier=Tier.BROKEN), draft("tests", 0.01)]
    assert names(select_drafts(drafts, {}, learning=True, randomness=NEVER)) == ["secret"]


def test_a_small_share_is_shown_to_learn_and_says_so() -> None:
    drafts = [draft("liked", 0.8), draft("disliked", 0.1, kind="lint")]
    explored = select_drafts(drafts, {}, learning=True, randomness=ALWAYS)
    assert names(explored) == ["liked", "disliked"]
    assert "shown to learn" in explored[1].row.parts.words[-1]
    assert names(select_drafts(drafts, {}, learning=True, randomness=NEVER)) == ["liked"]


def test_what_was_ordered_and_the_next_step_are_no_guess() -> None:
    drafts = [draft(name, 0.01, kind=name) for name in ("heartbeat-1a2b3c4d", "prepare_meeting", "lint")]
    follow_up = draft("next", 0.01, source=Source.FOLLOW_UP)
    found = select_drafts([*drafts, follow_up], {}, learning=True, randomness=NEVER)
    assert names(found) == ["heartbeat-1a2b3c4d", "prepare_meeting", "next"]


@pytest.mark.parametrize(("decided", "explored"), [(EXPLORED_BELOW - 1, True), (EXPLORED_BELOW, False)])
def test_a_kind_that_is_known_is_not_explored(decided: int, explored: bool) -> None:
    drafts = [draft("disliked", 0.1, kind="lint")]
    found = select_drafts(drafts, {"lint": decided}, learning=True, randomness=ALWAYS)
    assert bool(found) is explored


@pytest.mark.parametrize(("age", "is_shown"), [(EXPLORED_AFTER, False), (EXPLORED_AFTER + timedelta(seconds=1), True)])
def test_a_kind_whose_decisions_are_old_is_explored_again(
    database: Database, clock: FakeClock, age: timedelta, is_shown: bool
) -> None:
    """Tastes change: a kind that was always dismissed gets another chance after a month without a decision."""
    world = World(database, clock)
    world.predictions._selector._randomness = ALWAYS
    teach(world, MIN_DECISIONS, DecisionSignal.DISMISSED, kind="lint")
    clock.advance(age)
    assert bool(world.see(proposal("new", kind="lint"))) is is_shown


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


@given(st.sampled_from(Tier), st.integers(0, 200), st.integers(0, 200))
def test_nothing_moves_by_more_than_one_tier_nor_into_what_is_broken(tier: Tier, approved: int, other: int) -> None:
    found, _ = adjusted_tier(tier, approved, approved + other)
    assert abs(found - tier) <= 1
    assert (found is Tier.BROKEN) is (tier is Tier.BROKEN)


def test_never_five_of_one_kind(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    assert len(world.see(*(proposal(str(number)) for number in range(8)))) == 4
    assert len(world.see(*world.seen, proposal("other", kind="lint"))) == 1
