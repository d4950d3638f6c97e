"""Forgetting (SPEC 4.10): a text is erased from every store. An empty, invalid stub stays, so that graphs and chains
remain whole. `preview` shows what would be erased. `forget` erases it from one store after the other, under an intent,
so that the next start finishes what a crash interrupted.

The intent contains the text while it is erased. It is emptied before the database file is rebuilt, so that in the end
no file of the home contains it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from sqlmodel import Session

from engine.events.learning import MemoryForgotten
from engine.files import write_atomic
from engine.frozen import frozen
from engine.memory.captures import CaptureRow
from engine.memory.drafts import DraftRow
from engine.memory.graph import TaskNode
from engine.model import ForgetMatch, ForgetPreview, ForgetReport, Refusal
from engine.storage import ask, driver_of, erasing, load_all, table_of
from engine.storage.database import Database, Transaction
from engine.storage.erasing import MIN_WORDS, SearchTerms, json_contains, make_search_terms, remove_from_json
from engine.storage.state import Intent, begin_intent, finish_intent_now, read_unfinished_intents
from engine.text import plain

log = logging.getLogger(__name__)

INTENT_KIND = "forget"
"""The kind of the intents of this service."""

MAX_SHOWN = 20
"""Maximum number of places of each store in a preview."""

MAX_EXCERPT_CHARS = 120
"""Maximum number of characters of a place in a preview."""

_ID = re.compile(
    r"(?:bub|call|cand|cap|change|draft|fact|land|les|lrn|mem|mute|perm|permit|pred|sess|task|train)_[0-9a-z]{12,16}"
)
"""Matches an id. It is not searched for as a word: to erase it would break what refers to it, and leave its text."""

NOT_ERASED = (
    "worktrees, repositories and anything else outside of this home",
    "the settings",
    "names of folders and workspaces",
    "names of leaders' patterns, on machines that share a database with this one",
    f"lines of fewer than {MIN_WORDS} words where a transcript has them alone: forget these one by one",
)
"""What forgetting does not erase, in words."""

_TABLES_OF_OTHER_STORES = frozenset(
    {"memories", "memory_chunks", "memory_vectors", "captures", "fact_drafts", "task_nodes", "profile_entries"}
)
"""Tables that have a store of their own."""

SKIPPED_FOLDERS = frozenset({"worktrees", "scratch", "chroma"})
"""Folders of a home whose files are not searched."""

TEXT_SUFFIXES = frozenset({".md", ".txt"})
"""Suffixes of files from which a line with a term is removed as a whole."""

_BINARY_PROBE_BYTES = 8_192
"""A file with a NUL among this many first bytes is binary."""


class ErasableStore(Protocol):
    """A store of texts that can be forgotten."""

    name: str

    def find(self, terms: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The id and the text of each entry that contains one of the terms."""

    def erase(self, terms: SearchTerms, /) -> int:
        """Remove the terms; returns the number of changed entries. A second call changes nothing."""


@frozen
class OtherTexts:
    """Texts of services outside of memory, which are forgotten, too."""

    stores: Sequence[ErasableStore]
    find_by_prefix: Mapping[str, Callable[[str], str | None]]
    """Functions that return the text of an entry, None for an unknown id, by the prefix of its id."""


