"""Does the Twin know which proposals people want, and how sure may it be? Against TF-IDF with logistic regression.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_twin.py -m benchmark -s

DIR holds `proactive.jsonl`; without it the tests are skipped. The Twin is the product's own, with the product's own
embedder: it comes with no trained weight, and all it knows of a trace that is judged it learnt from the others.
The baselines get the same rows in the same run; of them the best by the very figure that is compared is taken.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest

from engine.learning.decisions.calibration import calibration_bound, calibration_error
from engine.learning.decisions.learner import Learner
from tests.benchmarks.twin_sets import STRENGTHS, TEXTS, Row, baseline, rows, taught

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif("CLAWPY_DATA" not in os.environ, reason="CLAWPY_DATA names no folder with proactive.jsonl"),
]

ORDERS = range(5)
AUC_ABOVE, BRIER_OF = 0.05, 0.97
REFIT, FROM = 50, 200
SURE, TRUE = 0.8, 0.8

FOLDS, CEILING = 10, 0.05
"""While the ceiling is sure of less than this share of the rows, a Twin that is sure of none misses next to nothing."""

FOREMOST = 20
"""So many rows it was surest of are told: whether there is anything to be sure of."""


@pytest.fixture(scope="module")
def every() -> list[Row]:
    pytest.importorskip("sklearn", reason="the baselines need scikit-learn: pip install --group dev")
    return rows(Path(os.environ["CLAWPY_DATA"]) / "proactive.jsonl")


def auc_of(wanted: numpy.ndarray, scores: numpy.ndarray) -> float:
    from sklearn.metrics import roc_auc_score  # a second of every run of the tests, to which it is not of any use

    return float(roc_auc_score(wanted, scores))


def brier_of(wanted: numpy.ndarray, scores: numpy.ndarray) -> float:
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(wanted, scores))


def traces_of(every: Sequence[Row]) -> list[str]:
    return sorted({row.trace for row in every})


def test_a_trace_it_has_never_seen(every: list[Row]) -> None:
    traces = traces_of(every)
    wanted = numpy.array([row.wanted for row in every])
    of = numpy.array([row.trace for row in every])
    print(f"\nleave one trace out: {len(every)} proposals, {wanted.mean():.1%} wanted, {len(traces)} traces")

    base = numpy.empty(len(every))
    for trace in traces:
        base[of == trace] = wanted[of != trace].mean()
    figures = {"base rate": (0.5, brier_of(wanted, base))}
    for name, text in TEXTS.items():
        texts = numpy.array([text(row) for row in every], dtype=object)
        for strength in STRENGTHS:
            scores = numpy.empty(len(every))
            for trace in traces:
                model = baseline(strength).fit(texts[of != trace], wanted[of != trace])
                scores[of == trace] = model.predict_proba(texts[of == trace])[:, 1]
            figures[f"TF-IDF, {name}, C={strength:g}"] = (
                auc_of(wanted, scores), brier_of(wanted, scores),
            )  # fmt: skip
    for name, (auc, brier) in figures.items():
        print(f"  {name:42} AUC {auc:.3f}  Brier {brier:.4f}")

    found = []
    for seed in ORDERS:
        scores = numpy.empty(len(every))
        for trace in traces:
            others = [one for one in traces if one != trace]
            random.Random(seed).shuffle(others)
            twin = taught([row for other in others for row in every if row.trace == other])
            for place in numpy.flatnonzero(of == trace):
                scores[place] = twin.estimate(every[place].query(len(every))).probability
        one = (
            auc_of(wanted, scores), brier_of(wanted, scores),
            calibration_error(list(scores), list(wanted)), calibration_bound(list(scores)),
        )  # fmt: skip
        found.append(one)
        print(f"  Twin, others in order {seed + 1:<20} AUC {one[0]:.3f}  Brier {one[1]:.4f}  "
              f"ECE {one[2]:.4f} (95 % of perfect: {one[3]:.4f})")  # fmt: skip
    auc, brier, error, bound = (float(numpy.mean(column)) for column in zip(*found, strict=True))
    best_auc = max(one for one, _ in figures.values())
    best_brier = min(one for _, one in figures.values())
    print(f"  Twin, mean {auc:.3f} (bar {best_auc + AUC_ABOVE:.3f}), {brier:.4f} (bar {BRIER_OF * best_brier:.4f}), "
          f"{error:.4f} (bar {bound:.4f})")  # fmt: skip
    assert auc >= best_auc + AUC_ABOVE
    assert brier <= BRIER_OF * best_brier
    assert error <= bound


@pytest.mark.parametrize("how", ["rows in any order", "trace by trace"])
def test_from_a_cold_start(every: list[Row], how: str) -> None:
    print(f"\nfrom a cold start, {how}; AUC from decision {FROM} on")
    sure = true = held = held_true = 0
    for seed in ORDERS:
        order = in_order(every, how, seed)
        wanted = numpy.array([row.wanted for row in order])
        twin = Learner()
        words = [twin.learn(row.decision(number)) for number, row in enumerate(order)]
        scores, raw = numpy.array([word.probability for word in words]), numpy.array([word.raw for word in words])
        best, name = max((refitted(order, wanted, text), name) for name, text in TEXTS.items())
        high = scores >= SURE
        sure, true = sure + int(high.sum()), true + int(wanted[high].sum())
        bold = (raw >= SURE) & (numpy.arange(len(order)) >= FROM)
        held, held_true = held + int(bold.sum()), held_true + int(wanted[bold].sum())
        foremost = numpy.argsort(-raw[FROM:])[:FOREMOST]
        auc = auc_of(wanted[FROM:], scores[FROM:])
        print(f"  order {seed + 1}: Twin {auc:.3f}, best baseline {best:.3f} ({name}); "
              f"{int(wanted[high].sum())} of {int(high.sum())} wanted at {SURE} or more; "
              f"{int(wanted[FROM:][foremost].sum())} of its foremost {FOREMOST}; "
              f"ECE {calibration_error(list(scores), list(wanted)):.4f} "
              f"(95 % of perfect: {calibration_bound(list(scores)):.4f})")  # fmt: skip
        assert auc > best
    print(f"  at {SURE} or more in all orders: {true} of {sure} wanted; "
          f"before calibration it would have been {held_true} of {held}")  # fmt: skip
    assert true >= TRUE * sure


def test_how_sure_anyone_could_be(every: list[Row]) -> None:
    """The ceiling: boosted trees over all vectors, numbers and the very trace, fitted on nine tenths of all rows."""
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold

    third = []
    for row in every:
        for place in range(len(row.votes) if len(row.votes) == 3 else 0):
            if all(row.votes[:place] + row.votes[place + 1 :]):
                third.append(row.votes[place])
    print(f"\nof what two of three judges wanted the third wanted {sum(third) / len(third):.0%} (of {len(third)})")
    wanted = numpy.array([row.wanted for row in every])
    traces = traces_of(every)
    known = numpy.array(
        [[*row.seen.numbers, *(row.trace == trace for trace in traces), *row.meanings] for row in every], numpy.float32
    )
    sure = true = 0
    for seed in ORDERS:
        scores = numpy.empty(len(every))
        for fit, rest in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(known, wanted):
            trees = GradientBoostingClassifier(
                n_estimators=150, learning_rate=0.05, subsample=0.6, max_features=0.05, random_state=seed
            ).fit(known[fit], wanted[fit])
            scores[rest] = trees.predict_proba(known[rest])[:, 1]
        high = scores >= SURE
        sure, true = sure + int(high.sum()), true + int(wanted[high].sum())
        print(f"  ceiling, folds {seed + 1}: AUC {auc_of(wanted, scores):.3f}, "
              f"Brier {brier_of(wanted, scores):.4f}; "
              f"{int(wanted[high].sum())} of {int(high.sum())} wanted at {SURE} or more")  # fmt: skip
    share = sure / len(every) / len(ORDERS)
    print(f"  ceiling: {share:.1%} of the rows at {SURE} or more, {true} of {sure} of them wanted "
          f"(bar: below {CEILING:.0%}, else the Twin should be sure as well)")  # fmt: skip
    assert share < CEILING


def in_order(every: Sequence[Row], how: str, seed: int) -> list[Row]:
    chance = random.Random(seed)
    if how == "rows in any order":
        return chance.sample(every, len(every))
    traces = traces_of(every)
    chance.shuffle(traces)
    return [row for trace in traces for row in every if row.trace == trace]


def refitted(order: Sequence[Row], wanted: numpy.ndarray, text: object) -> float:
    """The AUC of a baseline that is fitted anew every `REFIT` decisions on all before."""
    assert callable(text)
    texts = numpy.array([text(row) for row in order], dtype=object)
    scores = numpy.full(len(order), 0.5)
    for start in range(FROM, len(order), REFIT):
        model = baseline(1.0).fit(texts[:start], wanted[:start])
        scores[start : start + REFIT] = model.predict_proba(texts[start : start + REFIT])[:, 1]
    return auc_of(wanted[FROM:], scores[FROM:])
