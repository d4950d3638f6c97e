"""Search in layers C and E: full text and vectors find candidates, and `ranking` orders them (SPEC 4.3-4.5).

`MemorySearch` is the source that recall asks, in four steps: it finds candidates by both searches, chooses those that
are compared closely, reads the passages of each that are nearest to the question, and ranks them. `SearchReader` has
the statements. A search reads hundreds of rows, so they go to SQLite's driver: SQLAlchemy's rows would cost more than
the query.
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
from engine.frozen import frozen
from engine.memory import VECTOR_LAYERS, LayerResult
from engine.memory.embedding import Embedding
from engine.memory.graph import SEMANTIC_WEIGHT, compute_recency
from engine.memory.question import STOP_WORDS, parse_question
from engine.memory.store import IN_ARRAY, MAX_CANDIDATES, MemoryRow, MemoryStore, make_json_array, quote_words
from engine.memory.vectors import NoIndex, Vectors
from engine.model import Layer, Memory, RecallMatch, RecallQuery, ScorePart
from engine.storage import driver_of
from engine.storage.database import Database

if TYPE_CHECKING:
    from engine.memory.ranking import Candidates, RankedCandidate, Shortlist
    from engine.memory.vector_math import NearChunk, Vector

SUMMARY_REF_PREFIX = "summary:"
"""Prefix of the `ref` of a session's summary; the session's id follows."""

MAX_SCOPED = 1_000
"""Candidates of each search if a query is limited to a workspace, an agent or a layer. They are more than
`MAX_CANDIDATES`, because the vector search knows no such limits, and many candidates are left out afterwards."""

CHUNKS_PER_MEMORY = 3
"""Chunks that are read of each memory that is compared closely: those nearest to the question."""

MAX_WHOLE_CHARS = 800
"""Characters up to which a memory is returned whole even if passages are asked for."""

MAX_EXTENSION_CHARS = 200
"""Maximum number of characters by which a passage grows at each end, to the end of a sentence or a line."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
"""What stands between two sentences or lines."""

MAX_BEGINNING_CHARS = 2_000
"""Characters that are read of a memory without chunks."""

MAX_SCORED = 4_000
"""Memories that are scored by their words: for more of them, a question of everyday words would take seconds. In a
larger store only the rarest words of the question are searched, and for a word that is everywhere only the newest
memories."""

MAX_SPEAKERS = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""

_ROW_COLUMNS = "m.seq, m.speaker, m.session, m.at"
"""The columns of a `MemoryRow`."""

_SEQ_BEFORE = "(SELECT max(p.seq) FROM memories p WHERE p.session = m.session AND p.seq < m.seq AND m.session <> '')"
_SEQ_AFTER = "(SELECT min(n.seq) FROM memories n WHERE n.session = m.session AND n.seq > m.seq AND m.session <> '')"
_SELECT_PASSAGES = (
    "SELECT c.id, m.seq, c.start, c.stop, substr(m.text, c.start + 1, c.stop - c.start), c.tokens FROM memory_chunks c "
    f"JOIN memories m ON m.seq = c.seq WHERE c.id IN {IN_ARRAY} ORDER BY c.id"
)
_SELECT_BEGINNINGS = f"SELECT seq, substr(text, 1, ?) FROM memories WHERE seq IN {IN_ARRAY}"
_SELECT_SPEAKERS = (
    # From each to the next by the index: DISTINCT would read all of it.
    "WITH RECURSIVE known(speaker) AS (SELECT min(speaker) FROM memories WHERE speaker > '' UNION ALL "
    "SELECT (SELECT min(m.speaker) FROM memories m WHERE m.speaker > known.speaker) FROM known "
    "WHERE known.speaker IS NOT NULL LIMIT ?) SELECT speaker FROM known WHERE speaker IS NOT NULL"
)


class CollectedCandidates(NamedTuple):
    """The candidates of both searches with all features, and the passage of each that fits the question best.
    `warning` says why only words were searched, "" if vectors were searched, too."""

    candidates: Candidates
    passages: list[Passage]
    warning: str


class _VectorHits(NamedTuple):
    """The question's embedding, None if it cannot be made, and the similarities of the nearest memories. `warning` says
    why there are none, "" if there are."""

    embedding: Embedding | None
    similarities: Mapping[int, float]
    warning: str


