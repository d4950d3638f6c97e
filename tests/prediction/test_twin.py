"""The embedded Twin: it learns from each decision once, forgets what counts no more, and is rebuilt byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy
import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.learning.decisions.card_features import PastDecision, unpack_features
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.learner import Learner
from engine.learning.decisions.text_features import extract_features
from engine.model import (
    Assignment,
    ConfidenceParts,
    DecidedBy,
    DecidedCard,
    DecisionSignal,
    Phase,
)
from engine.prediction import twin as module
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database
from engine.storage.ledger import append
from tests.learning.decisions.test_habits import ASKED, NO, YES
from tests.prediction.deciding import SHOP, proposal


def taught(past: list[PastDecision]) -> Learner:
    learner = Learner()
    for number, decision in enumerate(past):
        learner.learn(replace(decision, id=number + 1))
    return learner


def known(twin: Learner | EmbeddedTwin) -> list[float]:
    """What it makes of a few questions."""
    if isinstance(twin, EmbeddedTwin):
        word = twin.predict(ASKED)
        return [word.probability, word.pattern_share, word.time_share, twin.calibrate("run_tests", 0.6)]
    return [
        twin.estimate(ASKED).probability,
        twin.pattern_share(ASKED),
        twin.habits.time_share(ASKED),
        twin.kind_calibration.calibrate("lint", 0.6),
    ]


class TestLearner:
    def test_a_few_decisions_move_it(self) -> None:
        disliked = replace(ASKED, kind="lint", flow="lint", words=frozenset({"lint"}))
        learner = taught([YES] * 6 + [replace(NO, card=disliked)] * 6)
        assert learner.estimate(ASKED).probability > 0.7
        assert learner.estimate(disliked).probability < 0.3

    def test_it_notices_that_the_taste_has_changed(self) -> None:
        past = [item for _ in range(60) for item in (YES, replace(NO, card=replace(ASKED, kind="lint")))]
        assert taught(past).estimate(ASKED).probability > 0.75
        assert taught([*past, *[NO] * 10]).estimate(ASKED).probability < 0.4

    def test_what_it_says_of_a_decision_it_says_before_it_knows(self) -> None:
        learner = taught([YES] * 5)
        before = learner.estimate(NO.card).probability
        assert learner.learn(replace(NO, id=6)).probability == before
        assert learner.calibration.outcomes[-1][1] is False

    def test_nearness_to_the_evidence_can_be_what_counts(self) -> None:
        near = extract_features("run the cart tests", "the cart tests changed")
        far = extract_features("write a poem about the sea", "the cart tests changed")
        past = [
            replace(decision, card=replace(ASKED, text=text, words=frozenset({str(number)})))
            for number in range(40)
            for decision, text in ((YES, near), (NO, far))
        ]
        learner, asked = taught(past), replace(ASKED, words=frozenset({"new"}))
        assert learner.estimate(replace(asked, text=near)).probability > 0.7
        assert learner.estimate(replace(asked, text=far)).probability < 0.3


class TestSeen:
    def test_it_survives_storing(self) -> None:
        vector = numpy.full(384, 384**-0.5, numpy.float32)
        seen = extract_features("run the tests", "the cart changed", [], [vector, vector])
        again = unpack_features(seen.pack())
        assert again.numbers == pytest.approx(seen.numbers, rel=1e-6)
        assert again.embedding == seen.embedding
        assert len(seen.embedding) == 384

    def test_without_vectors_words_stand_in(self) -> None:
        near = extract_features("run the cart tests", "the cart tests changed")
        far = extract_features("write a poem", "the cart tests changed")
        assert near.numbers[0] > far.numbers[0]
        assert not near.embedding


class Home:
    """A database with decisions, and a Twin that follows them."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.database = Database(path / "clawpy.db", clock=clock, bus=EventBus(), recorder=append)
        self.decisions = Decisions(self.database, clock)
        self.twin = EmbeddedTwin(self.decisions)

    def another(self) -> EmbeddedTwin:
        """A Twin that begins with nothing but the decisions."""
        return EmbeddedTwin(self.decisions)

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

    def test_what_was_always_approved_is_sure_whatever_the_age_of_its_evidence(self, home: Home) -> None:
        """60 approvals of one kind and 60 dismissals of another, on evidence that is hours old."""
        twin = home.another()

        def stated(kind: str, hours: int) -> ConfidenceParts:
            at = home.clock.now() - timedelta(hours=hours)
            one = proposal("a", kind=kind, evidence_at=at, usual_hours=24.0)
            work = Assignment(one.prompt, "koji-core", SHOP, "flow", kind)
            phase = Phase(1, 60, "", 30)
            now, local = home.clock.now(), home.clock.local()
            return twin.estimate(one, work, context="", phase=phase, now=now, local=local).parts

        def decide(kind: str, signal: DecisionSignal, hours: int, number: int) -> None:
            parts = stated(kind, hours)
            card = DecidedCard(
                f"pred_{kind}_{number}", kind, "koji-core", SHOP, kind, "run it", parts.total, DecidedBy.OPERATOR,
                raw=parts.weighted,
            )  # fmt: skip
            home.database.write(lambda tx: home.decisions.record(tx, signal, card))

        chance = random.Random(4)
        for number in range(60):
            decide("run_tests", DecisionSignal.APPROVED, chance.randrange(72), number)
            decide("draft_changelog", DecisionSignal.DISMISSED, chance.randrange(72), number)
        for age in (0, 1, 12, 24, 1000):
            assert stated("run_tests", age).total > 0.9
            assert stated("draft_changelog", age).total < 0.1
            assert stated("bisect", age).total == pytest.approx(0.5, abs=0.1)
