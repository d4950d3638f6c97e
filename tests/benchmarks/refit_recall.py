"""Fit the weights of `engine.memory.weights` again, and print them.

CLAWPY_DATA=DIR python -m tests.benchmarks.refit_recall

DIR holds `locomo.json`. Weights that are set by hand are printed as they are. Round, paste, and run
`test_recall_quality.py`: it says what the new weights are worth on conversations they have not seen.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.recall_sets import Seen, learn, locomo, remembered, reranked, seen, table


def look(file: Path) -> dict[str, list[Seen]]:
    """What the ranking sees of every question, by conversation."""
    found = {}
    for one in locomo(file):
        with tempfile.TemporaryDirectory() as folder, remembered(one.turns, Path(folder)) as port:
            found[one.name] = [seen(port, question) for question in one.questions]
    return found


def main() -> None:
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    by_conversation = look(Path(os.environ["CLAWPY_DATA"]) / "locomo.json")
    if kept is not None:
        kept.write_bytes(pickle.dumps(by_conversation))
    every = [one for some in by_conversation.values() for one in some]
    rows: dict[str, list[tuple[tuple[str, ...], frozenset[str]]]] = {
        "shipped": [(one.ours, one.evidence) for one in every]
    }
    rows["fitted without the conversation"] = [
        (reranked(one, weights), one.evidence)
        for name, some in by_conversation.items()
        for weights in [learn([one for other, few in by_conversation.items() if other != name for one in few])]
        for one in some
    ]
    weights = learn(every)
    rows["fitted on all"] = [(reranked(one, weights), one.evidence) for one in every]
    table(rows)
    for one in weights:
        print(f"{one.feature:<20}{one.weight:>8.2f}{'' if one.fitted else '  by hand'}")


if __name__ == "__main__":
    main()
