"""Search in layers C and E: full text and vectors propose candidates, `ranking` orders them (SPEC 4.3-4.5).

Each search reads hundreds of rows, so statements go to SQLite's driver: SQLAlchemy's rows cost more than the query.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as EmbeddingTimeout
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.background import run_in_thread
from engine.memory.embedding import Embedding
from engine.memory.graph import SEMANTIC_WEIGHT, recency
from engine.memory.question import STOP_WORDS, read_question
from engine.memory.ranking import (
    MAX_FOUND,
    MEANING_SHARE,
    MIN_RELEVANCE,
    WORDS_SHARE,
    Candidates,
    Near,
    RankedCandidate,
    Row,
    add_text_features,
    rank,
    select_candidates,
)
from engine.memory.recall import LayerResult
from engine.memory.store import IN_ARRAY, LAYERS, MemoryStore, json_array, quote_words
from engine.memory.token_vectors import maxsim
from engine.memory.vectors import NoIndex, Vectors
from engine.model import Layer, Memory, RecallMatch, RecallQuery, ScorePart
from engine.model.memory import weighted_sum
from engine.storage.database import Database
from engine.storage.rows import driver_of

if TYPE_CHECKING:
    from engine.memory.ranking import Vector

SUMMARY = "summary:"
"""Prefix of the `ref` of a session's summary; the session's id follows."""

MAX_SCOPED = 1_000
"""Candidates of each search where a query is limited to a workspace, an agent or a layer: the vector search knows no
limits, so that much of what it finds is left out afterwards."""

CHUNKS_PER_MEMORY = 3
"""Passages read of each memory that is compared closely, its nearest."""

MAX_POOL = 160
"""Candidates of both searches that are read, besides the turns before and after each."""

MAX_CHARACTERS = 2_000
"""Characters read of a memory whose passages are not known."""

MAX_SCORED = 4_000
"""Memories that are scored by their words; with more, a question of everyday words would take seconds. In a larger
store only the rarest words of the question are searched, and for a word that is everywhere only the newest memories."""

MAX_SPEAKERS = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""

MAX_WHOLE = 800
"""Characters up to which a memory is returned whole where a passage is asked for."""

MAX_EXTENSION = 200
"""Characters by which a passage grows at each end, to where a sentence or a line begins and ends."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


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
        candidates, passages, warning = self.collect_candidates(query, now, timeout)
        ranked = rank(candidates, limit=query.k)
        memories = self._store.by_seq(passages[hit.number].seq for hit in ranked)
        items = []
        for hit in ranked:
            passage = passages[hit.number]
            memory = memories.get(passage.seq)
            if memory is not None:  # else it was deleted meanwhile
                is_cut = query.passages and len(memory.text) > MAX_WHOLE
                text, place = _expand_passage(memory.text, passage) if is_cut else (memory.text, "")
                items.append(_to_match(memory, hit, text, place, now))
        return LayerResult(tuple(items), warning and f"found by words only: {warning}")

    def collect_candidates(
        self, query: RecallQuery, now: datetime, timeout: float
    ) -> tuple[Candidates, list[Passage], str]:
        """The candidates of both searches with all features, the passage of each that fits best, and why words alone
        were searched, "" when they were not. Full text is searched while the question is embedded."""
        layers = LAYERS if query.layers is None else LAYERS & query.layers
        is_unscoped = query.workspace is query.agent is query.session is None and layers == LAYERS
        limit = MAX_FOUND if is_unscoped else MAX_SCOPED
        with open_reader(self._database, query) as reader:
            question = read_question(query.text, reader.speakers(), now=now)
            pending = run_in_thread("clawpy-question", lambda: self._vectors.embed(question.topic))
            word_scores = reader.by_words(question.words, limit)
        embedding, similarities, warning = self._search_vectors(pending, timeout, limit, layers)
        with open_reader(self._database, query) as reader:
            rows, previous = reader.rows_with_neighbours(_fused_best(word_scores, similarities))
            near = [] if embedding is None else self._vectors.near(embedding.array, [row[0] for row in rows])
            candidates = select_candidates(question, rows, previous, word_scores, near, now)
            nearest = _nearest_chunks(near, [row[0] for row in candidates.rows])
            passages = reader.passages(nearest)
        return candidates, _add_passages(candidates, passages, embedding, nearest), warning

    def sessions_near(self, text: str, k: int) -> dict[str, float]:
        """The sessions whose summaries are nearest to a text, nearest first, with their cosines; {} where no vectors
        can tell."""
        question = self._vectors.embed(text)
        return {} if question is None else self._sessions(question.vector, k, MIN_RELEVANCE)

    def sessions_like(self, session_id: str, k: int, min_similarity: float) -> dict[str, float] | None:
        """The same for the summary of a session, itself among them; {} when it has none, None while its vector is still
        to be made."""
        summary = self._store.get(SUMMARY + session_id)
        if summary is None or summary.forgotten:
            return {}
        vectors = self._store.vectors_of(seqs=[summary.seq])
        return self._sessions(vectors[0][2], k, min_similarity) if vectors else None

    def _sessions(self, vector: bytes, k: int, min_similarity: float) -> dict[str, float]:
        try:
            hits = self._vectors.search(Embedding(vector).array, k, frozenset({Layer.CONTEXT}), min_similarity)
        except NoIndex:
            return {}
        rows = self._store.by_seq(hits)
        sessions: dict[str, float] = {}
        for seq, similarity in hits.items():
            if seq in rows and not rows[seq].forgotten:
                sessions.setdefault(rows[seq].session, min(1.0, similarity))
        return sessions

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


