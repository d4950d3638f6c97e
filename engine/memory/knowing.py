"""What layers B, F and G have to say to a question (SPEC 4.4): the newest facts of the ledger, tasks and their
neighbours, canonical facts. Each line with its score parts and its source; ranking over all layers is recall's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from engine import tokenizer
from engine.memory import graph_score
from engine.memory.capturing import content_words
from engine.memory.finding import Found
from engine.memory.graph import TaskGraph
from engine.memory.para import Para
from engine.storage.facts_read import Fact
from engine.values import GraphNode, Layer, Recalled, RecallQuery, Relation, ScorePart
from engine.values.text import count

LEDGER_KINDS = (
    "SessionEnded",
    "ChangeSetLanded",
    "LandingUndone",
    "ChangeSetDiscarded",
    "ValidationFailed",
    "ValidationHealed",
    "RetryRepeated",
    "TaskAdded",
)
LEDGER_LOOKED_AT = 300
LEDGER_LEAST = 0.25
"""Share of the question's words that a fact of the ledger must have."""

FACT_LEAST = 0.2
HALF_LIFE = timedelta(days=14)
NEIGHBOUR = 0.8
"""A neighbour's score, as a part of that of the task it was reached from."""

_ARROWS = {
    (Relation.BLOCKS, True): "its failure blocked {}",
    (Relation.BLOCKS, False): "it was blocked by {}",
    (Relation.DERIVED_FROM, True): "it goes on with {}",
    (Relation.DERIVED_FROM, False): "{} goes on with it",
    (Relation.RELATED_TO, True): "it touches what {} touches",
    (Relation.RELATED_TO, False): "it touches what {} touches",
    (Relation.SIMILAR_TO, True): "it resembles {}",
    (Relation.SIMILAR_TO, False): "it resembles {}",
}


class Entries(Protocol):
    """The event ledger, from its end."""

    def latest(self, limit: int, *, kinds: tuple[str, ...]) -> Sequence[Fact]: ...


Near = Callable[[str, int], Sequence[tuple[str, float]]]
"""Sessions whose summaries are close to words, with their squared distances; () where nothing can say."""


class LedgerSource:
    """Layer B: the newest facts that share words with the question."""

    name = "ledger"
    layers = frozenset({Layer.LEDGER})

    def __init__(self, ledger: Entries) -> None:
        self._ledger = ledger

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """At most `k` lines, best first."""
        words = content_words(query.text)
        found = []
        for entry in self._ledger.latest(LEDGER_LOOKED_AT, kinds=LEDGER_KINDS):
            if query.workspace is not None and entry.workspace not in ("", query.workspace):
                continue
            text = told(entry)
            share = _share(words, text)
            if share >= LEDGER_LEAST:
                parts = (
                    ScorePart("words", share, graph_score.SEMANTIC_WEIGHT),
                    ScorePart("recency", graph_score.recency(entry.at, now), 1 - graph_score.SEMANTIC_WEIGHT),
                )
                found.append(
                    _line(f"event_{entry.id}", Layer.LEDGER, text, parts, "it happened", entry.subject, entry.at)
                )
        return Found(_best(found, query.k))


