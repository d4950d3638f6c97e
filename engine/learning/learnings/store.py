"""Reads and writes the pages of learning entries (SPEC 6.1). The files are the source of truth.

A change of several pages is stored first as an intent, which can be applied twice; its events are recorded when it is
done, or at the next start. SQLite holds vectors, which prompts carried an entry (SPEC 6.5), and which sessions are
done. `LearningTexts` removes forgotten words (SPEC 4.10) and leaves an empty entry, so that provenance stays complete.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Index, LargeBinary, func
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, col, desc, select

from engine import events
from engine.events import Event
from engine.frozen import frozen
from engine.learning.learnings.entries import ROOT, Scope, as_fields, place_of, read_entry
from engine.learning.learnings.page import Page, Value
from engine.model import LearningEntry, LearningReach, LearningStatus, Refusal, sanitise
from engine.plain_files import read_plain
from engine.storage import intents, state
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.storage.files import write_atomic
from engine.storage.rows import Row
from engine.storage.types import utc_column

log = logging.getLogger(__name__)

INTENT = "learnings"
LARGEST = 16 * 1024 * 1024
"""Bytes of a page."""


@frozen
class Change:
    """One change of an entry: `fields` are set, with `text` it says something else; with `add` it is a new one."""

    path: str
    entry: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    text: str | None = None
    add: bool = False


def added(entry: LearningEntry) -> Change:
    """The change that writes a new entry; `entry.path` says where."""
    return Change(entry.path, entry.id, as_fields(entry), entry.text, add=True)


@frozen
class PageContents:
    """A page as it was read: what makes sense, and in words what does not."""

    path: str
    entries: tuple[LearningEntry, ...] = ()
    faults: tuple[str, ...] = ()


Stamp = tuple[int, int, int]
Contains = Callable[[str], bool]
"""Whether a text holds words that are being forgotten."""

Forgotten = Callable[[Iterable[str]], bool]
"""Whether any of these texts holds what was forgotten since they were read."""


class LearningFiles:
    """The pages of one home. All methods may be called from any thread."""

    def __init__(self, data: Path, database: Database | None = None) -> None:
        """`data` is the home's data folder; who only reads needs no database."""
        self._data = data
        self._db = database
        self._lock = threading.RLock()
        self._cache: dict[str, tuple[Stamp, PageContents]] = {}
        self._has_unfinished = False
        """Whether there may be an intent that could not be carried out."""
        self._unreadable: set[str] = set()
        """Pages that could not be read when they were to be changed."""
        self._watching: list[list[Contains]] = []
        """What was forgotten since each of those began who are about to write; nobody else needs the words."""
        self.changes = 0
        """Counts the changes that were made here."""

    @property
    def _database(self) -> Database:
        assert self._db is not None, "these were opened to read"
        return self._db

    # -- reading

    def pages(self, scope: Scope | None = None, *, below: bool = True) -> Iterator[PageContents]:
        """The pages of a scope, and with `below` of those within it; of all scopes when none is named. In the order of
        their paths."""
        top = ROOT if scope is None else scope.folder
        for path in self._paths(top, below=below):
            read = self._read(path)
            if read is not None:
                yield read

    def entries(self, scope: Scope | None = None, *, below: bool = True) -> list[LearningEntry]:
        """The entries of these pages that make sense; of two with one id the first."""
        by_id: dict[str, LearningEntry] = {}
        for read in self.pages(scope, below=below):
            for entry in read.entries:
                by_id.setdefault(entry.id, entry)
        return list(by_id.values())

    def faults(self) -> list[str]:
        """What in the pages makes no sense, in words with file and line; of two entries with one id the second is left
        out."""
        faults: list[str] = []
        first_paths: dict[str, str] = {}
        for read in self.pages():
            faults += read.faults
            for entry in read.entries:
                first = first_paths.setdefault(entry.id, read.path)
                if first != read.path:
                    faults.append(f"{read.path} has {entry.id}, which is in {first} already")
        return faults

    def _paths(self, top: str, *, below: bool) -> Iterator[str]:
        start = self._data / top
        for parent, names, files in os.walk(start):
            names.sort()
            if not below and Path(parent) == start:
                names[:] = [name for name in names if name in ("tasks", "proxy-tasks")]
            relative = Path(parent).relative_to(self._data).as_posix()
            for name in sorted(files):
                if name.endswith(".md") and place_of(f"{relative}/{name}") is not None:
                    yield f"{relative}/{name}"

    def _read(self, path: str) -> PageContents | None:
        """A page, read anew when it has changed, whoever changed it; None when it is gone."""
        file = self._data / path
        try:
            stat = file.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return PageContents(path, faults=(f"{path} cannot be read: {error.strerror or error}",))
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            cached = self._cache.get(path)
        if cached is None or cached[0] != stamp:
            cached = (stamp, self._parse(path, file))
            with self._lock:
                self._cache[path] = cached
        return cached[1]

    def _parse(self, path: str, file: Path) -> PageContents:
        place = place_of(path)
        assert place is not None, "only pages are read"
        try:
            page = Page(read_plain(file, LARGEST), path)
        except FileNotFoundError:
            return PageContents(path)
        except (OSError, ValueError) as error:
            return PageContents(path, faults=(sanitise(f"{path} cannot be read: {error}"),))
        entries, faults = [], []
        if page.data.strip() and not page.entries:
            faults.append(f"{path} has no entry; an entry begins with front matter between two lines with ---")
        for part in page.entries:
            try:
                entries.append(read_entry(part, place))
            except ValueError as error:
                faults.append(f"{path} {error}")
        return PageContents(path, tuple(entries), tuple(faults))

    # -- writing

    def apply(self, changes: Sequence[Change], facts: Sequence[Event] = ()) -> None:
        """Make changes, all of them or, after a crash, all at the next start, and record the facts that they make true.

        Raises `Refusal`: `learnings_damaged` (nothing was changed), `unwritable_home`.
        """
        if not changes:
            return
        with self._lock:
            self.must_be_whole()
            for path in {change.path for change in changes}:
                self._must_be_readable(path)
            payload = {"changes": [asdict(change) for change in changes], "facts": [_fact(fact) for fact in facts]}
            intent = self._database.write(lambda tx: intents.begin(tx, INTENT, changes[0].entry, payload))
            self._finish(intent, changes, facts)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile."""
        with self._lock:
            yield

    @contextmanager
    def watched(self) -> Iterator[Forgotten]:
        """For reading now and writing much later, when a model has answered: yields a test whether any of some texts
        contains words that were forgotten in between (SPEC 4.10). Call it while `alone`, together with the writing."""
        since: list[Contains] = []
        with self._lock:
            self._watching.append(since)
        try:
            yield lambda texts: any(holds(text) for text in texts for holds in since)
        finally:
            with self._lock:
                self._watching = [watcher for watcher in self._watching if watcher is not since]

    def forgetting(self, holds: Contains) -> None:
        """Words are being forgotten: whoever is `watched` does not write them any more. Call it `alone`, with the
        erasing. Raises as `apply`: what waits to be written may hold them, and is written first."""
        with self._lock:
            for since in self._watching:
                since.append(holds)
            self.must_be_whole()

    def must_be_whole(self) -> None:
        """Write what could not be written, and look whether the pages that were in the way are not any more: before
        that nothing new is written. Raises as `apply`."""
        with self._lock:
            for path in sorted(self._unreadable):
                self._must_be_readable(path)
            if self._has_unfinished and (words := self.recover()):
                raise Refusal(
                    "unwritable_home", words[0], "free some space or make the folder writable; nothing was lost"
                )

    def recover(self) -> list[str]:
        """Finish what a crash or a full disk left half done. Says in words what cannot be."""
        words = []
        for intent in intents.unfinished(self._database, INTENT):
            changes = [Change(**change) for change in intent.payload["changes"]]
            try:
                with self._lock:
                    self._finish(intent.id or 0, changes, [_event(fact) for fact in intent.payload["facts"]])
            except Refusal as refusal:
                words.append(f"learnings of {intent.begun_at:%Y-%m-%d} are waiting to be written: {refusal}")
        self._has_unfinished = bool(words)
        return words

    def _must_be_readable(self, path: str) -> None:
        self._unreadable.add(path)
        self._page(path)
        self._unreadable.discard(path)

    def _finish(self, intent: int, changes: Sequence[Change], facts: Iterable[Event]) -> None:
        self._has_unfinished = True
        by_path: dict[str, list[Change]] = {}
        for change in changes:
            by_path.setdefault(change.path, []).append(change)
        try:
            for path, page_changes in by_path.items():
                self._write(path, page_changes)
        except OSError as error:
            raise Refusal(
                "unwritable_home",
                f"{self._data / ROOT} cannot be written: {error.strerror or error}",
                "free some space or make the folder writable; the rest is written as soon as possible",
            ) from error

        def done(tx: Transaction) -> None:
            intents.finish(tx, intent)
            for fact in facts:
                tx.record(fact)

        self._database.write(done)
        self._has_unfinished = False
        self.changes += 1

    def _write(self, path: str, changes: Iterable[Change]) -> None:
        page = self._page(path)
        before = page.data
        for change in changes:
            if change.add:
                if all(part.id != change.entry for part in page.entries):
                    page.append(change.entry, change.fields, change.text or "")
                continue
            if not page.set(change.entry, change.fields):
                log.warning("%s is not in %s any more: it was not changed", change.entry, path)
            elif change.text is not None:
                page.put_text(change.entry, change.text)
        if page.data != before:
            file = self._data / path
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, page.data)

    def _page(self, path: str) -> Page:
        try:
            return Page(read_plain(self._data / path, LARGEST), path)
        except FileNotFoundError:
            return Page(path=path)
        except (OSError, ValueError) as error:
            raise Refusal(
                "learnings_damaged", sanitise(f"{path} cannot be read: {error}"), "fix the file, or move it away"
            ) from error


def texts_of(entry: LearningEntry) -> list[str]:
    """Everything in an entry that is somebody's words."""
    return [
        entry.text,
        entry.title,
        entry.about,
        entry.session_task,
        entry.retired_because,
        entry.review,
        *entry.reasons,
    ]


