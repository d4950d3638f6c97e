"""The layers without vectors as sources of recall (SPEC 4.4): recent events of the ledger (B), tasks and their
neighbours (F), facts (G). `search` is the source of layers C and E.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from engine.frozen import frozen
from engine.memory import LayerResult
from engine.memory.graph import SEMANTIC_WEIGHT, TaskGraph, compute_recency
from engine.memory.para import Para
from engine.memory.question import STOP_WORDS, find_stems, make_stem
from engine.model import (
    GraphNode,
    Layer,
    RecallMatch,
    RecallQuery,
    Relation,
    ScorePart,
    describe_outcome,
    label_outcome,
)
from engine.storage.ledger import Ledger, LedgerEntry
from engine.wording import count

MAX_COMPARED = 300
"""Number of the newest events of the ledger, and of the newest tasks, that are compared by their words."""

MIN_SHARE = 0.5
"""Least share of a question's key terms that a fact or an event must have. They have no vectors; without vectors,
layers C and E need the same share (`ranking.MIN_RELEVANCE`)."""

REST_WEIGHT = 1 - SEMANTIC_WEIGHT
"""The weight of what counts in a score besides the similarity to the question."""

NEAREST_FACTOR = 4
"""This many times the wanted number of matches is the number of sessions that are asked for: not all are tasks that may
be found."""

MAX_ORIGIN_CHARS = 60
"""Maximum number of characters of the title of the task from which a neighbour was reached."""

NEIGHBOUR_WEIGHT = 0.8
"""The score of a neighbour is that of the task it was reached from, times this."""

EVENT_TEXTS = {
    "SessionEnded": "session {subject}: {outcome}: {summary}",
    "ChangeSetLanded": "landed of session {session_id}: {file_count}",
    "LandingUndone": "{part_of}the landing of session {session_id} was undone",
    "ChangeSetDiscarded": "the changes of session {session_id} were discarded",
    "ValidationFailed": "tests still failed after {attempts} attempts: {failing_tests}",
    "ValidationHealed": "tests were fixed: {failing_tests}",
    "RetryRepeated": "another attempt left the same tests failing: {failing_tests}",
}
"""The text of an event in a recall, by its kind."""

_REASONS_OF_SOURCE = {
    Relation.BLOCKS: "its failure blocked {}",
    Relation.DERIVED_FROM: "it goes on with {}",
    Relation.RELATED_TO: "it touches what {} touches",
    Relation.SIMILAR_TO: "it resembles {}",
}
"""The reasons for a neighbour at which the edge begins."""

_REASONS_OF_TARGET = _REASONS_OF_SOURCE | {
    Relation.BLOCKS: "it was blocked by {}",
    Relation.DERIVED_FROM: "{} goes on with it",
}
"""The reasons for a neighbour at which the edge ends."""

_STOP_STEMS = frozenset(map(make_stem, STOP_WORDS))

FindNearestSessions = Callable[[str, int], Mapping[str, float]]
"""See `MemorySearch.find_sessions_near`."""


@frozen
class LedgerSource:
    """Layer B: the newest events that share words with the question."""

    name = "ledger (B)"
    layers = frozenset({Layer.LEDGER})

    ledger: Ledger

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `k` best events, best first."""
        terms = find_key_terms(query.text)
        matches = []
        for entry in self.ledger.read_newest(MAX_COMPARED, kinds=tuple(EVENT_TEXTS)):
            text = describe_event(entry)
            share = compute_share_of_terms(terms, text)
            if share >= MIN_SHARE and (not query.workspace or entry.workspace in ("", query.workspace)):
                parts = (
                    ScorePart("words", share, SEMANTIC_WEIGHT),
                    ScorePart("recency", compute_recency(entry.at, now), REST_WEIGHT),
                )
                matches.append(
                    RecallMatch(
                        id=f"event_{entry.id}",
                        layer=Layer.LEDGER,
                        text=text,
                        score=sum(part.points for part in parts),
                        parts=parts,
                        reason="it happened",
                        source=entry.session_id,
                        about=entry.session_id,
                        at=entry.at,
                    )
                )
        return LayerResult(_select_best(matches, query.k))


