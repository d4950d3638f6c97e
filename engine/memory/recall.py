"""Recall: asks all layers in parallel, each with a deadline, and merges what they find into one list (SPEC 4.4).

Facts (layer G) come first. A layer that is slow or broken is left out and named; it never delays a prompt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from engine import tokenizer
from engine.background import run_in_thread
from engine.clock import Clock
from engine.frozen import frozen
from engine.memory.captures import session_of
from engine.memory.graph import SEMANTIC_WEIGHT, TaskGraph, recency
from engine.memory.para import Para
from engine.memory.question import STOP_WORDS, stem, stems
from engine.model import GraphNode, Layer, Recall, RecallMatch, RecallQuery, Relation, ScorePart, outcome_in_words
from engine.model.memory import weighted_sum
from engine.model.text import count
from engine.storage.ledger import Ledger, LedgerEntry

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
"""Seconds that a layer has before it is left out."""

OPTIONAL_SHARE = 0.8
"""Share of the deadline that a layer may spend on what it can do without."""

MAX_ITEMS = 1_000
MAX_COUNTED = 8_000
"""Characters up to which tokens are counted; of a longer text they are estimated."""

MAX_COMPARED = 4_000
"""Characters that are compared whatever their case and spaces; what follows is the same to the letter."""

MAX_LEADING_FACTS = 5
"""Facts that come before everything else; further ones are ordered by score."""

LAYER_PREFERENCE = {Layer.CONTEXT: 0, Layer.GRAPH: 1, Layer.LEDGER: 2}
"""Layers that describe the same session or task, the most informative first."""


@frozen
class LayerResult:
    """What a layer found, best first; `warning` says what it had to do without, "" when nothing."""

    items: tuple[RecallMatch, ...]
    warning: str = ""


class LayerSource(Protocol):
    """A layer, or several that are stored together, as recall asks it. Called from any thread."""

    @property
    def name(self) -> str:
        """How it is named when it is left out."""
        ...

    @property
    def layers(self) -> frozenset[Layer]: ...

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The best for a query, best first, at most `query.k`, scores in [0, 1]. `timeout`: seconds for what it can do
        without."""
        ...


class Recaller:
    """Recall over all layers. From any thread."""

    def __init__(self, sources: Sequence[LayerSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._late: dict[str, Future[LayerResult]] = {}

    def join(self, *sources: LayerSource) -> None:
        """Ask these as well."""
        self._sources += sources

    def recall(self, query: RecallQuery, deadline_s: float) -> Recall:
        """What all layers know about a question; at most `query.k`.

        Nothing of the session that asks; another session or task once, in the form that tells most. It takes no longer
        than the deadline, whatever the layers do.
        """
        started = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MAX_ITEMS)))
        if not query.text.strip() or not query.k:
            return Recall(())
        now = query.now or self._clock.now()
        futures: dict[str, Future[LayerResult]] = {}
        left_out: list[str] = []
        for source in self._sources:
            if query.layers is None or source.layers & query.layers:
                late = self._late.get(source.name)
                if late is not None and not late.done():
                    left_out.append(f"{source.name}: still busy with an earlier question")
                else:
                    ask = partial(_ask, source, query, now, deadline_s * OPTIONAL_SHARE)
                    futures[source.name] = run_in_thread("clawpy-recall", ask)
        lines = self._gather(futures, deadline_s, left_out)
        other_lines = [line for line in lines if not line.about or line.about != query.session]
        best = _drop_duplicates(_sort(_pick_best_forms(other_lines)))[: query.k]
        return Recall(tuple(map(_with_tokens, best)), tuple(left_out), time.perf_counter() - started)

    def _gather(
        self, futures: dict[str, Future[LayerResult]], deadline_s: float, left_out: list[str]
    ) -> list[RecallMatch]:
        """What was found until the deadline, in the order of asking; says in `left_out` who has not answered."""
        wait(futures.values(), deadline_s)
        lines: list[RecallMatch] = []
        for name, future in futures.items():
            if not future.done():
                self._late[name] = future
                left_out.append(f"{name}: no answer within {deadline_s:g} s")
            elif (error := future.exception()) is not None:
                left_out.append(f"{name}: {type(error).__name__}: {error}"[:300])
            else:
                result = future.result()
                lines += result.items
                if result.warning:
                    left_out.append(f"{name}: {result.warning}")
        return lines


def _ask(source: LayerSource, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
    try:
        return source.find(query, now, timeout)
    except Exception:
        log.exception("recall without %s", source.name)  # here, since nobody may be waiting any more
        raise


def _with_tokens(match: RecallMatch) -> RecallMatch:
    is_short = len(match.text) <= MAX_COUNTED
    return replace(match, tokens=tokenizer.count(match.text) if is_short else len(match.text) // 4)


def _pick_best_forms(lines: Iterable[RecallMatch]) -> Iterable[RecallMatch]:
    """Each session and task once, by the layer that tells most of it; what stands for itself as it is."""
    best: dict[str, RecallMatch] = {}
    for line in sorted(lines, key=lambda line: (LAYER_PREFERENCE.get(line.layer, 0), -line.score)):
        best.setdefault(line.about or line.id, line)
    return best.values()


def _sort(lines: Iterable[RecallMatch]) -> list[RecallMatch]:
    """Facts first, as many as may stand before everything; then by score. Who answered first makes no difference."""
    ordered = sorted(lines, key=lambda line: (-line.score, line.layer.value, line.id))
    facts = [line for line in ordered if line.layer is Layer.PARA][:MAX_LEADING_FACTS]
    first = {fact.id for fact in facts}
    return facts + [line for line in ordered if line.layer is not Layer.PARA or line.id not in first]


def _drop_duplicates(ordered: Sequence[RecallMatch]) -> list[RecallMatch]:
    """The same said twice is once there: in another layer, or in one by the same speaker on the same day."""
    unique: list[RecallMatch] = []
    layers: dict[str, Layer] = {}
    seen: set[tuple[str, str, str]] = set()
    for line in ordered:
        text = _normalise(line.text)
        key = (text, line.speaker.casefold(), line.at.date().isoformat() if line.at else "")
        if key in seen or layers.get(text, line.layer) is not line.layer:
            continue
        layers.setdefault(text, line.layer)
        seen.add(key)
        unique.append(line)
    return unique


def _normalise(text: str) -> str:
    """The same for texts that say the same, whatever their case and spaces."""
    return f"{' '.join(text[:MAX_COMPARED].casefold().split())} {hash(text[MAX_COMPARED:])}"


# Recall sources for layers B, F and G (SPEC 4.4): recent ledger events, tasks and their neighbours, facts. Each result
# has a score and a source; `recall` merges the results of all layers.


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

MAX_COMPARED_LINES = 300
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

NearestSessions = Callable[[str, int], Mapping[str, float]]
"""See `MemorySearch.sessions_near`."""


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
        for entry in self._ledger.latest(MAX_COMPARED_LINES, kinds=tuple(EVENT_TEXTS)):
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
            for name, cosine in self._nearest_sessions(query.text, 4 * query.k).items()
            if (node := self._graph.get(name)) is not None
        ]
        terms, near_ids = key_terms(query.text), {node.task_id for node, _, _ in nodes}
        nodes += [
            (node, "words", share)
            for node in self._graph.newest(limit=MAX_COMPARED_LINES)
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