# -- reading


class Passage(NamedTuple):
    """A stretch of a memory, and what is kept of its tokens."""

    chunk_id: int
    seq: int
    start: int
    stop: int
    text: str
    tokens: bytes | None


@contextmanager
def open_reader(database: Database, query: RecallQuery) -> Iterator[Reader]:
    """A view of one moment. Not to be kept open."""
    with database.read() as session:
        yield Reader(driver_of(session), query)


class Reader:
    """Reads what a query may find, in one thread: memories of its workspace, or of none; of layer C those of its agent,
    or of none; nothing of the session that asks."""

    def __init__(self, connection: sqlite3.Connection, query: RecallQuery) -> None:
        self._execute = connection.execute
        layers = LAYERS if query.layers is None else LAYERS & query.layers
        # The plus keeps SQLite from looking each memory up twice in the index of layers: its number finds it at once.
        scope = {
            "+m.layer IN (SELECT value FROM json_each(?))": json.dumps(sorted(layers)) if layers != LAYERS else None,
            "m.workspace IN (?, '')": query.workspace,
            "(m.layer = 'E' OR m.agent IN (?, ''))": query.agent,
            "m.session <> ?": query.session,
        }
        self._values = [value for value in scope.values() if value is not None]
        limits = [condition for condition, value in scope.items() if value is not None]
        self._scope = " AND ".join(["m.forgotten = 0", "m.superseded_by = ''", *limits])

    def speakers(self) -> list[str]:
        """The names of all speakers; none where there are more than `MAX_SPEAKERS`."""
        names = [row[0] for row in self._execute(_SPEAKERS, (MAX_SPEAKERS + 1,))]
        return names if len(names) <= MAX_SPEAKERS else []

    def by_words(self, words: Sequence[str], limit: int) -> dict[int, float]:
        """BM25 of the `limit` best that have any of the words, by their number (`seq`)."""
        words = quote_words(words)
        if not words:
            return {}
        words, first_seq = self._limit_words(words)
        query = "SELECT f.rowid, -f.rank FROM memories_fts f"
        condition = "WHERE f.memories_fts MATCH ? AND f.rowid >= ?"
        if self._values:
            # The full-text table alone can keep its best without reading a row; what is gone is left out later.
            query, condition = f"{query} JOIN memories m ON m.seq = f.rowid", f"{condition} AND {self._scope}"
        values = (" OR ".join(words), first_seq, *self._values, limit)
        return dict(self._execute(f"{query} {condition} ORDER BY f.rank LIMIT ?", values))

    def _limit_words(self, words: Sequence[str]) -> tuple[list[str], int]:
        """Those of `words` that find at most about `MAX_SCORED` memories, and the number of the first one to search."""
        if self._execute("SELECT ifnull(max(seq), 0) FROM memories").fetchone()[0] <= MAX_SCORED:
            return list(words), 0
        query = "SELECT count(*) FROM (SELECT 1 FROM memories_fts WHERE memories_fts MATCH ? LIMIT ?)"
        counts = {word: self._execute(query, (word, MAX_SCORED + 1)).fetchone()[0] for word in words}
        rarest: list[str] = []
        total = 0
        for word in sorted(words, key=lambda item: counts[item]):
            total += counts[word]
            if rarest and total > MAX_SCORED:
                break
            rarest.append(word)
        query = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        row = self._execute(query, (" OR ".join(rarest), MAX_SCORED)).fetchone()
        return rarest, row[0] if row else 0

    def rows_with_neighbours(self, seqs: Iterable[int]) -> tuple[list[Row], dict[int, int]]:
        """Memories by their numbers, with those before and after each in its session, and the number of the one
        before, by number; those out of scope are left out."""
        rows: list[Row] = []
        previous: dict[int, int] = {}
        for seq, speaker, session, at, before, after in self._rows(f"{_ROW}, {_BEFORE}, {_AFTER}", seqs):
            rows.append((seq, speaker, session, at))
            if before is not None:
                previous[seq] = before
            if after is not None:
                previous[after] = seq
        neighbours = (previous.keys() | previous.values()).difference(row[0] for row in rows)
        return rows + self._rows(_ROW, neighbours), previous

    def _rows(self, columns: str, seqs: Iterable[int]) -> list[Any]:
        query = f"SELECT {columns} FROM memories m WHERE m.seq IN {IN_ARRAY} AND {self._scope}"
        return self._execute(query, (*json_array(seqs), *self._values)).fetchall()

    def passages(self, nearest: Mapping[int, Sequence[Near]]) -> list[Passage]:
        """The chunks of each memory; and how each begins that has none."""
        chunks = [chunk for near in nearest.values() for _, chunk, _ in near]
        passages = list(map(Passage._make, self._execute(_PASSAGES, json_array(chunks))))
        remaining = nearest.keys() - {passage.seq for passage in passages}
        beginnings = self._execute(_BEGINNINGS, (MAX_CHARACTERS, *json_array(remaining)))
        return passages + [Passage(0, seq, 0, len(text), text, None) for seq, text in beginnings]


