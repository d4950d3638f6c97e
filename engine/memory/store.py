"""The store of layers C and E in SQLite: memories, their chunks and vectors (SPEC 4.3, 4.5, 4.10).

When `remember` returns, memories are on disk and found by full text. Vectors follow: the vectoriser looks for rows
whose `model` is empty or another one, so that a crash loses nothing.

Statements are plain SQL for SQLite's driver, because each recall reads hundreds of rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from engine.frozen import frozen
from engine.memory import VECTOR_LAYERS
from engine.model import RETENTION_BY_KIND, Layer, Memory, NewMemory, Refusal, RememberResult, Retention, Trust
from engine.redaction import redact
from engine.storage import as_stored, driver_of, shallow_dict
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms

MAX_CANDIDATES = 300
"""Candidates of each search. Similarities are scaled so that the last candidate has 0."""

MAX_MEMORY_BYTES = 1024 * 1024
"""Maximum number of bytes of one memory, in UTF-8."""

MAX_NAME_CHARS = 1_000
"""Maximum number of characters of a speaker, a session, a source and the like."""

_REPLACED_CHARACTERS = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}
"""NUL ends a text for half of SQLite's functions, and half a character cannot be written as UTF-8."""

MONTH_RETENTION = timedelta(days=30)
"""The time for which memories of the tier "month" are kept."""

SESSION_GRACE = timedelta(days=1)
"""The time for which memories of the tier "session" are kept after their session."""

EXPIRE_BATCH = 1_000
"""Maximum number of memories that expire in one transaction, so that other writes wait only shortly."""

ERASE_BATCH = 200
"""Maximum number of memories that are forgotten in one transaction."""

IN_ARRAY = "(SELECT value FROM json_each(?))"
"""For `column IN`: any number of values in one parameter, because SQLite limits the number of parameters."""

_COLUMNS = tuple(Memory.__dataclass_fields__)
"""The columns of a `Memory`."""

_INSERT_COLUMNS = ("model", *(name for name in _COLUMNS if name != "seq"))
_INSERT = (
    f"INSERT INTO memories ({', '.join(_INSERT_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _INSERT_COLUMNS)}) "
    "ON CONFLICT (id) DO NOTHING"
)
_EMPTY = (
    "UPDATE memories SET text = '', speaker = '', source = '', ref = '', tags = '[]', forgotten = 1 "
    f"WHERE id IN {IN_ARRAY}"
)
_DELETE_CHUNKS = f"DELETE FROM memory_chunks WHERE seq IN (SELECT seq FROM memories WHERE id IN {IN_ARRAY})"
_INSERT_CHUNK = "INSERT INTO memory_chunks (seq, ordinal, start, stop, tokens) VALUES (?, ?, ?, ?, ?)"
_EXPIRE = (
    "DELETE FROM memories WHERE seq IN (SELECT seq FROM memories WHERE (retention = 'month' AND created_at <= :month) "
    "OR (retention = 'session' AND created_at <= :session AND session NOT IN (SELECT value FROM json_each(:running))) "
    "LIMIT :limit)"
)
_PENDING = "(model < :model OR model > :model) AND NOT forgotten"
"""Whether a memory has no vectors of a model. SQLite uses the index of `model` for this, and not for `<>`."""

_SELECT_CHUNKS = (
    "SELECT c.id, c.seq, v.vector FROM memory_chunks c JOIN memory_vectors v ON v.chunk_id = c.id "
    f"WHERE {{}} IN {IN_ARRAY} ORDER BY c.seq, c.ordinal"
)
"""Selects the chunks with these values in a column."""

_WITH_VECTORS = (
    "FROM memory_vectors v JOIN memory_chunks c ON c.id = v.chunk_id JOIN memories m ON m.seq = c.seq WHERE m.model = ?"
)
"""The chunks with a vector of one model, with their memories."""


def make_memory_id(new: NewMemory) -> str:
    """The id of a memory, made of its layer, session, speaker, text and the caller's own id (without one, its source).
    So a memory that is remembered twice has one id, and is stored once."""
    parts = [new.layer.value, new.session, new.speaker, new.text, new.ref or "", "" if new.ref else new.source]
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return "mem_" + base64.b32encode(digest[:10]).decode().lower()