def _fact(event: Event) -> dict[str, Any]:
    return {"kind": event.kind, "subject": event.subject, "workspace": event.workspace, "payload": event.payload()}


def _event(fact: Mapping[str, Any]) -> Event:
    payload = {key: tuple(value) if isinstance(value, list) else value for key, value in fact["payload"].items()}
    kind: type[Event] = getattr(events, fact["kind"])
    return kind(subject=fact["subject"], workspace=fact["workspace"], **payload)


class LearningVector(Row, table=True):
    """The vector of a text by one model; `digest` names the text."""

    __tablename__ = "learning_vectors"

    digest: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    vector: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class LearningUse(Row, table=True):
    """A prompt that carried an entry: the call of a model."""

    __tablename__ = "learning_uses"
    __table_args__ = (Index("ix_learning_uses_entry", "entry_id", "at"),)

    call_id: str = Field(primary_key=True)
    entry_id: str = Field(primary_key=True)
    session_id: str
    agent: str
    at: datetime = Field(sa_column=utc_column())


class LearningSession(Row, table=True):
    """A session whose learnings were written down when it ended."""

    __tablename__ = "learning_sessions"

    session_id: str = Field(primary_key=True)
    entries: int
    at: datetime = Field(sa_column=utc_column())


RETRACTED = "learnings.retracted"


