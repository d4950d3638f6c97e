"""Reads what the ranking looks at: candidates by words, rows, neighbours, tokens. Few, plain statements.

These are asked on every recall, for hundreds of rows: they go to the driver, since SQLAlchemy's rows cost more than
SQLite's answer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from engine.model import Layer, Trust
from engine.storage.database import Database
from engine.storage.quick import driver_of


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be found: rows of this workspace, or of none; of layer C those of this agent, or of none; nothing of the
    `session` that asks. None: all."""

    workspace: str | None = None
    agent: str | None = None
    session: str | None = None
    layers: frozenset[Layer] = frozenset({Layer.VECTORS, Layer.CONTEXT})

    @property
    def everything(self) -> bool:
        return self == Scope()

    def condition(self) -> tuple[str, list[str]]:
        """The same as SQL, and its values."""
        values = sorted(one.value for one in self.layers)
        marks = ", ".join("?" * len(values))
        said = ["m.forgotten = 0", "m.superseded_by = ''", f"m.layer IN ({marks})"]
        if self.workspace is not None:
            said.append("m.workspace IN (?, '')")
            values.append(self.workspace)
        if self.agent is not None:
            said.append("(m.layer = 'E' OR m.agent IN (?, ''))")
            values.append(self.agent)
        if self.session is not None:
            said.append("m.session <> ?")
            values.append(self.session)
        return " AND ".join(said), values


class Row(NamedTuple):
    """A memory as the ranking needs it, but for its text."""

    seq: int
    id: str
    ref: str
    layer: str
    speaker: str
    session: str
    source: str
    at: datetime
    trust: Trust


class Passage(NamedTuple):
    """A stretch of a memory, and what is kept of its tokens."""

    chunk_id: int
    seq: int
    start: int
    stop: int
    text: str
    tokens: bytes | None


READ = 2_000
"""Characters that are looked at of a memory whose passages are not known."""

SCORED_MOST = 4_000
"""So many memories are compared by their words: more, and a question of everyday words takes seconds. In a store that
has more of them the rarest words of a question choose, and of a word that is everywhere the newest lines."""

SPEAKERS_MOST = 2_000
"""A store with more speakers than this is no conversation; their names are not looked for in a question."""


@contextmanager
def reading(database: Database) -> Iterator[Reader]:
    """A view of one moment. Not to be kept open."""
    with database.read() as session:
        yield Reader(driver_of(session.connection()))


class Reader:
    """Reads from one connection, in one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _narrowed(self, words: Sequence[str]) -> tuple[list[str], int]:
        """Those of `words` by which at most about `SCORED_MOST` memories are found, and the first number to look at."""
        ask = self._connection.execute
        if ask("SELECT ifnull(max(seq), 0) FROM memories").fetchone()[0] <= SCORED_MOST:
            return list(words), 0
        query = "SELECT count(*) FROM (SELECT 1 FROM memories_fts WHERE memories_fts MATCH ? LIMIT ?)"
        known = {word: ask(query, (_quoted([word]), SCORED_MOST + 1)).fetchone()[0] for word in words}
        rare: list[str] = []
        total = 0
        for word in sorted(words, key=lambda one: known[one]):
            total += known[word]
            if rare and total > SCORED_MOST:
                break
            rare.append(word)
        if known[rare[0]] <= SCORED_MOST:
            return rare, 0
        query = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        found = ask(query, (_quoted(rare), SCORED_MOST)).fetchone()
        return rare, found[0] if found else 0

    def speakers(self) -> list[str]:
        """Everybody who ever said something, at most one more than `SPEAKERS_MOST`."""
        return [row[0] for row in self._connection.execute(_SPEAKERS, (SPEAKERS_MOST + 1,))]

    def by_words(self, words: Sequence[str], scope: Scope, most: int) -> dict[int, float]:
        """BM25 of the `most` best that have any of the words, by their number (`seq`)."""
        words = [word for word in words if word.strip('"')]
        if not words:
            return {}
        words, first = self._narrowed(words)
        if scope.everything:
            # The full-text table alone can keep its best without reading a row; what is out of scope goes later.
            query = (
                "SELECT rowid, -rank FROM memories_fts WHERE memories_fts MATCH ? AND rowid >= ? ORDER BY rank LIMIT ?"
            )
            return dict(self._connection.execute(query, (_quoted(words), first, most)))
        condition, values = scope.condition()
        query = (
            "SELECT f.rowid, -f.rank FROM memories_fts f JOIN memories m ON m.seq = f.rowid "
            f"WHERE f.memories_fts MATCH ? AND f.rowid >= ? AND {condition} ORDER BY f.rank LIMIT ?"
        )
        return dict(self._connection.execute(query, (_quoted(words), first, *values, most)))

    def beside(self, seqs: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        """The memory before each in the same session, and the one after, where there is one."""
        before, after = {}, {}
        for seq, former, later in self._connection.execute(_BESIDE, (json.dumps(list(seqs)),)):
            if former is not None:
                before[seq] = former
            if later is not None:
                after[seq] = later
        return before, after

    def rows(self, seqs: Iterable[int], scope: Scope) -> list[Row]:
        """Memories by their numbers; those out of scope are left out."""
        condition, values = scope.condition()
        query = (
            "SELECT m.seq, m.id, m.ref, m.layer, m.speaker, m.session, m.source, m.at, m.trust FROM memories m "
            f"WHERE m.seq IN (SELECT value FROM json_each(?)) AND {condition}"
        )
        found = self._connection.execute(query, (json.dumps(list(seqs)), *values))
        return [Row(*(*one[:-2], datetime.fromisoformat(one[-2]), Trust(one[-1]))) for one in found]

    def texts(self, seqs: Iterable[int]) -> dict[int, str]:
        """The texts of memories by their number."""
        query = "SELECT seq, text FROM memories WHERE seq IN (SELECT value FROM json_each(?))"
        return dict(self._connection.execute(query, (json.dumps(list(seqs)),)))

    def passages(self, seqs: Sequence[int], chunks: Sequence[int]) -> list[Passage]:
        """These chunks; and how each of the memories `seqs` begins that has none among them."""
        found = [Passage(*row) for row in self._connection.execute(_PASSAGES, (json.dumps(chunks),))]
        rest = json.dumps(list(set(seqs).difference(one.seq for one in found)))
        return found + [
            Passage(0, seq, 0, len(text), text, None)
            for seq, text in self._connection.execute(_BEGINNINGS, (READ, rest))
        ]


_BESIDE = (
    "SELECT m.seq, (SELECT max(p.seq) FROM memories p WHERE p.session = m.session AND p.seq < m.seq), "
    "(SELECT min(n.seq) FROM memories n WHERE n.session = m.session AND n.seq > m.seq) "
    "FROM memories m WHERE m.seq IN (SELECT value FROM json_each(?)) AND m.session <> ''"
)
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


def _quoted(words: Sequence[str]) -> str:
    return " OR ".join('"' + word.replace('"', "") + '"' for word in words)