class Forgetting:
    """Erases texts from all stores. Methods may be called from any thread; one runs at a time. They read everything,
    which takes seconds."""

    def __init__(
        self,
        database: Database,
        stores: Sequence[ErasableStore],
        *,
        find_text: Callable[[str], str | None],
        list_running: Callable[[], Iterable[str]],
        second_pass: Sequence[ErasableStore],
    ) -> None:
        """`find_text(id)` returns the text of an entry of any layer, `list_running()` the sessions whose transcripts
        are being written. The stores of `second_pass` are erased again at the end, because texts of later stores may
        have been copied into them."""
        self._second_pass = tuple(second_pass)
        self._database = database
        self._stores = tuple(stores)
        self._find_text = find_text
        self._list_running = list_running
        self._lock = threading.Lock()

    def preview(self, id_or_words: str) -> ForgetPreview:
        """What forgetting an entry, or all that contains these words, would erase. Raises `Refusal` `too_short`, and
        `nothing_found` for an id without a text."""
        terms = self._make_terms(id_or_words)
        matches_by_store = {store.name: list(store.find(terms)) for store in self._stores}
        places = [
            ForgetMatch(name, id, plain(text, MAX_EXCERPT_CHARS))
            for name, matches in matches_by_store.items()
            for id, text in matches[:MAX_SHOWN]
        ]
        counts = tuple((name, len(matches)) for name, matches in matches_by_store.items() if matches)
        return ForgetPreview(terms.texts, tuple(places), counts, NOT_ERASED)

    def forget(self, target: str | Sequence[str]) -> ForgetReport:
        """Forget an entry, by its id, with all its copies; or everything that contains these words; or the texts of a
        preview.

        Raises `Refusal`: `too_short`, `session_running` (a session that contains it is running), and what the stores
        raise; the next start then finishes it.
        """
        with self._lock:
            terms = self._make_terms(target) if isinstance(target, str) else SearchTerms(target)
            self._refuse_running(terms)
            payload = {"phase": "erase", "wanted": list(terms.texts)}
            return self._finish(self._database.write(lambda tx: begin_intent(tx, INTENT_KIND, "", payload)), terms)

    def recover(self) -> list[str]:
        """Finish what a crash left half done."""
        messages = []
        with self._lock:
            for intent in read_unfinished_intents(self._database, INTENT_KIND):
                texts = intent.payload.get("wanted")
                self._finish(intent.id, SearchTerms(texts) if texts else None)
                messages.append("the deletion that was interrupted when the engine stopped is complete")
        return messages

    def _finish(self, intent: int, terms: SearchTerms | None) -> ForgetReport:
        """Erase `terms` from every store, then rebuild the database file. None: only the file is left to do."""
        counts: list[tuple[str, int]] = []
        if terms is not None:
            erased = ((store.name, store.erase(terms)) for store in (*self._stores, *self._second_pass))
            counts = [(name, number) for name, number in erased if number]

            def empty_intent(tx: Transaction) -> None:
                for row in load_all(tx.session, Intent, "WHERE id = :id", {"id": intent}):
                    row.payload = {"phase": "scrub"}
                tx.record(MemoryForgotten(places=sum(number for _, number in counts)))

            self._database.write(empty_intent)
        if not self._database.scrub():
            log.warning("a reader kept the database's log from being emptied; it is with the next checkpoint")
        finish_intent_now(self._database, intent)
        return ForgetReport(tuple(counts), NOT_ERASED)

    def _make_terms(self, id_or_words: str) -> SearchTerms:
        id = id_or_words.strip()
        text = self._find_text(id)
        if not (text or "").strip() and _ID.fullmatch(id):
            message = f"{id} has no text of its own, or was forgotten already"
            raise Refusal("nothing_found", message, "give the words")
        if text:
            return SearchTerms(make_search_terms(text))
        return SearchTerms([id_or_words, *make_search_terms(id_or_words)[1:]])

    def _refuse_running(self, terms: SearchTerms) -> None:
        """Raise `Refusal` `session_running` if the transcript of a running session contains one of the terms."""
        running = set(self._list_running())
        files = [store for store in self._stores if isinstance(store, HomeFiles) and running]
        sessions = {Path(path).name.split(".")[0] for store in files for path, _ in store.find(terms)}
        for session in sorted(sessions & running):
            raise Refusal(
                "session_running", f"{session} contains it and is running", "wait until it finishes, or stop it"
            )


ErasableRow = CaptureRow | DraftRow | TaskNode
"""A row whose texts can be forgotten."""


class ErasableRows:
    """The captures, the drafts or the tasks, as a store. A row that contains a term is emptied."""

    def __init__(self, name: str, database: Database, table: type[ErasableRow]) -> None:
        self.name = name
        self._database = database
        self._table = table
        self._id_column = next(iter(table_of(table).primary_key)).name

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        with self._database.read() as session:
            yield from self._find_matching(session, terms).items()

    def erase(self, terms: SearchTerms) -> int:
        def empty_rows(tx: Transaction) -> int:
            ids = [*self._find_matching(tx.session, terms)]
            of_ids = f"WHERE {self._id_column} IN (SELECT value FROM json_each(:ids))"
            rows = load_all(tx.session, self._table, of_ids, {"ids": ids})
            for row in rows:
                row.forget(tx.now)
            return len(rows)

        return self._database.write(empty_rows)

    def _find_matching(self, session: Session, terms: SearchTerms) -> dict[str, str]:
        """The first text that matches of each row that has one, by its id. No objects are made of the other rows, of
        which there may be 100,000."""
        columns = ", ".join((self._id_column, *self._table.TEXT_COLUMNS))
        rows = ask(session, f"SELECT {columns} FROM {self._table.__tablename__}")
        matches = ((id, next((text for text in texts if json_contains(text, terms)), "")) for id, *texts in rows)
        return {id: text for id, text in matches if text}


