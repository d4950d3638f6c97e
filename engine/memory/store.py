"""The store of layers C and E: rows, chunks and vectors in SQLite (SPEC 4.3, 4.5, 4.10).

What `remember` acknowledged is on disk and found by its words; its vectors follow. A row whose vectors are missing
says so itself (`model`), so that a crash in between loses nothing: whoever makes vectors asks for such rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
import sqlalchemy.orm
from sqlmodel import Session, col

from engine.memory.checking import LONGEST, check, memory_id, quoted, row_of
from engine.memory.tables import ChunkRow, MemoryRow, VectorRow
from engine.storage.database import Database, Transaction
from engine.storage.quick import ask
from engine.values import Layer, Memory, NewMemory, Remembered, Retention, Trust

T = TypeVar("T")

MONTH = timedelta(days=30)
AFTER_SESSION = timedelta(days=1)
BATCH = 200
"""So many values go into one statement: SQLite takes a limited number, and the writer is never held for long."""


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A stretch with its vector (float32, little-endian), and what the re-ranker keeps of its tokens."""

    start: int
    stop: int
    vector: bytes
    tokens: bytes | None = None


class MemoryStore:
    """Rows of layers C and E. All methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._more = (-1, 0, False)

    # -- remembering

    def remember(self, items: Sequence[NewMemory]) -> Remembered:
        """Write `items` in one transaction. What is known already (see `memory_id`) keeps its row.

        Raises `Refusal`: `empty_memory`, `memory_too_long`, `bad_memory`; then nothing of `items` is written.
        """
        return self.submit(items).result()

    def submit(self, items: Sequence[NewMemory]) -> Future[Remembered]:
        """The same without waiting for the disk. Raises `Refusal` as `remember`."""
        checked = [check(one) for one in items]
        return self._database.submit(lambda tx: self.add(tx, checked))

    def ids(self, items: Sequence[NewMemory]) -> list[str]:
        """The ids that `items` have or will have. Raises `Refusal` as `remember`."""
        return [memory_id(check(one)) for one in items]

    def add(self, tx: Transaction, items: Sequence[NewMemory]) -> Remembered:
        """The same in the caller's transaction."""
        items = [check(one) for one in items]
        ids = [memory_id(one) for one in items]
        known: set[str] = set()
        for some in _batches(list(dict.fromkeys(ids))):
            known |= {row[0] for row in ask(tx.session, _KNOWN, {"ids": some})}
        rows: dict[str, dict[str, Any]] = {}
        for name, one in zip(ids, items, strict=True):
            if name not in known and name not in rows:
                rows[name] = row_of(name, one, tx.now)
        if rows:
            tx.session.connection().execute(_INSERT, list(rows.values()))
        return Remembered(tuple(ids), len(rows))

    def supersede(self, tx: Transaction, id: str, by: str) -> None:
        """Mark a memory as corrected by another; it stays as history and is no longer found."""
        tx.session.connection().execute(sa.update(MemoryRow).where(col(MemoryRow.id) == id).values(superseded_by=by))

    def erase(self, tx: Transaction, ids: Iterable[str]) -> list[int]:
        """Forget: the text, its words, chunks and vectors go, an empty stub stays (SPEC 4.10).

        Returns the ids of the chunks that are gone.
        """
        gone: list[int] = []
        for some in _batches(list(ids)):
            seqs = [row[0] for row in ask(tx.session, _SEQS, {"ids": some})]
            gone += self._drop_chunks(tx.session, seqs)
            tx.session.connection().execute(
                sa.update(MemoryRow)
                .where(col(MemoryRow.seq).in_(seqs))
                .values(text="", speaker="", source="", ref="", tags=[], forgotten=True)
            )
        return gone

    def expire(self, tx: Transaction, *, running: frozenset[str]) -> tuple[int, list[int]]:
        """Delete what its tier keeps no longer (SPEC 4.3): `month` after 30 days, `session` one day after its session
        is over, `running` being those that are not. A thousand at a time. Returns how many rows, and the ids of their
        chunks."""
        found = tx.session.connection().execute(_old(tx.now, running).limit(1000))
        seqs = [int(row[0]) for row in found]
        gone: list[int] = []
        for some in _batches(seqs):
            gone += self._drop_chunks(tx.session, some)
            tx.session.connection().execute(sa.delete(MemoryRow).where(col(MemoryRow.seq).in_(some)))
        return len(seqs), gone

    def expired(self, now: datetime, *, running: frozenset[str]) -> bool:
        """Whether `expire` would delete anything."""
        with self._database.read() as session:
            return session.connection().execute(_old(now, running).limit(1)).first() is not None

    # -- reading

    def get(self, id: str) -> Memory | None:
        """One memory, by its id or by the caller's own id of it (the newest that has it)."""
        query = (
            sa.select(*_COLUMNS)
            .where(sa.or_(col(MemoryRow.id) == id, col(MemoryRow.ref) == id))
            .order_by(col(MemoryRow.seq).desc())
            .limit(1)
        )
        with self._database.read() as session:
            row = session.connection().execute(query).first()
        return None if row is None else _memory(row)

    def by_seq(self, seqs: Iterable[int]) -> dict[int, Memory]:
        """Memories by their number; those that are not there any more are left out."""
        found: dict[int, Memory] = {}
        with self._database.read() as session:
            for some in _batches(list(seqs)):
                for row in ask(session, _BY_SEQ, {"seqs": some}):
                    one = _memory(row)
                    found[one.seq] = one
        return found

    def entries(self, layer: Layer, *, words: str = "", before: int | None = None, limit: int = 200) -> list[Memory]:
        """The newest first, those with all the `words` when there are any; page on with `before` = the last `seq`."""
        query = sa.select(*_COLUMNS).where(col(MemoryRow.layer) == layer.value)
        if before is not None:
            query = query.where(col(MemoryRow.seq) < before)
        wanted = " ".join(quoted(words))
        if words.strip() and not wanted:
            return []
        if wanted:
            query = query.where(
                col(MemoryRow.seq).in_(sa.text("SELECT rowid FROM memories_fts WHERE memories_fts MATCH :wanted"))
            ).params(wanted=wanted)
        query = query.order_by(col(MemoryRow.seq).desc()).limit(limit)
        with self._database.read() as session:
            return [_memory(row) for row in session.connection().execute(query)]

    def around(self, seq: int, *, before: int = 1, after: int = 1) -> tuple[list[Memory], list[Memory]]:
        """What was said in the same session before a memory (oldest first) and after it."""
        with self._database.read() as session:
            one = session.connection().execute(sa.select(col(MemoryRow.session)).where(col(MemoryRow.seq) == seq))
            name = one.scalar()
            if not name:
                return [], []
            former = ask(session, _FORMER, {"session": name, "seq": seq, "most": before})
            earlier = [_memory(row) for row in former][::-1]
            later = [_memory(row) for row in ask(session, _LATER, {"session": name, "seq": seq, "most": after})]
        return earlier, later

    def former(self, seqs: Sequence[int]) -> dict[int, int]:
        """For each memory the number of the one before it in its session, where there is one."""
        found: dict[int, int] = {}
        with self._database.read() as session:
            for some in _batches(seqs):
                found |= {row[0]: row[1] for row in ask(session, _FORMER_SEQ, {"seqs": some}) if row[1] is not None}
        return found

    def count(self, layer: Layer | None = None) -> int:
        """How many memories there are that are not forgotten."""
        return self.standing(layer)[0]

    def standing(self, layer: Layer | None = None) -> tuple[int, datetime | None]:
        """How many memories a layer has (both, when None), and when the newest was remembered."""
        query = sa.select(sa.func.count(), sa.func.max(col(MemoryRow.created_at))).where(~col(MemoryRow.forgotten))
        if layer is not None:
            query = query.where(col(MemoryRow.layer) == layer.value)
        with self._database.read() as session:
            number, newest = session.connection().execute(query).one()
        return int(number), newest

    # -- chunks and vectors

    def pending(self, model: str, limit: int, *, characters: int = LONGEST) -> list[Memory]:
        """Memories whose vectors are missing or were made by another model, oldest first, with the first `characters`
        of their text."""
        values = {"model": model, "most": limit, "characters": characters}
        with self._database.read() as session:
            return [_memory(row) for row in ask(session, _PENDING, values)]

    def pending_count(self, model: str) -> int:
        """How many those are."""
        with self._database.read() as session:
            return int(ask(session, _PENDING_COUNT, {"model": model}).scalar())

    def put_chunks(self, tx: Transaction, model: str, made: Mapping[int, Sequence[NewChunk]]) -> list[tuple[int, int]]:
        """Store the chunks of memories with their vectors, in place of former ones; a memory that was deleted or
        forgotten meanwhile is passed over. Returns (chunk id, seq) of what is new."""
        stored: list[tuple[int, int]] = []
        for some in _batches(list(made)):
            self._drop_chunks(tx.session, some)
            alive = {row[0] for row in ask(tx.session, _ALIVE, {"seqs": some})}
            for seq in some:
                if seq not in alive:
                    continue
                for ordinal, chunk in enumerate(made[seq]):
                    row = {"seq": seq, "ordinal": ordinal, "start": chunk.start, "stop": chunk.stop}
                    key = tx.session.connection().execute(_INSERT_CHUNK, row | {"tokens": chunk.tokens})
                    assert key.inserted_primary_key is not None
                    number = int(key.inserted_primary_key[0])
                    stored.append((number, seq))
                    tx.session.connection().execute(_INSERT_VECTOR, {"chunk_id": number, "vector": chunk.vector})
            tx.session.connection().execute(
                sa.update(MemoryRow).where(col(MemoryRow.seq).in_(some)).values(model=model)
            )
        return stored

    def chunks_of(self, seqs: Iterable[int]) -> dict[int, list[int]]:
        """The chunk ids of memories, in the order of the text."""
        found: dict[int, list[int]] = {}
        with self._database.read() as session:
            for some in _batches(list(seqs)):
                for seq, number in ask(session, _CHUNKS_OF, {"seqs": some}):
                    found.setdefault(seq, []).append(number)
        return found

    def vectors(self, chunk_ids: Iterable[int]) -> dict[int, bytes]:
        """Vectors by chunk id."""
        found: dict[int, bytes] = {}
        with self._database.read() as session:
            for some in _batches(list(chunk_ids)):
                found |= {row[0]: row[1] for row in ask(session, _VECTORS, {"ids": some})}
        return found

    def vectors_of(self, *, seqs: Sequence[int] = (), chunks: Sequence[int] = ()) -> list[tuple[int, int, bytes]]:
        """(chunk id, seq, vector) of memories, or of chunks: a plain read, as recall asks for hundreds."""
        name, wanted = ("c.seq", seqs) if seqs else ("c.id", chunks)
        query = (
            "SELECT c.id, c.seq, v.vector FROM memory_chunks c JOIN memory_vectors v ON v.chunk_id = c.id "
            f"WHERE {name} IN (SELECT value FROM json_each(?))"
        )
        with self._database.read() as session:
            driver = session.connection().connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return driver.execute(query, (json.dumps(list(wanted)),)).fetchall()

    def vector_page(self, model: str, after: int, limit: int) -> list[tuple[int, int, Layer, bytes]]:
        """(chunk id, seq, layer, vector) of what `model` made, by growing chunk id: how an index reads all of it."""
        with self._database.read() as session:
            values = {"model": model, "after": after, "most": limit}
            return [(row[0], row[1], Layer(row[2]), row[3]) for row in ask(session, _VECTOR_PAGE, values)]

    def indexed(self, model: str) -> dict[Layer, list[int]]:
        """The ids of all chunks that have a vector of this model, by layer: what the index should hold."""
        found: dict[Layer, list[int]] = {Layer.VECTORS: [], Layer.CONTEXT: []}
        with self._database.read() as session:
            for number, layer in ask(session, _INDEXED, {"model": model}):
                found[Layer(layer)].append(number)
        return found

    def chunk_count(self) -> int:
        """How many chunks there are."""
        with self._database.read() as session:
            return int(session.connection().execute(sa.select(sa.func.count()).select_from(ChunkRow)).scalar_one())

    def more_chunks_than(self, number: int) -> bool:
        """Whether there are; counted again only after something was written."""
        commits = self._database.commits  # before the look: what is written during it is looked for again
        if self._more[:2] != (commits, number):
            query = sa.select(sa.literal(1)).select_from(ChunkRow).limit(1).offset(number)
            with self._database.read() as session:
                self._more = (commits, number, session.connection().execute(query).first() is not None)
        return self._more[2]

    def _drop_chunks(self, session: Session, seqs: Sequence[int]) -> list[int]:
        gone = [row[1] for row in ask(session, _CHUNKS_OF, {"seqs": list(seqs)})]
        if gone:
            session.connection().execute(sa.delete(ChunkRow).where(col(ChunkRow.seq).in_(seqs)))
        return gone


