"""Recall sources for layers B, F and G (SPEC 4.4): recent ledger events, tasks and their neighbours, facts. Each result
has a score and a source; `recall` merges the results of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from engine.memory.graph import TaskGraph
from engine.memory.graph_rules import SEMANTIC_WEIGHT, recency
from engine.memory.para import Para
from engine.memory.question import STOP_WORDS, stem, stems
from engine.memory.recall import LayerResult
from engine.memory.work import session_of
from engine.model import GraphNode, Layer, RecallMatch, RecallQuery, Relation, ScorePart, outcome_in_words
from engine.model.memory import weighted_sum
from engine.model.text import count
from engine.storage.ledger import Ledger, LedgerEntry

EVENT_TEXTS = {
    "SessionEnded": "session {subject}: {outcome}: {summary}",
    "ChangeSetLanded": "landed of session {session_id}: {file_count}",
    "LandingUndone": "{part_of}the landing of session {session_id} was undone",
    "ChangeSetDiscarded": "the changes of session {session_id} were discarded",
    "ValidationFailed": "tests still failed after {attempts} attempts: {failing_tests}",
    "ValidationHealed": "tests were fixed: {failing_tests}",
    "RetryRepeated": "another attempt left the same tests failing: {failing_tests}",
}
"""What recall says of an event, by its kind."""

MAX_COMPARED = 300
"""The newest events of the ledger, and the newest tasks, that are compared by their words."""

MIN_SHARE = 0.5
"""Share of a question's key terms that a fact or a line of the ledger must have: they have no vectors, and this is
what words alone need in layers C and E (`ranking.MIN_RELEVANCE`)."""

NEIGHBOUR_WEIGHT = 0.8
"""A neighbour's score, as a part of that of the task it was reached from."""

_EDGE_REASONS = {
    (Relation.BLOCKS, True): "its failure blocked {}",
    (Relation.BLOCKS, False): "it was blocked by {}",
    (Relation.DERIVED_FROM, True): "it goes on with {}",
    (Relation.DERIVED_FROM, False): "{} goes on with it",
    (Relation.RELATED_TO, True): "it touches what {} touches",
    (Relation.RELATED_TO, False): "it touches what {} touches",
    (Relation.SIMILAR_TO, True): "it resembles {}",
    (Relation.SIMILAR_TO, False): "it resembles {}",
}

NearestSessions = Callable[[str, int], Sequence[tuple[str, float]]]
"""Sessions whose summaries are close to words, with their cosines; () where nothing can say."""


class LedgerSource:
    """Layer B: the newest facts that share words with the question."""

    name = "ledger (B)"
    layers = frozenset({Layer.LEDGER})

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """At most `k` lines, best first."""
        terms = key_terms(query.text)
        lines = []
        for entry in self._ledger.latest(MAX_COMPARED, kinds=tuple(EVENT_TEXTS)):
            text = describe_event(entry)
            share = share_of_terms(terms, text)
            if share >= MIN_SHARE and (not query.workspace or entry.workspace in ("", query.workspace)):
                parts = _parts("words", share, "recency", recency(entry.at, now))
                about = session_of(entry)
                lines.append(_line(f"event_{entry.id}", Layer.LEDGER, text, parts, "it happened", entry.at, about))
        return LayerResult(_best_lines(lines, query.k))


class GraphSource:
    """Layer F: tasks whose summaries are close to the question, or which share its words; and what is one step away."""

    name = "task graph (F)"
    layers = frozenset({Layer.GRAPH})

    def __init__(self, graph: TaskGraph, nearest_sessions: NearestSessions) -> None:
        self._graph = graph
        self._nearest_sessions = nearest_sessions

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """At most `k` lines, best first; not the task that the question itself is. Raises `Refusal` `not_ready` while
        the graph is read."""
        nodes = [
            (node, "semantic", cosine)
            for name, cosine in self._nearest_sessions(query.text, 4 * query.k)
            if (node := self._graph.get(name)) is not None
        ]
        terms, near_ids = key_terms(query.text), {node.task_id for node, _, _ in nodes}
        nodes += [
            (node, "words", share)
            for node in self._graph.newest(limit=MAX_COMPARED)
            if node.task_id not in near_ids and (share := share_of_terms(terms, node.title)) >= MIN_SHARE
        ]
        lines = _best_lines(
            (
                _task_line(node, _parts(part, value, "recency", recency(node.timestamp, now)), "a task like this")
                for node, part, value in nodes
                if _is_candidate(node, query)
            ),
            query.k,
        )
        return LayerResult(_best_lines([*lines, *self._neighbour_lines(lines, query)], query.k))

    def _neighbour_lines(self, origins_found: Sequence[RecallMatch], query: RecallQuery) -> list[RecallMatch]:
        """What is one step from the tasks that were found, with the arrow that leads there."""
        origins = {line.id: line for line in origins_found}
        lines = []
        for edge, node in self._graph.neighbours(list(origins)):
            origin = self._graph.get(edge.other_end(node.task_id))
            if origin is not None and _is_candidate(node, query):
                score = min(1.0, origins[origin.task_id].score * edge.weight)
                reason = _EDGE_REASONS[edge.relation, edge.source == node.task_id].format(f"“{origin.title[:60]}”")
                lines.append(_task_line(node, (ScorePart("neighbour", score, NEIGHBOUR_WEIGHT),), reason))
        return lines