def check_memory(new: NewMemory) -> NewMemory:
    """`new` as it can be stored. Everything that looks like a secret is removed (SPEC 11.1), because memories go into
    prompts, to embedders, and to other machines. Raises `Refusal` as `MemoryStore.remember`."""
    text = redact(new.text.translate(_REPLACED_CHARACTERS))
    if not text.strip():
        raise Refusal("empty_memory", "the memory has no text", "write what to remember")
    if (size := len(text.encode())) > MAX_MEMORY_BYTES:
        raise Refusal(
            "memory_too_long", f"{size:,} bytes are too many for one memory", f"at most {MAX_MEMORY_BYTES:,}; split it"
        )
    if new.layer not in VECTOR_LAYERS:
        raise Refusal("bad_memory", f"layer {new.layer.value} cannot be written this way", "layer C or E")
    if new.at is not None and new.at.tzinfo is None:
        raise Refusal("bad_memory", f"the time {new.at.isoformat()} has no zone", "give it one, for example +00:00")
    names = {}
    for field in ("kind", "speaker", "session", "agent", "workspace", "source", "ref"):
        name = getattr(new, field).translate(_REPLACED_CHARACTERS)
        if len(name) > MAX_NAME_CHARS:
            raise Refusal("bad_memory", f"the {field} has {len(name):,} characters", f"at most {MAX_NAME_CHARS:,}")
        names[field] = name
    tags = tuple(tag.translate(_REPLACED_CHARACTERS)[:MAX_NAME_CHARS] for tag in new.tags)
    return replace(new, text=text, tags=tags, **names)


@frozen
class NewPassage:
    """A part of a memory with its vector (float32, little-endian), and its packed token vectors for the ranking."""

    start: int
    stop: int
    vector: bytes
    tokens: bytes | None


class MemoryRow(NamedTuple):
    """A memory without its text. `at` is as it is stored: ISO 8601 in UTC."""

    seq: int
    speaker: str
    session: str
    at: str


