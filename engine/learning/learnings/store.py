"""Reads and writes the pages of learning entries (SPEC 6.1). The files are the source of truth.

A change of several pages is first stored as an intent, which can be applied twice. Its events are recorded after it was
applied, if necessary at the next start. `LearningTexts` removes forgotten words (SPEC 4.10) and leaves an empty entry,
so that provenance stays complete.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from engine.events import Event
from engine.files import read_plain, write_atomic
from engine.frozen import frozen
from engine.learning.learnings.entries import FOLDERS, ROOT, Scope, front_matter, page_location, read_entry
from engine.learning.learnings.page import Page, Value
from engine.model import LearningEntry, LearningStatus, Refusal, sanitise
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.storage.state import begin_intent, finish_intent, unfinished_intents

log = logging.getLogger(__name__)

INTENT = "learnings"
MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a page in bytes."""


@frozen
class Change:
    """One change of an entry: new values of `fields`, and a new `text` unless it is None. With `add` the entry is
    new."""

    path: str
    entry: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    text: str | None = None
    add: bool = False


def add_entry(entry: LearningEntry) -> Change:
    """The change that adds an entry to the page `entry.path`."""
    return Change(entry.path, entry.id, front_matter(entry), entry.text, add=True)


@frozen
class PageContents:
    """The valid entries of a page, and the errors of the others."""

    path: str
    entries: tuple[LearningEntry, ...] = ()
    errors: tuple[str, ...] = ()


FileVersion = tuple[int, int, int]
"""Time, size and inode of a file."""


class LearningFiles:
    """The pages of one home. All methods may be called from any thread."""

    def __init__(self, data: Path, database: Database | None = None) -> None:
        """`data` is the home's data folder; only writing needs the database."""
        self._data = data
        self._db = database
        self.lock = threading.RLock()
        """Blocks all other writers."""
        self._cache: dict[str, tuple[FileVersion, PageContents]] = {}
        self.erasures = 0
        """Number of times that words were forgotten. Texts that were read before the last time must not be written."""
        self.changes = 0
        """Number of changes made here."""

    @property
    def _database(self) -> Database:
        assert self._db is not None, "opened without a database, only to read"
        return self._db

    # -- reading

    def pages(self, scope: Scope | None = None, *, below: bool = True) -> Iterator[PageContents]:
        """The pages of a scope, by default of all scopes, ordered by path. With `below`, the pages of the scopes in it
        are included."""
        top = ROOT if scope is None else scope.folder
        for path in self._paths(top, below=below):
            read = self._read(path)
            if read is not None:
                yield read

    def entries(self, scope: Scope | None = None, *, below: bool = True) -> list[LearningEntry]:
        """The valid entries of the pages of a scope (see `pages`). Of two entries with the same id, the first
        counts."""
        by_id: dict[str, LearningEntry] = {}
        for read in self.pages(scope, below=below):
            for entry in read.entries:
                by_id.setdefault(entry.id, entry)
        return list(by_id.values())

    def errors(self) -> list[str]:
        """The errors of all pages, with file and line."""
        errors: list[str] = []
        first_paths: dict[str, str] = {}
        for read in self.pages():
            errors += read.errors
            for entry in read.entries:
                first = first_paths.setdefault(entry.id, read.path)
                if first != read.path:
                    errors.append(f"{read.path} has {entry.id}, which is in {first} already")
        return errors

    def _paths(self, top: str, *, below: bool) -> Iterator[str]:
        start = self._data / top
        for parent, names, files in os.walk(start):
            names.sort()
            if not below and Path(parent) == start:
                names[:] = [name for name in names if name in FOLDERS]
            folder = Path(parent).relative_to(self._data).as_posix()
            paths = (f"{folder}/{name}" for name in sorted(files) if name.endswith(".md"))
            yield from (path for path in paths if page_location(path) is not None)

    def _read(self, path: str) -> PageContents | None:
        """The contents of a page, None if it does not exist. They are cached while the file does not change."""
        file = self._data / path
        try:
            stat = file.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return PageContents(path, errors=(f"{path} cannot be read: {error.strerror or error}",))
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self.lock:
            cached = self._cache.get(path)
        if cached is None or cached[0] != stamp:
            cached = (stamp, self._parse(path, file))
            with self.lock:
                self._cache[path] = cached
        return cached[1]

    def _parse(self, path: str, file: Path) -> PageContents:
        place = page_location(path)
        assert place is not None, "only pages are read"
        try:
            page = Page(read_plain(file, MAX_PAGE_BYTES), path)
        except FileNotFoundError:
            return PageContents(path)
        except (OSError, ValueError) as error:
            return PageContents(path, errors=(sanitise(f"{path} cannot be read: {error}"),))
        entries, errors = [], []
        if page.data.strip() and not page.entries:
            errors.append(f"{path} has no entry; an entry begins with front matter between two lines with ---")
        for part in page.entries:
            try:
                entries.append(read_entry(part, path, *place))
            except ValueError as error:
                errors.append(f"{path} {error}")
        return PageContents(path, tuple(entries), tuple(errors))

    # -- writing

    def apply(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        """Make all changes and record their events. After a crash, the next start finishes both.

        Raises `Refusal`: `learnings_damaged` (nothing was changed), `unwritable_home`.
        """
        if not changes:
            return
        with self.lock:
            self.finish_pending()
            for path in {change.path for change in changes}:
                self._page(path)
            payload = {
                "changes": [asdict(change) for change in changes],
                "facts": [{"kind": event.kind, **vars(event)} for event in events],
            }
            intent = self._database.write(lambda tx: begin_intent(tx, INTENT, changes[0].entry, payload))
            self._finish(intent, changes, events)

    def check(self, scope: Scope) -> None:
        """Make pending changes, and check that all pages of a scope can be read. Raises as `apply`."""
        with self.lock:
            self.finish_pending()
            for path in self._paths(scope.folder, below=True):
                self._page(path)

    def finish_pending(self) -> None:
        """Make the changes that could not be written before. Raises as `apply` if they still cannot."""
        if problems := self.recover():
            fix = "free some space or make the folder writable; nothing was lost"
            raise Refusal("unwritable_home", problems[0], fix)

    def recover(self) -> list[str]:
        """Finish the changes that a crash or a full disk interrupted. Returns the problems of those that still fail."""
        problems = []
        for intent in unfinished_intents(self._database, INTENT):
            changes = [Change(**change) for change in intent.payload["changes"]]
            try:
                with self.lock:
                    self._finish(intent.id or 0, changes, [_event(stored) for stored in intent.payload["facts"]])
            except Refusal as refusal:
                problems.append(f"learnings of {intent.begun_at:%Y-%m-%d} are waiting to be written: {refusal}")
        return problems

    def _finish(self, intent: int, changes: Sequence[Change], events: Iterable[Event]) -> None:
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
            finish_intent(tx, intent)
            for event in events:
                tx.record(event)

        self._database.write(done)
        self.changes += 1

    def _write(self, path: str, changes: Iterable[Change]) -> None:
        page = self._page(path)
        before = page.data
        for change in changes:
            if not _apply_change(page, change):
                log.warning("%s is not in %s any more: it was not changed", change.entry, path)
        if page.data != before:
            file = self._data / path
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, page.data)

    def _page(self, path: str) -> Page:
        try:
            return Page(read_plain(self._data / path, MAX_PAGE_BYTES), path)
        except FileNotFoundError:
            return Page(path=path)
        except (OSError, ValueError) as error:
            raise Refusal(
                "learnings_damaged", sanitise(f"{path} cannot be read: {error}"), "fix the file, or move it away"
            ) from error


