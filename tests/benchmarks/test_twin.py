"""How well the Twin (SPEC 2.3) predicts which proposals people want, compared with TF-IDF and logistic regression.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_twin.py -m benchmark -s

DIR contains `proactive.jsonl`; without it the tests are skipped. The Twin and the embedder are the product's own. The
Twin has no trained weights: what it knows about a trace, it learned from the other traces. The baselines get the same
rows in the same run, and for each figure the best of them is compared.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest

from engine.clock import PartOfDay
from engine.frozen import frozen
from engine.inference import compute_calibration_bound, compute_calibration_error
from engine.learning.decisions import CardFeatures, PastDecision, TextFeatures, unpack_features
from engine.learning.decisions.learner import Learner, extract_features
from engine.memory.embedding import MiniLM
from engine.text import split_prompt_words

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


@frozen
class Row:
    """A proposal: the events before it, its text, and whether most of the people who judged it wanted it."""

    trace: str
    events: tuple[str, ...]
    task: str
    wanted: bool
    seen: TextFeatures = field(default=TextFeatures(()), compare=False)

    def make_decision(self, number: int) -> PastDecision:
        """The decision that the Twin learns; nothing is known of its kind, channel or time."""
        card = replace(self.query(number), text=unpack_features(self.seen.pack()))
        return PastDecision(card, self.wanted, 1.0, None, id=number + 1)

    def query(self, number: int) -> CardFeatures:
        return CardFeatures(
            "proposal", "research", self.trace, "", split_prompt_words(self.task), PartOfDay.MORNING, weekend=False,
            at=BEGIN + timedelta(minutes=number), text=self.seen,
        )  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    """Every row with a proposal, with its features. Rows are sorted by trace and time.

    Rows of one instant are in a random order, because the file sorts them by their labels, which no learner may see.
    """
    rows = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["pred_task"]:
            events = tuple(event["event"] for event in line["obs"])
            rows.append(Row(line["trace"], events, line["pred_task"], bool(line["valid"])))
    rows.sort(key=lambda row: (row.trace, len(row.events), sha256(f"{row.task}{row.events[-1]}".encode()).digest()))
    model = MiniLM()
    texts = sorted({text for row in rows for text in (row.task, *row.events)})
    vectors = {text: model.embed_question(text).array for text in texts}

    def find_features(row: Row) -> TextFeatures:
        *earlier, last = row.events
        return extract_features(row.task, last, earlier, [vectors[text] for text in (row.task, last, *earlier)])

    return [replace(row, seen=find_features(row)) for row in rows]


TEXTS = {
    "task": lambda row: row.task,
    "last event and task": lambda row: f"{row.events[-1]} {row.task}",
    "last three and task": lambda row: f"{' '.join(row.events[-3:])} {row.task}",
    "all events and task": lambda row: f"{' '.join(row.events)} {row.task}",
}
"""What a baseline reads of a row, by name."""

STRENGTHS = (0.1, 1.0, 10.0)
"""The inverse regularisation of the baselines."""


def make_baseline(strength: float) -> Pipeline:
    """TF-IDF over words and pairs of words, and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectoriser = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    return make_pipeline(vectoriser, LogisticRegression(C=strength, max_iter=500))


def train_twin(rows: Sequence[Row]) -> Learner:
    """A Twin that learned these decisions, in this order."""
    learner = Learner()
    for number, row in enumerate(rows):
        learner.learn(row.make_decision(number))
    return learner


pytestmark = pytest.mark.skipif(
    "CLAWPY_DATA" not in os.environ, reason="CLAWPY_DATA names no folder with proactive.jsonl"
)

ORDERS = range(5)
"""Seeds of the orders in which the Twin learns."""

MIN_AUC_GAIN, MAX_BRIER_SHARE = 0.05, 0.97
"""By how much the AUC must be above that of the best baseline, and the most of its Brier score."""

REFIT, FROM = 50, 200
"""After how many decisions a baseline is fitted again, and from which decision on results count."""

SURE, MIN_TRUE_SHARE = 0.8, 0.8
"""The score of a sure row, and the least share of sure rows that must be wanted."""


@pytest.fixture(scope="module")
def all_rows() -> list[Row]:
    pytest.importorskip("sklearn", reason="the baselines need scikit-learn: pip install --group dev")
    return read_rows(Path(os.environ["CLAWPY_DATA"]) / "proactive.jsonl")


def compute_auc(wanted: numpy.ndarray, scores: numpy.ndarray) -> float:
    from sklearn.metrics import roc_auc_score  # late: importing it takes a second

    return float(roc_auc_score(wanted, scores))


def compute_brier(wanted: numpy.ndarray, scores: numpy.ndarray) -> float:
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(wanted, scores))


def list_traces(all_rows: Sequence[Row]) -> list[str]:
    return sorted({row.trace for row in all_rows})


