"""Fit the weights of `engine.memory.ranking` again, and print them.

CLAWPY_DATA=DIR python -m tests.benchmarks.refit_recall [FILE]

DIR contains `locomo.json` and `beam.json`. FILE stores the observations of each question. Both kinds count alike.
Weights that are set by hand are printed as they are. Round the others, paste them, and run `test_recall_quality.py`,
which measures the new weights on conversations that they have not seen.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.recall_measuring import BY_HAND, learn, observe_sets, reranked, table, without_itself


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kinds = observe_sets(Path(os.environ["CLAWPY_DATA"]), Path(folder))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(pickle.dumps(kinds))
    weights = learn([[question for questions in kind.values() for question in questions] for kind in kinds.values()])
    rows: dict[str, list[tuple[tuple[str, ...], frozenset[str]]]] = {}
    for name, kind in kinds.items():
        all_questions = [question for questions in kind.values() for question in questions]
        rows[f"{name}, shipped"] = [(question.ours, question.evidence) for question in all_questions]
        rows[f"{name}, fitted on all"] = [
            (reranked(question, weights), question.evidence) for question in all_questions
        ]
        rows[f"{name}, fitted without the conversation"] = without_itself(name, kinds)
    table(rows)
    for weight in weights:
        print(f"{weight.feature:<20}{weight.weight:>8.2f}{'  by hand' if weight.feature in BY_HAND else ''}")


if __name__ == "__main__":
    main()