def _apply_change(page: Page, change: Change) -> bool:
    """Make one change of a page. Returns False if the entry to change is not there."""
    if change.add:
        if all(part.id != change.entry for part in page.entries):  # a second time adds nothing
            page.append(change.entry, change.fields, change.text or "")
        return True
    if not page.set_fields(change.entry, change.fields):
        return False
    if change.text is not None:
        page.set_text(change.entry, change.text)
    return True


def texts_of(entry: LearningEntry) -> list[str]:
    """All texts of an entry that people or models wrote."""
    return [
        entry.text,
        entry.title,
        entry.about,
        entry.session_task,
        entry.retired_because,
        entry.review,
        *entry.reasons,
    ]


def _event(stored: Mapping[str, Any]) -> Event:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return Event.kinds[fields.pop("kind")](**fields)


FORGOTTEN = "forgotten"


class LearningTexts:
    """Finds and erases words in entries of all scopes; see `engine.memory.forget.ErasableStore`."""

    name = "learnings"

    def __init__(
        self,
        files: LearningFiles,
        forget_vectors: Callable[[Iterable[str]], None],
        plan_lock: AbstractContextManager[object],
    ) -> None:
        """`plan_lock` is held while entries are erased, so that no plan is made of them."""
        self._files = files
        self._forget_vectors = forget_vectors
        self._plan_lock = plan_lock

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """(id, text) of each entry that matches."""
        for entry in self._files.entries():
            if any(map(query.match, texts_of(entry))):
                yield entry.id, entry.text or entry.title

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the texts of the entries that match; returns their number."""
        with self._plan_lock, self._files.lock:
            self._files.finish_pending()  # pending changes may contain the words
            self._files.erasures += 1
            matching = [entry for entry in self._files.entries() if any(map(query.match, texts_of(entry)))]
            self._forget_vectors([entry.text for entry in matching])
            self._files.apply([_erasing_change(entry) for entry in matching])
            return len(matching)

    def text_of(self, id: str) -> str | None:
        """The text of an entry, None for an unknown id."""
        entry = next((item for item in self._files.entries() if item.id == id), None)
        return None if entry is None else entry.text or None


def _erasing_change(entry: LearningEntry) -> Change:
    cleared = {"title": "", "about": "", "session_task": "", "reasons": [], "review": "", "review_since": ""}
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": FORGOTTEN}
    return Change(entry.path, entry.id, {**cleared, **ended}, text="")
