"""Search in layers C and E: full text and vectors propose candidates, `ranking` orders them (SPEC 4.3-4.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as EmbeddingTimeout
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from engine.background import run_in_thread
from engine.frozen import frozen
from engine.memory.candidate_reader import LAYERS, Passage, is_unscoped, open_reader, searched_layers
from engine.memory.embedding import Embedding
from engine.memory.graph import SEMANTIC_WEIGHT, recency
from engine.memory.minilm import maxsim
from engine.memory.question import STOP_WORDS, read_question
from engine.memory.ranking import (
    MAX_FOUND,
    MEANING_SHARE,
    WORDS_SHARE,
    Candidates,
    Pool,
    RankedCandidate,
    Row,
    add_text_features,
    rank,
    select_candidates,
)
from engine.memory.recall import LayerResult
from engine.memory.store import MemoryStore
from engine.memory.vectors import NoIndex, Vectors
from engine.model import Layer, Memory, RecallMatch, RecallQuery, ScorePart
from engine.model.memory import weighted_sum
from engine.storage.database import Database

if TYPE_CHECKING:
    from engine.memory.ranking import Vector
    from engine.memory.vectors import Near

MAX_SCOPED = 1_000
"""Candidates of each search where a query is limited to a workspace, an agent or a layer: the vector search knows no
limits, so that much of what it finds is left out afterwards."""


SUMMARY = "summary:"
"""Prefix of the `ref` of a session's summary; the session's id follows."""

CHUNKS_PER_MEMORY = 3
"""Passages read of each memory that is looked at closely, its nearest."""

MAX_POOL = 160
"""Candidates of both searches that are read, besides the turns before and after each."""

MAX_WHOLE = 800
"""Characters up to which a memory is returned whole where a passage is asked for."""

MAX_EXTENSION = 200
"""Characters by which a passage grows at each end, to where a sentence or a line begins and ends."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@frozen
class SearchPool:
    """Candidates for a question before they are ranked; for each the passage that fits best. `warning` as in
    `LayerResult`."""

    candidates: Candidates
    passages: list[Passage]
    warning: str = ""


