"""Remembers conversations in a real store, asks their questions, and measures how many answers are among the first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.events import EventBus
from engine.memory.memory import MemoryService
from engine.memory.ranking import WEIGHTS
from engine.memory.search import open_reader
from engine.model import NewMemory, RecallQuery
from engine.storage.database import Database
from tests.benchmarks.recall_sets import NOW, Conversation, Question, read_beam, read_locomo

LISTED = (5, 10, 20, 50)
"""The numbers of first results at which recall is measured."""

MAX_MATCHES = 300
"""Results of full text alone, and of vectors alone."""


@dataclass(frozen=True)
class Ranking:
    """The refs that were found for a question, best first, and those that answer it."""

    refs: tuple[str, ...]
    evidence: frozenset[str]

    def measure_recall(self, k: int) -> float:
        """The share of the evidence that is among the first `k`."""
        return len(self.evidence & set(self.refs[:k])) / len(self.evidence)


@dataclass(frozen=True)
class Observation:
    """A question as the ranking saw it: features of the rows it looked at closely, their refs, and whether each is
    evidence. `rankings` has the first results of each way of searching, by its name."""

    features: np.ndarray
    refs: tuple[str, ...]
    is_evidence: np.ndarray
    evidence: frozenset[str]
    rankings: Mapping[str, Ranking]


ObservedSets = dict[str, dict[str, list[Observation]]]
"""What was seen of each question, by kind and conversation."""


def observe_sets(data: Path, folder: Path) -> ObservedSets:
    """Ask every question of `locomo.json` and `beam.json`."""
    sets = {"talk": read_locomo(data / "locomo.json"), "long chats": read_beam(data / "beam.json")}
    return {
        name: {conversation.name: observe(conversation, folder) for conversation in conversations}
        for name, conversations in sets.items()
    }


def observe(conversation: Conversation, folder: Path) -> list[Observation]:
    """Remember a conversation in `folder`, and ask all its questions."""
    with open_memory_with(conversation.turns, folder / conversation.name) as memory:
        return [observe_question(memory, question) for question in conversation.questions]


@contextmanager
def open_memory_with(turns: Sequence[NewMemory], folder: Path) -> Iterator[MemoryService]:
    """A memory that contains `turns`, with their vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    clock = FakeClock(NOW)
    database = Database(folder / "clawpy.db", clock=clock, bus=EventBus(), durable=False)
    memory = MemoryService(database, settings=FixedSettings(), clock=clock, folder=folder / "chroma")
    try:
        for start in range(0, len(turns), 200):
            memory.remember(turns[start : start + 200])
        assert memory.settle(600), memory.count_missing_vectors()
        yield memory
    finally:
        memory.close()
        database.close()


def observe_question(memory: MemoryService, question: Question) -> Observation:
    """Ask a question, and return what the ranking saw."""
    candidates = memory.search.collect_candidates(RecallQuery(question.text, k=50), NOW, 60.0).candidates
    memories = memory.store.read_by_seq(row.seq for row in candidates.rows)
    refs = tuple(memories[row.seq].ref for row in candidates.rows)
    recalled = memory.recall(RecallQuery(question.text, k=50, now=NOW), deadline=60.0)
    assert not recalled.left_out, recalled.left_out
    plain_results = search_plainly(memory, question.text) | {"recall": tuple(item.ref for item in recalled.items)}
    return Observation(
        features=np.stack([candidates.features[weight.feature] for weight in WEIGHTS], axis=1),
        refs=refs,
        is_evidence=np.array([ref in question.evidence for ref in refs], float),
        evidence=question.evidence,
        rankings={way: Ranking(way_refs, question.evidence) for way, way_refs in plain_results.items()},
    )


def search_plainly(memory: MemoryService, text: str) -> dict[str, tuple[str, ...]]:
    """The first results for the unchanged question by three ways that use nothing of the product's ranking. Added are
    the scores of the others, each scaled to 0 to 1."""
    with open_reader(memory.database, RecallQuery(text)) as reader:
        by_words = reader.find_by_words(re.findall(r"\w+", text), MAX_MATCHES)
    by_vectors = memory.vectors.search(memory.vectors.embed(text).array, MAX_MATCHES)
    words, vectors = _scale(by_words), _scale(by_vectors)
    added = {seq: words.get(seq, 0.0) + vectors.get(seq, 0.0) for seq in words.keys() | vectors.keys()}
    rows = memory.store.read_by_seq(added)

    def select_best(scores: dict[int, float]) -> tuple[str, ...]:
        ordered = sorted(scores, key=lambda seq: (-scores[seq], seq))
        return tuple(rows[seq].ref or rows[seq].id for seq in ordered[:50] if seq in rows)

    ways = {"full text alone": by_words, "vectors alone": by_vectors, "both added": added}
    return {way: select_best(scores) for way, scores in ways.items()}


def _scale(scores: dict[int, float]) -> dict[int, float]:
    """Scores from 0 to 1."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=1.0)
    return {seq: (score - low) / (high - low or 1.0) for seq, score in scores.items()}


def collect_rankings(observations: Sequence[Observation]) -> dict[str, list[Ranking]]:
    """The ranking of each question, by way of searching."""
    ways = observations[0].rankings
    return {way: [observation.rankings[way] for observation in observations] for way in ways}


def print_recall(rankings: Mapping[str, Sequence[Ranking]]) -> dict[str, dict[int, float]]:
    """Print the mean recall of each way of searching at the numbers `LISTED`, and return it."""
    figures = {
        way: {k: float(np.mean([ranking.measure_recall(k) for ranking in ranked])) for k in LISTED}
        for way, ranked in rankings.items()
    }
    print(f"\n{'recall at':<46}" + "".join(f"{k:>8}" for k in LISTED))
    for way, by_k in figures.items():
        print(f"{way:<46}" + "".join(f"{by_k[k]:>8.3f}" for k in LISTED))
    return figures
