"""The embedded Twin follows decisions; confidence, its bands and the phases (SPEC 2.3, 2.5, 2.6)."""

import random
from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.decisions import Decisions
from engine.model import Band, CalibrationCheck, DecidedBy, DecidedCard, DecisionSignal
from engine.prediction.twin import EmbeddedTwin, compute_confidence, compute_phase, compute_urgency, find_band
from engine.storage.database import Database, Transaction
from tests.conftest import MONDAY_MORNING
from tests.learning.decisions.card_features import MORNING_CARD


def compute_figures(twin: EmbeddedTwin) -> list[float]:
    """All figures of the Twin about one card."""
    answer = twin.predict(MORNING_CARD)
    return [answer.probability, answer.pattern_share, answer.time_share, twin.calibrate("run_tests", 0.6)]


class TwinWorld:
    """Decisions, and a Twin that follows them."""

    def __init__(self, database: Database, clock: FakeClock):
        self.database = database
        self.decisions = Decisions(database, clock)
        self.twin = EmbeddedTwin(self.decisions)

    def decide(self, first: int, last: int, signal: DecisionSignal = DecisionSignal.APPROVED):
        """Record this signal on the cards with these numbers."""

        def record(tx: Transaction):
            for number in range(first, last):
                card = DecidedCard(
                    f"pred_{number}", "run_tests", "koji-core", "/shop", "run_tests", f"run tests {number % 7}", 0.5,
                    DecidedBy.OPERATOR, raw=0.5,
                )  # fmt: skip
                self.decisions.record(tx, signal, card)

        self.database.write(record)

    def take_back(self, *numbers: int):
        """Take back the decisions on the cards with these numbers."""
        for number in numbers:
            self.database.write(lambda tx, number=number: self.decisions.take_back(tx, f"pred_{number}"))


@pytest.fixture
def twin_world(database: Database, clock: FakeClock) -> TwinWorld:
    return TwinWorld(database, clock)


def test_a_decision_that_is_taken_back_is_unlearnt(twin_world: TwinWorld):
    twin_world.decide(0, 6)
    before = compute_figures(twin_world.twin)
    twin_world.decide(6, 9, DecisionSignal.DISMISSED)
    assert compute_figures(twin_world.twin) != before
    twin_world.take_back(6, 7, 8)
    assert compute_figures(twin_world.twin) == before


def test_a_calibration_needs_100_held_out_decisions(twin_world: TwinWorld):
    """About half of the cards are approved, and each had a confidence of a half."""
    chance = random.Random(3)
    for number in range(99):
        twin_world.decide(number, number + 1, chance.choice([DecisionSignal.APPROVED, DecisionSignal.DISMISSED]))
    assert not twin_world.twin.check().is_calibrated
    assert twin_world.twin.check().reason.startswith("99 of 100")
    twin_world.decide(99, 100)
    check = twin_world.twin.check()
    assert (check.held_out, check.is_calibrated) == (100, True)
    assert check.error <= check.bound


@pytest.mark.parametrize(
    "confidence, band",
    [
        (0.299999, Band.DISCARDED),
        (0.3, Band.CARD),
        (0.599999, Band.CARD),
        (0.6, Band.SUGGESTED),
        (0.799999, Band.SUGGESTED),
        (0.8, Band.ACT),
    ],
)
def test_bands_include_their_lower_end(confidence: float, band: Band):
    assert find_band(confidence) is band


@pytest.mark.parametrize(
    "terms, total",
    [
        ((1, 0, 0, 0), 0.4), ((0, 1, 0, 0), 0.25), ((0, 0, 1, 0), 0.2), ((0, 0, 0, 1), 0.15),
        ((0.6,) * 4, 0.6),
    ],
)  # fmt: skip
def test_confidence_is_the_exact_weighted_sum_of_four_terms(terms: tuple[float, ...], total: float):
    twin, pattern, urgency, time = terms
    parts = compute_confidence(
        twin=twin, pattern=pattern, urgency=urgency, time=time, phase=1, calibrate=lambda score: score
    )
    assert parts.total == total


def test_urgency_is_age_against_the_usual_wait():
    usual = timedelta(hours=4)
    ages = [timedelta(0), timedelta(hours=1), timedelta(hours=4), timedelta(days=9), timedelta(hours=-1)]
    assert [compute_urgency(MONDAY_MORNING - age, MONDAY_MORNING, usual) for age in ages] == [0.0, 0.25, 1.0, 1.0, 0.0]
    assert compute_urgency(None, MONDAY_MORNING, usual) == 0.5


@pytest.mark.parametrize(
    "decisions, held_out, is_calibrated, number",
    [(130, 100, True, 2), (130, 99, True, 1), (130, 100, False, 1), (29, 100, True, 0)],
)
def test_phase_2_needs_a_calibration_that_holds(decisions: int, held_out: int, is_calibrated: bool, number: int):
    assert compute_phase(decisions, lambda: CalibrationCheck(held_out, is_calibrated, "measured")).number == number
