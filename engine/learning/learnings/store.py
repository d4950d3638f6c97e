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

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from engine.files import FileCache, read_plain, write_atomic
from engine.frozen import frozen, group_pairs
from engine.learning.learnings.page import CHANGES, Change, Page
from engine.lessons import normalise
from engine.model import LearningEntry, LearningKind, LearningScope, Refusal, Trust
from engine.storage.database import Database, Transaction
from engine.storage.ledger import NotReady
from engine.storage.state import begin_intent, finish_intent, read_unfinished_intents
from engine.text import hex_hash, sanitise

INTENT = "learnings"
"""The kind of the intents of changes."""

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a page in bytes."""

MAX_CACHED_PAGES = 500_000
"""Maximum number of pages in the cache. All are read again and again, so a smaller cache would never have them."""

ROOT = "learnings"
"""The folder of all pages in the home's data folder."""

NO_WORKSPACE = "none"
"""The project of sessions without a workspace."""

PAGE_OF_KIND = {
    LearningKind.INSTITUTIONAL: "institutional.md",
    LearningKind.TASK: "tasks/{}.md",
    LearningKind.PROXY: "proxy.md",
}
"""The page of an entry in the folder of its scope, with its id for `{}`."""

_PAGE_PATH = re.compile(
    rf"{ROOT}/(?:global|projects/([^/]+)(?:/sessions/([^/]+)(?:/teams/([^/]+))?)?)"
    r"/(?:(institutional|proxy)|(?:(proxy-)?tasks)/[^/.][^/]*)\.md"
)
"""Matches the path of a page: project, session, team, and its kind."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
"""A name that is valid for a folder as it is."""


class NotWritable(Refusal, NotReady):
    """A page cannot be read or written now, until the operator fixes that."""


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
        session = f"/sessions/{make_folder_name(self.session)}" if self.session else ""
        team = f"/teams/{make_folder_name(self.team)}" if self.team else ""
        return f"{ROOT}/projects/{self.project}{session}{team}" if self.project else f"{ROOT}/global"

    def page(self, kind: LearningKind, entry: str = "") -> str:
        """The page of an entry. Each task has its own page; the other kinds have one page each."""
        return f"{self.folder}/{PAGE_OF_KIND[kind].format(entry)}"


GLOBAL = Scope()


def make_project_key(workspace: str) -> str:
    """The unique folder name of a workspace."""
    if not workspace:
        return NO_WORKSPACE
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(workspace).name.lower()).strip("-")[:40] or "project"
    return f"{name}-{hex_hash(workspace, 8)}"


def make_folder_name(name: str) -> str:
    """A valid name of a folder: `name` itself if it is valid, else one derived from it."""
    return name if _FOLDER_NAME.fullmatch(name) else f"x-{hex_hash(name, 16)}"


def parse_path(path: str) -> tuple[Scope, LearningKind] | None:
    """The scope and kind of a page, by its path; None for other files."""
    match = _PAGE_PATH.fullmatch(path)
    if match is None:
        return None
    *names, single_page, proxy = match.groups(default="")
    return Scope(*names), LearningKind(single_page or ("proxy" if proxy else "task"))


def place_entry(entry: LearningEntry, scope: Scope) -> LearningEntry:
    """An entry in a scope. Its id is derived from the scope and its content, so that a second run writes nothing. A
    quote has another id than a trusted entry with the same text; an entry of a team that of its session."""
    within = f"{scope.session}/{scope.team}" if scope.team else scope.id
    identity = f"{scope.level.value}\n{within}\n{entry.kind.value}\n{entry.about or normalise(entry.text)}"
    id = "lrn_" + hex_hash(identity + ("\nquoted" if entry.trust is Trust.QUOTED else ""), 16)
    return replace(entry, id=id, scope=scope.level, scope_id=scope.id, path=scope.page(entry.kind, id))


class LearningFiles:
    """Reads the pages of one home. Callable from any thread."""

    def __init__(self, data: Path) -> None:
        """`data` is the home's data folder."""
        self._data = data
        self._path_start = len(data.as_posix()) + 1  # cutting is many times as fast as `relative_to`
        self._cache = FileCache[Page](MAX_CACHED_PAGES)

    def iterate_pages(self, scope: Scope | None = None, *, below: bool = True) -> Iterator[tuple[Scope, Page]]:
        """The pages of a scope, by default of all scopes, ordered by path, each with its scope. With `below`, the pages
        of the scopes in it are included."""
        folder = self._data / (scope.folder if scope else ROOT)
        files = folder.rglob("*.md") if below else [*folder.glob("*.md"), *folder.glob("*tasks/*.md")]
        for file in sorted(files, key=str):
            path = file.as_posix()[self._path_start :]
            if location := parse_path(path):
                yield location[0], self._cache.get(path, (file,), partial(self._read, path))

    def read_entries(self, scope: Scope | None = None, *, below: bool = True) -> list[LearningEntry]:
        """The entries of the pages that `iterate_pages` gives. Of two entries with the same id, the first counts."""
        by_id: dict[str, LearningEntry] = {}
        for _, page in self.iterate_pages(scope, below=below):
            for entry in page.entries:
                by_id.setdefault(entry.id, entry)
        return list(by_id.values())

    def list_errors(self) -> list[str]:
        """The errors of all pages, with file and line."""
        errors: list[str] = []
        first_paths: dict[str, str] = {}
        for _, page in self.iterate_pages():
            errors += page.errors
            for entry in page.entries:
                first_path = first_paths.setdefault(entry.id, page.path)
                if first_path != page.path:
                    errors.append(f"{page.path} has {entry.id}, which is in {first_path} already")
        return errors

    def _read(self, path: str) -> Page:
        """The page at this path, empty if it does not exist."""
        location = parse_path(path)
        assert location is not None, "only pages are read"
        scope, kind = location
        place = {"path": path, "scope": scope.level, "scope_id": scope.id, "kind": kind, "session_id": scope.session}
        try:
            return Page(read_plain(self._data / path, MAX_PAGE_BYTES), place)
        except FileNotFoundError:
            return Page(b"", place)
        except (OSError, ValueError) as error:
            return Page(b"", place, problem=sanitise(f"{path} cannot be read: {error}"))


