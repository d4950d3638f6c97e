"""Reads from SQLite what a recall may find in layers C and E (SPEC 4.3-4.5): the best by their words, the turns beside
them, their passages.

A recall reads hundreds of rows. So statements go to SQLite's driver: SQLAlchemy's rows would cost more than the query.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.memory.store import IN_ARRAY, LAYERS, json_array, quote_words
from engine.model import RecallQuery
from engine.storage.database import Database
from engine.storage.rows import driver_of

if TYPE_CHECKING:
    from engine.memory.vector_math import Near

MAX_FOUND = 300
"""Candidates of each search. Similarities are scaled so that the last candidate has 0."""

MAX_CHARACTERS = 2_000
"""Characters that are read of a memory without chunks."""

MAX_SCORED = 4_000
"""Memories that are scored by their words: for more of them, a question of everyday words would take seconds. In a
larger store only the rarest words of the question are searched, and for a word that is everywhere only the newest
memories."""

MAX_SPEAKERS = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""


class MemoryRow(NamedTuple):
    """A memory without its text. `at` is as it is stored: ISO 8601 in UTC."""

    seq: int
    speaker: str
    session: str
    at: str


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
        layers = LAYERS if query.layers is None else LAYERS & query.layers
        limits: dict[str, str] = {}  # the value of each condition
        if layers != LAYERS:
            # The plus keeps SQLite from looking each memory up in the index of layers, too: its `seq` finds it at once.
            limits["+m.layer IN (SELECT value FROM json_each(?))"] = json.dumps(sorted(layers))
        if query.workspace is not None:
            limits["m.workspace IN (?, '')"] = query.workspace
        if query.agent is not None:
            limits["(m.layer = 'E' OR m.agent IN (?, ''))"] = query.agent
        if query.session is not None:
            limits["m.session <> ?"] = query.session
        self._values = list(limits.values())
        self._scope = " AND ".join(["m.forgotten = 0", "m.superseded_by = ''", *limits])

    def speakers(self) -> list[str]:
        """The names of all speakers; none if there are more than `MAX_SPEAKERS`."""
        names = [row[0] for row in self._execute(_SPEAKERS, (MAX_SPEAKERS + 1,))]
        return names if len(names) <= MAX_SPEAKERS else []

    def by_words(self, words: Sequence[str], limit: int) -> dict[int, float]:
        """The `limit` best memories that have any of the words: their BM25 by their `seq`."""
        phrases = quote_words(words)
        if not phrases:
            return {}
        rarest, first_seq = self._limit_phrases(phrases)
        query = "SELECT f.rowid, -f.rank FROM memories_fts f"
        condition = "WHERE f.memories_fts MATCH ? AND f.rowid >= ?"
        if self._values:
            # Without a scope the full-text table finds its best without reading a row of `memories`. Memories that no
            # longer count are then left out by `rows_with_neighbours`.
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

    def rows_with_neighbours(self, seqs: Iterable[int]) -> tuple[list[MemoryRow], dict[int, int]]:
        """The rows of memories and of those before and after each in its session, without those out of scope; and for
        the `seq` of each turn the `seq` of the turn before it."""
        rows: list[MemoryRow] = []
        previous: dict[int, int] = {}
        neighbours: set[int] = set()
        for seq, speaker, session, at, before, after in self._rows(f"{_ROW}, {_BEFORE}, {_AFTER}", seqs):
            rows.append(MemoryRow(seq, speaker, session, at))
            if before is not None:
                previous[seq] = before
                neighbours.add(before)
            if after is not None:
                previous[after] = seq
                neighbours.add(after)
        neighbours.difference_update(row.seq for row in rows)
        return [*rows, *(MemoryRow(*row) for row in self._rows(_ROW, neighbours))], previous

    def _rows(self, columns: str, seqs: Iterable[int]) -> list[Any]:
        query = f"SELECT {columns} FROM memories m WHERE m.seq IN {IN_ARRAY} AND {self._scope}"
        return self._execute(query, (*json_array(seqs), *self._values)).fetchall()

    def passages(self, nearest: Mapping[int, Sequence[Near]]) -> list[Passage]:
        """The nearest chunks of each memory, and the beginning of each memory that has none."""
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