@frozen
class MemoryStore:
    """Rows of layers C and E. All methods may be called from any thread."""

    name = "memories"

    database: Database
    on_removed: Callable[[], None] = lambda: None
    """Called after memories were deleted or emptied, so that their vectors are no longer found."""

    # -- remembering

    def remember(self, items: Sequence[NewMemory]) -> RememberResult:
        """Write `items` in one transaction. A memory that exists (see `make_memory_id`) keeps its row, and gets the new
        tags.

        Raises `Refusal`: `empty_memory`, `memory_too_long`, `bad_memory`; then nothing of `items` is written.
        """
        checked = [check_memory(item) for item in items]
        return self.database.write(lambda tx: self._insert(tx, checked))

    def _insert(self, tx: Transaction, items: Sequence[NewMemory]) -> RememberResult:
        ids = [make_memory_id(item) for item in items]
        by_id = dict(zip(ids, items, strict=True))
        new = tx.driver.executemany(_INSERT, [_to_row(id, item, tx.now) for id, item in by_id.items()]).rowcount
        tags = [(json.dumps(item.tags), id) for id, item in by_id.items() if item.tags]
        tx.driver.executemany("UPDATE memories SET tags = ?1 WHERE id = ?2 AND tags <> ?1 AND NOT forgotten", tags)
        return RememberResult(tuple(ids), new)

    def supersede(self, id: str, by: str) -> None:
        """Mark a memory as corrected by another. It stays as history, but recall no longer finds it."""

        def mark(tx: Transaction) -> None:
            tx.driver.execute("UPDATE memories SET superseded_by = ? WHERE id = ?", (by, id))

        self.database.write(mark)

    def empty_memories(self, tx: Transaction, ids: Iterable[str]) -> None:
        """Forget memories: texts, chunks and vectors are deleted, empty stubs stay (SPEC 4.10)."""
        id_array = make_json_array(ids)
        tx.driver.execute(_EMPTY, id_array)
        tx.driver.execute(_DELETE_CHUNKS, id_array)
        tx.after_commit(self.on_removed)

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """The id and the text of each memory that contains one of the terms, for forgetting."""
        for id, text, speaker, tags in self._select("SELECT id, text, speaker, tags FROM memories WHERE NOT forgotten"):
            if any(map(terms.match, (text, speaker, *json.loads(tags)))):
                yield id, text

    def erase(self, terms: SearchTerms) -> int:
        """Forget the memories that contain one of the terms; returns how many."""
        ids = [id for id, _ in self.find(terms)]
        for start in range(0, len(ids), ERASE_BATCH):
            self.database.write(partial(self.empty_memories, ids=ids[start : start + ERASE_BATCH]))
        return len(ids)

    def expire(self, tx: Transaction, *, running: frozenset[str]) -> int:
        """Delete up to `EXPIRE_BATCH` memories whose time is over (SPEC 4.3), with their chunks: those kept for a month
        after 30 days, those kept for a session one day after they were made, unless the session is still in `running`.
        Returns how many."""
        values = {
            "month": as_stored(tx.now - MONTH_RETENTION),
            "session": as_stored(tx.now - SESSION_GRACE),
            "running": json.dumps(sorted(running)),
            "limit": EXPIRE_BATCH,
        }
        number = tx.driver.execute(_EXPIRE, values).rowcount
        if number:
            tx.after_commit(self.on_removed)
        return number

    # -- reading

    def get(self, id: str) -> Memory | None:
        """One memory, by its id or by the caller's own id of it (then the newest that has it)."""
        return next(iter(self.load("WHERE id = ?1 OR ref = ?1 ORDER BY seq DESC LIMIT 1", (id,))), None)

    def read_by_seq(self, seqs: Iterable[int]) -> dict[int, Memory]:
        """Memories by their number; deleted ones are left out."""
        return {memory.seq: memory for memory in self.load(f"WHERE seq IN {IN_ARRAY}", make_json_array(seqs))}

    def read_entries(
        self, layer: Layer, *, words: str = "", before: int | None = None, limit: int = 200
    ) -> list[Memory]:
        """Memories with all `words`, newest first; page on with `before` = the last `seq`."""
        terms = " ".join(quote_words(words.split()))
        if words.strip() and not terms:
            return []
        condition = "AND seq IN (SELECT rowid FROM memories_fts WHERE memories_fts MATCH :terms)" if terms else ""
        return self.load(
            f"WHERE layer = :layer AND (:before IS NULL OR seq < :before) {condition} ORDER BY seq DESC LIMIT :limit",
            {"layer": layer.value, "before": before, "terms": terms, "limit": limit},
        )

    def find_previous_turns(self, seqs: Sequence[int]) -> dict[int, int]:
        """The number of the memory before each in its session, if there is one."""
        query = (
            "SELECT seq, (SELECT max(b.seq) FROM memories b WHERE b.session = m.session AND b.seq < m.seq) "
            f"FROM memories m WHERE seq IN {IN_ARRAY} AND session <> ''"
        )
        return {seq: before for seq, before in self._select(query, make_json_array(seqs)) if before is not None}

    def count(self) -> int:
        """How many memories there are that are not forgotten."""
        return self.count_and_newest(None)[0]

    def count_and_newest(self, layer: Layer | None) -> tuple[int, datetime | None]:
        """How many memories a layer has (None: both layers), and when the newest was remembered."""
        query = "SELECT count(*), max(created_at) FROM memories WHERE NOT forgotten AND layer = ifnull(?, layer)"
        [(number, newest)] = self._select(query, (layer and layer.value,))
        return number, newest and datetime.fromisoformat(newest)

    # -- chunks and vectors

    def read_pending(self, model: str, limit: int, *, characters: int = MAX_MEMORY_BYTES) -> list[Memory]:
        """Memories whose vectors are missing or were made by another model, oldest first, with the first `characters`
        of their text."""
        values = {"model": model, "limit": limit, "characters": characters}
        return self.load(f"WHERE {_PENDING} ORDER BY seq LIMIT :limit", values, text="substr(text, 1, :characters)")

    def count_pending(self, model: str) -> int:
        """How many memories `read_pending` would return without a limit."""
        return int(self._select(f"SELECT count(*) FROM memories WHERE {_PENDING}", {"model": model})[0][0])

    def put_passages(self, tx: Transaction, model: str, passages: Mapping[int, Sequence[NewPassage]]) -> None:
        """Store the chunks of memories with their vectors, and delete their former ones. A memory that was deleted or
        forgotten meanwhile is skipped."""
        driver = tx.driver
        driver.execute(f"DELETE FROM memory_chunks WHERE seq IN {IN_ARRAY}", make_json_array(passages))
        existing = f"SELECT seq FROM memories WHERE seq IN {IN_ARRAY} AND NOT forgotten"
        for (seq,) in driver.execute(existing, make_json_array(passages)).fetchall():
            for ordinal, passage in enumerate(passages[seq]):
                chunk = driver.execute(
                    _INSERT_CHUNK, (seq, ordinal, passage.start, passage.stop, passage.tokens)
                ).lastrowid
                driver.execute("INSERT INTO memory_vectors (chunk_id, vector) VALUES (?, ?)", (chunk, passage.vector))
        driver.execute(f"UPDATE memories SET model = ? WHERE seq IN {IN_ARRAY}", (model, *make_json_array(passages)))

    def read_vectors(self, chunk_ids: Iterable[int]) -> dict[int, bytes]:
        """Vectors by chunk id."""
        return {chunk: vector for chunk, _, vector in self.read_chunks(chunk_ids)}

    def read_chunks(self, chunk_ids: Iterable[int]) -> list[tuple[int, int, bytes]]:
        """(chunk id, seq, vector) of these chunks, in the order of the texts."""
        return self._select(_SELECT_CHUNKS.format("c.id"), make_json_array(chunk_ids))

    def read_chunks_of(self, seqs: Iterable[int]) -> list[tuple[int, int, bytes]]:
        """`read_chunks` for all chunks of these memories."""
        return self._select(_SELECT_CHUNKS.format("c.seq"), make_json_array(seqs))

    def read_vector_page(self, model: str, after: int, limit: int) -> list[tuple[int, int, Layer, bytes]]:
        """The next vectors of `model` after the chunk `after`, as (chunk id, seq, layer, vector), by growing chunk
        id."""
        query = f"SELECT c.id, c.seq, m.layer, v.vector {_WITH_VECTORS} AND v.chunk_id > ? ORDER BY v.chunk_id LIMIT ?"
        return [
            (chunk, seq, Layer(layer), vector)
            for chunk, seq, layer, vector in self._select(query, (model, after, limit))
        ]

    def list_indexed(self, model: str) -> dict[Layer, list[int]]:
        """The ids of all chunks with a vector of this model, by layer: what the index should contain."""
        by_layer: dict[Layer, list[int]] = {layer: [] for layer in sorted(VECTOR_LAYERS)}
        for number, layer in self._select(f"SELECT c.id, m.layer {_WITH_VECTORS} ORDER BY c.id", (model,)):
            by_layer[Layer(layer)].append(number)
        return by_layer

    def has_more_chunks_than(self, number: int) -> bool:
        """Whether there are more than `number` chunks."""
        return bool(self._select("SELECT 1 FROM memory_chunks LIMIT 1 OFFSET ?", (number,)))

    def load(self, where: str, values: Any, *, text: str = "text") -> list[Memory]:
        """The memories for which an SQL condition is true."""
        names = ", ".join(text if name == "text" else name for name in _COLUMNS)
        return [_to_memory(row) for row in self._select(f"SELECT {names} FROM memories {where}", values)]

    def _select(self, query: str, values: Any = ()) -> list[Any]:
        """Execute a statement that only reads."""
        with self.database.read() as session:
            return driver_of(session).execute(query, values).fetchall()


