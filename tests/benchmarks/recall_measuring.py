"""Remembers conversations in a real store, asks their questions, and measures how many answers are among the first;
fits the weights of the ranking on them.

`learn` makes weights from what `MemorySearch.collect_candidates` returned for each question. It fits a linear model
that gives the right candidates a high probability: that of a softmax over all of them.
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
RIDGE = 0.1
BY_HAND = {"recent"}
"""Features whose weights are not fitted, since no set says anything about them."""


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
    right: np.ndarray
    refs: tuple[str, ...]
    evidence: frozenset[str]
    words: tuple[str, ...]
    meaning: tuple[str, ...]
    fused: tuple[str, ...]
    ours: tuple[str, ...]


def observe_question(memory: MemoryService, question: Question) -> Observation:
    """Ask a question, and return what the ranking saw."""
    candidates, _, _ = memory.search.collect_candidates(RecallQuery(question.text, k=50), NOW, 60.0)
    memories = memory.store.by_seq(row.seq for row in candidates.rows)
    refs = tuple(memories[row.seq].ref for row in candidates.rows)
    recalled = memory.recall(RecallQuery(question.text, k=50, now=NOW), deadline=60.0)
    assert not recalled.left_out, recalled.left_out
    words, meaning, fused = search_plainly(memory, question.text)
    return Observation(
        features=np.stack([candidates.features[weight.feature] for weight in WEIGHTS], axis=1),
        right=np.array([ref in question.evidence for ref in refs], float),
        refs=refs,
        evidence=question.evidence,
        words=words,
        meaning=meaning,
        fused=fused,
        ours=tuple(item.ref for item in recalled.items),
    )


def search_plainly(memory: MemoryService, text: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What FTS5 alone, vectors alone, and both added (min-max, half and half) put first, without anything of ours:
    all words of the question as they stand, its vector as it stands."""
    from engine.memory.search import open_reader

    with open_reader(memory.database, RecallQuery(text)) as reader:
        words = reader.by_words(re.findall(r"\w+", text), 300)
    vector = memory.vectors.embed(text)
    by_distance = memory.vectors.search(vector.array, 300)

    def scaled(values: dict[int, float]) -> dict[int, float]:
        low, high = min(values.values(), default=0.0), max(values.values(), default=1.0)
        return {seq: (value - low) / (high - low or 1.0) for seq, value in values.items()}

    by_words, by_vectors = scaled(words), scaled(by_distance)
    added = {seq: by_words.get(seq, 0.0) + by_vectors.get(seq, 0.0) for seq in by_words.keys() | by_vectors.keys()}
    rows = memory.store.by_seq(added)

    def best(values: dict[int, float]) -> tuple[str, ...]:
        ordered = sorted(values, key=lambda seq: (-values[seq], seq))
        return tuple(rows[seq].ref or rows[seq].id for seq in ordered[:50] if seq in rows)

    return best(words), best(by_distance), best(added)


def share(found: Sequence[str], evidence: frozenset[str], k: int) -> float:
    """The share of the evidence that is among the first `k`."""
    return len(evidence & set(found[:k])) / len(evidence)


def table(rows: dict[str, list[tuple[Sequence[str], frozenset[str]]]]) -> dict[str, dict[int, float]]:
    """Mean shares by way of searching and k, printed as a table."""
    figures = {
        name: {k: float(np.mean([share(found, evidence, k) for found, evidence in some])) for k in LISTED}
        for name, some in rows.items()
    }
    print(f"\n{'recall at':<46}" + "".join(f"{k:>8}" for k in LISTED))
    for name, by_k in figures.items():
        print(f"{name:<46}" + "".join(f"{by_k[k]:>8.3f}" for k in LISTED))
    return figures


def learn(kinds: Sequence[Sequence[Observation]]) -> tuple[Weight, ...]:
    """Weights fitted on the questions of several kinds, each kind counting alike; none below 0. Those set by hand
    stay."""
    fitted = [number for number, observation in enumerate(WEIGHTS) if observation.feature not in BY_HAND]
    observations = [observation for kind in kinds for observation in kind if observation.right.sum()]
    counts = [sum(1 for observation in kind if observation.right.sum()) for kind in kinds]
    shares = np.repeat([1 / len(kinds) / max(1, count) for count in counts], counts)
    max_rows = max(len(observation.refs) for observation in observations)
    features = np.zeros((len(observations), max_rows, len(fitted)))
    is_row = np.zeros((len(observations), max_rows), bool)
    target = np.zeros((len(observations), max_rows))
    for number, observation in enumerate(observations):
        features[number, : len(observation.refs)] = observation.features[:, fitted]
        is_row[number, : len(observation.refs)] = True
        target[number, : len(observation.refs)] = observation.right / observation.right.sum()
    spread = features[is_row].std(axis=0) + 1e-6
    features /= spread

    def slope_of_cross_entropy(weights: np.ndarray) -> np.ndarray:
        scores = np.where(is_row, features @ weights, -np.inf)
        probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return np.einsum("q,qc,qcf->f", shares, probabilities - target, features) + RIDGE * weights

    chosen = minimise(slope_of_cross_entropy, np.zeros(len(fitted)), steps=300, minimum=0.0)
    result = list(WEIGHTS)
    for number, value in zip(fitted, chosen / spread, strict=True):
        result[number] = replace(WEIGHTS[number], weight=round(float(value), 2))
    return tuple(result)


def without_itself(
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
        weights = learn([observations_of_other for observations_of_other in others if observations_of_other])
        rankings += [(reranked(observation, weights), observation.evidence) for observation in observations]
    return rankings


def reranked(observation: Observation, weights: Sequence[Weight]) -> tuple[str, ...]:
    """The rows of a question in the order that other weights give them."""
    scores = observation.features @ np.array([weight.weight for weight in weights])
    return tuple(observation.refs[index] for index in np.argsort(-scores, kind="stable"))
