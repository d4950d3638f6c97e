"""Finds in layers C and E: by words and by meaning at once, then ranked closely (SPEC 4.3-4.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import replace
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

from engine.frozen import frozen
from engine.memory.candidates import LAYERS, Passage, Reader, Row, everywhere, layers_of, reading
from engine.memory.embedding import Embedding
from engine.memory.question import EMPTY, read
from engine.memory.ranking import (
    FOUND_MOST,
    MEANING_SHARE,
    WORDS_SHARE,
    Candidates,
    Pool,
    Ranked,
    close_look,
    first_look,
    rank,
)
from engine.memory.store import MemoryStore
from engine.memory.token_vectors import match
from engine.memory.vectors import Hit, NoIndex, Vectors
from engine.model import Layer, Memory, Recalled, RecallQuery, ScorePart
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


@frozen
class Found:
    """What a layer found, best first; `words` says what it had to do without, "" when nothing."""

    items: tuple[Recalled, ...]
    words: str = ""


@frozen
class Looked:
    """What a search knows of one question before it is ranked: the candidates, of each its number and the passage that
    comes nearest; `words` as in `Found`."""

    seen: Candidates
    seqs: list[int]
    passages: list[Passage]
    words: str = ""


class StoredMemories:
    """Layers C and E as a source of recall. From any thread."""

    layers = LAYERS
    name = "memories (C, E)"

    def __init__(self, database: Database, store: MemoryStore, vectors: Vectors) -> None:
        self._database = database
        self._store = store
        self._vectors = vectors

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """The `query.k` best. What the embedder does not answer within `patience` seconds is found by words alone."""
        looked = self.look(query, now, patience)
        ranked = rank(looked.seen, most=query.k)
        memories = self._store.by_seq(looked.seqs[hit.number] for hit in ranked)
        items = []
        for hit in ranked:
            memory = memories.get(looked.seqs[hit.number])
            if memory is not None:  # else it was deleted meanwhile
                text, place = memory.text, ""
                if query.passages and len(text) > SHORT:
                    text, place = _told(text, looked.passages[hit.number])
                items.append(_recalled(memory, hit, text, place, now))
        return Found(tuple(items), looked.words)

    def look(self, query: RecallQuery, now: datetime, patience: float) -> Looked:
        """Search and read."""
        import numpy

        most = FOUND_MOST if everywhere(query) else SCOPED_MOST
        with reading(self._database, query) as reader:
            question = read(query.text, reader.speakers(), now=now)
            asking = _aside(lambda: self._vectors.read(question.topic))
            words = reader.by_words(question.words, most)
        asked: Embedding | None = None
        near: dict[int, float] = {}
        trouble = ""
        try:
            asked = asking.result(patience)
            if asked is None:
                trouble = self._vectors.trouble or "questions cannot be embedded"
            else:
                near = self._vectors.search(asked.array, most, layers=layers_of(query), within=CANDIDATES_WITHIN)
        except Late:
            trouble = "the embedder did not answer in time"
        except NoIndex as error:
            trouble = str(error)
        with reading(self._database, query) as reader:
            rows, former = _rows(reader, _chosen(words, near))
            hits = {} if asked is None else self._vectors.nearest(asked.array, [row.seq for row in rows])
            seen = first_look(question, _pool(rows, former, words, hits, now))
            seqs = [rows[place].seq for place in seen.places.tolist()]
            chunks = [chunk for seq in seqs if (hit := hits.get(seq)) for chunk in hit.chunks]
            read_of = reader.passages(seqs, chunks)
        texts: dict[int, str] = {}
        best: dict[int, tuple[float, bool, Passage]] = {}
        for passage, value in zip(read_of, _matched(asked, [item.tokens for item in read_of]).tolist(), strict=True):
            seq = passage.seq
            texts[seq] = f"{texts[seq]}\n{passage.text}" if seq in texts else passage.text
            nearest = seq in hits and passage.chunk_id == hits[seq].chunks[0]
            if seq not in best or (value, nearest) > best[seq][:2]:
                best[seq] = value, nearest, passage
        tokens = numpy.array([best[seq][0] for seq in seqs], numpy.float32)
        close_look(seen, [texts[seq] for seq in seqs], tokens)
        return Looked(seen, seqs, [best[seq][2] for seq in seqs], trouble and f"found by words only: {trouble}")


def _rows(reader: Reader, chosen: Sequence[int]) -> tuple[list[Row], dict[int, int]]:
    """What was chosen and the turns beside each; and the number of the turn before, by number."""
    former: dict[int, int] = {}
    for seq, before, after in reader.beside(chosen):
        if before:
            former[seq] = before
        if after:
            former[after] = seq
    return reader.rows({*chosen, *former.keys(), *former.values()}), former


def _pool(
    rows: Sequence[Row], former: Mapping[int, int], words: Mapping[int, float], hits: Mapping[int, Hit], now: datetime
) -> Pool:
    """What is known of rows without their texts, column by column."""
    import numpy

    place = {row.seq: number for number, row in enumerate(rows)}
    before, after = numpy.full(len(rows), -1, numpy.int64), numpy.full(len(rows), -1, numpy.int64)
    for seq, earlier in former.items():
        if seq in place and earlier in place:
            before[place[seq]], after[place[earlier]] = place[earlier], place[seq]
    by_words = numpy.zeros(len(rows), numpy.float32)
    for seq, value in words.items():
        if seq in place:
            by_words[place[seq]] = value
    meaning = numpy.array([hits[row.seq].similarity if row.seq in hits else math.nan for row in rows], numpy.float32)
    speakers, sessions = [row.speaker for row in rows], [row.session for row in rows]
    return Pool(speakers, sessions, [row.at for row in rows], before, after, by_words, meaning, now)


def _recalled(memory: Memory, ranked: Ranked, text: str, place: str, now: datetime) -> Recalled:
    recalled = Recalled(
        id=memory.id,
        layer=memory.layer,
        text=text,
        score=ranked.score,
        parts=ranked.parts,
        reason=ranked.reason,
        source=memory.source or memory.session or memory.id,
        speaker=memory.speaker,
        at=memory.at,
        tokens=0,
        ref=memory.ref,
        trust=memory.trust,
        about=memory.session if memory.ref.startswith(SUMMARY) else "",
        place=place,
    )
    return faded(recalled, now) if memory.layer is Layer.CONTEXT else recalled


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


def faded(line: Recalled, now: datetime) -> Recalled:
    """A task's memory as its age lets it count (SPEC 4.6)."""
    age = 0.0 if line.at is None else max(0.0, (now - line.at).total_seconds() / 86400)
    fresh = math.exp(-age / DECAY_DAYS)
    parts = tuple(replace(part, weight=part.weight * (1 - DECAY_SHARE)) for part in line.parts)
    parts += (ScorePart("age", fresh, DECAY_SHARE),)
    return replace(line, score=sum(part.value * part.weight for part in parts), parts=parts)


def _matched(asked: Embedding | None, kept: list[bytes | None]) -> Vector:
    """How near the tokens of passages come to the telling ones of the question."""
    import numpy

    if asked is None or not asked.kept:
        return numpy.zeros(len(kept), numpy.float32)
    telling = [row for row, piece in enumerate(asked.tokens) if piece[:1].isalnum() and piece not in EMPTY]
    return match(asked.kept, telling, kept)


def _chosen(words: Mapping[int, float], near: Mapping[int, float]) -> list[int]:
    """The numbers that both searches together put first, at most `POOL_MOST`, best first. `near` is best first."""
    best = max(words.values(), default=1.0) or 1.0
    ordered = list(near.values())[:FOUND_MOST] or [1.0]
    floor, span = ordered[-1], max(ordered[0] - ordered[-1], 1e-6)
    fused = {seq: MEANING_SHARE * max(0.0, (value - floor) / span) for seq, value in near.items()}
    for seq, value in words.items():
        fused[seq] = fused.get(seq, 0.0) + WORDS_SHARE * value / best
    return sorted(fused, key=lambda seq: (-fused[seq], seq))[:POOL_MOST]


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