def retracted_lessons(database: Database) -> frozenset[str]:
    """The lessons that the operator took back."""
    with database.read() as session:
        return frozenset(state.get(session, RETRACTED, ()))


def mark_retracted(database: Database, lesson: str, *, holds: bool) -> None:
    """A lesson is taken back, or `holds` after all."""

    def work(tx: Transaction) -> None:
        others = set(state.get(tx.session, RETRACTED, ())) - {lesson}
        state.put(tx, RETRACTED, sorted(others if holds else {*others, lesson}))

    database.write(work)


_NEW = insert(LearningUse).on_conflict_do_nothing()


def record_uses(tx: Transaction, entries: Iterable[str], *, call: str, session_id: str, agent: str) -> None:
    """A call of a model was made with these entries in its prompt."""
    for entry in dict.fromkeys(entries):
        values = {"call_id": call, "entry_id": entry, "session_id": session_id, "agent": agent, "at": tx.now}
        tx.ask(_NEW, values)


def prompts_with(database: Database, entry: str, limit: int = 20) -> tuple[tuple[LearningReach, ...], int]:
    """The newest prompts that carried an entry, and how many there were."""
    query = select(LearningUse).where(col(LearningUse.entry_id) == entry).order_by(desc(col(LearningUse.at)))
    number = select(func.count()).select_from(LearningUse).where(col(LearningUse.entry_id) == entry)
    with database.read() as session:
        rows = session.exec(query.limit(limit)).all()
        calls = tuple(LearningReach(row.call_id, row.session_id, row.agent, row.at) for row in rows)
        return calls, int(session.exec(number).one())


FORGOTTEN = "forgotten"


class LearningTexts:
    """Entries of all scopes; see `engine.memory.forget.Store`."""

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        vectors_gone: Callable[[Iterable[str]], None],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """While `alone` nothing is written that was made of entries as they were before."""
        self._files = files
        self._vectors_gone = vectors_gone
        self._alone = alone

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The entries that hold it: id and text."""
        for entry in self._files.entries():
            if any(map(query.match, texts_of(entry))):
                yield entry.id, entry.text or entry.title

    def erase(self, query: SearchTerms, /) -> int:
        """Take it out; how many entries. Again finds nothing."""
        with self._alone(), self._files.alone():
            self._files.forgetting(query.match)
            holding = [entry for entry in self._files.entries() if any(map(query.match, texts_of(entry)))]
            self._vectors_gone([entry.text for entry in holding])
            self._files.apply([_emptied(entry) for entry in holding])
            return len(holding)

    def text_of(self, id: str) -> str | None:
        """What an entry says, None when `id` is none."""
        entry = next((item for item in self._files.entries() if item.id == id), None)
        return None if entry is None else entry.text or None


def _emptied(entry: LearningEntry) -> Change:
    cleared = {"title": "", "about": "", "session_task": "", "reasons": [], "review": "", "review_since": ""}
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": FORGOTTEN}
    return Change(entry.path, entry.id, {**cleared, **ended}, text="")