class MemorySearch:
    """Layers C and E as a source of recall. From any thread."""

    layers = LAYERS
    name = "memories (C, E)"

    def __init__(self, database: Database, store: MemoryStore, vectors: Vectors) -> None:
        self._database = database
        self._store = store
        self._vectors = vectors

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `query.k` best. What the embedder does not answer within `timeout` seconds is found by words alone."""
        pool = self.collect_candidates(query, now, timeout)
        ranked = rank(pool.candidates, limit=query.k)
        passages = [pool.passages[hit.number] for hit in ranked]
        memories = self._store.by_seq(passage.seq for passage in passages)
        items = []
        for hit, passage in zip(ranked, passages, strict=True):
            memory = memories.get(passage.seq)
            if memory is not None:  # else it was deleted meanwhile
                text, place = memory.text, ""
                if query.passages and len(text) > MAX_WHOLE:
                    text, place = _expand_passage(text, passage)
                items.append(_to_match(memory, hit, text, place, now))
        return LayerResult(tuple(items), pool.warning)

    def collect_candidates(self, query: RecallQuery, now: datetime, timeout: float) -> SearchPool:
        """Candidates of both searches with everything the ranking looks at. Full text is searched while the question is
        being embedded."""
        limit = MAX_FOUND if is_unscoped(query) else MAX_SCOPED
        with open_reader(self._database, query) as reader:
            question = read_question(query.text, reader.speakers(), now=now)
            pending = run_in_thread("clawpy-question", lambda: self._vectors.embed(question.topic))
            word_scores = reader.by_words(question.words, limit)
        embedding, similarities, warning = self._search_vectors(pending, timeout, limit, searched_layers(query))
        with open_reader(self._database, query) as reader:
            rows, previous = reader.rows_with_neighbours(_fused_best(word_scores, similarities))
            near = [] if embedding is None else self._vectors.near(embedding.array, [row[0] for row in rows])
            candidates = select_candidates(question, _pool(rows, previous, word_scores, near, now))
            seqs = [row[0] for row in candidates.rows]
            nearest = _nearest_chunks(near, seqs)
            passages = reader.passages(seqs, [chunk for chunks in nearest for _, chunk, _ in chunks])
        best = _add_passages(candidates, passages, embedding, nearest)
        return SearchPool(candidates, best, warning and f"found by words only: {warning}")

    def _search_vectors(
        self, pending: Future[Embedding | None], timeout: float, limit: int, layers: frozenset[Layer]
    ) -> tuple[Embedding | None, dict[int, float], str]:
        """The question's embedding, the similarities of the nearest memories, and why there are none, "" when there
        are."""
        embedding = None
        try:
            embedding = pending.result(timeout)
            if embedding is None:
                return None, {}, self._vectors.trouble or "questions cannot be embedded"
            return embedding, self._vectors.search(embedding.array, limit, layers), ""
        except EmbeddingTimeout:
            return None, {}, "the embedder did not answer in time"
        except NoIndex as error:
            return embedding, {}, str(error)


def _add_passages(
    candidates: Candidates,
    passages: Sequence[Passage],
    embedding: Embedding | None,
    nearest: Sequence[Sequence[Near]],
) -> list[Passage]:
    """Add the features that take texts to the candidates; `nearest` has the nearest chunks of each. Returns of each the
    passage that fits the question best."""
    import numpy

    nearest_chunks = {chunks[0][1] for chunks in nearest if chunks}
    similarities = [sum(near[0] for near in chunks) / len(chunks) if chunks else 0.0 for chunks in nearest]
    scores = _token_scores(embedding, [passage.tokens for passage in passages]).tolist()
    passages_of: dict[int, list[tuple[float, bool, Passage]]] = {row[0]: [] for row in candidates.rows}
    for passage, score in zip(passages, scores, strict=True):
        passages_of[passage.seq].append((score, passage.chunk_id in nearest_chunks, passage))
    best = [max(scored, key=lambda item: item[:2]) for scored in passages_of.values()]
    texts = ["\n".join(passage.text for *_, passage in scored) for scored in passages_of.values()]
    token_scores = numpy.array([score for score, *_ in best], numpy.float32)
    add_text_features(candidates, texts, token_scores, numpy.array(similarities, numpy.float32).clip(0.0, 1.0))
    return [passage for *_, passage in best]


def _pool(
    rows: Sequence[Row],
    previous: Mapping[int, int],
    word_scores: Mapping[int, float],
    near: Sequence[Near],
    now: datetime,
) -> Pool:
    """What is known of rows without their texts; `near` is nearest first."""
    import numpy

    position = {row[0]: number for number, row in enumerate(rows)}
    before, after = numpy.full(len(rows), -1, numpy.int64), numpy.full(len(rows), -1, numpy.int64)
    for seq, earlier in previous.items():
        if seq in position and earlier in position:
            before[position[seq]], after[position[earlier]] = position[earlier], position[seq]
    similarities = {seq: similarity for similarity, _, seq in reversed(near)}
    words = numpy.array([word_scores.get(seq, 0.0) for seq in position], numpy.float32)
    meaning = numpy.array([similarities.get(seq, math.nan) for seq in position], numpy.float32)
    return Pool(rows, before, after, words, meaning, now)


def _nearest_chunks(near: Iterable[Near], seqs: Sequence[int]) -> list[list[Near]]:
    """The nearest chunks of each memory, at most `CHUNKS_PER_MEMORY`; `near` is nearest first."""
    chunks: dict[int, list[Near]] = {seq: [] for seq in seqs}
    for item in near:
        if item[2] in chunks and len(chunks[item[2]]) < CHUNKS_PER_MEMORY:
            chunks[item[2]].append(item)
    return list(chunks.values())


def _to_match(memory: Memory, ranked: RankedCandidate, text: str, place: str, now: datetime) -> RecallMatch:
    match = RecallMatch(
        id=memory.id,
        layer=memory.layer,
        text=text,
        score=ranked.score,
        parts=ranked.parts,
        reason=ranked.reason,
        source=memory.source or memory.session or memory.id,
        speaker=memory.speaker,
        at=memory.at,
        ref=memory.ref,
        trust=memory.trust,
        about=memory.session if memory.ref.startswith(SUMMARY) else "",
        place=place,
    )
    return with_age_decay(match, memory.at, now) if memory.layer is Layer.CONTEXT else match


def _expand_passage(text: str, passage: Passage) -> tuple[str, str]:
    """The passage of a long text in whole sentences or lines, and where it stands."""
    start, stop = max(0, passage.start - MAX_EXTENSION), min(len(text), passage.stop + MAX_EXTENSION)
    if start:
        start = next((match.end() for match in _SENTENCE_END.finditer(text, start, passage.start)), passage.start)
    if stop < len(text):
        ends = [match.start() for match in _SENTENCE_END.finditer(text, passage.stop, stop)]
        stop = ends[-1] if ends else passage.stop
    return text[start:stop].strip(), f"characters {start + 1}-{stop} of {len(text)}"


def with_age_decay(match: RecallMatch, at: datetime, now: datetime) -> RecallMatch:
    """A task's memory as its age lets it count (SPEC 4.6)."""
    parts = tuple(replace(part, weight=part.weight * SEMANTIC_WEIGHT) for part in match.parts)
    parts += (ScorePart("age", recency(at, now), 1 - SEMANTIC_WEIGHT),)
    return replace(match, score=weighted_sum(parts), parts=parts)


def _token_scores(embedding: Embedding | None, packed: list[bytes | None]) -> Vector:
    """How near the tokens of passages come to the telling ones of the question."""
    import numpy

    if embedding is None or not embedding.packed_tokens:
        return numpy.zeros(len(packed), numpy.float32)
    counted = [row for row, piece in enumerate(embedding.tokens) if piece[:1].isalnum() and piece not in STOP_WORDS]
    return maxsim(embedding.packed_tokens, counted, packed)


def _fused_best(word_scores: Mapping[int, float], similarities: Mapping[int, float]) -> list[int]:
    """The `seq` of what both searches together put first, at most `MAX_POOL`; `similarities` is best first."""
    best = max(word_scores.values(), default=1.0) or 1.0
    ordered = list(similarities.values())[:MAX_FOUND] or [1.0]
    floor, span = ordered[-1], max(ordered[0] - ordered[-1], 1e-6)
    fused = {seq: MEANING_SHARE * max(0.0, (value - floor) / span) for seq, value in similarities.items()}
    for seq, value in word_scores.items():
        fused[seq] = fused.get(seq, 0.0) + WORDS_SHARE * value / best
    return [seq for _, seq in sorted((-score, seq) for seq, score in fused.items())[:MAX_POOL]]
