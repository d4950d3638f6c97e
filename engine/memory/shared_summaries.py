"""Layer E shared between machines (SPEC 4.5): summaries of sessions go to, and come from, a PostgreSQL that they share,
a table beside that of the leadership.

Local first: new summaries are sent with the next exchange, and those of other machines in the same project are
remembered here too, marked by their source. A failure blocks nothing and is reported once. Sending and fetching are
idempotent. What is forgotten on one machine is forgotten on all (SPEC 4.10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from engine.frozen import frozen
from engine.memory.new_memory import check_memory, memory_id
from engine.memory.store import MemoryStore
from engine.model import Layer, Memory, NewMemory, Refusal, RememberResult
from engine.storage import state
from engine.storage.database import Database
from engine.storage.shared import Outage, SharedDatabase, lock

log = logging.getLogger(__name__)

SHARED = "shared:"
"""What the source of a summary from another machine begins with; the name of its home follows."""

SENT, FETCHED = "memory.summaries_sent", "memory.summaries_fetched"
PAGE = 200
MAX_ROUNDS = 1_000


@frozen
class SharedSummary:
    """A summary as machines exchange it. `project` is the same for every clone of a repository; a forgotten one has
    no text and `gone` set."""

    id: str
    project: str
    text: str
    agent: str
    session: str
    ref: str
    tags: tuple[str, ...]
    at: datetime
    origin: str
    gone: bool = False


_SUMMARY = TypeAdapter(SharedSummary)

FETCH_PAGE = 500

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS clawpy_summaries_seq",
    "CREATE TABLE IF NOT EXISTS clawpy_summaries ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_summaries_seq'), id text PRIMARY KEY, project text NOT NULL, "
    "gone boolean NOT NULL DEFAULT false, summary jsonb NOT NULL)",
    "CREATE INDEX IF NOT EXISTS clawpy_summaries_project ON clawpy_summaries (project, seq)",
)

_ADD = "INSERT INTO clawpy_summaries (id, project, summary) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_ERASE = (
    "UPDATE clawpy_summaries SET gone = true, seq = nextval('clawpy_summaries_seq'), summary = summary || "
    """'{"text": "", "agent": "", "session": "", "ref": "", "tags": [], "gone": true}' """
    "WHERE id = ANY(%s) AND NOT gone"
)
_SINCE = "SELECT seq, summary FROM clawpy_summaries WHERE project = %s AND seq > %s ORDER BY seq LIMIT %s"


class PostgresSummaries:
    """The shared table behind one database URL. Methods raise what `SharedDatabase.connect` raises."""

    def __init__(self, url: str) -> None:
        self._shared = SharedDatabase(url, SCHEMA)
        self.name = self._shared.name

    def push(self, summaries: Sequence[SharedSummary], gone: Sequence[str]) -> None:
        """Add summaries and empty those that are gone, all or none."""
        with self._shared.connect() as connection:
            lock(connection)
            rows = [(summary.id, summary.project, _SUMMARY.dump_json(summary).decode()) for summary in summaries]
            connection.cursor().executemany(_ADD, rows)
            if gone:
                connection.execute(_ERASE, (list(gone),))

    def fetch(self, project: str, cursor: int) -> tuple[Sequence[SharedSummary], int]:
        """The next rows of a project, at most `FETCH_PAGE`."""
        with self._shared.connect() as connection:
            rows = connection.execute(_SINCE, (project, cursor, FETCH_PAGE)).fetchall()
        summaries = [_SUMMARY.validate_python(document) for _, document in rows]
        return summaries, int(rows[-1][0]) if rows else cursor


class SummarySharing:
    """Exchanges summaries with the shared table, where there is one. One exchange at a time."""

    def __init__(
        self,
        database: Database,
        memories: MemoryStore,
        store: PostgresSummaries | None,
        *,
        origin: Callable[[], str],
        projects: Callable[[], Mapping[str, str]],
        remember: Callable[[Sequence[NewMemory]], RememberResult],
    ) -> None:
        """`origin` names this home; `projects` is the project of each workspace that is looked after; `remember`
        is the memory service's."""
        self._database = database
        self._memories = memories
        self._store = store
        self._origin = origin
        self._projects = projects
        self._remember = remember
        self._outage = Outage(database, "summaries", lambda: len(self._unsent(store, -1)) if store else 0)

    def is_enabled(self) -> bool:
        """Whether a shared database is configured."""
        return self._store is not None

    def exchange(self) -> str:
        """Send what is new and fetch what others did. Returns in words what failed, "" for nothing."""
        return self._outage.guard(self._exchange)

    def _exchange(self) -> None:
        if self._store is None:
            return
        projects = self._projects()
        self._send(self._store, projects)
        workspaces = {project: workspace for workspace, project in reversed([*projects.items()]) if project}
        for project, workspace in workspaces.items():
            self._fetch(self._store, project, workspace)

    def _send(self, store: PostgresSummaries, projects: Mapping[str, str]) -> None:
        """What was remembered since, of workspaces whose project is known. A workspace that comes to have one later
        begins from then on."""
        # Those whose text was erased here are few, and to say it again does no harm.
        if gone := [summary.id for summary in self._memories.load(_OURS, (True, 0, -1))]:
            store.push((), gone)
        for _ in range(MAX_ROUNDS):
            rows = self._unsent(store, PAGE)
            if not rows:
                return
            new = [_shared(row, projects[row.workspace], self._origin()) for row in rows if projects.get(row.workspace)]
            if new:
                store.push(new, ())
            self._put_cursor(f"{SENT}.{store.name}", rows[-1].seq)

    def _fetch(self, store: PostgresSummaries, project: str, workspace: str) -> None:
        key = f"{FETCHED}.{store.name}.{project}"
        for _ in range(MAX_ROUNDS):
            cursor = self._cursor(key)
            summaries, after = store.fetch(project, cursor)
            if after == cursor:
                return
            theirs = [summary for summary in summaries if summary.origin != self._origin()]
            self._remember_valid([summary for summary in theirs if not summary.gone], workspace)
            if gone := [summary.id for summary in summaries if summary.gone]:
                self._database.write(lambda tx, gone=gone: self._memories.empty(tx, gone))  # type: ignore[misc]
            self._put_cursor(key, after)

    def _unsent(self, store: PostgresSummaries, limit: int) -> list[Memory]:
        return self._memories.load(_OURS, (False, self._cursor(f"{SENT}.{store.name}"), limit))

    def _cursor(self, key: str) -> int:
        with self._database.read() as session:
            return int(state.get(session, key, 0))

    def _put_cursor(self, key: str, cursor: int) -> None:
        self._database.write(lambda tx: state.put(tx, key, cursor))

    def _remember_valid(self, summaries: Sequence[SharedSummary], workspace: str) -> None:
        valid = []
        for summary in summaries:
            try:
                new = check_memory(_memory(summary, workspace))
            except Refusal as refusal:
                log.warning("a shared summary of %s was left out: %s", summary.origin, refusal)
                continue
            if memory_id(new) != summary.id:
                log.warning("a shared summary of %s was left out: its id is not its own", summary.origin)
                continue
            valid.append(new)
        if valid:
            self._remember(valid)


