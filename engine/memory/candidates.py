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
from datetime import UTC, datetime
from typing import Any

from engine.storage.database import Database
from engine.values import Layer


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be found: rows of this workspace, or of none; of layer C those of this agent, or of none. None: all."""

    workspace: str | None = None
    agent: str | None = None
    layers: frozenset[Layer] = frozenset({Layer.VECTORS, Layer.CONTEXT})

    @property
    def everything(self) -> bool:
        return self.workspace is None and self.agent is None and self.layers >= {Layer.VECTORS, Layer.CONTEXT}

    def condition(self, table: str = "m") -> tuple[str, list[str]]:
        """The same as SQL, and its values."""
        layers = sorted(one.value for one in self.layers)
        said = [f"{table}.forgotten = 0", f"{table}.superseded_by = ''", f"{table}.layer IN ({_marks(layers)})"]
        values = list(layers)
        if self.workspace is not None:
            said.append(f"{table}.workspace IN (?, '')")
            values.append(self.workspace)
        if self.agent is not None:
            said.append(f"({table}.layer = 'E' OR {table}.agent IN (?, ''))")
            values.append(self.agent)
        return " AND ".join(said), values


@dataclass(frozen=True, slots=True)
class Row:
    """A memory as the ranking needs it."""

    seq: int
    id: str
    ref: str
    layer: Layer
    text: str
    kind: str
    speaker: str
    session: str
    source: str
    at: datetime


class Candidates:
    """Reads from one home's database. From any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def by_words(self, words: Sequence[str], scope: Scope, most: int) -> dict[int, float]:
        """BM25 of the `most` best that have any of the words, by their number (`seq`)."""
        wanted = " OR ".join('"' + word.replace('"', "") + '"' for word in words if word)
        if not wanted:
            return {}
        with self._reading() as connection:
            if scope.everything:
                # The full-text table alone can keep its best without reading a row; what is out of scope goes later.
                query = "SELECT rowid, -rank FROM memories_fts WHERE memories_fts MATCH ? ORDER BY rank LIMIT ?"
                return dict(connection.execute(query, (wanted, most)))
            condition, values = scope.condition()
            query = (
                "SELECT f.rowid, -f.rank FROM memories_fts f JOIN memories m ON m.seq = f.rowid "
                f"WHERE f.memories_fts MATCH ? AND {condition} ORDER BY f.rank LIMIT ?"
            )
            return dict(connection.execute(query, (wanted, *values, most)))

    def beside(self, seqs: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The memory before and the one after in the same session, 0 where there is none."""
        with self._reading() as connection:
            return {
                row[0]: (row[1] or 0, row[2] or 0) for row in connection.execute(_BESIDE, (json.dumps(list(seqs)),))
            }

    def rows(self, seqs: Iterable[int], scope: Scope) -> dict[int, Row]:
        """Memories by their number; those out of scope are left out."""
        condition, values = scope.condition()
        query = (
            "SELECT m.seq, m.id, m.ref, m.layer, m.text, m.kind, m.speaker, m.session, m.source, m.at FROM memories m "
            f"WHERE m.seq IN (SELECT value FROM json_each(?)) AND {condition}"
        )
        with self._reading() as connection:
            found = connection.execute(query, (json.dumps(list(seqs)), *values)).fetchall()
        return {row[0]: _row(row) for row in found}

    def tokens(self, seqs: Iterable[int]) -> list[tuple[int, bytes]]:
        """(number, what is kept of the token vectors) of each chunk of memories."""
        query = (
            "SELECT seq, tokens FROM memory_chunks WHERE seq IN (SELECT value FROM json_each(?)) "
            "AND tokens IS NOT NULL ORDER BY seq, ordinal"
        )
        with self._reading() as connection:
            return list(connection.execute(query, (json.dumps(list(seqs)),)))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._database.read() as session:
            driver = session.connection().connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            yield driver


_BESIDE = (
    "SELECT m.seq, "
    "(SELECT max(p.seq) FROM memories p WHERE p.session = m.session AND p.seq < m.seq), "
    "(SELECT min(n.seq) FROM memories n WHERE n.session = m.session AND n.seq > m.seq) "
    "FROM memories m WHERE m.seq IN (SELECT value FROM json_each(?)) AND m.session <> ''"
)


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _row(row: tuple[Any, ...]) -> Row:
    seq, id, ref, layer, text, kind, speaker, session, source, at = row
    return Row(seq, id, ref, Layer(layer), text, kind, speaker, session, source, _instant(at))


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
