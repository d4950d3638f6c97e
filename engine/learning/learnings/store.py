"""Reads and writes the pages of learning entries (SPEC 6.1). The files are the source of truth.

    learnings/global/
    learnings/projects/KEY/                              KEY: the workspace's name and a hash of its path
    learnings/projects/KEY/sessions/SESSION/
    learnings/projects/KEY/sessions/SESSION/teams/LEADER/

Each folder has `institutional.md`, `tasks/*.md`, `proxy.md`, `proxy-tasks/*.md`. Sessions without a workspace belong
to the project `none`. A change of several pages is first stored as an intent, which can be applied twice. Its events
are recorded after it was applied, if necessary at the next start.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path, PurePosixPath
from typing import Any

from engine.events import Event
from engine.files import read_plain, write_atomic
from engine.frozen import frozen
from engine.learning.learnings.page import Page, Part, Value, make_front_matter, read_front_matter
from engine.model import (
    EntrySource,
    LearningEntry,
    LearningKind,
    LearningScope,
    Refusal,
    Trust,
    sanitise,
)
from engine.model.base import group_pairs, hex_hash
from engine.model.learnings import make_lesson_id
from engine.model.text import plain
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, finish_intent, unfinished_intents

log = logging.getLogger(__name__)

INTENT = "learnings"
"""The kind of the intents of changes."""

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a page in bytes."""

ROOT = "learnings"
"""The folder of all pages in the home's data folder."""

NO_WORKSPACE = "none"
"""The project of sessions without a workspace."""

PAGES = {LearningKind.INSTITUTIONAL: "institutional.md", LearningKind.PROXY: "proxy.md"}
"""The kinds that have one page for all entries of a scope."""

FOLDERS = {"tasks": LearningKind.TASK, "proxy-tasks": LearningKind.PROXY}
"""The folders with a page for each entry, and the kind of these entries."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
"""A name that is valid for a folder as it is."""

MAX_TITLE_CHARS = 80
"""Maximum number of characters of a title that is made from a text."""


@frozen
class Scope:
    """One scope: a team (its leader) in a session, a session, a project (its key), or global if all are empty."""

    project: str = ""
    session: str = ""
    team: str = ""

    @property
    def level(self) -> LearningScope:
        """Its kind: the lowest of the three names that is not empty."""
        if self.team:
            return LearningScope.TEAM
        if self.session:
            return LearningScope.SESSION
        return LearningScope.PROJECT if self.project else LearningScope.GLOBAL

    @property
    def id(self) -> str:
        """The leader, the session's id, the project's key, or ""."""
        return self.team or self.session or self.project

    @property
    def folder(self) -> str:
        """The folder of the scope, relative to the home's data folder."""
        parts = [ROOT, *(("projects", self.project) if self.project else ("global",))]
        parts += ["sessions", make_folder_name(self.session)] if self.session else []
        parts += ["teams", make_folder_name(self.team)] if self.team else []
        return "/".join(parts)

    def page(self, kind: LearningKind, entry: str = "") -> str:
        """The page of an entry. Each task has its own page; the other kinds have one page each."""
        return f"{self.folder}/tasks/{entry}.md" if kind is LearningKind.TASK else f"{self.folder}/{PAGES[kind]}"


GLOBAL = Scope()


def make_project_key(workspace: str) -> str:
    """The unique folder name of a workspace."""
    if not workspace:
        return NO_WORKSPACE
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(workspace).name.lower()).strip("-")[:40] or "project"
    return f"{name}-{hex_hash(workspace, 8)}"


def page_location(path: str) -> tuple[Scope, LearningKind] | None:
    """The scope and kind of a page, by its path; None for other files."""
    scope = parse_scope_path(path)
    parts = path[len(scope.folder) + 1 :].split("/") if path.startswith(f"{scope.folder}/") else []
    kind = None
    if len(parts) == 1:
        kind = next((kind for kind, name in PAGES.items() if name == parts[0]), None)
    elif len(parts) == 2 and parts[1].endswith(".md") and not parts[1].startswith("."):
        kind = FOLDERS.get(parts[0])
    return None if kind is None else (scope, kind)


def make_folder_name(name: str) -> str:
    """A valid name of a folder: `name` itself if it is valid, else one derived from it."""
    if _FOLDER_NAME.fullmatch(name):
        return name
    return f"x-{hex_hash(name, 16)}"