@frozen
class GraphSource:
    """Layer F: tasks whose summaries are near to the question, tasks that share its words, and the neighbours of
    both."""

    name = "task graph (F)"
    layers = frozenset({Layer.GRAPH})

    graph: TaskGraph
    find_nearest_sessions: FindNearestSessions

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `k` best tasks, best first. An open task with the words of the question is left out: it is the
        question."""
        similar = _select_best(self._find_similar(query, now), query.k)
        return LayerResult(_select_best([*similar, *self._find_neighbours(similar, query)], query.k))

    def _find_similar(self, query: RecallQuery, now: datetime) -> Iterator[RecallMatch]:
        """The tasks whose summaries are near to the question, and the newest tasks that share its words."""
        nearest = self.find_nearest_sessions(query.text, NEAREST_FACTOR * query.k)
        terms, titles = find_key_terms(query.text), self.graph.read_newest_titles(MAX_COMPARED)
        shares = {id: compute_share_of_terms(terms, title) for id, title in titles.items() if id not in nearest}
        found = {id: ("semantic", similarity) for id, similarity in nearest.items()}
        found |= {id: ("words", share) for id, share in shares.items() if share >= MIN_SHARE}
        for id, node in self.graph.read(list(found)).items():
            part, similarity = found[id]
            if _is_candidate(node, query):
                parts = (
                    ScorePart(part, similarity, SEMANTIC_WEIGHT),
                    ScorePart("recency", compute_recency(node.timestamp, now), REST_WEIGHT),
                )
                yield _make_task_match(node, parts, "a task like this")

    def _find_neighbours(self, similar: Sequence[RecallMatch], query: RecallQuery) -> Iterator[RecallMatch]:
        """The tasks one step from the similar ones."""
        scores = {match.id: match.score for match in similar}
        origins = self.graph.read(list(scores))
        for edge, node in self.graph.find_neighbours(list(scores)):
            if _is_candidate(node, query):
                origin = origins[edge.other_end(node.task_id)]
                reasons = _REASONS_OF_SOURCE if edge.source == node.task_id else _REASONS_OF_TARGET
                score = min(1.0, scores[origin.task_id] * edge.weight)
                parts = (ScorePart("neighbour", score, NEIGHBOUR_WEIGHT),)
                yield _make_task_match(
                    node, parts, reasons[edge.relation].format(f"“{origin.title[:MAX_ORIGIN_CHARS]}”")
                )


@frozen
class FactSource:
    """Layer G: valid facts, found by their words."""

    name = "facts (G)"
    layers = frozenset({Layer.PARA})

    para: Para

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `k` best facts, best first. Each counts as accessed. The warning names the files that cannot be read."""
        terms = find_key_terms(query.text)
        matches = []
        para = self.para.read(active=True, workspace=query.workspace)
        for fact in para.facts:
            if (share := compute_share_of_terms(terms, fact.fact)) >= MIN_SHARE:
                parts = (ScorePart("words", share, SEMANTIC_WEIGHT), ScorePart("ground truth", 1.0, REST_WEIGHT))
                matches.append(
                    RecallMatch(
                        id=fact.id,
                        layer=Layer.PARA,
                        text=fact.fact,
                        score=sum(part.points for part in parts),
                        parts=parts,
                        reason=f"{fact.bucket.value}/{fact.group}: {fact.category or 'fact'}",
                        source=fact.source,
                        at=fact.created_at,
                        trust=fact.trust,
                        approved=fact.approved_at is not None,
                    )
                )
        best = _select_best(matches, query.k)
        self.para.count_access(match.id for match in best)
        return LayerResult(best, "; ".join(para.problems))


def describe_event(entry: LedgerEntry) -> str:
    """An event of the ledger in words."""
    payload = entry.payload
    return EVENT_TEXTS[entry.kind].format(
        subject=entry.subject,
        outcome=label_outcome(describe_outcome(payload.get("state", ""), payload.get("result", ""))),
        file_count=count(payload.get("files", 0), "file"),
        failing_tests=", ".join(payload.get("failing", ())[:5]) or "the suite as a whole",
        part_of="a part of " if payload.get("left") else "",
        **payload,
    )


def describe_task(node: GraphNode) -> str:
    """A task in words: title, outcome, description."""
    return f"{node.title} ({label_outcome(node.outcome) or 'open'})" + (
        f": {node.description}" if node.description else ""
    )


def find_key_terms(text: str) -> frozenset[str]:
    """The stems of the words of a text without stop words. If it has only stop words, the stems of all."""
    words = frozenset(find_stems(text))
    return words - _STOP_STEMS or words


def compute_share_of_terms(words: frozenset[str], text: str) -> float:
    """The share of `words` that a text has, in [0, 1]."""
    return len(words.intersection(find_stems(text))) / len(words) if words else 0.0


def _is_candidate(node: GraphNode, query: RecallQuery) -> bool:
    """Whether a task may be found: it is valid, of the workspace, and not an open task with the words of the
    question."""
    is_question = node.title.casefold().split() == query.text.casefold().split()
    is_in_workspace = query.workspace in (None, "", node.workspace)
    is_valid = node.invalidated_at is None and bool(node.title)
    return is_valid and is_in_workspace and bool(node.outcome or not is_question)


def _make_task_match(node: GraphNode, parts: tuple[ScorePart, ...], reason: str) -> RecallMatch:
    """The match of a task, with the sum of `parts` as its score."""
    return RecallMatch(
        id=node.task_id,
        layer=Layer.GRAPH,
        text=describe_task(node),
        score=sum(part.points for part in parts),
        parts=parts,
        reason=reason,
        source=node.task_id,
        about=node.task_id,
        at=node.timestamp,
    )


def _select_best(matches: Iterable[RecallMatch], k: int) -> tuple[RecallMatch, ...]:
    return tuple(sorted(matches, key=lambda match: (-match.score, match.id))[:k])
