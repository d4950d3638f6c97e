"""The embedded Twin follows decisions; confidence, its bands and the phases (SPEC 2.3, 2.5, 2.6)."""

import random
from collections.abc import Iterable
from datetime import timedelta

import pytest

from engine.clock import FakeClock, PartOfDay
from engine.learning.decisions import CardFeatures
from engine.learning.decisions.decisions import Decisions
from engine.model import Band, CalibrationCheck, DecidedBy, DecidedCard, DecisionSignal
from engine.prediction.twin import EmbeddedTwin, compute_confidence, compute_phase, compute_urgency, find_band
from engine.storage.database import Database
from tests.support import MONDAY_MORNING, read_table

TABLE = read_table(__file__)


MORNING_CARD = CardFeatures(
    "run_tests",
    "koji-core",
    "/shop",
    "run_tests",
    frozenset({"run", "tests"}),
    PartOfDay.MORNING,
    weekend=False,
    at=MONDAY_MORNING,
    hour=9,
)
"""A card in the morning of a working day."""


def compute_figures(twin: EmbeddedTwin) -> list[float]:
    """All figures of the Twin about one card."""
    answer = twin.predict(MORNING_CARD)
    return [answer.probability, answer.pattern_share, answer.time_share, twin.calibrate("run_tests", 0.6)]


@pytest.fixture
def decisions(database: Database, clock: FakeClock) -> Decisions:
    return Decisions(database, clock)


def decide(database: Database, decisions: Decisions, numbers: Iterable[int], signal: DecisionSignal):
    """Record this signal on the cards with these numbers."""
    for number in numbers:
        card = DecidedCard(
            f"pred_{number}", "run_tests", "koji-core", "/shop", "run_tests", f"run tests {number % 7}", 0.5,
            DecidedBy.OPERATOR, raw=0.5,
        )  # fmt: skip
        database.write(lambda tx, card=card: decisions.record(tx, signal, card))


def test_a_decision_that_is_taken_back_is_unlearnt(database: Database, decisions: Decisions):
    twin = EmbeddedTwin(decisions)
    decide(database, decisions, range(6), DecisionSignal.APPROVED)
    before = compute_figures(twin)
    assert before[1] > 0.85, "those like it were approved; of all cards four fifths"
    decide(database, decisions, [6], DecisionSignal.DISMISSED)
    assert compute_figures(twin) != before
    database.write(lambda tx: decisions.take_back(tx, "pred_6"))
    assert compute_figures(twin) == before


def test_a_calibration_needs_100_held_out_decisions(database: Database, decisions: Decisions):
    """About half of the cards are approved, and each had a confidence of a half."""
    twin, chance = EmbeddedTwin(decisions), random.Random(3)
    for number in range(99):
        signal = chance.choice([DecisionSignal.APPROVED, DecisionSignal.DISMISSED])
        decide(database, decisions, [number], signal)
    assert not twin.check().is_calibrated
    assert twin.check().reason.startswith("99 of 100")
    decide(database, decisions, [99], DecisionSignal.APPROVED)
    check = twin.check()
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
        ((0.6,) * 4, 0.6)
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


@pytest.mark.parametrize("decisions, held_out, is_calibrated, number", TABLE["phases"])
def test_phase_2_needs_a_calibration_that_holds(decisions: int, held_out: int, is_calibrated: bool, number: int):
    assert compute_phase(decisions, lambda: CalibrationCheck(held_out, is_calibrated, "measured")).number == number
