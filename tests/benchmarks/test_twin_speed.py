"""The time that the Twin takes with 100,000 past decisions, without embeddings: to learn a decision, to score a card.

pytest tests/benchmarks/test_twin_speed.py -m benchmark -s

The decisions are put into a real database; the Twin learns them as it would after an update. Times are of the
processor, so that what else the machine does does not count; p95 over the last decisions.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from pathlib import Path

import numpy

from engine.clock import FakeClock
from engine.events import EventBus
from engine.learning.decisions.decisions import SIGNAL_WEIGHTS, CardFeatures, Decision, Decisions
from engine.learning.decisions.text_features import extract_features
from engine.model import DecidedBy, DecidedCard, DecisionSignal, PartOfDay, split_prompt_words
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database, Transaction
from tests.benchmarks.measuring import Measured, p95, print_table, time_call

PAST, MEASURED = 100_000, 400
"""Past decisions, and decisions that are timed."""

UPDATE_S, SCORE_S = 0.005, 0.002
"""Maximum seconds of an update and of a score at p95."""

KINDS, CHANNELS, WORKSPACES = 20, 5, 8
WORDS = (
    "cart", "search", "stock", "login", "prices", "orders", "basket", "totals", "rounding", "tests", "build", "docs",
)  # fmt: skip


def test_an_update_and_a_score_beside_100_000_decisions(tmp_path: Path, clock: FakeClock) -> None:
    database = Database(tmp_path / "clawpy.db", clock=clock, bus=EventBus(), durable=False)
    decisions = Decisions(database, clock)
    chance, directions = random.Random(1), numpy.random.default_rng(1)

    def make_card(number: int) -> DecidedCard:
        vectors = directions.normal(size=(3, 384)).astype(numpy.float32)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        prompt = " ".join(chance.sample(WORDS, 5))
        seen = extract_features(
            prompt, " ".join(chance.sample(WORDS, 8)), [" ".join(chance.sample(WORDS, 8))], list(vectors)
        )
        return DecidedCard(
            f"pred_{number}", f"kind{chance.randrange(KINDS)}", f"channel{chance.randrange(CHANNELS)}",
            f"/place{chance.randrange(WORKSPACES)}", "flow", prompt, 0.5, DecidedBy.OPERATOR, seen=seen.pack(),
            raw=chance.random(),
        )  # fmt: skip

    def add_decisions(tx: Transaction, first: int) -> None:
        for number in range(first, first + 5_000):
            made, signal = make_card(number), chance.choice([DecisionSignal.APPROVED, DecisionSignal.DISMISSED])
            at = clock.now() - timedelta(minutes=PAST - number)
            tx.session.add(
                Decision(
                    prediction_id=made.prediction_id, signal=signal.value, chosen=SIGNAL_WEIGHTS[signal] > 0,
                    weight=1.0, kind=made.kind, channel=made.channel, workspace=made.workspace, flow=made.flow,
                    prompt=made.prompt,
                    confidence=0.5, decided_by="operator", part=chance.choice(list(PartOfDay)).value,
                    weekend=chance.random() < 0.3, hour=at.hour, decided_at=at, seen=made.seen, raw=made.raw,
                )
            )  # fmt: skip

    for first in range(0, PAST, 5_000):
        database.write(lambda tx, first=first: add_decisions(tx, first))
    twin = EmbeddedTwin(decisions)
    query_card = CardFeatures(
        "kind1", "channel1", "/place1", "flow", split_prompt_words("cart tests"), PartOfDay.MORNING, False, clock.now()
    )
    learning = Measured(lambda: twin.predict(query_card))
    words = f"{learning.seconds:.0f} s ({learning.processor:.0f} s of the processor)"
    print(f"\nof {PAST:,} decisions the newest were learnt in {words}")

    updates, scores = [], []
    for number in range(PAST, PAST + MEASURED):
        made = make_card(number)
        signal = chance.choice([DecisionSignal.APPROVED, DecisionSignal.DISMISSED])
        database.write(lambda tx, made=made, signal=signal: decisions.record(tx, signal, made))

        def score(made: DecidedCard = made) -> None:
            query = CardFeatures(
                made.kind, made.channel, made.workspace, made.flow, split_prompt_words(made.prompt), PartOfDay.MORNING,
                False, clock.now(), 9, twin.read_features(made.prompt, "the cart changed"),
            )  # fmt: skip
            twin.calibrate(made.kind, twin.predict(query).probability)

        # Whatever is asked first learns what was decided.
        updates.append(time_call(lambda: twin.find_usual_wait("kind1"), time.thread_time))
        scores.append(time_call(score, time.thread_time))
    database.close()
    print_table(f"bars {UPDATE_S * 1000:g} and {SCORE_S * 1000:g} ms", {"update": updates, "score": scores})
    assert p95(updates) <= UPDATE_S
    assert p95(scores) <= SCORE_S