_ROW = "m.seq, m.speaker, m.session, m.at"
_BEFORE = "(SELECT max(p.seq) FROM memories p WHERE p.session = m.session AND p.seq < m.seq AND m.session <> '')"
_AFTER = "(SELECT min(n.seq) FROM memories n WHERE n.session = m.session AND n.seq > m.seq AND m.session <> '')"
_PASSAGES = (
    "SELECT c.id, m.seq, c.start, c.stop, substr(m.text, c.start + 1, c.stop - c.start), c.tokens FROM memory_chunks c "
    f"JOIN memories m ON m.seq = c.seq WHERE c.id IN {IN_ARRAY} ORDER BY c.id"
)
_BEGINNINGS = f"SELECT seq, substr(text, 1, ?) FROM memories WHERE seq IN {IN_ARRAY}"
_SPEAKERS = (
    # From each to the next by the index: DISTINCT would read all of it.
    "WITH RECURSIVE known(speaker) AS (SELECT min(speaker) FROM memories WHERE speaker > '' UNION ALL "
    "SELECT (SELECT min(m.speaker) FROM memories m WHERE m.speaker > known.speaker) FROM known "
    "WHERE known.speaker IS NOT NULL LIMIT ?) SELECT speaker FROM known WHERE speaker IS NOT NULL"
)


# -- putting together


def _fused_best(word_scores: Mapping[int, float], similarities: Mapping[int, float]) -> list[int]:
    """The `seq` of what both searches together put first, at most `MAX_POOL`; `similarities` is best first."""
    best = max(word_scores.values(), default=1.0) or 1.0
    ordered = list(similarities.values())[:MAX_FOUND] or [1.0]
    floor, span = ordered[-1], max(ordered[0] - ordered[-1], 1e-6)
    fused = {seq: MEANING_SHARE * max(0.0, (value - floor) / span) for seq, value in similarities.items()}
    for seq, value in word_scores.items():
        fused[seq] = fused.get(seq, 0.0) + WORDS_SHARE * value / best
    return [seq for _, seq in sorted((-score, seq) for seq, score in fused.items())[:MAX_POOL]]


def _nearest_chunks(near: Iterable[Near], seqs: Sequence[int]) -> dict[int, list[Near]]:
    """The nearest chunks of each memory, at most `CHUNKS_PER_MEMORY`; `near` is nearest first."""
    chunks: dict[int, list[Near]] = {seq: [] for seq in seqs}
    for item in near:
        if item[2] in chunks and len(chunks[item[2]]) < CHUNKS_PER_MEMORY:
            chunks[item[2]].append(item)
    return chunks


def _add_passages(
    candidates: Candidates,
    passages: Sequence[Passage],
    embedding: Embedding | None,
    nearest: Mapping[int, Sequence[Near]],
) -> list[Passage]:
    """Add the features that take texts to the candidates; `nearest` has the nearest chunks of each. Returns of each the
    passage that fits the question best."""
    import numpy

    nearest_chunks = {chunks[0][1] for chunks in nearest.values() if chunks}
    similarities = [sum(near[0] for near in chunks) / len(chunks) if chunks else 0.0 for chunks in nearest.values()]
    scores = _token_scores(embedding, [passage.tokens for passage in passages]).tolist()
    passages_of: dict[int, list[tuple[float, bool, Passage]]] = {seq: [] for seq in nearest}
    for passage, score in zip(passages, scores, strict=True):
        passages_of[passage.seq].append((score, passage.chunk_id in nearest_chunks, passage))
    best = [max(scored, key=lambda item: item[:2]) for scored in passages_of.values()]
    texts = ["\n".join(passage.text for *_, passage in scored) for scored in passages_of.values()]
    token_scores = numpy.array([score for score, *_ in best], numpy.float32)
    add_text_features(candidates, texts, token_scores, numpy.array(similarities, numpy.float32).clip(0.0, 1.0))
    return [passage for *_, passage in best]


def _token_scores(embedding: Embedding | None, packed: list[bytes | None]) -> Vector:
    """How near the tokens of passages come to the telling ones of the question."""
    if embedding is None or not embedding.packed_tokens:
        return maxsim(b"", [], packed)
    counted = [row for row, piece in enumerate(embedding.tokens) if piece[:1].isalnum() and piece not in STOP_WORDS]
    return maxsim(embedding.packed_tokens, counted, packed)


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
