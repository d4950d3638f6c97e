"""Layer E shared between machines (SPEC 4.5): summaries of sessions go to, and come from, a store that they share.

Local first: what is remembered here is sent with the next exchange, and what others did in the same project is
remembered here too, told apart by its source. A failure blocks nothing and is told of once. Rows may be sent and
fetched any number of times. What is forgotten on one machine is forgotten on all (SPEC 4.10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa
from sqlmodel import col

from engine.memory.checking import check, memory_id
from engine.memory.store import MemoryStore
from engine.memory.tables import MemoryRow
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.shared import Outage
from engine.values import Layer, NewMemory, Refusal, Remembered

log = logging.getLogger(__name__)

SHARED = "shared:"
"""What the source of a summary from another machine begins with; the name of its home follows."""

SENT, FETCHED = "memory.summaries_sent", "memory.summaries_fetched"
PAGE = 200
MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
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


class SummaryStore(Protocol):
    """Where machines share summaries. Methods raise whatever their connection raises."""

    name: str
    """Tells one from another, without secrets."""

    def push(self, summaries: Sequence[SharedSummary], gone: Sequence[str], /) -> None:
        """Add summaries; those that are there change nothing. The texts of those in `gone` go."""

    def fetch(self, project: str, cursor: int, /) -> tuple[Sequence[SharedSummary], int]:
        """A project's rows that became visible after `cursor` (0 for all), and the cursor for the next time."""


class SummarySharing:
    """Exchanges summaries with the store that `store()` gives, None for none. One exchange at a time."""

    def __init__(
        self,
        database: Database,
        memories: MemoryStore,
        store: Callable[[], SummaryStore | None],
        *,
        origin: Callable[[], str],
        projects: Callable[[], Mapping[str, str]],
        remember: Callable[[Sequence[NewMemory]], Remembered],
        gone: Callable[[Sequence[int]], None],
    ) -> None:
        """`origin` names this home; `projects` is the project of each workspace that is looked after; `remember` and
        `gone` are the memory port's."""
        self._database = database
        self._memories = memories
        self._store = store
        self._origin = origin
        self._projects = projects
        self._remember = remember
        self._gone = gone
        self._outage = Outage(database, "summaries", self._waiting)

    def wanted(self) -> bool:
        """Whether there is anybody to share with."""
        return self._store() is not None

    def exchange(self) -> str:
        """Send what is new and fetch what others did. Returns in words what failed, "" for nothing."""
        return self._outage.guard(self._exchange)

    def _exchange(self) -> None:
        store = self._store()
        if store is None:
            return
        projects = self._projects()
        self._send(store, projects)
        workspaces: dict[str, str] = {}
        for workspace, project in projects.items():
            if project:
                workspaces.setdefault(project, workspace)
        for project, workspace in workspaces.items():
            self._fetch(store, project, workspace)

    def _send(self, store: SummaryStore, projects: Mapping[str, str]) -> None:
        """What was remembered since, of workspaces whose project is known. A workspace that comes to have one later
        begins from then on."""
        key = f"{SENT}.{store.name}"
        gone = self._forgotten()
        if gone:
            store.push((), gone)
        for _ in range(MOST_ROUNDS):
            with self._database.read() as session:
                cursor = int(state.get(session, key, 0))
                rows = session.connection().execute(_NEW, {"cursor": cursor, "most": PAGE}).all()
            if not rows:
                return
            placed = [(row, projects.get(row.workspace, "")) for row in rows]
            new = [_summary(row, project, self._origin()) for row, project in placed if project]
            if new:
                store.push(new, ())
            last = rows[-1].seq
            self._database.write(lambda tx, last=last: state.put(tx, key, last))  # type: ignore[misc]

    def _fetch(self, store: SummaryStore, project: str, workspace: str) -> None:
        key = f"{FETCHED}.{store.name}.{project}"
        for _ in range(MOST_ROUNDS):
            with self._database.read() as session:
                cursor = int(state.get(session, key, 0))
            found, after = store.fetch(project, cursor)
            if after == cursor:
                return
            theirs = [one for one in found if one.origin != self._origin()]
            self._take([one for one in theirs if not one.gone], workspace)
            self._forget([one.id for one in found if one.gone])
            self._database.write(lambda tx, after=after: state.put(tx, key, after))  # type: ignore[misc]

    def _take(self, summaries: Sequence[SharedSummary], workspace: str) -> None:
        wanted = []
        for one in summaries:
            try:
                new = check(_memory(one, workspace))
            except Refusal as refusal:
                log.warning("a shared summary of %s was left out: %s", one.origin, refusal)
                continue
            if memory_id(new) != one.id:
                log.warning("a shared summary of %s was left out: its id is not its own", one.origin)
                continue
            wanted.append(new)
        if wanted:
            self._remember(wanted)

    def _forget(self, ids: Sequence[str]) -> None:
        def work(tx: Transaction) -> None:
            chunks = self._memories.erase(tx, ids)
            tx.after_commit(lambda: self._gone(chunks))

        if ids:
            self._database.write(work)

    def _forgotten(self) -> list[str]:
        """Summaries whose text was erased here. They are few, and to say it again does no harm."""
        with self._database.read() as session:
            return [row[0] for row in session.connection().execute(_FORGOTTEN)]

    def _waiting(self) -> int:
        store = self._store()
        with self._database.read() as session:
            cursor = int(state.get(session, f"{SENT}.{store.name}", 0)) if store is not None else 0
            return int(session.connection().execute(_NEW_COUNT, {"cursor": cursor}).scalar_one())


_OURS = (
    col(MemoryRow.layer) == Layer.CONTEXT.value,
    col(MemoryRow.kind) == "summary",
    ~col(MemoryRow.forgotten),
    ~col(MemoryRow.source).startswith(SHARED),
    col(MemoryRow.seq) > sa.bindparam("cursor"),
)
_NEW = (
    sa.select(
        col(MemoryRow.seq), col(MemoryRow.id), col(MemoryRow.text), col(MemoryRow.agent), col(MemoryRow.session),
        col(MemoryRow.ref), col(MemoryRow.tags), col(MemoryRow.at), col(MemoryRow.workspace),
    )
    .where(*_OURS)
    .order_by(col(MemoryRow.seq))
    .limit(sa.bindparam("most"))
)  # fmt: skip
_NEW_COUNT = sa.select(sa.func.count()).select_from(MemoryRow).where(*_OURS)
_FORGOTTEN = sa.select(col(MemoryRow.id)).where(
    col(MemoryRow.layer) == Layer.CONTEXT.value, col(MemoryRow.kind) == "summary", col(MemoryRow.forgotten)
)


def _summary(row: Any, project: str, origin: str) -> SharedSummary:
    return SharedSummary(
        row.id, project, row.text, row.agent, row.session, row.ref, tuple(row.tags), row.at, origin
    )  # fmt: skip


def _memory(one: SharedSummary, workspace: str) -> NewMemory:
    """A summary of another machine as it is remembered here."""
    return NewMemory(
        one.text,
        layer=Layer.CONTEXT,
        kind="summary",
        speaker=one.agent,
        at=one.at,
        session=one.session,
        agent=one.agent,
        workspace=workspace,
        source=f"{SHARED}{one.origin}",
        tags=one.tags,
        ref=one.ref,
    )


def from_others(sources: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a prompt's `memory_sources` the summaries of other machines, and their homes. Pure."""
    theirs = [one for one in sources if str(one.get("source", "")).startswith(SHARED)]
    homes = dict.fromkeys(str(one["source"]).removeprefix(SHARED) for one in theirs)
    return tuple(str(one["id"]) for one in theirs), tuple(homes)
