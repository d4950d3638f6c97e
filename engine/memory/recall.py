"""Recall (SPEC 4.4): asks all layers in parallel, each with a deadline, and merges what they find into one list.

Facts (layer G) come first. A layer that is slow or broken is left out, and the result names it; it never delays a
prompt. `search` is the source of layers C and E. The sources of the layers without vectors are here: recent events of
the ledger (B), tasks and their neighbours (F), facts (G).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from engine import tokenizer
from engine.background import run_in_thread
from engine.clock import Clock
from engine.frozen import frozen
from engine.memory.graph import SEMANTIC_WEIGHT, TaskGraph, compute_recency
from engine.memory.para import Para
from engine.memory.question import STOP_WORDS, find_stems, make_stem
from engine.model import (
    GraphNode,
    Layer,
    Recall,
    RecallMatch,
    RecallQuery,
    Relation,
    ScorePart,
    describe_outcome,
    label_outcome,
)
from engine.storage.ledger import Ledger, LedgerEntry
from engine.wording import count

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
"""Seconds after which a layer is left out."""

OPTIONAL_SHARE = 0.8
"""Share of the deadline that a layer may spend on work without which it can still answer."""

MAX_ITEMS = 1_000
"""Maximum number of matches of one recall."""

MAX_WARNING_CHARS = 280
"""Maximum number of characters of the error of a layer that is left out."""

MAX_COUNTED_CHARS = 8_000
"""Up to this many characters the tokens of a text are counted; those of a longer text are estimated."""

MAX_LEADING_FACTS = 5
"""Number of facts that come before everything else. Further facts are ordered by their score."""

LAYER_PREFERENCE = {Layer.CONTEXT: 0, Layer.GRAPH: 1, Layer.LEDGER: 2}
"""The order of layers that describe the same session or task: the most informative first."""

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

NearestSessions = Callable[[str, int], Mapping[str, float]]
"""See `MemorySearch.find_sessions_near`."""


# -- asking the layers


@frozen
class LayerResult:
    """What a layer found, best first. `warning` says what was missing, "" if nothing was."""

    items: tuple[RecallMatch, ...]
    warning: str = ""


class LayerSource(Protocol):
    """A layer, or several that are stored together, as a source of recall. Called from any thread."""

    @property
    def name(self) -> str:
        """Its name in the list of what was left out."""
        ...

    @property
    def layers(self) -> frozenset[Layer]: ...

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `query.k` best matches, best first, with scores in [0, 1]. `timeout`: seconds for work without which it
        can still answer; a layer that has no such work does not need it."""
        ...


class Recaller:
    """Recall over all layers. From any thread."""

    def __init__(self, sources: Sequence[LayerSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._late: dict[str, Future[LayerResult]] = {}

    def join(self, *sources: LayerSource) -> None:
        """Ask these sources as well."""
        self._sources += sources

    def recall(self, query: RecallQuery, deadline_s: float) -> Recall:
        """The `query.k` best matches of all layers for a question.

        The session that asks is left out. Each other session or task is in the list once, from the most informative
        layer. Recall takes no longer than the deadline, whatever the layers do.
        """
        started = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MAX_ITEMS)))
        if not query.text.strip() or not query.k:
            return Recall(())
        now = query.now or self._clock.now()
        results = self._ask_layers(query, now, deadline_s)
        matches = [match for result in results.values() for match in result.items]
        others = [match for match in matches if not match.about or match.about != query.session]
        best = _drop_duplicates(_sort(others))[: query.k]
        left_out = tuple(f"{name}: {result.warning}" for name, result in results.items() if result.warning)
        return Recall(tuple(map(_add_token_count, best)), left_out, time.perf_counter() - started)

    def _ask_layers(self, query: RecallQuery, now: datetime, deadline_s: float) -> dict[str, LayerResult]:
        """The results of the layers that the query asks, by their names. A layer that is still busy with an earlier
        question is not asked."""
        results: dict[str, LayerResult] = {}
        futures: dict[str, Future[LayerResult]] = {}
        for source in self._sources:
            if query.layers is not None and not source.layers & query.layers:
                continue
            if self._is_busy(source.name):
                results[source.name] = LayerResult((), "still busy with an earlier question")
                continue
            ask = partial(_ask, source, query, now, deadline_s * OPTIONAL_SHARE)
            futures[source.name] = run_in_thread("clawpy-recall", ask)
        wait(futures.values(), deadline_s)
        return results | {name: self._collect_result(name, future, deadline_s) for name, future in futures.items()}

    def _is_busy(self, name: str) -> bool:
        """Whether the layer `name` has still not answered an earlier question."""
        return name in self._late and not self._late[name].done()

    def _collect_result(self, name: str, future: Future[LayerResult], deadline_s: float) -> LayerResult:
        """What the layer `name` has answered by the deadline; nothing but a warning if it has not, or if it failed."""
        if not future.done():
            self._late[name] = future
            return LayerResult((), f"no answer within {deadline_s:g} s")
        error = future.exception()
        if error is not None:
            return LayerResult((), f"{type(error).__name__}: {error}"[:MAX_WARNING_CHARS])
        return future.result()


