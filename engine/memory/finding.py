"""Finds in layers C and E: by words and by meaning at once, then ranked closely (SPEC 4.3-4.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

from engine.memory.candidates import SPEAKERS_MOST, Passage, Reader, Row, Scope, reading
from engine.memory.embedding import Embedding
from engine.memory.question import EMPTY, Question, read
from engine.memory.ranking import FOUND_MOST, MEANING_SHARE, WORDS_SHARE, FirstLook, Pool, Ranked, first_look, rank
from engine.memory.token_vectors import match
from engine.memory.vectors import Hit, NoIndex, Vectors
from engine.model import Layer, Recalled, RecallQuery, ScorePart
from engine.storage.database import Database

if TYPE_CHECKING:
    from engine.memory.ranking import Vector

SCOPED_MOST = 1_000
"""Where not everything may be found, the search by meaning, which knows no scope, brings so many."""

CANDIDATES_WITHIN = 2.0
"""Squared L2 of candidates: further than the limit of what is found (`ranking.NEAR`), for a turn may belong to one that
is near. Keeping to 1.5 here takes a tenth of recall@10 from chats."""

SUMMARY = "summary:"
"""How our id of a session's summary begins; the session's follows."""

POOL_MOST = 160
"""So many of what both searches bring are read, with the turns before and after each."""

SHORT = 800
"""Characters: up to them a memory is told whole where a passage is asked for."""

STRETCH = 200
"""Characters by which a passage grows at each end, to where a sentence or a line begins and ends."""

DECAY_SHARE, DECAY_DAYS = 0.3, 14.0
"""Tasks fade: score = 0.7 * score + 0.3 * exp(-age in days / 14) (SPEC 4.6)."""

_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Found:
    """What a layer found, best first; `words` says what it had to do without, "" when nothing."""

    items: tuple[Recalled, ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a search knows of one question before it is ranked. `rows` are those of the pool; by place: what was read of
    those that are looked at closely and of those beside them, and of each the `passages` that come nearest; `tokens`
    how near these come."""

    question: Question
    pool: Pool
    rows: list[Row]
    look: FirstLook
    texts: Mapping[int, str]
    passages: Mapping[int, Passage]
    tokens: Vector
    words: str = ""

    def ranked(self, most: int) -> list[Ranked]:
        """The best, best first."""
        return rank(self.question, self.pool, self.look, self.texts, self.tokens, most=most)


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
        ranked = looked.ranked(query.k)
        with reading(self._database) as reader:
            texts = reader.texts(looked.rows[one.place].seq for one in ranked)
        items = []
        for one in ranked:
            row, text = looked.rows[one.place], texts[looked.rows[one.place].seq]
            place = ""
            if query.passages and len(text) > SHORT:
                text, place = _told(text, looked.passages[one.place])
            items.append(_recalled(row, one, text, place, now))
        return Found(tuple(items), looked.words)

    def look(self, query: RecallQuery, now: datetime, patience: float) -> Looked:
        """Search and read."""
        import numpy

        layers = self.layers if query.layers is None else self.layers & query.layers
        scope = Scope(query.workspace, query.agent, query.session, layers)
        most = FOUND_MOST if scope.everything else SCOPED_MOST
        with reading(self._database) as reader:
            speakers = reader.speakers()
            question = read(query.text, speakers if len(speakers) <= SPEAKERS_MOST else (), now=now)
            asking = _aside(lambda: self._vectors.read(question.topic))
            words = reader.by_words(question.words, scope, most)
        asked: Embedding | None = None
        trouble = ""
        try:
            asked = asking.result(patience)
            if asked is None:
                trouble = f"found by words only: {self._vectors.trouble or 'questions cannot be embedded'}"
        except Late:
            trouble = "found by words only: the embedder did not answer in time"
        near: dict[int, Hit] = {}
        if asked is not None:
            try:
                hits = self._vectors.search(asked.array, most, layers=layers, within=CANDIDATES_WITHIN)
                near = {hit.seq: hit for hit in hits}
            except NoIndex as error:
                trouble = f"found by words only: {error}"
        with reading(self._database) as reader:
            rows, pool = self._pool(reader, scope, words, near, asked, now)
            look = first_look(question, pool)
            chunks = _nearest_chunks(rows, pool, look, near)
            read_of = reader.passages([rows[place].seq for place in pool.around(look.best).tolist()], chunks)
        place_of = {row.seq: place for place, row in enumerate(rows)}
        texts: dict[int, str] = {}
        best: dict[int, tuple[float, Passage]] = {}
        for one, value in zip(read_of, _matched(asked, [one.tokens for one in read_of]).tolist(), strict=True):
            place = place_of[one.seq]
            texts[place] = f"{texts[place]}\n{one.text}" if place in texts else one.text
            nearest = one.seq in near and one.chunk_id == near[one.seq].chunks[0]
            if place not in best or (value, nearest) > (best[place][0], False):
                best[place] = value, one
        tokens = numpy.array([best[place][0] for place in look.best.tolist()], numpy.float32)
        return Looked(
            question, pool, rows, look, texts, {place: one for place, (_, one) in best.items()}, tokens, trouble
        )

    def _pool(
        self,
        reader: Reader,
        scope: Scope,
        words: Mapping[int, float],
        near: dict[int, Hit],
        asked: Embedding | None,
        now: datetime,
    ) -> tuple[list[Row], Pool]:
        """The best of both searches and the turns beside them: rows, and a pool of what is known of them without texts.
        What was not searched for is added to `near`."""
        import numpy

        chosen = _chosen(words, near)
        before, after = reader.beside(chosen)
        rows = reader.rows({*chosen, *before.values(), *after.values()}, scope)
        if asked is not None:
            near |= self._vectors.nearest(asked.array, [row.seq for row in rows if row.seq not in near])
        place = {row.seq: number for number, row in enumerate(rows)}
        former = {later: one for one, later in after.items()} | before
        later = {former: one for one, former in before.items()} | after
        pool = Pool(
            speakers=[row.speaker for row in rows],
            sessions=[row.session for row in rows],
            times=[row.at for row in rows],
            before=numpy.array([place.get(former.get(row.seq, 0), -1) for row in rows], numpy.int64),
            after=numpy.array([place.get(later.get(row.seq, 0), -1) for row in rows], numpy.int64),
            words=numpy.array([words.get(row.seq, 0.0) for row in rows], numpy.float32),
            meaning=numpy.array(
                [near[row.seq].similarity if row.seq in near else math.nan for row in rows], numpy.float32
            ),
            now=now,
        )
        return rows, pool


