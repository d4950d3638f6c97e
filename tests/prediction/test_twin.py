"""The embedded Twin: it learns from each decision once, forgets what counts no more, and is rebuilt byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.learning.decisions.decisions import NO_FEATURES, Decisions
from engine.model import (
    Assignment,
    Band,
    CalibrationCheck,
    ConfidenceParts,
    DecidedBy,
    DecidedCard,
    DecisionSignal,
    Randomness,
    RunnerInfo,
    Source,
    Tier,
)
from engine.prediction import twin as module
from engine.prediction.card_rows import Prediction, make_row
from engine.prediction.card_rules import adjusted_tier
from engine.prediction.selection import EXPLORED_AFTER, EXPLORED_BELOW, select_rows
from engine.prediction.twin import (
    MIN_DECISIONS,
    ConfidenceEstimate,
    EmbeddedTwin,
    band_of,
    confidence_of,
    phase_of,
    urgency_of,
)
from engine.statistics import wilson_lower_bound
from engine.storage.database import Database
from tests.conftest import MONDAY_MORNING as NOW
from tests.learning.decisions.test_learner import ASKED
from tests.prediction.deciding import SHOP, World, proposal, teach


def known(twin: EmbeddedTwin) -> list[float]:
    """What it makes of a question."""
    word = twin.predict(ASKED)
    return [word.probability, word.pattern_share, word.time_share, twin.calibrate("run_tests", 0.6)]


class Home:
    """A database with decisions, and a Twin that follows them."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.database = Database(path / "clawpy.db", clock=clock, bus=EventBus())
        self.decisions = Decisions(self.database, clock)
        self.twin = EmbeddedTwin(self.decisions)

    def decide(self, first: int, last: int, signal: DecisionSignal = DecisionSignal.APPROVED) -> None:
        def work(tx: object) -> None:
            for number in range(first, last):
                card = DecidedCard(
                    f"pred_{number}", "run_tests", "koji-core", "/shop", "run_tests", f"run tests {number % 7}", 0.5,
                    DecidedBy.OPERATOR, raw=0.5,
                )  # fmt: skip
                self.decisions.record(tx, signal, card)  # type: ignore[arg-type]

        self.database.write(work)


@pytest.fixture
def home(tmp_path: Path, clock: FakeClock) -> Iterator[Home]:
    made = Home(tmp_path, clock)
    yield made
    made.database.close()


class TestFollowing:
    def test_it_learns_when_it_is_asked_after_a_decision(self, home: Home) -> None:
        first = home.twin.predict(ASKED).probability
        home.decide(0, 5)
        assert home.twin.predict(ASKED).probability > first
        assert home.twin.predict(ASKED).reasons == ("you approved 5 of 5 like this in the morning",)

    def test_what_is_taken_back_is_unlearnt(self, home: Home) -> None:
        home.decide(0, 6)
        before = known(home.twin)
        home.decide(6, 9, DecisionSignal.DISMISSED)
        assert known(home.twin) != before
        home.database.write(lambda tx: [home.decisions.take_back(tx, f"pred_{n}") for n in (6, 7, 8)] and None)
        assert known(home.twin) == before

    def test_of_many_decisions_the_newest_are_learnt(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_LEARNT", 20)
        home.decide(0, 10, DecisionSignal.DISMISSED)
        home.decide(10, 30)
        assert home.twin.predict(ASKED).reasons == ("you approved 20 of 20 like this in the morning",)
        home.decide(30, 35)
        assert home.twin.predict(ASKED).reasons == ("you approved 25 of 25 like this in the morning",)


class TestTrust:
    def test_99_held_out_decisions_say_nothing_yet(self, home: Home) -> None:
        home.decide(0, 99)
        assert not home.twin.check().holds
        assert home.twin.check().reason.startswith("99 of 100")

    def test_100_that_came_true_hold(self, home: Home) -> None:
        """About half of all are approved, and every sum was a half."""
        chance = random.Random(3)
        for number in range(100):
            said = DecisionSignal.APPROVED if chance.random() < 0.5 else DecisionSignal.DISMISSED
            home.decide(number, number + 1, said)
        check = home.twin.check()
        assert check.held_out == 100
        assert check.holds
        assert check.error is not None
        assert check.bound is not None
        assert check.error <= check.bound


# Confidence, bands, Wilson's bound and phases (SPEC 2.5, 2.6).


MORNING = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
SHARE = st.floats(0, 1)


def same(score: float) -> float:
    return score


@pytest.mark.parametrize(
    ("confidence", "band"),
    [
        (0.0, Band.DISCARDED),
        (0.299999, Band.DISCARDED),
        (0.3, Band.CARD),
        (0.599999, Band.CARD),
        (0.6, Band.SUGGESTED),
        (0.799999, Band.SUGGESTED),
        (0.8, Band.ACT),
        (1.0, Band.ACT),
    ],
)
def test_bands_include_their_lower_end(confidence: float, band: Band) -> None:
    assert band_of(confidence) is band


def test_the_four_weights() -> None:
    for term, weight in (("twin", 0.4), ("pattern", 0.25), ("urgency", 0.2), ("time", 0.15)):
        terms = dict.fromkeys(("twin", "pattern", "urgency", "time"), 0.0) | {term: 1.0}
        assert confidence_of(**terms, phase=1, calibrate=same).total == pytest.approx(weight)  # type: ignore[arg-type]


def test_a_sum_that_is_a_boundary_in_arithmetic_is_one_in_the_band() -> None:
    for score, band in ((0.3, Band.CARD), (0.6, Band.SUGGESTED), (0.8, Band.ACT)):
        parts = confidence_of(twin=score, pattern=score, urgency=score, time=score, phase=1, calibrate=same)
        assert band_of(parts.total) is band


@pytest.mark.parametrize(
    ("approved", "decided", "enough"),
    [(11, 11, True), (19, 20, True), (26, 28, True), (0, 0, False), (10, 10, False), (18, 19, False), (25, 27, False)],
)
def test_how_many_approvals_of_like_cards_are_enough(approved: int, decided: int, enough: bool) -> None:
    assert (wilson_lower_bound(approved, decided) >= 0.8) is enough


def test_urgency_is_age_against_the_usual_wait() -> None:
    usual = timedelta(hours=4)
    waited = [timedelta(0), timedelta(hours=1), timedelta(hours=4), timedelta(days=9), timedelta(hours=-1)]
    assert [urgency_of(MORNING - age, MORNING, usual) for age in waited] == [0.0, 0.25, 1.0, 1.0, 0.0]
    assert urgency_of(None, MORNING, usual) == 0.5


@pytest.mark.parametrize(
    ("decisions", "held_out", "holds", "number"),
    [(130, 100, True, 2), (130, 99, True, 1), (130, 100, False, 1), (29, 100, True, 0)],
)
def test_phase_2_needs_a_calibration_that_holds(decisions: int, held_out: int, holds: bool, number: int) -> None:
    assert phase_of(decisions, lambda: CalibrationCheck(held_out, holds, "measured")).number == number


# Which drafts may be shown, and where taste moves them (SPEC 2.5, 2.9, 2.11).


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


def test_never_five_of_one_kind(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    assert len(world.see(*(proposal(str(number)) for number in range(8)))) == 4
    assert len(world.see(*world.seen, proposal("other", kind="lint"))) == 1
