"""Which proposals may be shown (SPEC 2.5, 2.9)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.decisions import NO_FEATURES
from engine.model import (
    Assignment,
    ConfidenceParts,
    DecisionSignal,
    Randomness,
    RunnerInfo,
    Source,
    Tier,
)
from engine.prediction.card_rows import Prediction, make_row
from engine.prediction.selection import EXPLORED_AFTER, EXPLORED_BELOW, select_rows
from engine.prediction.twin import (
    MIN_DECISIONS,
    ConfidenceEstimate,
)
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING as NOW
from tests.prediction.deciding import SHOP, World, proposal, teach


def draft(name: str, total: float, *, kind: str = "run_tests", **more: Any) -> Prediction:
    suggestion = proposal(name, kind=kind, **more)
    estimate = ConfidenceEstimate(ConfidenceParts(total, total, 0.5, total, total, stated=True), NO_FEATURES)
    assignment, info = Assignment(suggestion.prompt, "koji-core", SHOP, "flow", kind), RunnerInfo(True)
    return make_row("", suggestion, assignment, info, now=NOW, expires_at=NOW, context="", estimate=estimate)


class Draws(Randomness):
    """Chance that always says the same."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def uniform(self) -> float:
        return self._number


NEVER, ALWAYS = Draws(0.99), Draws(0.0)


def names(drafts: list[Prediction]) -> list[Any]:
    return [proposal.facts["name"] for proposal in drafts]


def test_below_three_tenths_is_left_out() -> None:
    drafts = [draft("out", 0.299999), draft("in", 0.3)]
    assert names(select_rows(drafts, {}, learning=True, randomness=NEVER)) == ["in"]


def test_what_is_broken_is_shown_whatever_the_twin_thinks_of_it() -> None:
    drafts = [draft("secret", 0.01, tier=Tier.BROKEN), draft("tests", 0.01)]
    assert names(select_rows(drafts, {}, learning=True, randomness=NEVER)) == ["secret"]


def test_a_small_share_is_shown_to_learn_and_says_so() -> None:
    drafts = [draft("liked", 0.8), draft("disliked", 0.1, kind="lint")]
    explored = select_rows(drafts, {}, learning=True, randomness=ALWAYS)
    assert names(explored) == ["liked", "disliked"]
    assert "shown to learn" in explored[1].parts.words[-1]
    assert names(select_rows(drafts, {}, learning=True, randomness=NEVER)) == ["liked"]


def test_what_was_ordered_and_the_next_step_are_no_guess() -> None:
    drafts = [draft(name, 0.01, kind=name) for name in ("heartbeat-1a2b3c4d", "prepare_meeting", "lint")]
    follow_up = draft("next", 0.01, source=Source.FOLLOW_UP)
    found = select_rows([*drafts, follow_up], {}, learning=True, randomness=NEVER)
    assert names(found) == ["heartbeat-1a2b3c4d", "prepare_meeting", "next"]


@pytest.mark.parametrize(("decided", "explored"), [(EXPLORED_BELOW - 1, True), (EXPLORED_BELOW, False)])
def test_a_kind_that_is_known_is_not_explored(decided: int, explored: bool) -> None:
    drafts = [draft("disliked", 0.1, kind="lint")]
    found = select_rows(drafts, {"lint": decided}, learning=True, randomness=ALWAYS)
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
    assert bool(world.cycle(proposal("new", kind="lint"))) is is_shown


def test_never_five_of_one_kind(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    assert len(world.cycle(*(proposal(str(number)) for number in range(8)))) == 4
    assert len(world.cycle(*world.proposals, proposal("other", kind="lint"))) == 1
