"""The embedded Twin: it learns from each decision once, forgets what counts no more, and is rebuilt byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    Band,
    CalibrationCheck,
    DecidedBy,
    DecidedCard,
    DecisionSignal,
)
from engine.prediction import twin as module
from engine.prediction.twin import (
    EmbeddedTwin,
    band_of,
    confidence_of,
    phase_of,
    urgency_of,
)
from engine.storage.database import Database
from tests.learning.decisions.test_learner import ASKED


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