class GraphSource:
    """Layer F: tasks whose summaries are close to the question, or share its words; and what is one step away."""

    name = "task graph"
    layers = frozenset({Layer.GRAPH})

    def __init__(self, graph: TaskGraph, near: Near = lambda text, k: ()) -> None:
        self._graph = graph
        self._near = near

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """At most `k` lines, best first. Raises `Refusal` `not_ready` while the graph is read."""
        likeness = {name: graph_score.semantic(distance) for name, distance in self._near(query.text, 4 * query.k)}
        hits: dict[str, tuple[GraphNode, float]] = {}
        for name, semantic in likeness.items():
            node = self._graph.get(name)
            if node is not None and self._wanted(node, query):
                hits[name] = (node, semantic)
        found = {
            name: _line(
                name,
                Layer.GRAPH,
                words_of(node),
                (
                    ScorePart("semantic", semantic, graph_score.SEMANTIC_WEIGHT),
                    ScorePart("recency", graph_score.recency(node.timestamp, now), 1 - graph_score.SEMANTIC_WEIGHT),
                ),
                "a task like this",
                name,
                node.timestamp,
            )
            for name, (node, semantic) in hits.items()
        }
        best = _best(found.values(), query.k)
        return Found(_best([*best, *self._beside(best, query)], query.k))

    def _beside(self, found: Sequence[Recalled], query: RecallQuery) -> list[Recalled]:
        """What is one step from the tasks that were found, with the arrow that leads there."""
        origins = {one.id: one for one in found}
        lines = []
        for edge, node in self._graph.neighbours(list(origins)):
            forward = edge.source == node.task_id
            origin = edge.target if forward else edge.source
            title = self._graph.get(origin)
            if title is not None and self._wanted(node, query):
                parts = (ScorePart("neighbour", min(1.0, origins[origin].score * edge.weight), NEIGHBOUR),)
                reason = _ARROWS[edge.relation, forward].format(f"“{title.title[:60]}”")
                lines.append(
                    _line(node.task_id, Layer.GRAPH, words_of(node), parts, reason, node.task_id, node.timestamp)
                )
        return lines

    @staticmethod
    def _wanted(node: GraphNode, query: RecallQuery) -> bool:
        return (
            node.invalidated_at is None
            and bool(node.title)
            and query.workspace in (None, "", node.workspace)
            and node.task_id != query.session
        )


class FactSource:
    """Layer G: canonical facts that hold, by their words."""

    name = "facts"
    layers = frozenset({Layer.PARA})

    def __init__(self, para: Para) -> None:
        self._para = para

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """At most `k` lines, best first; those are counted as asked for."""
        words = content_words(query.text)
        found = []
        for fact in self._para.facts(active=True, workspace=query.workspace):
            share = max(_share(words, fact.fact), _share(content_words(fact.fact), query.text))
            if share >= FACT_LEAST:
                parts = (ScorePart("words", share, graph_score.SEMANTIC_WEIGHT), ScorePart("ground truth", 1.0, 0.3))
                reason = f"{fact.bucket.value}/{fact.group}: {fact.category or 'fact'}"
                line = _line(fact.id, Layer.PARA, fact.fact, parts, reason, fact.source, fact.created_at)
                found.append(replace(line, trust=fact.trust, approved=fact.approved_at is not None))
        best = _best(found, query.k)
        self._para.asked_for(one.id for one in best)
        return Found(best)


def told(entry: Fact) -> str:
    """A fact of the ledger in words."""
    payload = entry.payload
    if entry.kind == "SessionEnded":
        return f"session {entry.subject} {payload['state']}: {payload['summary']}"
    if entry.kind == "ChangeSetLanded":
        return f"landed of session {payload['session_id']}: {count(payload['files'], 'file')}"
    if entry.kind == "TaskAdded":
        return f"task {entry.subject}: {payload['title']}"
    failing = ", ".join(payload.get("failing", ())[:5])
    return {
        "LandingUndone": f"the landing of session {payload.get('session_id')} was undone",
        "ChangeSetDiscarded": f"the changes of session {payload.get('session_id')} were discarded",
        "ValidationFailed": f"tests stayed red after {payload.get('attempts')} attempts: {failing}",
        "ValidationHealed": f"tests were mended: {failing}",
        "RetryRepeated": f"another attempt left the same tests red: {failing}",
    }.get(entry.kind, f"{entry.kind} {entry.subject}")


def words_of(node: GraphNode) -> str:
    """A task in words: its title, how it ended, what came of it."""
    ended = {True: "succeeded", False: "failed", None: "open"}[node.success]
    return f"{node.title} ({ended})" + (f": {node.description}" if node.description else "")


def _share(words: frozenset[str], text: str) -> float:
    return len(words & content_words(text)) / len(words) if words else 0.0


def _line(
    id: str,
    layer: Layer,
    text: str,
    parts: tuple[ScorePart, ...],
    reason: str,
    source: str,
    at: datetime | None,
) -> Recalled:
    score = sum(part.value * part.weight for part in parts)
    return Recalled(id, layer, text, score, parts, reason, source, "", at, tokenizer.count(text))


def _best(found: Iterable[Recalled], k: int) -> tuple[Recalled, ...]:
    return tuple(sorted(found, key=lambda one: (-one.score, one.id))[:k])
