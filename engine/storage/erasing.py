"""Taking words out of a whole database for good (SPEC 4.10), whatever tables it has. What is a key or a path stays;
everything else that is text, JSON or compressed text is looked at."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.storage.wanted import Wanted

SKIPPED_TABLES = frozenset({"intents"})
"""Intents are work that is not done: who forgets ends his own."""

SKIPPED_COLUMNS = frozenset(
    {"id", "key", "digest", "workspace", "cwd", "state", "status", "kind", "mode", "layer", "retention", "subject"}
    | {"agent", "channel", "runner", "flow", "provider", "model", "tool", "session", "source", "outcome", "decided_by"}
)
_TEXT = ("CHAR", "TEXT", "CLOB", "JSON", "")
_ZLIB = b"\x78"


@dataclass(frozen=True, slots=True)
class Found:
    """A value that holds the words: its table, row and column, and what it says."""

    table: str
    rowid: int
    column: str
    value: str | bytes


def find(connection: sqlite3.Connection, words: Wanted, skipped: frozenset[str] = frozenset()) -> Iterator[Found]:
    """Every value that holds `words`, but for the tables `skipped`. Reads all rows: rare, and not for a screen."""
    for table, columns in _columns(connection, skipped):
        for name in columns:
            rows = connection.execute(f'SELECT rowid, "{name}" FROM "{table}" WHERE "{name}" IS NOT NULL')
            for rowid, value in rows:
                if value and _holds(value, words):
                    yield Found(table, rowid, name, value)


def erase(connection: sqlite3.Connection, words: Wanted, skipped: frozenset[str] = frozenset()) -> int:
    """Take `words` out of every value, in the caller's transaction; returns how many values. Again finds nothing."""
    found = list(find(connection, words, skipped))
    for one in found:
        value = _removed(one.value, words)
        connection.execute(f'UPDATE "{one.table}" SET "{one.column}" = ? WHERE rowid = ?', (value, one.rowid))
    return len(found)


def scrub(connection: sqlite3.Connection) -> bool:
    """Have what was erased leave the file too: merge full-text indexes, rebuild the file, empty the log. Outside of a
    transaction. False when a reader kept the log from being emptied; it is, later."""
    for table in _full_text(connection):
        connection.execute(f'INSERT INTO "{table}"("{table}") VALUES (\'optimize\')')
    connection.execute("VACUUM")
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return busy is None or not busy[0]


def words_in(value: str | bytes) -> str:
    """What a value says, for people."""
    text = _unpacked(value) if isinstance(value, bytes) else value
    return text or ""


def in_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it, names included, put through `change`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [in_strings(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): in_strings(one, change) for name, one in value.items()}
    return value


def json_holds(text: str, words: Wanted) -> bool:
    """Whether a string in JSON `text` holds the words; by the letter where it is not JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return words.holds(text)
    found = False

    def look(one: str) -> str:
        nonlocal found
        found = found or words.holds(one)
        return one

    in_strings(document, look)
    return found


def json_removed(text: str, words: Wanted) -> str:
    """JSON `text` without the words in its strings; written as it was where it is not JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return words.removed(text)
    return json.dumps(in_strings(document, words.removed), ensure_ascii=text.isascii())


def _columns(connection: sqlite3.Connection, skipped: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    virtual = _full_text(connection)
    shadows = tuple(f"{name}_" for name in virtual)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        if table in SKIPPED_TABLES or table in skipped or table.startswith("sqlite_"):
            continue
        if table in virtual or table.startswith(shadows or ("\x00",)):
            continue
        names = [
            name
            for _, name, kind, _, _, key in connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            if not key
            and name not in SKIPPED_COLUMNS
            and not name.endswith(("_id", "_at"))
            and (any(one and one in kind.upper() for one in _TEXT) or kind.upper() in ("", "BLOB"))
        ]
        if names:
            yield table, names


def _full_text(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%fts5%'")
    return [name for (name,) in rows]


def _holds(value: object, words: Wanted) -> bool:
    text = _unpacked(value) if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return False
    return json_holds(text, words) if text[:1] in ('"', "[", "{") else words.holds(text)


def _removed(value: str | bytes, words: Wanted) -> str | bytes:
    text = words_in(value)
    new = json_removed(text, words) if text[:1] in ('"', "[", "{") else words.removed(text)
    return zlib.compress(new.encode(errors="replace")) if isinstance(value, bytes) else new


def _unpacked(value: bytes) -> str | None:
    """The text of a compressed value; None for what is none, such as a vector."""
    if not value.startswith(_ZLIB):
        return None
    try:
        return zlib.decompress(value).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
