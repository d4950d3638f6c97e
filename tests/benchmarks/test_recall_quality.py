"""How many of the answers to a question recall finds, with the real store, embedder and ranking (SPEC 4.4).

CLAWPY_DATA=DIR pytest tests/benchmarks/test_recall_quality.py -m benchmark -s

DIR contains `locomo.json` and `beam.json`. Every turn is remembered with its speaker and the date of its session. For
each question the share of its evidence that is found is measured. The means are printed; for comparison, those of full
text alone, of vectors alone, and of the sum of both.

The weights were fitted on these conversations. So the line that counts has weights that were fitted without the
conversation on which it is measured. Nothing was fitted on the other sets: the same conversations as chats,
documentation, code, and memories of sessions (`recall_sets`). They show
that the ranking helps, and does no harm, in texts without names and dates.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.recall_measuring import collect_rankings, observe, observe_sets, print_recall
from tests.benchmarks.recall_sets import Conversation, make_chats, make_code, make_documents, read_locomo, read_work
from tests.benchmarks.refit_recall import rank_without_itself

BARS = {"talk": (0.81, 0.86), "long chats": (0.66, 0.75)}
"""The least recall at 10 and at 20, by kind of conversation."""


def assert_recall_is_best(conversation: Conversation, folder: Path, slack: float = 0.0):
    """Check that no other way of searching finds more than recall, but for `slack`."""
    print(f"\n{conversation.name}: {len(conversation.turns)} turns, {len(conversation.questions)} questions")
    figures = print_recall(collect_rankings(observe(conversation, folder)))
    for k in (10, 20):
        assert figures["recall"][k] >= max(by_k[k] for name, by_k in figures.items() if name != "recall") - slack, k


@pytest.mark.skipif("CLAWPY_DATA" not in os.environ, reason="CLAWPY_DATA names no folder with these conversations")
def test_recall_on_conversations(tmp_path: Path):
    kinds = observe_sets(Path(os.environ["CLAWPY_DATA"]), tmp_path)
    for name, kind in kinds.items():
        all_observations = [observation for observations in kind.values() for observation in observations]
        rows = collect_rankings(all_observations)
        rows["recall, fitted without the conversation"] = rank_without_itself(name, kinds)
        print(f"\n{name}: {len(all_observations)} questions about {len(kind)} conversations")
        figures = print_recall(rows)
        for k, bar in zip((10, 20), BARS[name], strict=True):
            assert figures["recall"][k] >= bar, (name, k)


@pytest.mark.parametrize("make_set, slack", [(make_documents, 0.0), (make_code, 0.03), (read_work, 0.07)])
def test_recall_is_best_on_sets_that_nothing_was_fitted_on(
    make_set: Callable[[], Conversation], slack: float, tmp_path: Path
):
    """On `work`, the threshold of recall, which finds nothing for unrelated questions, costs one of 32 questions."""
    assert_recall_is_best(make_set(), tmp_path, slack)


@pytest.mark.skipif("CLAWPY_DATA" not in os.environ, reason="CLAWPY_DATA names no folder with locomo.json")
def test_a_conversation_as_a_chat(tmp_path: Path):
    conversation = read_locomo(Path(os.environ["CLAWPY_DATA"]) / "locomo.json")[0]
    assert_recall_is_best(make_chats(conversation), tmp_path)