def _old(now: datetime, running: frozenset[str]) -> Any:
    return sa.select(col(MemoryRow.seq)).where(
        sa.or_(
            sa.and_(col(MemoryRow.retention) == Retention.MONTH.value, col(MemoryRow.created_at) <= now - MONTH),
            sa.and_(
                col(MemoryRow.retention) == Retention.SESSION.value,
                col(MemoryRow.created_at) <= now - AFTER_SESSION,
                col(MemoryRow.session).not_in(sorted(running)),
            ),
        )
    )


_COLUMNS = [
    col(MemoryRow.id),
    col(MemoryRow.layer),
    col(MemoryRow.text),
    col(MemoryRow.kind),
    col(MemoryRow.at),
    col(MemoryRow.retention),
    col(MemoryRow.created_at),
    col(MemoryRow.speaker),
    col(MemoryRow.session),
    col(MemoryRow.agent),
    col(MemoryRow.workspace),
    col(MemoryRow.source),
    col(MemoryRow.tags),
    col(MemoryRow.superseded_by),
    col(MemoryRow.forgotten),
    col(MemoryRow.ref),
    col(MemoryRow.seq),
    col(MemoryRow.trust),
]
_NAMES = [column.key for column in sa.select(*_COLUMNS).selected_columns]


def _memory(row: Sequence[Any]) -> Memory:
    found = dict(zip(_NAMES, row, strict=True))
    layer, retention, tags = Layer(found["layer"]), Retention(found["retention"]), tuple(found["tags"])
    trust = Trust(found["trust"])
    return Memory(**(found | {"layer": layer, "retention": retention, "tags": tags, "trust": trust}))


