"""Taking words out of a whole database for good (SPEC 4.10), whatever tables it has. What is a key or a path stays;
everything else that is text, JSON or compressed text is looked at."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.frozen import frozen
from engine.model import Refusal

SHORTEST = 3
"""Letters of what can be forgotten by its words: shorter ones are part of everything."""

FEWEST_WORDS = 5
"""Words of a line or a sentence that is looked for by itself, when the whole that it is part of is forgotten."""

MOST_WORDS = 400
"""Words of one pattern; a longer text is looked for by the letter, and by its lines."""

HEAD_WORDS = 8
LONGEST_CUT = 2_000
"""A longer text is found where it is quoted and cut, too: its first words, and at most so many characters up to an
ellipsis."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+")


class Wanted:
    """Texts to find and take out: whole words, in any case, with any space between them."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises `Refusal` `too_short` for words that would be found everywhere."""
        self.texts = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
        if not self.texts or any(len(re.sub(r"\W", "", text)) < SHORTEST for text in self.texts):
            raise Refusal(
                "too_short", f"the words to forget must have {SHORTEST} letters or more", "write more of the text"
            )
        short = [text for text in self.texts if len(text.split()) <= MOST_WORDS]
        self._long = tuple(text for text in self.texts if len(text.split()) > MOST_WORDS)
        whole = [f"(?<!\\w){_spaced(text.split())}(?!\\w)" for text in sorted(short, key=len, reverse=True)]
        cut = [
            f"(?<!\\w){_spaced(text.split()[:HEAD_WORDS])}(?!\\w)[^\\n…]{{0,{LONGEST_CUT}}}…"
            for text in self.texts
            if len(text.split()) > HEAD_WORDS
        ]
        self._pattern = re.compile("|".join([*whole, *cut]) or "(?!)", re.IGNORECASE)

    def holds(self, text: str) -> bool:
        """Whether `text` holds any of it."""
        return any(one in text for one in self._long) or self._pattern.search(text) is not None

    def removed(self, text: str) -> str:
        """`text` without it."""
        for one in self._long:
            text = text.replace(one, "")
        return self._pattern.sub("", text)

    def covered(self, text: str) -> str:
        """`text` with spaces in its place, as many bytes as there were: for files that others write on."""
        for one in self._long:
            text = text.replace(one, " " * len(one.encode()))
        return self._pattern.sub(lambda found: " " * len(found[0].encode()), text)


def _spaced(words: Iterable[str]) -> str:
    return r"\s+".join(map(re.escape, words))


def pieces(text: str) -> list[str]:
    """What to look for when a whole text is to be forgotten: itself, and those of its lines and sentences that are long
    enough to be nobody else's."""
    lines = [line.strip() for line in text.splitlines()]
    sentences = [part.strip() for line in lines for part in _SENTENCE.split(line)]
    parts = [one for one in (*lines, *sentences) if len(one.split()) >= FEWEST_WORDS]
    return list(dict.fromkeys([text.strip(), *parts]))


SKIPPED_TABLES = frozenset({"intents"})
"""Intents are work that is not done: who forgets ends his own."""

SKIPPED_COLUMNS = frozenset(
    {"id", "key", "digest", "workspace", "cwd", "state", "status", "kind", "mode", "layer", "retention", "subject"}
    | {"agent", "channel", "runner", "flow", "provider", "model", "tool", "session", "source", "outcome", "decided_by"}
)
_TEXT = ("CHAR", "TEXT", "CLOB", "JSON", "")
_ZLIB = b"\x78"


@frozen
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

    def look(text: str) -> str:
        nonlocal found
        found = found or words.holds(text)
        return text

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
