"""Erases words of the operator's choice from all tables of a database for good (SPEC 4.10).

    terms = SearchTerms(make_search_terms("Bob Lee lives in Utrecht."))
    [place.table for place in find(connection, terms)]  # what would be changed
    erase(connection, terms)  # removes the words, and leaves the rest of each value
    scrub(connection)  # removes them from the file, too

`engine.memory.forget` does that, and the other stores of texts search by the same `SearchTerms`. Every row is read, and
the file is rebuilt, which takes about a second for each 100 MB.

A copy of the words is seldom written as they are. An event is JSON, in which a prompt may be JSON again, and parts of a
prompt are XML. So a pattern accepts each character in all these forms, and JSON is searched string by string. Keys,
paths and names are not searched: without them, rows would no longer be found.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

from engine.frozen import frozen
from engine.model import Refusal

MIN_LETTERS = 3
"""Minimum number of letters of a text to erase: shorter ones are part of many words."""


class SearchTerms:
    """Texts to find and remove: whole words, in any case, with any white space between them, also as JSON or XML inside
    of another text writes them."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises `Refusal` `too_short` for a text that is too short to be searched for."""
        self.texts = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
        if not self.texts or any(len(re.sub(r"\W", "", text)) < MIN_LETTERS for text in self.texts):
            raise Refusal(
                "too_short", f"the words to forget must have {MIN_LETTERS} letters or more", "write more of the text"
            )
        words_of_texts = [text.split() for text in sorted(self.texts, key=len, reverse=True)]
        patterns = [_make_pattern(piece) for words in words_of_texts for piece in _cut_into_pieces(words)]
        patterns += [_make_excerpt_pattern(words) for words in words_of_texts if len(words) > EXCERPT_WORDS]
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE)

    def match(self, text: str) -> bool:
        """Whether `text` contains any of them."""
        return self._pattern.search(text) is not None

    def remove_from(self, text: str) -> str:
        """`text` without them."""
        return self._pattern.sub("", text)

    def blank_out(self, text: str) -> str:
        """`text` with spaces in their place, as many bytes as before: for files that other programs append to."""
        return self._pattern.sub(lambda match: " " * len(match[0].encode()), text)


MAX_PATTERN_WORDS = 400
"""Maximum number of words of one pattern: a longer one takes seconds to compile."""

EXCERPT_WORDS = 8
"""Number of words at the beginning of a text by which its excerpts are found, too."""

MAX_EXCERPT_CHARS = 2_000
"""Maximum number of characters of an excerpt between these words and its ellipsis."""