def _batches(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def _many(name: str) -> Any:
    return sa.bindparam(name, expanding=True)


_INSERT = sa.insert(MemoryRow)
_INSERT_CHUNK = sa.insert(ChunkRow)
_INSERT_VECTOR = sa.insert(VectorRow)
_KNOWN = sa.select(col(MemoryRow.id)).where(col(MemoryRow.id).in_(_many("ids")))
_SEQS = sa.select(col(MemoryRow.seq)).where(col(MemoryRow.id).in_(_many("ids")))
_ALIVE = sa.select(col(MemoryRow.seq)).where(col(MemoryRow.seq).in_(_many("seqs")), ~col(MemoryRow.forgotten))
_BY_SEQ = sa.select(*_COLUMNS).where(col(MemoryRow.seq).in_(_many("seqs")))
_FORMER = (
    sa.select(*_COLUMNS)
    .where(col(MemoryRow.session) == sa.bindparam("session"), col(MemoryRow.seq) < sa.bindparam("seq"))
    .order_by(col(MemoryRow.seq).desc())
    .limit(sa.bindparam("most"))
)
_BEFORE = sa.orm.aliased(MemoryRow)
_FORMER_SEQ = sa.select(
    col(MemoryRow.seq),
    sa.select(sa.func.max(col(_BEFORE.seq)))
    .where(col(_BEFORE.session) == col(MemoryRow.session), col(_BEFORE.seq) < col(MemoryRow.seq))
    .scalar_subquery(),
).where(col(MemoryRow.seq).in_(_many("seqs")), col(MemoryRow.session) != "")
_LATER = (
    sa.select(*_COLUMNS)
    .where(col(MemoryRow.session) == sa.bindparam("session"), col(MemoryRow.seq) > sa.bindparam("seq"))
    .order_by(col(MemoryRow.seq))
    .limit(sa.bindparam("most"))
)
_OTHER_MODEL = sa.or_(col(MemoryRow.model) < sa.bindparam("model"), col(MemoryRow.model) > sa.bindparam("model"))
_BEGINNING = sa.func.substr(col(MemoryRow.text), 1, sa.bindparam("characters")).label("text")
_PENDING = (
    sa.select(*(_BEGINNING if one is _COLUMNS[2] else one for one in _COLUMNS))
    .where(_OTHER_MODEL, ~col(MemoryRow.forgotten))
    .order_by(col(MemoryRow.seq))
    .limit(sa.bindparam("most"))
)
_PENDING_COUNT = sa.select(sa.func.count()).where(_OTHER_MODEL, ~col(MemoryRow.forgotten))
_CHUNKS_OF = (
    sa.select(col(ChunkRow.seq), col(ChunkRow.id))
    .where(col(ChunkRow.seq).in_(_many("seqs")))
    .order_by(col(ChunkRow.seq), col(ChunkRow.ordinal))
)
_VECTORS = sa.select(col(VectorRow.chunk_id), col(VectorRow.vector)).where(col(VectorRow.chunk_id).in_(_many("ids")))
_VECTOR_PAGE = (
    sa.select(col(VectorRow.chunk_id), col(ChunkRow.seq), col(MemoryRow.layer), col(VectorRow.vector))
    .join(ChunkRow, col(ChunkRow.id) == col(VectorRow.chunk_id))
    .join(MemoryRow, col(MemoryRow.seq) == col(ChunkRow.seq))
    .where(col(MemoryRow.model) == sa.bindparam("model"), col(VectorRow.chunk_id) > sa.bindparam("after"))
    .order_by(col(VectorRow.chunk_id))
    .limit(sa.bindparam("most"))
)
_INDEXED = (
    sa.select(col(VectorRow.chunk_id), col(MemoryRow.layer))
    .join(ChunkRow, col(ChunkRow.id) == col(VectorRow.chunk_id))
    .join(MemoryRow, col(MemoryRow.seq) == col(ChunkRow.seq))
    .where(col(MemoryRow.model) == sa.bindparam("model"))
    .order_by(col(VectorRow.chunk_id))
)
