"""Database reads of one recall: candidates by full text, their rows, neighbours and passages.

Each recall reads hundreds of rows, so statements go to SQLite's driver: SQLAlchemy's rows cost more than the query.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from engine.memory.ranking import Row
from engine.model import Layer, RecallQuery
from engine.storage.database import Database
from engine.storage.rows import driver_of

LAYERS = frozenset({Layer.VECTORS, Layer.CONTEXT})

MAX_CHARACTERS = 2_000
"""Characters read of a memory whose passages are not known."""

MAX_SCORED = 4_000
"""Memories that are scored by their words; with more, a question of everyday words would take seconds. In a larger
store only the rarest words of the question are searched, and for a word that is everywhere only the newest memories."""

MAX_SPEAKERS = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""


class Passage(NamedTuple):
    """A stretch of a memory, and what is kept of its tokens."""

    chunk_id: int
    seq: int
    start: int
    stop: int
    text: str
    tokens: bytes | None


def searched_layers(query: RecallQuery) -> frozenset[Layer]:
    """The layers of this store that are asked."""
    return LAYERS if query.layers is None else LAYERS & query.layers


def is_unscoped(query: RecallQuery) -> bool:
    """Whether every memory that holds may be found."""
    return query.workspace is query.agent is query.session is None and searched_layers(query) == LAYERS


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
        self._is_unscoped = is_unscoped(query)
        self._values = sorted(layer.value for layer in searched_layers(query))
        placeholders = ", ".join("?" * len(self._values))
        # The plus keeps SQLite from looking each memory up twice in the index of layers: its number finds it at once.
        conditions = ["m.forgotten = 0", "m.superseded_by = ''", f"+m.layer IN ({placeholders})"]
        for value, condition in (
            (query.workspace, "m.workspace IN (?, '')"),
            (query.agent, "(m.layer = 'E' OR m.agent IN (?, ''))"),
            (query.session, "m.session <> ?"),
        ):
            if value is not None:
                conditions.append(condition)
                self._values.append(value)
        self._scope = " AND ".join(conditions)

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
        if self._is_unscoped:
            # The full-text table alone can keep its best without reading a row; what is out of scope goes later.
            query = "SELECT rowid, -rank FROM memories_fts WHERE memories_fts MATCH ? AND rowid >= ? ORDER BY rank"
            return dict(self._execute(f"{query} LIMIT ?", (" OR ".join(words), first_seq, limit)))
        query = (
            "SELECT f.rowid, -f.rank FROM memories_fts f JOIN memories m ON m.seq = f.rowid "
            f"WHERE f.memories_fts MATCH ? AND f.rowid >= ? AND {self._scope} ORDER BY f.rank LIMIT ?"
        )
        return dict(self._execute(query, (" OR ".join(words), first_seq, *self._values, limit)))

    def _limit_words(self, words: Sequence[str]) -> tuple[list[str], int]:
        """Those of `words` by which at most about `MAX_SCORED` memories are found, and the first number to look at."""
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
        if counts[rarest[0]] <= MAX_SCORED:
            return rarest, 0
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
        query = f"SELECT {columns} FROM memories m WHERE m.seq IN (SELECT value FROM json_each(?)) AND {self._scope}"
        return self._execute(query, (json.dumps(list(seqs)), *self._values)).fetchall()

    def passages(self, seqs: Sequence[int], chunks: Sequence[int]) -> list[Passage]:
        """These chunks; and how each of the memories `seqs` begins that has none among them."""
        passages = list(map(Passage._make, self._execute(_PASSAGES, (json.dumps(chunks),))))
        remaining = json.dumps(list(set(seqs).difference(passage.seq for passage in passages)))
        beginnings = self._execute(_BEGINNINGS, (MAX_CHARACTERS, remaining))
        return passages + [Passage(0, seq, 0, len(text), text, None) for seq, text in beginnings]


_ROW = "m.seq, m.speaker, m.session, m.at"
_BEFORE = "(SELECT max(p.seq) FROM memories p WHERE p.session = m.session AND p.seq < m.seq AND m.session <> '')"
_AFTER = "(SELECT min(n.seq) FROM memories n WHERE n.session = m.session AND n.seq > m.seq AND m.session <> '')"
_PASSAGES = (
    "SELECT c.id, m.seq, c.start, c.stop, substr(m.text, c.start + 1, c.stop - c.start), c.tokens FROM memory_chunks c "
    "JOIN memories m ON m.seq = c.seq WHERE c.id IN (SELECT value FROM json_each(?)) ORDER BY c.id"
)
_BEGINNINGS = "SELECT seq, substr(text, 1, ?) FROM memories WHERE seq IN (SELECT value FROM json_each(?))"
_SPEAKERS = (
    # From each to the next by the index: DISTINCT would read all of it.
    "WITH RECURSIVE known(speaker) AS (SELECT min(speaker) FROM memories WHERE speaker > '' UNION ALL "
    "SELECT (SELECT min(m.speaker) FROM memories m WHERE m.speaker > known.speaker) FROM known "
    "WHERE known.speaker IS NOT NULL LIMIT ?) SELECT speaker FROM known WHERE speaker IS NOT NULL"
)


def quote_words(words: Iterable[str]) -> list[str]:
    """Words as FTS5 takes them: each in quotes, so that nothing in it is an operator; those without a letter or a digit
    are left out."""
    plain = (word.replace('"', " ").replace("\x00", " ").strip() for word in words)
    return [f'"{word}"' for word in plain if any(map(str.isalnum, word))]