def _cut_into_pieces(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words of a text in pieces of at most `MAX_PATTERN_WORDS`, each of which is searched for by itself."""
    for start in range(0, len(words), MAX_PATTERN_WORDS):
        yield words[start : start + MAX_PATTERN_WORDS]


def _make_excerpt_pattern(words: Sequence[str]) -> str:
    """A pattern of the beginning of a text up to an ellipsis, as titles and quotes are cut."""
    return f"{_make_pattern(words[:EXCERPT_WORDS])}[^\\n…]{{0,{MAX_EXCERPT_CHARS}}}…"


def _make_pattern(words: Sequence[str]) -> str:
    """A pattern of these words, one after the other, with any white space between them, also if it is escaped.

    It begins and ends between words: `Bob Lee` is not in `Bob Leeson`. The `n` of an escaped line end (`\\n`) is no
    part of a word, although it is a letter. It looks for the first character before all that, which is faster.
    """
    first_character = _join_forms(_find_forms(words[0][0]))
    is_begin_of_word = r"(?<!\w(?<!\\.))"
    return rf"(?={first_character}){is_begin_of_word}{_make_text_pattern(' '.join(words))}(?!\w)"


_BACKSLASHES = r"\\+"

_SPACES = (r"\s", rf"{_BACKSLASHES}[nrt]")
"""The patterns of white space as it is, and as JSON writes it."""


def _make_text_pattern(text: str) -> str:
    """A pattern of a text with one space between words. A backslash matches all that follow each other, and nothing
    after it begins with one: two ways to divide them would take exponential time."""
    patterns = []
    for before, character in itertools.pairwise(f" {text}"):
        if character == "\\":
            patterns += [] if before == "\\" else [_BACKSLASHES]
            continue
        forms = _find_forms(character)
        remaining = [form.removeprefix(_BACKSLASHES) for form in forms] if before == "\\" else forms
        patterns.append(_join_forms(remaining))
        if character == " ":
            patterns.append(f"{_join_forms(forms)}*")
    return "".join(patterns)


@cache
def _find_forms(character: str) -> Sequence[str]:
    """The patterns of a character as it is, as XML writes it, and as JSON does, with more backslashes in JSON within
    JSON; `&` is `&amp;`, and `"` is `&quot;` and `\\"`."""
    if character == " ":
        return _SPACES
    forms = (character, escape(character), json.dumps(character)[1:-1])
    return [re.sub(r"(?:\\\\)+", r"\\\\+", re.escape(form)) for form in forms]


def _join_forms(forms: Iterable[str]) -> str:
    """A pattern that matches any of these."""
    different = list(dict.fromkeys(forms))
    return different[0] if len(different) == 1 else f"(?:{'|'.join(different)})"


MIN_WORDS = 5
"""Minimum number of words of a line or sentence of the text that is also searched for by itself."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
"""What stands between two sentences."""


def make_search_terms(text: str) -> list[str]:
    """The search terms to erase a whole text: the text itself, and its lines and sentences of at least `MIN_WORDS`
    words, which are long enough to come from no other text."""
    lines = [line.strip() for line in text.splitlines()]
    sentences = [part.strip() for line in lines for part in _SENTENCE.split(line)]
    parts = [piece for piece in (*lines, *sentences) if len(piece.split()) >= MIN_WORDS]
    return list(dict.fromkeys([text.strip(), *parts]))


@frozen
class Match:
    """A value that contains one of the terms, and where it is."""

    table: str
    rowid: int
    column: str
    value: str | bytes


def find(connection: sqlite3.Connection, terms: SearchTerms, skipped: frozenset[str] = frozenset()) -> Iterator[Match]:
    """Every value that contains one of `terms`, except in the tables `skipped`. Reads all rows."""
    for table, columns in _find_searchable_columns(connection, skipped):
        for name in columns:
            rows = connection.execute(f'SELECT rowid, "{name}" FROM "{table}" WHERE "{name}" IS NOT NULL')
            for rowid, value in rows:
                if isinstance(value, str | bytes) and json_contains(decode_text(value), terms):
                    yield Match(table, rowid, name, value)


def erase(connection: sqlite3.Connection, terms: SearchTerms, skipped: frozenset[str] = frozenset()) -> int:
    """Remove `terms` from every value, in the caller's transaction; returns how many values were changed."""
    matches = list(find(connection, terms, skipped))
    for match in matches:
        value = _erase_from(match.value, terms)
        connection.execute(f'UPDATE "{match.table}" SET "{match.column}" = ? WHERE rowid = ?', (value, match.rowid))
    return len(matches)


def scrub(connection: sqlite3.Connection) -> bool:
    """Remove what was erased from the file, too: merge full-text indexes, rebuild the file, empty the log. Not inside a
    transaction. False if a reader kept the log from being emptied; then it is emptied later."""
    for table in _find_full_text_tables(connection):
        connection.execute(f'INSERT INTO "{table}"("{table}") VALUES (\'optimize\')')
    connection.execute("VACUUM")
    checkpoint = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    is_busy = checkpoint is not None and checkpoint[0]
    return not is_busy


_ZLIB_HEADER = b"\x78"


def decode_text(value: str | bytes) -> str:
    """The text of a value, decompressed; "" for bytes that are no compressed text, such as a vector."""
    if isinstance(value, str):
        return value
    try:
        return zlib.decompress(value).decode() if value.startswith(_ZLIB_HEADER) else ""
    except (zlib.error, UnicodeDecodeError):
        return ""


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with `change` applied to every string in it, names included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {change(name): map_strings(item, change) for name, item in value.items()}
    return value


def json_contains(text: str, terms: SearchTerms) -> bool:
    """Whether a string in JSON `text` contains one of the terms; text that is not JSON is searched as it is."""
    return any(map(terms.match, _iterate_strings(_parse_json(text))))


def _parse_json(text: str) -> Any:
    """The array, the object or the string in JSON `text`; any other text as it is."""
    try:
        return json.loads(text) if text.lstrip()[:1] in ('"', "[", "{") else text
    except (ValueError, RecursionError):
        return text


def _iterate_strings(document: Any) -> Iterator[str]:
    """Every string in a JSON value, names included."""
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += [*value, *value.values()]


def remove_from_json(text: str, terms: SearchTerms) -> str:
    """JSON `text` without the terms in its strings; text that is not JSON is changed as it is."""
    document = _parse_json(text)
    if document is text:
        return terms.remove_from(text)
    return json.dumps(map_strings(document, terms.remove_from), ensure_ascii=text.isascii())


def _erase_from(value: str | bytes, terms: SearchTerms) -> str | bytes:
    """A value without the terms, compressed if it was."""
    remaining = remove_from_json(decode_text(value), terms)
    return zlib.compress(remaining.encode(errors="replace")) if isinstance(value, bytes) else remaining


SKIPPED_TABLES = frozenset({"intents"})
"""Intents are left to the services that finish them."""

SKIPPED_COLUMNS = frozenset(
    {
        "id", "key", "digest", "workspace", "cwd", "state", "status", "kind", "mode", "layer", "retention", "subject",
        "agent", "channel", "runner", "flow", "provider", "model", "tool", "session", "source", "outcome", "decided_by",
        "type", "trust", "part", "signal", "bucket", "answer", "day", "scope_type", "trigger_type",
    }
)  # fmt: skip
"""Columns that contain no free text."""

INSTANT_TYPE = "VARCHAR(32)"
"""The declared type of instants, which contain no text either."""

_TEXT_TYPES = ("CHAR", "TEXT", "CLOB", "JSON")
"""Declared types of columns that may contain text."""


def _find_searchable_columns(
    connection: sqlite3.Connection, skipped: frozenset[str]
) -> Iterator[tuple[str, list[str]]]:
    """The tables that may contain texts, each with its columns that may."""
    full_text = _find_full_text_tables(connection)
    skipped_tables = {*SKIPPED_TABLES, *skipped, *full_text}
    skipped_prefixes = ("sqlite_", *(f"{name}_" for name in full_text))  # the last are tables inside of an index
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        if table in skipped_tables or table.startswith(skipped_prefixes):
            continue
        columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        names = [name for _, name, kind, _, _, key in columns if not key and _is_searchable(name, kind.upper())]
        if names:
            yield table, names


def _is_searchable(name: str, kind: str) -> bool:
    """Whether a column with this name and declared type may contain a text to erase."""
    if name in SKIPPED_COLUMNS or name.endswith(("_id", "_at")) or kind == INSTANT_TYPE:
        return False
    return kind in ("", "BLOB") or any(word in kind for word in _TEXT_TYPES)


def _find_full_text_tables(connection: sqlite3.Connection) -> list[str]:
    """The full-text indexes. They follow the tables that they index, by triggers."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%fts5%'")
    return [name for (name,) in rows]
