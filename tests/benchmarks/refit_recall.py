"""Fit the weights of `engine.memory.ranking` again, and print them.

CLAWPY_DATA=DIR python -m tests.benchmarks.refit_recall [FILE]

DIR contains `locomo.json` and `beam.json`. FILE stores the observations of each question. Both kinds count alike.
Weights that are set by hand are printed as they are. Round the others, paste them, and run `test_recall_quality.py`,
which measures the new weights on conversations that they have not seen.
"""

import os
import pickle
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.memory.ranking import WEIGHTS, Weight
from tests.benchmarks.adam import minimise
from tests.benchmarks.recall_measuring import Observation, ObservedSets, Ranking, observe_sets, print_recall

RIDGE = 0.1
"""How strongly large weights are avoided."""

BY_HAND = {"recent"}
"""Features whose weights are not fitted, because no set has questions about them."""


def fit_weights(kinds: Sequence[Sequence[Observation]]) -> tuple[Weight, ...]:
    """Weights fitted on the questions of several kinds, each kind counting alike; none below 0. Those set by hand
    stay."""
    fitted = [number for number, weight in enumerate(WEIGHTS) if weight.feature not in BY_HAND]
    answered = [[observation for observation in kind if observation.is_evidence.sum()] for kind in kinds]
    shares = np.concatenate([np.full(len(kind), 1 / len(kinds) / max(1, len(kind))) for kind in answered])
    observations = [observation for kind in answered for observation in kind]
    shape = (len(observations), max(len(observation.refs) for observation in observations))
    features, is_row, target = np.zeros((*shape, len(fitted))), np.zeros(shape, bool), np.zeros(shape)
    for number, observation in enumerate(observations):
        rows = slice(len(observation.refs))
        features[number, rows] = observation.features[:, fitted]
        is_row[number, rows] = True
        target[number, rows] = observation.is_evidence / observation.is_evidence.sum()
    spread = features[is_row].std(axis=0) + 1e-6
    features /= spread

    def compute_slope(weights: np.ndarray) -> np.ndarray:
        scores = np.where(is_row, features @ weights, -np.inf)
        probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return np.einsum("q,qc,qcf->f", shares, probabilities - target, features) + RIDGE * weights

    chosen = minimise(compute_slope, np.zeros(len(fitted)), steps=300, minimum=0.0)
    result = list(WEIGHTS)
    for number, value in zip(fitted, chosen / spread, strict=True):
        result[number] = replace(WEIGHTS[number], value=round(float(value), 2))
    return tuple(result)


def rank_without_itself(name: str, kinds: ObservedSets) -> list[Ranking]:
    """The rankings of each conversation of a kind by weights that were fitted on all the others, of every kind."""
    rankings = []
    for left_out, observations in kinds[name].items():
        others = [collect_other_observations(kind, left_out) for kind in kinds.values()]
        weights = fit_weights([observed for observed in others if observed])
        rankings += [rerank(observation, weights) for observation in observations]
    return rankings


def collect_other_observations(kind: dict[str, list[Observation]], left_out: str) -> list[Observation]:
    """The observations of all conversations of a kind but one."""
    return [observation for name, observed in kind.items() if name != left_out for observation in observed]


def rerank(observation: Observation, weights: Sequence[Weight]) -> Ranking:
    """The rows of a question in the order that other weights give them."""
    scores = observation.features @ np.array([weight.value for weight in weights])
    refs = tuple(observation.refs[index] for index in np.argsort(-scores, kind="stable"))
    return Ranking(refs, observation.evidence)


def main():
    """Fit the weights, and print them with their recall."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = observe_sets(Path(os.environ["CLAWPY_DATA"]), Path(folder))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(pickle.dumps(kinds))
    questions_by_kind = {
        name: [question for questions in kind.values() for question in questions] for name, kind in kinds.items()
    }
    weights = fit_weights(list(questions_by_kind.values()))
    rows = {}
    for name, questions in questions_by_kind.items():
        rows[f"{name}, shipped"] = [question.rankings["recall"] for question in questions]
        rows[f"{name}, fitted on all"] = [rerank(question, weights) for question in questions]
        rows[f"{name}, fitted without the conversation"] = rank_without_itself(name, kinds)
    print_recall(rows)
    for weight in weights:
        print(f"{weight.feature:<20}{weight.value:>8.2f}{'  by hand' if weight.feature in BY_HAND else ''}")


if __name__ == "__main__":
    main()
