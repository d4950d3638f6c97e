"""Finds in layers C and E: by words and by meaning at once, then ranked closely (SPEC 4.3-4.5)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

from engine.memory.candidates import SPEAKERS_MOST, Reader, Row, Scope, reading
from engine.memory.features import FOUND_MOST, MEANING_SHARE, WORDS_SHARE, Pool, first_look
from engine.memory.question import EMPTY, Question, read
from engine.memory.ranking import CLOSE_MOST, Ranked, rank
from engine.memory.token_vectors import match
from engine.memory.vectors import Hit, Read, Vectors
from engine.storage.database import Database
from engine.values import Layer, Recalled, RecallQuery, ScorePart

if TYPE_CHECKING:
    from engine.memory.features import Places, Vector

SCOPED_MOST = 1_000
"""Where not everything may be found, the search by meaning, which knows no scope, brings so many."""

CANDIDATES_WITHIN = 2.0
"""Squared L2 of candidates: further than the limit of what is found (`ranking.NEAR`), for a turn may belong to one that
is near. Keeping to 1.5 here takes a tenth of recall@10 from chats."""

SUMMARY = "summary:"
"""How our id of a session's summary begins; the session's follows."""

POOL_MOST = 160
"""So many of what both searches bring are read, with the two turns before and after each."""

DECAY_SHARE, DECAY_DAYS = 0.3, 14.0
"""Tasks fade: score = 0.7 * score + 0.3 * exp(-age in days / 14) (SPEC 4.6)."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a layer found, best first; `words` says what it had to do without, "" when nothing."""

    items: tuple[Recalled, ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """All that the ranking knows about one question: for benchmarks and for fitting the weights. `rows` are those of
    the pool, by place; `places` those that were looked at closely."""

    question: Question
    pool: Pool
    rows: Sequence[Row]
    texts: Mapping[int, str]
    places: Places
    matched: tuple[Vector, Vector]
    ranked: tuple[Ranked, ...]
    words: str = ""


class StoredMemories:
    """Layers C and E as a source of recall. From any thread."""

    layers = frozenset({Layer.VECTORS, Layer.CONTEXT})
    name = "memories (C, E)"

    def __init__(self, database: Database, vectors: Vectors) -> None:
        self._database = database
        self._vectors = vectors

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """The `query.k` best. What the embedder does not answer within `patience` seconds is found by words alone."""
        looked = self.look(query, now, patience)
        return Found(tuple(self._recalled(looked, one, now) for one in looked.ranked), looked.words)

    def look(self, query: RecallQuery, now: datetime, patience: float) -> Looked:
        """Search, read and rank."""

        layers = self.layers if query.layers is None else self.layers & query.layers
        scope = Scope(query.workspace, query.agent, query.session, layers)
        most = FOUND_MOST if scope.everything else SCOPED_MOST
        with reading(self._database) as reader:
            speakers = reader.speakers()
            question = read(query.text, speakers if len(speakers) <= SPEAKERS_MOST else (), now=now)
            asking = _aside(lambda: self._vectors.read(question.nameless))
            words = reader.by_words(question.words, scope, most)
        asked: Read | None = None
        trouble = ""
        try:
            asked = asking.result(patience)
            if asked is None:
                trouble = f"found by words only: {self._vectors.trouble or 'questions cannot be embedded'}"
        except Late:
            trouble = "found by words only: the embedder did not answer in time"
        near: Mapping[int, Hit] = {}
        if asked is not None:
            hits = self._vectors.search(asked.vector, most, layers=layers, within=CANDIDATES_WITHIN)
            near = {hit.seq: hit for hit in hits.hits}
            if not hits.served:
                trouble = f"found by words only: {hits.words}"
        with reading(self._database) as reader:
            rows, near, pool = self._pool(reader, scope, words, near, None if asked is None else asked.vector, now)
            look = first_look(question, pool)
            places = look.order()[:CLOSE_MOST]
            around = pool.around(places).tolist()
            texts = reader.texts(rows[place].seq for place in around)
            for place in around:
                pool.texts[place] = texts.get(rows[place].seq, "")
            chosen = [near.get(rows[place].seq) for place in places]
            chunks = [0 if hit is None else hit.chunk_id for hit in chosen]
            matched = _matched(question, asked, chunks, reader.tokens(chunks))
            ranked = rank(question, pool, look, places, matched, most=query.k)
            whole = reader.texts((rows[one.place].seq for one in ranked), most=None)
        said = {one.place: whole[rows[one.place].seq] for one in ranked}
        return Looked(question, pool, rows, said, places, matched, tuple(ranked), trouble)

    def _pool(
        self,
        reader: Reader,
        scope: Scope,
        words: Mapping[int, float],
        near: Mapping[int, Hit],
        vector: Any,
        now: datetime,
    ) -> tuple[list[Row], Mapping[int, Hit], Pool]:
        """The best of both searches and their neighbours: rows, how near each is, and a pool of what is known of them
        without texts."""
        import numpy

        chosen = _chosen(words, near)
        former: dict[int, int] = {}
        later: dict[int, int] = {}
        for seq, (before, after) in reader.beside(chosen).items():
            chain = [*reversed(before), seq, *after]
            for one, other in itertools.pairwise(chain):
                later[one], former[other] = other, one
        rows = reader.rows(dict.fromkeys(chosen) | later | former, scope)
        seqs = [row.seq for row in rows]
        unknown = [seq for seq in seqs if seq not in near]
        if vector is not None and unknown:
            near = {**near, **self._vectors.nearest(vector, unknown)}
        place = {seq: number for number, seq in enumerate(seqs)}
        pool = Pool(
            texts=[""] * len(rows),
            speakers=[row.speaker for row in rows],
            sessions=[row.session for row in rows],
            times=[row.at for row in rows],
            before=numpy.array([place.get(former.get(seq, 0), -1) for seq in seqs], numpy.int64),
            after=numpy.array([place.get(later.get(seq, 0), -1) for seq in seqs], numpy.int64),
            words=numpy.array([words.get(seq, 0.0) for seq in seqs], numpy.float32),
            meaning=numpy.array([near[seq].similarity if seq in near else math.nan for seq in seqs], numpy.float32),
            now=now,
        )
        return rows, near, pool

    def _recalled(self, looked: Looked, one: Ranked, now: datetime) -> Recalled:
        row = looked.rows[one.place]
        layer = Layer(row.layer)
        recalled = Recalled(
            id=row.id,
            layer=layer,
            text=looked.texts[one.place],
            score=one.score,
            parts=one.parts,
            reason=one.reason,
            source=row.source or row.session or row.id,
            speaker=row.speaker,
            at=row.at,
            tokens=0,
            ref=row.ref,
            trust=row.trust,
            about=row.session if row.ref.startswith(SUMMARY) else "",
        )
        return faded(recalled, now) if layer is Layer.CONTEXT else recalled


def faded(one: Recalled, now: datetime) -> Recalled:
    """A task's memory as its age lets it count (SPEC 4.6)."""
    age = 0.0 if one.at is None else max(0.0, (now - one.at).total_seconds() / 86400)
    fresh = math.exp(-age / DECAY_DAYS)
    parts = tuple(replace(part, weight=part.weight * (1 - DECAY_SHARE)) for part in one.parts)
    parts += (ScorePart("age", fresh, DECAY_SHARE),)
    return replace(one, score=sum(part.value * part.weight for part in parts), parts=parts)


def _matched(
    question: Question, asked: Read | None, chunks: Sequence[int], kept: Mapping[int, bytes]
) -> tuple[Vector, Vector]:
    """Token by token; of a memory of several chunks the nearest one counts."""
    import numpy

    if asked is None or not asked.kept:
        return numpy.zeros(len(chunks), numpy.float32), numpy.zeros(len(chunks), numpy.float32)
    called = set(question.text.casefold().split()) - set(question.nameless.casefold().split())
    telling = [
        row
        for row, piece in enumerate(asked.tokens)
        if piece[:1].isalnum() and piece not in EMPTY and piece not in called
    ]
    return match(asked.kept, telling, [kept.get(number) for number in chunks])


def _chosen(words: Mapping[int, float], near: Mapping[int, Hit]) -> list[int]:
    """The numbers that both searches together put first, at most `POOL_MOST`, best first."""
    best = max(words.values(), default=1.0) or 1.0
    ordered = sorted((hit.similarity for hit in near.values()), reverse=True)[:FOUND_MOST]
    top, floor = (ordered[0], ordered[-1]) if ordered else (1.0, 0.0)
    span = max(top - floor, 1e-6)

    def fused(seq: int) -> float:
        meaning = max(0.0, (near[seq].similarity - floor) / span) if seq in near else 0.0
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