def _to_row(id: str, new: NewMemory, now: datetime) -> dict[str, Any]:
    """The row of a new memory that was checked."""
    retention = new.retention or RETENTION_BY_KIND.get(new.kind, Retention.MONTH)
    return shallow_dict(new) | {
        "id": id,
        "created_at": as_stored(now),
        "at": as_stored(new.at or now),
        "retention": retention.value,
        "tags": json.dumps(new.tags),
        "layer": new.layer.value,
        "superseded_by": "",
        "forgotten": 0,
        "model": "",
    }


def _to_memory(row: Sequence[Any]) -> Memory:
    """The memory in a row with the columns `_COLUMNS`."""
    values = dict(zip(_COLUMNS, row, strict=True))
    parsed = {
        "layer": Layer(values["layer"]),
        "retention": Retention(values["retention"]),
        "trust": Trust(values["trust"]),
        "tags": tuple(json.loads(values["tags"])),
        "at": datetime.fromisoformat(values["at"]),
        "created_at": datetime.fromisoformat(values["created_at"]),
        "forgotten": bool(values["forgotten"]),
    }
    return Memory(**values | parsed)


def quote_words(words: Iterable[str]) -> list[str]:
    """Words for an FTS5 query. Each is in quotes, so that nothing in it is an operator. Words without a letter or a
    digit are left out."""
    plain = (word.replace('"', " ").replace("\x00", " ").strip() for word in words)
    return [f'"{word}"' for word in plain if any(map(str.isalnum, word))]


def make_json_array(values: Iterable[Any]) -> tuple[str]:
    """The parameter of `IN_ARRAY`."""
    return (json.dumps(list(values)),)