@frozen
class MemorySearch:
    """Layers C and E as a source of recall. From any thread."""

    layers = VECTOR_LAYERS
    name = "memories (C, E)"

    database: Database
    store: MemoryStore
    vectors: Vectors

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `query.k` best. If the embedder does not answer within `timeout` seconds, they are found by their words
        alone, and the result says so."""
        candidates, passages, warning = self.collect_candidates(query, now, timeout)
        from engine.memory.ranking import rank  # late, because it imports numpy

        ranked = rank(candidates, limit=query.k)
        memories = self.store.read_by_seq(passages[hit.index].seq for hit in ranked)
        items = []
        for hit in ranked:
            passage = passages[hit.index]
            memory = memories.get(passage.seq)
            if memory is not None:  # else it was deleted meanwhile
                is_cut = query.passages and len(memory.text) > MAX_WHOLE_CHARS
                text, place = _expand_passage(memory.text, passage) if is_cut else (memory.text, "")
                items.append(_to_match(memory, hit, text, place, now))
        return LayerResult(tuple(items), warning and f"found by words only: {warning}")

    def collect_candidates(self, query: RecallQuery, now: datetime, timeout: float) -> CollectedCandidates:
        """The candidates for a question. Full text is searched while the question is embedded."""
        with open_reader(self.database, query) as reader:
            question = parse_question(query.text, reader.read_speakers(), now=now)
            pending = run_in_thread("clawpy-question", lambda: self.vectors.embed(question.topic))
            limit = MAX_SCOPED if reader.is_scoped else MAX_CANDIDATES
            word_scores = reader.find_by_words(question.words, limit)
        embedding, similarities, warning = self._search_vectors(pending, timeout, limit, reader.layers)
        from engine.memory.ranking import choose_pool, select_candidates  # not while the question waits to be embedded

        with open_reader(self.database, query) as reader:
            rows, previous = reader.read_rows_with_neighbours(choose_pool(word_scores, similarities))
            near = [] if embedding is None else self.vectors.find_near(embedding.array, [row.seq for row in rows])
            shortlist = select_candidates(question, rows, previous, word_scores, near, now)
            nearest = _group_nearest_chunks(near, [row.seq for row in shortlist.rows])
            passages = reader.read_passages(nearest)
        candidates, best_passages = _add_passages(shortlist, passages, embedding, nearest)
        return CollectedCandidates(candidates, best_passages, warning)

    def find_sessions_near(self, text: str, k: int) -> dict[str, float]:
        """The sessions whose summaries are nearest to a text, nearest first, with their cosines; {} if vectors cannot
        be searched."""
        from engine.memory.ranking import MIN_RELEVANCE

        question = self.vectors.embed(text)
        return {} if question is None else self._find_sessions(question.vector, k, MIN_RELEVANCE)

    def find_sessions_like(self, session_id: str, k: int, min_similarity: float) -> dict[str, float] | None:
        """The sessions whose summaries are nearest to the summary of a session, which is among them. {} if it has no
        summary, None while the summary has no vector yet."""
        summary = self.store.get(SUMMARY_REF_PREFIX + session_id)
        if summary is None or summary.forgotten:
            return {}
        vectors = self.store.read_chunks_of([summary.seq])
        return self._find_sessions(vectors[0][2], k, min_similarity) if vectors else None

    def _find_sessions(self, vector: bytes, k: int, min_similarity: float) -> dict[str, float]:
        """The sessions whose summaries are nearest to a vector, with their cosines."""
        try:
            hits = self.vectors.search(Embedding(vector).array, k, frozenset({Layer.CONTEXT}), min_similarity)
        except NoIndex:
            return {}
        rows = self.store.read_by_seq(hits)
        sessions: dict[str, float] = {}
        for seq, similarity in hits.items():
            if seq in rows and not rows[seq].forgotten:
                sessions.setdefault(rows[seq].session, min(1.0, similarity))
        return sessions

    def _search_vectors(
        self, pending: Future[Embedding | None], timeout: float, limit: int, layers: frozenset[Layer]
    ) -> _VectorHits:
        """Search the vectors once the question is embedded. Waits for that at most `timeout` seconds."""
        embedding = None
        try:
            embedding = pending.result(timeout)
            if embedding is None:
                return _VectorHits(None, {}, self.vectors.problem or "questions cannot be embedded")
            return _VectorHits(embedding, self.vectors.search(embedding.array, limit, layers), "")
        except EmbeddingTimeout:
            return _VectorHits(None, {}, "the embedder did not answer in time")
        except NoIndex as error:
            return _VectorHits(embedding, {}, str(error))


def _group_nearest_chunks(near: Iterable[NearChunk], seqs: Sequence[int]) -> dict[int, list[NearChunk]]:
    """The nearest chunks of each memory, at most `CHUNKS_PER_MEMORY`; `near` is nearest first."""
    chunks: dict[int, list[NearChunk]] = {seq: [] for seq in seqs}
    for chunk in near:
        seq = chunk[2]
        if seq in chunks and len(chunks[seq]) < CHUNKS_PER_MEMORY:
            chunks[seq].append(chunk)
    return chunks


def _add_passages(
    shortlist: Shortlist,
    passages: Sequence[Passage],
    embedding: Embedding | None,
    nearest: Mapping[int, Sequence[NearChunk]],
) -> tuple[Candidates, list[Passage]]:
    """The candidates of a shortlist with all features, and the passage of each that fits the question best. `nearest`
    has the nearest chunks of each."""
    from engine.memory.ranking import add_text_features

    nearest_chunks = {chunk_id for chunks in nearest.values() for _, chunk_id, _ in chunks[:1]}
    scores = _score_tokens(embedding, [passage.tokens for passage in passages]).tolist()
    scored: dict[int, list[_ScoredPassage]] = {seq: [] for seq in nearest}
    for passage, score in zip(passages, scores, strict=True):
        scored[passage.seq].append(_ScoredPassage(score, passage.chunk_id in nearest_chunks, passage))
    best = [max(of_memory, key=lambda item: (item.score, item.is_nearest)) for of_memory in scored.values()]
    candidates = add_text_features(
        shortlist,
        ["\n".join(item.passage.text for item in of_memory) for of_memory in scored.values()],
        [item.score for item in best],
        list(map(_compute_mean_similarity, nearest.values())),
    )
    return candidates, [item.passage for item in best]


class _ScoredPassage(NamedTuple):
    """A passage with the score of its tokens. `is_nearest`: its memory has no chunk that is nearer."""

    score: float
    is_nearest: bool
    passage: Passage


def _compute_mean_similarity(chunks: Sequence[NearChunk]) -> float:
    """The mean similarity of chunks to the question, 0 without any."""
    return sum(similarity for similarity, _, _ in chunks) / len(chunks) if chunks else 0.0


def _score_tokens(embedding: Embedding | None, packed: list[bytes | None]) -> Vector:
    """The score of each passage: how near its tokens come to those of the question, stop words left out."""
    from engine.memory.vector_math import compute_maxsim

    if embedding is None or not embedding.packed_tokens:
        return compute_maxsim(b"", [], packed)
    counted = [row for row, piece in enumerate(embedding.tokens) if piece[:1].isalnum() and piece not in STOP_WORDS]
    return compute_maxsim(embedding.packed_tokens, counted, packed)


def _to_match(memory: Memory, ranked: RankedCandidate, text: str, place: str, now: datetime) -> RecallMatch:
    """The match for a memory. `text` is all of it or its best passage, and `place` says where the passage is."""
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
        about=memory.session if memory.ref.startswith(SUMMARY_REF_PREFIX) else "",
        place=place,
    )
    return apply_age_decay(match, memory.at, now) if memory.layer is Layer.CONTEXT else match


def _expand_passage(text: str, passage: Passage) -> tuple[str, str]:
    """A passage of a long text, extended to whole sentences or lines, and where in the text it is, in words."""
    start, stop = max(0, passage.start - MAX_EXTENSION_CHARS), min(len(text), passage.stop + MAX_EXTENSION_CHARS)
    if start:
        start = next((match.end() for match in _SENTENCE_END.finditer(text, start, passage.start)), passage.start)
    if stop < len(text):
        ends = [match.start() for match in _SENTENCE_END.finditer(text, passage.stop, stop)]
        stop = ends[-1] if ends else passage.stop
    return text[start:stop].strip(), f"characters {start + 1}-{stop} of {len(text)}"


def apply_age_decay(match: RecallMatch, at: datetime, now: datetime) -> RecallMatch:
    """The match of a session's summary, with its age as a part of its score (SPEC 4.6)."""
    parts = tuple(replace(part, weight=part.weight * SEMANTIC_WEIGHT) for part in match.parts)
    parts += (ScorePart("age", compute_recency(at, now), 1 - SEMANTIC_WEIGHT),)
    return replace(match, score=sum(part.points for part in parts), parts=parts)


