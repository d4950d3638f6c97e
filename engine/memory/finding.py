"""Finds in layers C and E: by words and by meaning at once, then ranked closely (SPEC 4.3-4.5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

from engine.memory.candidates import Candidates, Row, Scope
from engine.memory.features import FOUND_MOST, MEANING_SHARE, WORDS_SHARE, Pool, first_look
from engine.memory.question import EMPTY, Question, read
from engine.memory.ranking import CLOSE_MOST, Ranked, rank
from engine.memory.store import MemoryStore
from engine.memory.token_vectors import match
from engine.memory.vectors import Read, Vectors
from engine.values import Layer, Recalled, RecallQuery, ScorePart

if TYPE_CHECKING:
    from engine.memory.features import Places, Vector

SCOPED_MOST = 1_000
"""Where not everything may be found, the search by meaning, which knows no scope, brings so many."""

CANDIDATES_WITHIN = 2.0
"""Squared L2 of candidates. What is found in the end keeps to 1.5, unless more than its vector speaks for it (4.3)."""

POOL_MOST = 160
"""So many of what both searches bring are read, with the two turns before and after each."""

DECAY_SHARE, DECAY_DAYS = 0.3, 14.0
"""Tasks fade: score = 0.7 * score + 0.3 * exp(-age in days / 14) (SPEC 4.6)."""

ROLE_FALLBACK_MOST = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a layer found, best first; `words` says what it had to do without, "" when nothing."""

    items: tuple[Recalled, ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """All that the ranking knows about one question: for benchmarks and for fitting the weights."""

    question: Question
    pool: Pool
    rows: tuple[Row, ...]
    places: Places
    matched: tuple[Vector, Vector]
    ranked: tuple[Ranked, ...]
    words: str = ""


class StoredMemories:
    """Layers C and E as a source of recall. From any thread."""

    layers = frozenset({Layer.VECTORS, Layer.CONTEXT})
    name = "memories (C, E)"

    def __init__(self, candidates: Candidates, store: MemoryStore, vectors: Vectors) -> None:
        self._candidates = candidates
        self._store = store
        self._vectors = vectors

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """The `query.k` best. What the embedder does not answer within `patience` seconds is found by words alone."""
        looked = self.look(query, now, patience)
        return Found(tuple(self._recalled(looked, one, now) for one in looked.ranked), looked.words)

    def look(self, query: RecallQuery, now: datetime, patience: float) -> Looked:
        """Search, read and rank."""
        import numpy

        layers = self.layers if query.layers is None else self.layers & query.layers
        scope = Scope(query.workspace, query.agent, layers)
        speakers = self._store.speakers()
        question = read(query.text, speakers if len(speakers) <= ROLE_FALLBACK_MOST else (), now=now)
        asking = _aside(lambda: self._vectors.read(question.nameless))
        words = self._candidates.by_words(question.words, scope, FOUND_MOST if scope.everything else SCOPED_MOST)
        asked: Read | None = None
        trouble = ""
        try:
            asked = asking.result(patience)
            if asked is None:
                trouble = f"found by words alone: {self._vectors.trouble or 'questions cannot be embedded'}"
        except Late:
            trouble = "found by words alone: the embedder did not answer in time"
        near: dict[int, float] = {}
        if asked is not None:
            most = FOUND_MOST if scope.everything else SCOPED_MOST
            hits = self._vectors.search(asked.vector, most, layers=layers, within=CANDIDATES_WITHIN)
            for hit in hits.hits:
                near.setdefault(hit.seq, hit.similarity)
            if not hits.served:
                trouble = f"found by words alone: {hits.words}"
        pool, rows = self._pool(scope, words, near, None if asked is None else asked.vector, now)
        if not rows:
            empty = numpy.zeros(0, numpy.float32)
            return Looked(question, pool, (), numpy.zeros(0, numpy.int64), (empty, empty), (), trouble)
        look = first_look(question, pool)
        places = look.order()[:CLOSE_MOST]
        matched = self._matched(question, asked, [rows[place].seq for place in places])
        ranked = rank(question, pool, look, places, matched, most=query.k)
        return Looked(question, pool, tuple(rows), places, matched, tuple(ranked), trouble)

    def _pool(
        self, scope: Scope, words: dict[int, float], near: dict[int, float], vector: Any, now: datetime
    ) -> tuple[Pool, list[Row]]:
        """The best of both searches, with their neighbours."""
        import numpy

        chosen = _chosen(words, near)
        beside = self._candidates.beside(chosen)
        once = {one for pair in beside.values() for one in pair if one} - set(chosen)
        if once:
            beside |= self._candidates.beside(once)
        wanted = dict.fromkeys(chosen) | dict.fromkeys(one for pair in beside.values() for one in pair if one)
        known = self._candidates.rows(wanted, scope)
        rows = [known[seq] for seq in wanted if seq in known]
        unknown = [row.seq for row in rows if row.seq not in near]
        if vector is not None and unknown:
            near = near | self._vectors.similarities(vector, unknown)
        place = {row.seq: number for number, row in enumerate(rows)}
        before = numpy.array([place.get(beside.get(row.seq, (0, 0))[0], -1) for row in rows], numpy.int64)
        after = numpy.array([place.get(beside.get(row.seq, (0, 0))[1], -1) for row in rows], numpy.int64)
        # A neighbour of a neighbour was read only for its score: what lies beyond it is not known.
        back = numpy.flatnonzero(before >= 0)
        after[before[back]] = back
        ahead = numpy.flatnonzero(after >= 0)
        before[after[ahead]] = ahead
        pool = Pool(
            texts=[row.text for row in rows],
            speakers=[row.speaker for row in rows],
            sessions=[row.session for row in rows],
            times=[row.at for row in rows],
            before=before,
            after=after,
            words=numpy.array([words.get(row.seq, 0.0) for row in rows], numpy.float32),
            meaning=numpy.array([near.get(row.seq, math.nan) for row in rows], numpy.float32),
            now=now,
        )
        return pool, rows

    def _matched(self, question: Question, asked: Read | None, seqs: Sequence[int]) -> tuple[Vector, Vector]:
        """Token by token; of a memory of several chunks the best one counts."""
        import numpy

        average, worst = numpy.zeros(len(seqs), numpy.float32), numpy.zeros(len(seqs), numpy.float32)
        if asked is None or not asked.kept:
            return average, worst
        chunks = self._candidates.tokens(seqs)
        called = set(question.text.casefold().split()) - set(question.nameless.casefold().split())
        telling = [
            row
            for row, piece in enumerate(asked.tokens)
            if piece[:1].isalnum() and piece not in EMPTY and piece not in called
        ]
        means, leasts = match(asked.kept, telling, [one for _, one in chunks])
        place = {seq: number for number, seq in enumerate(seqs)}
        at = numpy.array([place[seq] for seq, _ in chunks], numpy.int64)
        numpy.maximum.at(average, at, means)
        numpy.maximum.at(worst, at, leasts)
        return average, worst

    def _recalled(self, looked: Looked, one: Ranked, now: datetime) -> Recalled:
        row = looked.rows[one.place]
        recalled = Recalled(
            id=row.id,
            layer=row.layer,
            text=row.text,
            score=one.score,
            parts=one.parts,
            reason=one.reason,
            source=row.source or row.session or row.id,
            speaker=row.speaker,
            at=row.at,
            tokens=0,
            ref=row.ref,
        )
        return faded(recalled, now) if row.layer is Layer.CONTEXT else recalled


def faded(one: Recalled, now: datetime) -> Recalled:
    """A task's memory as its age lets it count (SPEC 4.6)."""
    age = 0.0 if one.at is None else max(0.0, (now - one.at).total_seconds() / 86400)
    fresh = math.exp(-age / DECAY_DAYS)
    parts = tuple(replace(part, weight=part.weight * (1 - DECAY_SHARE)) for part in one.parts)
    parts += (ScorePart("age", fresh, DECAY_SHARE),)
    return replace(one, score=sum(part.value * part.weight for part in parts), parts=parts)


def _chosen(words: dict[int, float], near: dict[int, float]) -> list[int]:
    """The numbers that both searches together put first, at most `POOL_MOST`, best first."""
    best = max(words.values(), default=1.0) or 1.0
    ordered = sorted(near.values(), reverse=True)[:FOUND_MOST]
    top, floor = (ordered[0], ordered[-1]) if ordered else (1.0, 0.0)
    span = max(top - floor, 1e-6)

    def fused(seq: int) -> float:
        meaning = max(0.0, (near[seq] - floor) / span) if seq in near else 0.0
        return WORDS_SHARE * words.get(seq, 0.0) / best + MEANING_SHARE * meaning

    return sorted(words.keys() | near.keys(), key=lambda seq: (-fused(seq), seq))[:POOL_MOST]


def _aside(work: Callable[[], Any]) -> Future[Any]:
    """Run `work` on a thread of its own that nobody has to wait for, not even the interpreter's end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="clawpy-question", daemon=True).start()
    return future