def _nearest_chunks(rows: list[Row], pool: Pool, look: FirstLook, near: Mapping[int, Hit]) -> list[int]:
    """What is read: of memories that are looked at closely the nearest chunks, of those beside them one."""
    places = look.best.tolist()
    beside = set(pool.around(look.best).tolist()).difference(places)
    chunks = [one for place in places if (hit := near.get(rows[place].seq)) for one in hit.chunks]
    return chunks + [hit.chunks[0] for place in beside if (hit := near.get(rows[place].seq))]


def _recalled(row: Row, one: Ranked, text: str, place: str, now: datetime) -> Recalled:
    layer = Layer(row.layer)
    recalled = Recalled(
        id=row.id,
        layer=layer,
        text=text,
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
        place=place,
    )
    return faded(recalled, now) if layer is Layer.CONTEXT else recalled


def _told(text: str, passage: Passage) -> tuple[str, str]:
    """The passage of a long text in whole sentences or lines, and where it stands."""
    start, stop = max(0, passage.start - STRETCH), min(len(text), passage.stop + STRETCH)
    if start:
        first = next((found.end() for found in _END.finditer(text, start, passage.start)), passage.start)
        start = first
    if stop < len(text):
        ends = [found.start() for found in _END.finditer(text, passage.stop, stop)]
        stop = ends[-1] if ends else passage.stop
    return text[start:stop].strip(), f"characters {start + 1}-{stop} of {len(text)}"


def faded(one: Recalled, now: datetime) -> Recalled:
    """A task's memory as its age lets it count (SPEC 4.6)."""
    age = 0.0 if one.at is None else max(0.0, (now - one.at).total_seconds() / 86400)
    fresh = math.exp(-age / DECAY_DAYS)
    parts = tuple(replace(part, weight=part.weight * (1 - DECAY_SHARE)) for part in one.parts)
    parts += (ScorePart("age", fresh, DECAY_SHARE),)
    return replace(one, score=sum(part.value * part.weight for part in parts), parts=parts)


def _matched(asked: Embedding | None, kept: list[bytes | None]) -> Vector:
    """How near the tokens of passages come to the telling ones of the question."""
    import numpy

    if asked is None or not asked.kept:
        return numpy.zeros(len(kept), numpy.float32)
    telling = [row for row, piece in enumerate(asked.tokens) if piece[:1].isalnum() and piece not in EMPTY]
    return match(asked.kept, telling, kept)


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