class Passage(NamedTuple):
    """A part of a memory, and its token vectors as they are stored. `chunk_id` is 0 for the beginning of a memory
    without chunks."""

    chunk_id: int
    seq: int
    start: int
    stop: int
    text: str
    tokens: bytes | None


@contextmanager
def open_reader(database: Database, query: RecallQuery) -> Iterator[SearchReader]:
    """A reader of one consistent snapshot. Do not keep it open across slow work."""
    with database.read() as session:
        yield SearchReader(driver_of(session), query)


class SearchReader:
    """Reads what a query may find: memories of its workspace and of no workspace; in layer C only those of its agent
    and of no agent; nothing of the session that asks. One thread at a time."""

    def __init__(self, connection: sqlite3.Connection, query: RecallQuery) -> None:
        self._execute = connection.execute
        self.layers = VECTOR_LAYERS if query.layers is None else VECTOR_LAYERS & query.layers
        conditions_with_values = (
            # The plus keeps SQLite from looking each memory up in the index of layers, too: its `seq` finds it at once.
            (f"+m.layer IN {IN_ARRAY}", None if self.layers == VECTOR_LAYERS else json.dumps(sorted(self.layers))),
            ("m.workspace IN (?, '')", query.workspace),
            ("(m.layer = 'E' OR m.agent IN (?, ''))", query.agent),
            ("m.session <> ?", query.session),
        )
        limits = [(condition, value) for condition, value in conditions_with_values if value is not None]
        self._values = [value for _, value in limits]
        self._scope = " AND ".join(["m.forgotten = 0", "m.superseded_by = ''", *(condition for condition, _ in limits)])

    @property
    def is_scoped(self) -> bool:
        """Whether the query limits what may be found."""
        return bool(self._values)

    def read_speakers(self) -> list[str]:
        """The names of all speakers; none if there are more than `MAX_SPEAKERS`."""
        names = [row[0] for row in self._execute(_SELECT_SPEAKERS, (MAX_SPEAKERS + 1,))]
        return names if len(names) <= MAX_SPEAKERS else []

    def find_by_words(self, words: Sequence[str], limit: int) -> dict[int, float]:
        """The `limit` best memories that have any of the words: their BM25 by their `seq`."""
        phrases = quote_words(words)
        if not phrases:
            return {}
        rarest, first_seq = self._limit_phrases(phrases)
        query = "SELECT f.rowid, -f.rank FROM memories_fts f"
        condition = "WHERE f.memories_fts MATCH ? AND f.rowid >= ?"
        if self.is_scoped:
            # Without a scope the full-text table finds its best without reading a row of `memories`. Memories that no
            # longer count are then left out by `read_rows_with_neighbours`.
            query, condition = f"{query} JOIN memories m ON m.seq = f.rowid", f"{condition} AND {self._scope}"
        values = (" OR ".join(rarest), first_seq, *self._values, limit)
        return dict(self._execute(f"{query} {condition} ORDER BY f.rank LIMIT ?", values))

    def _limit_phrases(self, phrases: Sequence[str]) -> tuple[list[str], int]:
        """The rarest of `phrases`, which together find about `MAX_SCORED` memories, and the `seq` of the first memory
        to search."""
        if self._execute("SELECT ifnull(max(seq), 0) FROM memories").fetchone()[0] <= MAX_SCORED:
            return list(phrases), 0
        query = "SELECT count(*) FROM (SELECT 1 FROM memories_fts WHERE memories_fts MATCH ? LIMIT ?)"
        counts = {phrase: self._execute(query, (phrase, MAX_SCORED + 1)).fetchone()[0] for phrase in phrases}
        rarest: list[str] = []
        total = 0
        for phrase in sorted(phrases, key=lambda item: counts[item]):
            total += counts[phrase]
            if rarest and total > MAX_SCORED:
                break
            rarest.append(phrase)
        query = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        row = self._execute(query, (" OR ".join(rarest), MAX_SCORED)).fetchone()
        return rarest, row[0] if row else 0

    def read_rows_with_neighbours(self, seqs: Iterable[int]) -> tuple[list[MemoryRow], dict[int, int]]:
        """The rows of memories and of those before and after each in its session, without those out of scope; and for
        the `seq` of each turn the `seq` of the turn before it."""
        rows: list[MemoryRow] = []
        previous: dict[int, int] = {}
        neighbours: set[int] = set()
        for seq, speaker, session, at, before, after in self._read_rows(
            f"{_ROW_COLUMNS}, {_SEQ_BEFORE}, {_SEQ_AFTER}", seqs
        ):
            rows.append(MemoryRow(seq, speaker, session, at))
            if before is not None:
                previous[seq] = before
                neighbours.add(before)
            if after is not None:
                previous[after] = seq
                neighbours.add(after)
        neighbours.difference_update(row.seq for row in rows)
        return [*rows, *(MemoryRow(*row) for row in self._read_rows(_ROW_COLUMNS, neighbours))], previous

    def _read_rows(self, columns: str, seqs: Iterable[int]) -> list[Any]:
        """These columns of the memories `seqs` that are in scope."""
        query = f"SELECT {columns} FROM memories m WHERE m.seq IN {IN_ARRAY} AND {self._scope}"
        return self._execute(query, (*make_json_array(seqs), *self._values)).fetchall()

    def read_passages(self, nearest: Mapping[int, Sequence[NearChunk]]) -> list[Passage]:
        """The nearest chunks of each memory, and the beginning of each memory that has none."""
        chunks = [chunk for near in nearest.values() for _, chunk, _ in near]
        passages = list(map(Passage._make, self._execute(_SELECT_PASSAGES, make_json_array(chunks))))
        remaining = nearest.keys() - {passage.seq for passage in passages}
        beginnings = self._execute(_SELECT_BEGINNINGS, (MAX_BEGINNING_CHARS, *make_json_array(remaining)))
        return passages + [Passage(0, seq, start=0, stop=len(text), text=text, tokens=None) for seq, text in beginnings]