_OURS = (
    "WHERE layer = 'E' AND kind = 'summary' AND forgotten = ? "
    f"AND substr(source, 1, {len(SHARED)}) <> '{SHARED}' AND seq > ? ORDER BY seq LIMIT ?"
)
"""The summaries of this home."""


def _shared(row: Memory, project: str, origin: str) -> SharedSummary:
    return SharedSummary(row.id, project, row.text, row.agent, row.session, row.ref, row.tags, row.at, origin)


def _memory(summary: SharedSummary, workspace: str) -> NewMemory:
    """A summary of another machine as it is remembered here."""
    return NewMemory(
        summary.text,
        layer=Layer.CONTEXT,
        kind="summary",
        speaker=summary.agent,
        at=summary.at,
        session=summary.session,
        agent=summary.agent,
        workspace=workspace,
        source=f"{SHARED}{summary.origin}",
        tags=summary.tags,
        ref=summary.ref,
    )


def from_others(sources: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a prompt's `memory_sources` the summaries of other machines, and their homes. Pure."""
    theirs = [source for source in sources if str(source.get("source", "")).startswith(SHARED)]
    homes = dict.fromkeys(str(summary["source"]).removeprefix(SHARED) for summary in theirs)
    return tuple(str(summary["id"]) for summary in theirs), tuple(homes)
