"""How often recall finds nothing if no memory has the answer, and how much recall its threshold costs if one has.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_recall_unrelated.py -m benchmark -s

There are three memories: of work on a project (`recall_sets.work`), of documentation, and, if DIR contains
`locomo.json`, of a conversation. Each is asked everyday questions (`unrelated_questions.txt`), questions about another
memory, and its own questions. The baseline in the same run is the former threshold: a squared L2 of 1.5, or one shared
word, of any line. The threshold (`ranking.MIN_RELEVANCE`) was chosen by this table. A higher one would find nothing
more often, and lose recall on `recall_sets.work`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.memory.memory import MemoryService
from engine.memory.ranking import MIN_RELEVANCE, WEIGHTS, rank
from engine.model import RecallQuery
from tests.benchmarks.generated_recall_sets import documents
from tests.benchmarks.recall_measuring import open_memory_with, share
from tests.benchmarks.recall_sets import NOW, Conversation, locomo, work

UNRELATED = Path(__file__).with_name("unrelated_questions.txt").read_text(encoding="utf-8").splitlines()
ASKED = 40
"""So many of a memory's own questions are asked, and of those about the others."""

NOTHING = 0.9
"""The share of unrelated questions for which nothing is found, at least."""

LOST = 0.01
"""Recall@10 that the limit may take from the sets that the ranking was made with."""


@dataclass(frozen=True)
class Answer:
    """What one question found: the refs with the limit, best first, those without it, and whether the limit of before
    would have let anything through."""

    with_limit: tuple[str, ...]
    without_limit: tuple[str, ...]
    before: bool


def ask(port: MemoryService, text: str) -> Answer:
    candidates, _, _ = port.search.collect_candidates(RecallQuery(text, k=10), NOW, 60.0)
    seqs = [row.seq for row in candidates.rows]
    if not seqs:
        return Answer((), (), False)
    features, memories = candidates.features, port.store.by_seq(seqs)
    refs = [memories[seq].ref for seq in seqs]
    scores = sum(weight.weight * features[weight.feature] for weight in WEIGHTS)
    unlimited = tuple(refs[index] for index in np.argsort(-np.asarray(scores), kind="stable")[:10])
    before = (features["meaning"] >= 0.25) | (features["coverage"] > 0)
    return Answer(tuple(refs[match.index] for match in rank(candidates, limit=10)), unlimited, bool(before.any()))


def shares_without_answer(answers: Sequence[Answer]) -> tuple[float, float]:
    """The share that found nothing, with the limit and with the one of before."""
    with_limit, with_former = zip(*((not answer.with_limit, not answer.before) for answer in answers), strict=True)
    return float(np.mean(with_limit)), float(np.mean(with_former))


def test_unrelated_questions_find_nothing(tmp_path: Path) -> None:
    memories: list[Conversation] = [work(), documents(count=50)]
    if folder := os.environ.get("CLAWPY_DATA"):
        memories += locomo(Path(folder) / "locomo.json")[1:2]
    chance = random.Random(3)
    own = {memory.name: chance.sample(memory.questions, min(ASKED, len(memory.questions))) for memory in memories}
    print(f"\nlimit {MIN_RELEVANCE}; in brackets: the former limit")
    print(f"{'memory':<20}{'nothing for':>14}{'of others':>16}{'recall@10 of its own':>24}")
    nothing_found, lost = [], []
    for memory in memories:
        with open_memory_with(memory.turns, tmp_path / memory.name) as port:
            everyday = [ask(port, text) for text in UNRELATED]
            others = [
                ask(port, question.text)
                for name, questions in own.items()
                if name != memory.name
                for question in questions
            ]
            answers = [(ask(port, question.text), question.evidence) for question in own[memory.name]]
        with_limit = float(np.mean([share(answer.with_limit, evidence, 10) for answer, evidence in answers]))
        without = float(np.mean([share(answer.without_limit, evidence, 10) for answer, evidence in answers]))
        nothing_found.append(shares_without_answer(everyday)[0])
        lost += [without - with_limit] if memory.name != "work on a project" else []
        cells = [
            f"{with_limit_share:.2f} ({former_share:.2f})"
            for with_limit_share, former_share in (shares_without_answer(everyday), shares_without_answer(others))
        ]
        print(f"{memory.name:<20}{cells[0]:>14}{cells[1]:>16}{with_limit:>14.3f} ({without:.3f})")
    print(f"nothing for unrelated questions: {np.mean(nothing_found):.3f}; recall@10 lost: {np.mean(lost):.3f}")
    assert np.mean(nothing_found) >= NOTHING
    assert np.mean(lost) <= LOST
