"""How often recall finds nothing if no memory has the answer (SPEC 4.3), and how much recall its threshold costs if
one has.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_recall_unrelated.py -m benchmark -s

There are three memories: of work on a project (`recall_sets.read_work`), of documentation, and, if DIR contains
`locomo.json`, of a conversation. Each is asked everyday questions (`unrelated_questions.txt`), questions about another
memory, and its own questions. The baseline in the same run is recall without a threshold. The threshold
(`ranking.MIN_RELEVANCE`) was chosen by this table. A higher one would find nothing more often, and lose recall on
`recall_sets.read_work`.
"""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from engine.memory.memory import MemoryService
from engine.memory.ranking import MIN_RELEVANCE, WEIGHTS, rank
from engine.model import RecallQuery
from tests.benchmarks.recall_measuring import Ranking, open_memory_with
from tests.benchmarks.recall_sets import NOW, Question, make_documents, read_locomo, read_work

UNRELATED = Path(__file__).with_name("unrelated_questions.txt").read_text(encoding="utf-8").splitlines()
"""Everyday questions to which no memory has an answer."""

WORK = "work on a project"
"""The memory on which the threshold may cost recall."""

QUESTIONS_PER_MEMORY = 40
"""Maximum number of its own questions that a memory and the others are asked."""

MIN_FOUND_NOTHING = 0.9
"""Minimum share of unrelated questions for which nothing is found."""

MAX_RECALL_LOST = 0.01
"""Maximum recall@10 that the threshold may take from the sets that the ranking was made with."""


@dataclass(frozen=True)
class Answer:
    """What one question found: the refs with the threshold, best first, and those without it."""

    with_threshold: tuple[str, ...]
    without_threshold: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """The figures of one memory. A share is that of the questions for which nothing was found."""

    everyday_share: float
    others_share: float
    recall: float
    recall_without_threshold: float


def ask_all(memory: MemoryService, own_name: str, questions: Mapping[str, Sequence[Question]]) -> Row:
    """Ask a memory everyday questions, those about other memories, and those about its own conversation."""
    others = [question for name, asked in questions.items() if name != own_name for question in asked]
    own = [(ask(memory, question.text), question.evidence) for question in questions[own_name]]
    return Row(
        everyday_share=mean(not ask(memory, text).with_threshold for text in UNRELATED),
        others_share=mean(not ask(memory, question.text).with_threshold for question in others),
        recall=mean(Ranking(answer.with_threshold, evidence).measure_recall(10) for answer, evidence in own),
        recall_without_threshold=mean(
            Ranking(answer.without_threshold, evidence).measure_recall(10) for answer, evidence in own
        ),
    )


def ask(memory: MemoryService, text: str) -> Answer:
    """Ask a question, and rank what was found with and without the threshold."""
    candidates = memory.search.collect_candidates(RecallQuery(text, k=10), NOW, 60.0).candidates
    seqs = [row.seq for row in candidates.rows]
    if not seqs:
        return Answer((), ())
    memories = memory.store.read_by_seq(seqs)
    refs = [memories[seq].ref for seq in seqs]
    scores = sum(weight.value * candidates.features[weight.feature] for weight in WEIGHTS)
    all_refs = tuple(refs[index] for index in np.argsort(-np.asarray(scores), kind="stable")[:10])
    return Answer(tuple(refs[match.index] for match in rank(candidates, limit=10)), all_refs)


def test_unrelated_questions_find_nothing(tmp_path: Path):
    conversations = [read_work(), make_documents(count=50)]
    if folder := os.environ.get("CLAWPY_DATA"):
        conversations += read_locomo(Path(folder) / "locomo.json")[1:2]
    chance = random.Random(3)
    questions = {
        conversation.name: chance.sample(conversation.questions, min(QUESTIONS_PER_MEMORY, len(conversation.questions)))
        for conversation in conversations
    }
    print(f"\nlimit {MIN_RELEVANCE}; in brackets: without it")
    print(f"{'memory':<20}{'nothing for':>14}{'of others':>16}{'recall@10 of its own':>24}")
    rows = {}
    for conversation in conversations:
        with open_memory_with(conversation.turns, tmp_path / conversation.name) as memory:
            row = rows[conversation.name] = ask_all(memory, conversation.name, questions)
        cells = f"{row.everyday_share:>14.2f}{row.others_share:>16.2f}{row.recall:>14.3f}"
        print(f"{conversation.name:<20}{cells} ({row.recall_without_threshold:.3f})")
    share = mean(row.everyday_share for row in rows.values())
    lost = mean(row.recall_without_threshold - row.recall for name, row in rows.items() if name != WORK)
    print(f"nothing for unrelated questions: {share:.3f}; recall@10 lost: {lost:.3f}")
    assert share >= MIN_FOUND_NOTHING
    assert lost <= MAX_RECALL_LOST