@frozen
class DatabaseRows:
    """The other tables of the database, such as prompts and the ledger, as a store."""

    name = "records"

    database: Database

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        with self.database.read() as session:
            for item in erasing.find(driver_of(session), terms, _TABLES_OF_OTHER_STORES):
                yield f"{item.table}.{item.column}:{item.rowid}", erasing.decode_text(item.value)

    def erase(self, terms: SearchTerms) -> int:
        return self.database.write(lambda tx: erasing.erase(tx.driver, terms, _TABLES_OF_OTHER_STORES))


class HomeFiles:
    """The files below some folders as a store: transcripts, `memory.md` and other pages, logs, damaged files that were
    moved aside."""

    name = "files"

    def __init__(self, folders: Sequence[Path], *, database: Path) -> None:
        """`database` is the open database, whose files are not read: closing one drops the locks of this process on it.
        Then another program that closes the database would delete its log, and with it what is written later."""
        self._folders = tuple(folders)
        self._skipped_files = {database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm")}

    def find(self, terms: SearchTerms) -> Iterator[tuple[str, str]]:
        """Each file that contains the terms, with the first such line."""
        for path in self._walk_files():
            line = _find_line(path, terms)
            if line is not None:
                yield str(path), line

    def erase(self, terms: SearchTerms) -> int:
        """Remove the terms from every file; the number of files. A second time finds nothing. Raises OSError."""
        paths = [Path(path) for path, _ in self.find(terms)]
        for path in paths:
            _erase_from_file(path, terms)
        return len(paths)

    def _walk_files(self) -> Iterator[Path]:
        for folder in self._folders:
            for parent, names, files in os.walk(folder):
                names[:] = sorted(set(names) - SKIPPED_FOLDERS)
                paths = (Path(parent, name) for name in sorted(files))
                searched = (path for path in paths if path not in self._skipped_files)
                yield from (path for path in searched if path.is_file() and not path.is_symlink())


def _read_text(path: Path) -> str:
    """The text of a file, "" for one that is binary, or gone by now."""
    try:
        with path.open("rb") as file:
            head = file.read(_BINARY_PROBE_BYTES)
            return "" if b"\x00" in head else (head + file.read()).decode("utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _find_line(path: Path, terms: SearchTerms) -> str | None:
    """The first line of a file that contains one of the terms; the name of a JSON file if only a string of it does;
    None for no match."""
    text = _read_text(path)
    is_match = partial(json_contains, terms=terms) if path.suffix == ".jsonl" else terms.match
    line = next(filter(is_match, text.split("\n")), None)
    if line is None and path.suffix == ".json" and json_contains(text, terms):
        return path.name
    return line


def _erase_from_file(path: Path, terms: SearchTerms) -> None:
    """Remove the terms from a file. Raises OSError."""
    text = _read_text(path)
    if path.suffix == ".json":
        text = remove_from_json(text, terms)
    elif path.suffix == ".jsonl":
        text = "\n".join(_erase_line(line, terms) for line in text.split("\n"))
    elif path.suffix in TEXT_SUFFIXES:
        text = "\n".join(line for line in text.split("\n") if not terms.match(line))
    else:
        _blank_in_place(path, terms)
        return
    write_atomic(path, _encode(text))


def _erase_line(line: str, terms: SearchTerms) -> str:
    """A line of JSON without the terms, as long as before: readers know where lines begin."""
    if not json_contains(line, terms):
        return line
    erased = remove_from_json(line, terms)
    return erased + " " * max(0, len(_encode(line)) - len(_encode(erased)))


def _blank_in_place(path: Path, terms: SearchTerms) -> None:
    """Overwrite the terms with spaces in place, so that a process that appends to the file can go on."""
    with path.open("r+b") as file:
        while line := file.readline():
            text = line.decode("utf-8", errors="surrogateescape")
            if terms.match(text):
                after = file.tell()
                file.seek(after - len(line))
                file.write(_encode(terms.blank_out(text)))
                file.seek(after)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")