def parse_scope_path(path: str) -> Scope:
    """The scope of a page."""
    parts = path.split("/")
    if parts[:2] != [ROOT, "projects"] or len(parts) < 4:
        return GLOBAL
    project, session, team = parts[2], "", ""
    if parts[3] == "sessions" and len(parts) > 5:
        session = parts[4]
        if parts[5] == "teams" and len(parts) > 7:
            team = parts[6]
    return Scope(project, session, team)


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
    return Change(entry.path, entry.id, make_front_matter(entry), entry.text, add=True)


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
        self._database_or_none = database
        self.lock = threading.RLock()
        """Blocks all other writers."""
        self._cache: dict[str, tuple[FileVersion, PageContents]] = {}
        self.erasures = 0
        """Number of times that words were forgotten. Texts that were read before the last time must not be written."""
        self.changes = 0
        """Number of changes made here."""

    @property
    def _database(self) -> Database:
        assert self._database_or_none is not None, "opened without a database, only to read"
        return self._database_or_none

    def pages(self, scope: Scope | None = None, *, below: bool = True) -> Iterator[PageContents]:
        """The pages of a scope, by default of all scopes, ordered by path. With `below`, the pages of the scopes in it
        are included."""
        top = ROOT if scope is None else scope.folder
        for path in self._find_paths(top, below=below):
            contents = self._read(path)
            if contents is not None:
                yield contents

    def entries(self, scope: Scope | None = None, *, below: bool = True) -> list[LearningEntry]:
        """The valid entries of the pages of a scope (see `pages`). Of two entries with the same id, the first
        counts."""
        by_id: dict[str, LearningEntry] = {}
        for page in self.pages(scope, below=below):
            for entry in page.entries:
                by_id.setdefault(entry.id, entry)
        return list(by_id.values())

    def errors(self) -> list[str]:
        """The errors of all pages, with file and line."""
        errors: list[str] = []
        first_paths: dict[str, str] = {}
        for page in self.pages():
            errors += page.errors
            for entry in page.entries:
                first_path = first_paths.setdefault(entry.id, page.path)
                if first_path != page.path:
                    errors.append(f"{page.path} has {entry.id}, which is in {first_path} already")
        return errors

    def _find_paths(self, top: str, *, below: bool) -> Iterator[str]:
        """The paths of the pages in a folder, with those of its scopes if `below`, in order."""
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
        version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self.lock:
            cached = self._cache.get(path)
        if cached is not None and cached[0] == version:
            return cached[1]
        contents = self._parse(path, file)
        with self.lock:
            self._cache[path] = version, contents
        return contents

    def _parse(self, path: str, file: Path) -> PageContents:
        """The contents of the page `file`, which is at `path` in the home's data folder."""
        location = page_location(path)
        assert location is not None, "only pages are read"
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
                entries.append(read_entry(part, path, *location))
            except ValueError as error:
                errors.append(f"{path} {error}")
        return PageContents(path, tuple(entries), tuple(errors))

    def apply(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        """Make all changes and record their events. After a crash, the next start finishes both.

        Raises `Refusal`: `learnings_damaged` (nothing was changed), `unwritable_home`.
        """
        if not changes:
            return
        with self.lock:
            self.finish_pending()
            for path in {change.path for change in changes}:
                self._load_page(path)
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
            for path in self._find_paths(scope.folder, below=True):
                self._load_page(path)

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
                    self._finish(
                        intent.id or 0, changes, [_restore_event(stored) for stored in intent.payload["facts"]]
                    )
            except Refusal as refusal:
                problems.append(f"learnings of {intent.begun_at:%Y-%m-%d} are waiting to be written: {refusal}")
        return problems

    def _finish(self, intent: int, changes: Sequence[Change], events: Iterable[Event]) -> None:
        """Write the changes of an intent page by page, then record their events and remove the intent."""
        try:
            for path, page_changes in group_pairs((change.path, change) for change in changes).items():
                self._write(path, page_changes)
        except OSError as error:
            raise Refusal(
                "unwritable_home",
                f"{self._data / ROOT} cannot be written: {error.strerror or error}",
                "free some space or make the folder writable; the rest is written as soon as possible",
            ) from error

        self.changes += 1  # before the events, whose listeners read the entries

        def record_events(tx: Transaction) -> None:
            finish_intent(tx, intent)
            for event in events:
                tx.record(event)

        self._database.write(record_events)

    def _write(self, path: str, changes: Iterable[Change]) -> None:
        """Make these changes of one page, and write it if it differs."""
        page = self._load_page(path)
        before = page.data
        for change in changes:
            if not _apply_change(page, change):
                log.warning("%s is not in %s any more: it was not changed", change.entry, path)
        if page.data != before:
            file = self._data / path
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, page.data)

    def _load_page(self, path: str) -> Page:
        """The page at a path, empty if it does not exist. Raises `Refusal` `learnings_damaged`."""
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


def read_entry(part: Part, path: str, scope: Scope, kind: LearningKind) -> LearningEntry:
    """Read an entry of a page. Raises ValueError, which has the line number."""
    front = read_front_matter(part)
    text = part.text
    # An entry without `trust` was written by the operator, unless it names the session that it is from.
    quoted = scope.session or front.session_id or front.promoted_from
    values: dict[str, Any] = dict(front) | {
        "domain": front.domain or get_domain(kind),
        "title": front.title or make_title(text),
        "lesson": front.lesson or make_lesson_id(text),
        "session_id": front.session_id or scope.session,
        "promoted_from": tuple(EntrySource(*source.split("@", 1)) for source in front.promoted_from),
        "trust": front.trust or (Trust.QUOTED if quoted else Trust.OPERATOR),
    }
    return LearningEntry(id=part.id, scope=scope.level, scope_id=scope.id, kind=kind, text=text, path=path, **values)


def get_domain(kind: LearningKind) -> str:
    """The domain of entries of a kind."""
    return "task" if kind is LearningKind.TASK else "team"


def make_title(text: str) -> str:
    """The title of a text: its beginning, in one line."""
    return plain(text, MAX_TITLE_CHARS)


def _restore_event(stored: Mapping[str, Any]) -> Event:
    """The event that an intent stores."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return Event.kinds[fields.pop("kind")](**fields)