class FactSource:
    """Layer G: canonical facts that hold, by their words."""

    name = "facts (G)"
    layers = frozenset({Layer.PARA})

    def __init__(self, para: Para) -> None:
        self._para = para

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """At most `k` lines, best first; those are counted as asked for."""
        terms = key_terms(query.text)
        lines = []
        for fact in self._para.facts(active=True, workspace=query.workspace):
            share = share_of_terms(terms, fact.fact)
            if share >= MIN_SHARE:
                parts = _parts("words", share, "ground truth", 1.0)
                lines.append(
                    RecallMatch(
                        id=fact.id,
                        layer=Layer.PARA,
                        text=fact.fact,
                        score=weighted_sum(parts),
                        parts=parts,
                        reason=f"{fact.bucket.value}/{fact.group}: {fact.category or 'fact'}",
                        source=fact.source,
                        at=fact.created_at,
                        trust=fact.trust,
                        approved=fact.approved_at is not None,
                    )
                )
        best = _best_lines(lines, query.k)
        self._para.count_access(line.id for line in best)
        return LayerResult(best)


def describe_event(entry: LedgerEntry) -> str:
    """A fact of the ledger in words."""
    payload = entry.payload
    return EVENT_TEXTS[entry.kind].format(
        subject=entry.subject,
        outcome=outcome_in_words(payload.get("state", ""), payload.get("result", "")),
        file_count=count(payload.get("files", 0), "file"),
        failing_tests=", ".join(payload.get("failing", ())[:5]),
        part_of="a part of " if payload.get("left") else "",
        **payload,
    )


def describe_task(node: GraphNode) -> str:
    """A task in words: its title, how it ended, what came of it."""
    return f"{node.title} ({node.outcome or 'open'})" + (f": {node.description}" if node.description else "")


def key_terms(text: str) -> frozenset[str]:
    """The words of a text that say something, by their stems; all of them where none does."""
    words = stems(text)
    return frozenset(words) - _STOP_STEMS or frozenset(words)


def share_of_terms(words: frozenset[str], text: str) -> float:
    """The share of `words` that a text has, in [0, 1]."""
    return len(words.intersection(stems(text))) / len(words) if words else 0.0


_STOP_STEMS = frozenset(map(stem, STOP_WORDS))


def _is_question(query: RecallQuery, title: str) -> bool:
    """Whether a task of this title is what the question says, word for word."""
    return " ".join(title.casefold().split()) == " ".join(query.text.casefold().split())


def _is_candidate(node: GraphNode, query: RecallQuery) -> bool:
    return (
        node.invalidated_at is None
        and bool(node.title)
        and query.workspace in (None, "", node.workspace)
        and (bool(node.outcome) or not _is_question(query, node.title))
    )


def _task_line(node: GraphNode, parts: tuple[ScorePart, ...], reason: str) -> RecallMatch:
    return _line(node.task_id, Layer.GRAPH, describe_task(node), parts, reason, node.timestamp, node.task_id)


def _parts(name: str, value: float, other: str, other_value: float) -> tuple[ScorePart, ...]:
    """How like it is, and what else counts."""
    return ScorePart(name, value, SEMANTIC_WEIGHT), ScorePart(other, other_value, 1 - SEMANTIC_WEIGHT)


def _line(
    id: str, layer: Layer, text: str, parts: tuple[ScorePart, ...], reason: str, at: datetime, about: str
) -> RecallMatch:
    """What a session or a task came to."""
    return RecallMatch(id, layer, text, weighted_sum(parts), parts, reason, source=about, at=at, about=about)


def _best_lines(lines: Iterable[RecallMatch], k: int) -> tuple[RecallMatch, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.score, line.id))[:k])
