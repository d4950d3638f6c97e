"""Remembers conversations in a real store, asks their questions, and measures how many answers are among the first;
fits the weights of the ranking on them.

`fit_weights` makes weights from what `MemorySearch.collect_candidates` returned for each question. It fits a linear
model that gives the right candidates a high probability: that of a softmax over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.events import EventBus
from engine.memory.memory import MemoryService
from engine.memory.ranking import WEIGHTS, Weight
from engine.model import NewMemory, RecallQuery
from engine.storage.database import Database
from tests.benchmarks.adam import minimise
from tests.benchmarks.recall_sets import NOW, Conversation, Question, beam, locomo

LISTED = (5, 10, 20, 50)
"""The numbers of first results at which recall is measured."""

RIDGE = 0.1
"""How strongly large weights are avoided."""

BY_HAND = {"recent"}
"""Features whose weights are not fitted, because no set has questions about them."""


def observe(conversation: Conversation, folder: Path) -> list[Observation]:
    """Remember a conversation in `folder`, and ask all its questions."""
    with open_memory_with(conversation.turns, folder / conversation.name) as memory:
        return [observe_question(memory, question) for question in conversation.questions]


def observe_sets(data: Path, folder: Path) -> dict[str, dict[str, list[Observation]]]:
    """What the ranking saw of every question of `locomo.json` and `beam.json`, by kind and conversation."""
    sets = {"talk": locomo(data / "locomo.json"), "long chats": beam(data / "beam.json")}
    return {
        name: {conversation.name: observe(conversation, folder) for conversation in conversations}
        for name, conversations in sets.items()
    }


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
        assert memory.settle(600), memory.missing()
        yield memory
    finally:
        memory.close()
        database.close()


@dataclass(frozen=True)
class Observation:
    """A question as the ranking saw it: features of the rows it looked at closely, whether each is evidence, and the
    refs that each way of searching put first."""

    features: np.ndarray
    is_evidence: np.ndarray
    refs: tuple[str, ...]
    evidence: frozenset[str]
    by_words: tuple[str, ...]
    by_vectors: tuple[str, ...]
    by_both: tuple[str, ...]
    by_recall: tuple[str, ...]


def observe_question(memory: MemoryService, question: Question) -> Observation:
    """Ask a question, and return what the ranking saw."""
    candidates = memory.search.collect_candidates(RecallQuery(question.text, k=50), NOW, 60.0).candidates
    memories = memory.store.by_seq(row.seq for row in candidates.rows)
    refs = tuple(memories[row.seq].ref for row in candidates.rows)
    recalled = memory.recall(RecallQuery(question.text, k=50, now=NOW), deadline=60.0)
    assert not recalled.left_out, recalled.left_out
    by_words, by_vectors, by_both = search_plainly(memory, question.text)
    return Observation(
        features=np.stack([candidates.features[weight.feature] for weight in WEIGHTS], axis=1),
        is_evidence=np.array([ref in question.evidence for ref in refs], float),
        refs=refs,
        evidence=question.evidence,
        by_words=by_words,
        by_vectors=by_vectors,
        by_both=by_both,
        by_recall=tuple(item.ref for item in recalled.items),
    )


def search_plainly(memory: MemoryService, text: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The first results of full text alone, of vectors alone, and of the sum of both (min-max, half and half), for the
    unchanged question. Nothing of the product's ranking is used."""
    from engine.memory.search import open_reader

    with open_reader(memory.database, RecallQuery(text)) as reader:
        words = reader.find_by_words(re.findall(r"\w+", text), 300)
    vector = memory.vectors.embed(text)
    by_distance = memory.vectors.search(vector.array, 300)

    def scale(values: dict[int, float]) -> dict[int, float]:
        low, high = min(values.values(), default=0.0), max(values.values(), default=1.0)
        return {seq: (value - low) / (high - low or 1.0) for seq, value in values.items()}

    by_words, by_vectors = scale(words), scale(by_distance)
    added = {seq: by_words.get(seq, 0.0) + by_vectors.get(seq, 0.0) for seq in by_words.keys() | by_vectors.keys()}
    rows = memory.store.by_seq(added)

    def select_best(values: dict[int, float]) -> tuple[str, ...]:
        ordered = sorted(values, key=lambda seq: (-values[seq], seq))
        return tuple(rows[seq].ref or rows[seq].id for seq in ordered[:50] if seq in rows)

    return select_best(words), select_best(by_distance), select_best(added)


def measure_share_found(found: Sequence[str], evidence: frozenset[str], k: int) -> float:
    """The share of the evidence that is among the first `k`."""
    return len(evidence & set(found[:k])) / len(evidence)


def print_recall(rankings: dict[str, list[tuple[Sequence[str], frozenset[str]]]]) -> dict[str, dict[int, float]]:
    """Print the mean recall of each way of searching at the numbers `LISTED`, and return it. `rankings` has for each
    way (refs in order, evidence) of each question."""
    figures = {
        way: {
            k: float(np.mean([measure_share_found(refs, evidence, k) for refs, evidence in questions])) for k in LISTED
        }
        for way, questions in rankings.items()
    }
    print(f"\n{'recall at':<46}" + "".join(f"{k:>8}" for k in LISTED))
    for way, by_k in figures.items():
        print(f"{way:<46}" + "".join(f"{by_k[k]:>8.3f}" for k in LISTED))
    return figures


def fit_weights(kinds: Sequence[Sequence[Observation]]) -> tuple[Weight, ...]:
    """Weights fitted on the questions of several kinds, each kind counting alike; none below 0. Those set by hand
    stay."""
    fitted = [number for number, weight in enumerate(WEIGHTS) if weight.feature not in BY_HAND]
    observations = [observation for kind in kinds for observation in kind if observation.is_evidence.sum()]
    counts = [sum(bool(observation.is_evidence.sum()) for observation in kind) for kind in kinds]
    shares = np.repeat([1 / len(kinds) / max(1, count) for count in counts], counts)
    max_rows = max(len(observation.refs) for observation in observations)
    features = np.zeros((len(observations), max_rows, len(fitted)))
    is_row = np.zeros((len(observations), max_rows), bool)
    target = np.zeros((len(observations), max_rows))
    for number, observation in enumerate(observations):
        features[number, : len(observation.refs)] = observation.features[:, fitted]
        is_row[number, : len(observation.refs)] = True
        target[number, : len(observation.refs)] = observation.is_evidence / observation.is_evidence.sum()
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
        result[number] = replace(WEIGHTS[number], weight=round(float(value), 2))
    return tuple(result)


def rank_without_itself(
    name: str, kinds: Mapping[str, Mapping[str, Sequence[Observation]]]
) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """The rankings of each conversation of a kind by weights that were fitted on all the others, of every kind."""
    rankings = []
    for left_out, observations in kinds[name].items():
        others = [
            [
                observation
                for key, observations_of_other in kind.items()
                if key != left_out
                for observation in observations_of_other
            ]
            for kind in kinds.values()
        ]
        weights = fit_weights([observations_of_other for observations_of_other in others if observations_of_other])
        rankings += [(rerank(observation, weights), observation.evidence) for observation in observations]
    return rankings


def rerank(observation: Observation, weights: Sequence[Weight]) -> tuple[str, ...]:
    """The rows of a question in the order that other weights give them."""
    scores = observation.features @ np.array([weight.weight for weight in weights])
    return tuple(observation.refs[index] for index in np.argsort(-scores, kind="stable"))
