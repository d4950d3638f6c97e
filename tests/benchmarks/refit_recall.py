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
from pathlib import Path

from tests.benchmarks.recall_fitting import BY_HAND, fit_weights, rank_without_itself, rerank
from tests.benchmarks.recall_measuring import observe_sets, print_recall


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
        print(f"{weight.feature:<20}{weight.weight:>8.2f}{'  by hand' if weight.feature in BY_HAND else ''}")


if __name__ == "__main__":
    main()