class LearningStore(LearningFiles):
    """Changes the pages of one home, too. Callable from any thread."""

    def __init__(self, data: Path, database: Database) -> None:
        super().__init__(data)
        self._database = database
        self.lock = threading.RLock()
        """Blocks other writers. It is held from making a plan until it is carried out, so that its entries cannot
        change meanwhile."""
        self.erasure_count = 0
        """Number of times that words were forgotten. Texts that were read before the last time must not be written."""
        self.change_count = 0
        """Number of changes made here."""

    def apply(self, changes: Sequence[Change]) -> None:
        """Make all changes, then record their events. After a crash, the next start finishes both. Raises
        `NotWritable`: `learnings_damaged` (nothing was changed), `unwritable_home`."""
        if not changes:
            return
        with self.lock:
            self.finish_pending()
            for path in {change.entry.path for change in changes}:
                require_readable_page(self._read(path))
            payload = {"changes": CHANGES.dump_python(list(changes), mode="json")}
            intent = self._database.write(lambda tx: begin_intent(tx, INTENT, changes[0].entry.id, payload))
            self._finish(intent, changes)

    def require_readable(self, scope: Scope) -> None:
        """Make pending changes, and check that all pages of a scope can be read. Raises as `apply`."""
        self.finish_pending()
        for _, page in self.iterate_pages(scope):
            require_readable_page(page)

    def finish_pending(self) -> None:
        """Make the changes that a crash or a full disk interrupted. Raises as `apply`."""
        with self.lock:
            for intent in read_unfinished_intents(self._database, INTENT):
                self._finish(intent.id, CHANGES.validate_python(intent.payload["changes"]))

    def _finish(self, intent: int, changes: Sequence[Change]) -> None:
        """Write the changes of an intent page by page, then record their events and remove the intent."""
        try:
            for path, of_page in group_pairs((change.entry.path, change) for change in changes).items():
                page = require_readable_page(self._read(path))
                data, file = page.edit(of_page), self._data / path
                if data != page.data:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_atomic(file, data)
        except OSError as error:
            raise NotWritable(
                "unwritable_home",
                f"{self._data / ROOT} cannot be written: {error.strerror or error}",
                "free some space or make the folder writable; nothing was lost, and it is written as soon as possible",
            ) from error
        self.change_count += 1  # before the events, whose listeners read the entries

        def record_events(tx: Transaction) -> None:
            finish_intent(tx, intent)
            for change in changes:
                if change.event:
                    tx.record(change.event)

        self._database.write(record_events)


def require_readable_page(page: Page) -> Page:
    """A page that can be read. Raises `NotWritable` `learnings_damaged` for another one."""
    if page.problem:
        raise NotWritable("learnings_damaged", page.problem, "fix the file, or move it away")
    return page
