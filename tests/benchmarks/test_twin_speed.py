"""How long the Twin (SPEC 2.3) takes with 100,000 past decisions to learn a decision and to score a card.

pytest tests/benchmarks/test_twin_speed.py -m benchmark -s

The decisions are in a real database, and the Twin learns them as it would after an update of the program. Times are of
the processor, so that other work of the machine does not count; p95 over the last decisions.
"""

import random
import time
from datetime import datetime, timedelta
from functools import partial

import numpy

from engine.clock import FakeClock, PartOfDay
from engine.learning.decisions import CardFeatures
from engine.learning.decisions.decisions import SIGNAL_WEIGHTS, DecisionRow, Decisions
from engine.learning.decisions.learner import extract_features
from engine.model import DecidedBy, DecidedCard, DecisionSignal
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database, Transaction
from engine.text import split_prompt_words
from tests.benchmarks.measuring import Measured, compute_p95, print_table, time_call

PAST, MEASURED = 100_000, 400
"""Past decisions, and decisions that are timed."""

BATCH = 5_000
"""Past decisions that are stored in one transaction."""

UPDATE_S, SCORE_S = 0.005, 0.002
"""Maximum seconds of an update and of a score at p95."""

KINDS, CHANNELS, WORKSPACES = 20, 5, 8
WORDS = (
    "cart", "search", "stock", "login", "prices", "orders", "basket", "totals", "rounding", "tests", "build", "docs",
)  # fmt: skip


class CardMaker:
    """Makes decided cards at random, the same each time."""

    def __init__(self):
        self.chance = random.Random(1)
        self._directions = numpy.random.default_rng(1)

    def make(self, number: int) -> DecidedCard:
        chance = self.chance
        vectors = self._directions.normal(size=(3, 384)).astype(numpy.float32)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        prompt, last, earlier = (" ".join(chance.sample(WORDS, count)) for count in (5, 8, 8))
        seen = extract_features(prompt, last, [earlier], list(vectors))
        return DecidedCard(
            f"pred_{number}", f"kind{chance.randrange(KINDS)}", f"channel{chance.randrange(CHANNELS)}",
            f"/place{chance.randrange(WORKSPACES)}", "flow", prompt, 0.5, DecidedBy.OPERATOR, text_features=seen.pack(),
            raw=chance.random(),
        )  # fmt: skip

    def choose_signal(self) -> DecisionSignal:
        return self.chance.choice([DecisionSignal.APPROVED, DecisionSignal.DISMISSED])


def add_past_decisions(tx: Transaction, maker: CardMaker, numbers: range):
    """Store decisions, a minute apart, the last of `PAST` now."""
    chance = maker.chance
    for number in numbers:
        card, signal = maker.make(number), maker.choose_signal()
        at = tx.now - timedelta(minutes=PAST - number)
        tx.session.add(
            DecisionRow(
                prediction_id=card.prediction_id, signal=signal.value, chosen=SIGNAL_WEIGHTS[signal] > 0, weight=1.0,
                kind=card.kind, channel=card.channel, workspace=card.workspace, flow=card.flow, prompt=card.prompt,
                confidence=0.5, decided_by="operator", part=chance.choice(list(PartOfDay)).value,
                weekend=chance.random() < 0.3, hour=at.hour, decided_at=at, raw=card.raw,
                text_features=card.text_features,
            )
        )  # fmt: skip


def score(twin: EmbeddedTwin, card: DecidedCard, now: datetime):
    """Score a card as the cycle does."""
    features = CardFeatures(
        card.kind, card.channel, card.workspace, card.flow, split_prompt_words(card.prompt), PartOfDay.MORNING,
        False, now, 9, twin.read_features(card.prompt, "the cart changed"),
    )  # fmt: skip
    twin.calibrate(card.kind, twin.predict(features).probability)


def test_an_update_and_a_score_beside_100_000_decisions(database: Database, clock: FakeClock):
    decisions, maker = Decisions(database, clock), CardMaker()
    for first in range(0, PAST, BATCH):
        database.write(partial(add_past_decisions, maker=maker, numbers=range(first, first + BATCH)))
    twin = EmbeddedTwin(decisions)
    learning = Measured(lambda: score(twin, maker.make(0), clock.now()))
    seconds = f"{learning.seconds:.0f} s ({learning.processor:.0f} s of the processor)"
    print(f"\nof {PAST:,} decisions the newest were learnt in {seconds}")
    updates, scores = [], []
    for number in range(PAST, PAST + MEASURED):
        card, signal = maker.make(number), maker.choose_signal()
        database.write(partial(decisions.record, signal=signal, card=card))
        # Whatever is asked first learns what was decided.
        updates.append(time_call(lambda: twin.find_usual_wait("kind1"), time.thread_time))
        scores.append(time_call(partial(score, twin, card, clock.now()), time.thread_time))
    print_table(f"bars {UPDATE_S * 1000:g} and {SCORE_S * 1000:g} ms", {"update": updates, "score": scores})
    assert compute_p95(updates) <= UPDATE_S
    assert compute_p95(scores) <= SCORE_S