def score_with_baseline(all_rows: Sequence[Row], text: Callable[[Row], str], strength: float) -> numpy.ndarray:
    """The score of each row by a baseline that was fitted on the other traces."""
    wanted = numpy.array([row.wanted for row in all_rows])
    texts = numpy.array([text(row) for row in all_rows], dtype=object)
    trace_of_row = numpy.array([row.trace for row in all_rows])
    scores = numpy.empty(len(all_rows))
    for trace in list_traces(all_rows):
        others, left_out = trace_of_row != trace, trace_of_row == trace
        model = make_baseline(strength).fit(texts[others], wanted[others])
        scores[left_out] = model.predict_proba(texts[left_out])[:, 1]
    return scores


def score_with_twin(all_rows: Sequence[Row], seed: int) -> numpy.ndarray:
    """The score of each row by a Twin that learned the other traces, in the order of this seed."""
    traces = list_traces(all_rows)
    scores = numpy.empty(len(all_rows))
    for trace in traces:
        learned = [other for other in traces if other != trace]
        random.Random(seed).shuffle(learned)
        twin = train_twin([row for other in learned for row in all_rows if row.trace == other])
        for place, row in enumerate(all_rows):
            if row.trace == trace:
                scores[place] = twin.estimate(row.query(len(all_rows))).probability
    return scores


def order_rows(all_rows: Sequence[Row], how: str, seed: int) -> list[Row]:
    """The rows in a random order, all of a trace together or not."""
    chance = random.Random(seed)
    if how == "rows in any order":
        return chance.sample(all_rows, len(all_rows))
    traces = list_traces(all_rows)
    chance.shuffle(traces)
    return [row for trace in traces for row in all_rows if row.trace == trace]


def compute_refitted_auc(order: Sequence[Row], wanted: numpy.ndarray, text: Callable[[Row], str]) -> float:
    """The AUC of a baseline that is fitted again every `REFIT` decisions, on all decisions before."""
    texts = numpy.array([text(row) for row in order], dtype=object)
    scores = numpy.full(len(order), 0.5)
    for start in range(FROM, len(order), REFIT):
        model = make_baseline(1.0).fit(texts[:start], wanted[:start])
        scores[start : start + REFIT] = model.predict_proba(texts[start : start + REFIT])[:, 1]
    return compute_auc(wanted[FROM:], scores[FROM:])


def test_the_twin_on_a_trace_that_it_has_not_learned(all_rows: list[Row]):
    wanted = numpy.array([row.wanted for row in all_rows])
    print(f"\nleave one trace out: {len(all_rows)} proposals, {wanted.mean():.1%} wanted")
    baselines = {
        f"TF-IDF, {name}, C={strength:g}": score_with_baseline(all_rows, text, strength)
        for name, text in TEXTS.items()
        for strength in STRENGTHS
    }
    for name, scores in baselines.items():
        print(f"  {name:42} AUC {compute_auc(wanted, scores):.3f}  Brier {compute_brier(wanted, scores):.4f}")
    min_auc = max(compute_auc(wanted, scores) for scores in baselines.values()) + MIN_AUC_GAIN
    max_brier = MAX_BRIER_SHARE * min(compute_brier(wanted, scores) for scores in baselines.values())

    by_order = [score_with_twin(all_rows, seed) for seed in ORDERS]
    auc = numpy.mean([compute_auc(wanted, scores) for scores in by_order])
    brier = numpy.mean([compute_brier(wanted, scores) for scores in by_order])
    error = numpy.mean([compute_calibration_error(list(scores), list(wanted)) for scores in by_order])
    bound = numpy.mean([compute_calibration_bound(list(scores)) for scores in by_order])
    print(f"  Twin, mean of {len(by_order)} orders: AUC {auc:.3f} (bar {min_auc:.3f}), Brier {brier:.4f} "
          f"(bar {max_brier:.4f}), ECE {error:.4f} (bar {bound:.4f}: 95 % of perfect)")  # fmt: skip
    assert auc >= min_auc
    assert brier <= max_brier
    assert error <= bound


@pytest.mark.parametrize("how", ["rows in any order", "trace by trace"])
def test_the_twin_from_a_cold_start(all_rows: list[Row], how: str):
    print(f"\nfrom a cold start, {how}; AUC from decision {FROM} on")
    sure_verdicts = []
    for seed in ORDERS:
        order = order_rows(all_rows, how, seed)
        wanted = numpy.array([row.wanted for row in order])
        twin = Learner()
        scores = numpy.array([twin.learn(row.make_decision(number)).probability for number, row in enumerate(order)])
        best, name = max((compute_refitted_auc(order, wanted, text), name) for name, text in TEXTS.items())
        auc = compute_auc(wanted[FROM:], scores[FROM:])
        sure_verdicts += list(wanted[scores >= SURE])
        print(f"  order {seed + 1}: Twin {auc:.3f}, best baseline {best:.3f} ({name}); "
              f"ECE {compute_calibration_error(list(scores), list(wanted)):.4f} "
              f"(95 % of perfect: {compute_calibration_bound(list(scores)):.4f})")  # fmt: skip
        assert auc > best
    print(f"  at {SURE} or more in all orders: {sum(sure_verdicts)} of {len(sure_verdicts)} wanted")
    assert sum(sure_verdicts) >= MIN_TRUE_SHARE * len(sure_verdicts)
