"""How well the Twin predicts which proposals people want, compared with TF-IDF and logistic regression.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_twin.py -m benchmark -s

DIR contains `proactive.jsonl`; without it the tests are skipped. The Twin and the embedder are the product's own. The
Twin has no trained weights: what it knows about a trace, it learned from the other traces. The baselines get the same
rows in the same run, and for each figure the best of them is compared.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import pytest

from engine.learning.decisions.calibration import compute_calibration_bound, compute_calibration_error
from engine.learning.decisions.learner import Learner
from tests.benchmarks.twin_sets import STRENGTHS, TEXTS, Row, make_baseline, read_rows, train_twin

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

SUREST = 20
"""Number of the rows with the highest scores, of which the wanted ones are printed."""


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


def test_the_twin_on_a_trace_that_it_has_not_learned(all_rows: list[Row]) -> None:
    traces = list_traces(all_rows)
    wanted = numpy.array([row.wanted for row in all_rows])
    trace_of_row = numpy.array([row.trace for row in all_rows])
    print(f"\nleave one trace out: {len(all_rows)} proposals, {wanted.mean():.1%} wanted, {len(traces)} traces")

    places = [(trace_of_row != trace, trace_of_row == trace) for trace in traces]
    base = numpy.empty(len(all_rows))
    for others, left_out in places:
        base[left_out] = wanted[others].mean()
    figures = {"base rate": (0.5, compute_brier(wanted, base))}
    for name, text in TEXTS.items():
        texts = numpy.array([text(row) for row in all_rows], dtype=object)
        for strength in STRENGTHS:
            scores = numpy.empty(len(all_rows))
            for others, left_out in places:
                model = make_baseline(strength).fit(texts[others], wanted[others])
                scores[left_out] = model.predict_proba(texts[left_out])[:, 1]
            figures[f"TF-IDF, {name}, C={strength:g}"] = (compute_auc(wanted, scores), compute_brier(wanted, scores))
    for name, (auc, brier) in figures.items():
        print(f"  {name:42} AUC {auc:.3f}  Brier {brier:.4f}")

    by_order = []
    for seed in ORDERS:
        scores = numpy.empty(len(all_rows))
        for trace in traces:
            learned = [other for other in traces if other != trace]
            random.Random(seed).shuffle(learned)
            twin = train_twin([row for other in learned for row in all_rows if row.trace == other])
            for place in numpy.flatnonzero(trace_of_row == trace):
                scores[place] = twin.estimate(all_rows[place].query(len(all_rows))).probability
        auc, brier = compute_auc(wanted, scores), compute_brier(wanted, scores)
        error, bound = compute_calibration_error(list(scores), list(wanted)), compute_calibration_bound(list(scores))
        by_order.append((auc, brier, error, bound))
        print(f"  Twin, others in order {seed + 1:<20} AUC {auc:.3f}  Brier {brier:.4f}  "
              f"ECE {error:.4f} (95 % of perfect: {bound:.4f})")  # fmt: skip
    auc, brier, error, bound = (float(numpy.mean(column)) for column in zip(*by_order, strict=True))
    best_auc = max(baseline_auc for baseline_auc, _ in figures.values())
    best_brier = min(baseline_brier for _, baseline_brier in figures.values())
    min_auc, max_brier = best_auc + MIN_AUC_GAIN, MAX_BRIER_SHARE * best_brier
    print(f"  Twin, mean {auc:.3f} (bar {min_auc:.3f}), {brier:.4f} (bar {max_brier:.4f}), "
          f"{error:.4f} (bar {bound:.4f})")  # fmt: skip
    assert auc >= min_auc
    assert brier <= max_brier
    assert error <= bound


@pytest.mark.parametrize("how", ["rows in any order", "trace by trace"])
def test_the_twin_from_a_cold_start(all_rows: list[Row], how: str) -> None:
    print(f"\nfrom a cold start, {how}; AUC from decision {FROM} on")
    calibrated, before = numpy.zeros(2, int), numpy.zeros(2, int)
    for seed in ORDERS:
        order = order_rows(all_rows, how, seed)
        wanted = numpy.array([row.wanted for row in order])
        twin = Learner()
        estimates = [twin.learn(row.make_decision(number)) for number, row in enumerate(order)]
        scores = numpy.array([estimate.probability for estimate in estimates])
        raw = numpy.array([estimate.raw for estimate in estimates])
        best, name = max((compute_refitted_auc(order, wanted, text), name) for name, text in TEXTS.items())
        wanted_of_sure = count_wanted(wanted, scores)
        calibrated += wanted_of_sure
        before += count_wanted(wanted[FROM:], raw[FROM:])
        surest = numpy.argsort(-raw[FROM:])[:SUREST]
        auc = compute_auc(wanted[FROM:], scores[FROM:])
        print(f"  order {seed + 1}: Twin {auc:.3f}, best baseline {best:.3f} ({name}); "
              f"{wanted_of_sure[0]} of {wanted_of_sure[1]} wanted at {SURE} or more; "
              f"{int(wanted[FROM:][surest].sum())} of its foremost {SUREST}; "
              f"ECE {compute_calibration_error(list(scores), list(wanted)):.4f} "
              f"(95 % of perfect: {compute_calibration_bound(list(scores)):.4f})")  # fmt: skip
        assert auc > best
    print(f"  at {SURE} or more in all orders: {calibrated[0]} of {calibrated[1]} wanted; "
          f"before calibration it would have been {before[0]} of {before[1]}")  # fmt: skip
    assert calibrated[0] >= MIN_TRUE_SHARE * calibrated[1]


def count_wanted(wanted: numpy.ndarray, scores: numpy.ndarray) -> numpy.ndarray:
    """(number of wanted rows, number of all rows) among those with a sure score."""
    is_sure = scores >= SURE
    return numpy.array([wanted[is_sure].sum(), is_sure.sum()])


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