def _ask(source: LayerSource, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
    try:
        return source.find(query, now, timeout)
    except Exception:
        log.exception("recall without %s", source.name)  # here, because after the deadline nobody reads the error
        raise


def _add_token_count(match: RecallMatch) -> RecallMatch:
    """The match with the number of its tokens."""
    is_short = len(match.text) <= MAX_COUNTED_CHARS
    return replace(match, tokens=tokenizer.count(match.text) if is_short else len(match.text) // 4)


def _sort(matches: Iterable[RecallMatch]) -> list[RecallMatch]:
    """Each session and task once, from the most informative layer. The best facts first, then by score; the order in
    which layers answered does not matter."""
    best: dict[str, RecallMatch] = {}
    for match in sorted(matches, key=lambda match: (LAYER_PREFERENCE.get(match.layer, 0), -match.score)):
        best.setdefault(match.about or match.id, match)
    ordered = sorted(best.values(), key=lambda match: (-match.score, match.layer.value, match.id))
    best_facts = [match for match in ordered if match.layer is Layer.PARA][:MAX_LEADING_FACTS]
    return best_facts + [match for match in ordered if match not in best_facts]


def _drop_duplicates(ordered: Sequence[RecallMatch]) -> list[RecallMatch]:
    """Without repetitions: the same text in another layer, or in the same one by the same speaker on the same day."""
    unique: dict[tuple[str, str, str], RecallMatch] = {}
    layers: dict[str, Layer] = {}
    for match in ordered:
        text = " ".join(match.text.casefold().split())
        if layers.setdefault(text, match.layer) is match.layer:
            day = match.at.date().isoformat() if match.at else ""
            unique.setdefault((text, match.speaker.casefold(), day), match)
    return [*unique.values()]


# -- the sources without vectors


@frozen
class LedgerSource:
    """Layer B: the newest events that share words with the question."""

    name = "ledger (B)"
    layers = frozenset({Layer.LEDGER})

    ledger: Ledger

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `k` best events, best first."""
        terms = key_terms(query.text)
        matches = []
        for entry in self.ledger.latest(MAX_COMPARED, kinds=tuple(EVENT_TEXTS)):
            text = describe_event(entry)
            share = compute_share_of_terms(terms, text)
            if share >= MIN_SHARE and (not query.workspace or entry.workspace in ("", query.workspace)):
                parts = (
                    ScorePart("words", share, SEMANTIC_WEIGHT),
                    ScorePart("recency", compute_recency(entry.at, now), REST_WEIGHT),
                )
                session = entry.session_id
                match = RecallMatch(
                    id=f"event_{entry.id}",
                    layer=Layer.LEDGER,
                    text=text,
                    score=sum(part.points for part in parts),
                    parts=parts,
                    reason="it happened",
                    source=session,
                    about=session,
                    at=entry.at,
                )
                matches.append(match)
        return LayerResult(_select_best(matches, query.k))


@frozen
class GraphSource:
    """Layer F: tasks whose summaries are near to the question, tasks that share its words, and the neighbours of
    both."""

    name = "task graph (F)"
    layers = frozenset({Layer.GRAPH})

    graph: TaskGraph
    nearest_sessions: NearestSessions

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `k` best tasks, best first. An open task with the words of the question is left out: it is the
        question."""
        similar = _select_best(self._find_similar(query, now), query.k)
        return LayerResult(_select_best([*similar, *self._find_neighbours(similar, query)], query.k))

    def _find_similar(self, query: RecallQuery, now: datetime) -> Iterator[RecallMatch]:
        """The tasks whose summaries are near to the question, and the newest tasks that share its words."""
        nearest = self.nearest_sessions(query.text, NEAREST_FACTOR * query.k)
        terms, titles = key_terms(query.text), self.graph.read_newest_titles(MAX_COMPARED)
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
        terms = key_terms(query.text)
        matches = []
        para = self.para.read(active=True, workspace=query.workspace)
        for fact in para.facts:
            if (share := compute_share_of_terms(terms, fact.fact)) >= MIN_SHARE:
                parts = (ScorePart("words", share, SEMANTIC_WEIGHT), ScorePart("ground truth", 1.0, REST_WEIGHT))
                match = RecallMatch(
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
                matches.append(match)
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


def key_terms(text: str) -> frozenset[str]:
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
