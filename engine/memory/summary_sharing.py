"""Shares session summaries (layer E) between machines in a PostgreSQL (SPEC 4.5).

New summaries are sent with the next exchange, and those of other machines in the same project are remembered here too,
marked by their source. What is forgotten on one machine is forgotten on all (SPEC 4.10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from engine.frozen import frozen
from engine.memory.store import MemoryStore, check_memory, memory_id
from engine.memory.summaries import Remember
from engine.model import Layer, Memory, NewMemory, Refusal
from engine.storage import state
from engine.storage.database import Database
from engine.storage.shared import Exchange, SharedDatabase, SharedRow

log = logging.getLogger(__name__)

SHARED = "shared:"
"""Prefix of the source of a summary from another machine; the name of its home follows."""

SENT = "shared.summaries_sent"
"""Prefix of a key in the state table, whose value is the number (`seq`) of the last summary that was sent."""

PAGE = 200


@frozen
class SharedSummary:
    """A summary as machines exchange it; `origin` is the home that it comes from."""

    text: str
    agent: str
    session: str
    ref: str
    tags: tuple[str, ...]
    at: datetime
    origin: str


_SUMMARY = TypeAdapter(SharedSummary)

_OURS = (
    "WHERE layer = 'E' AND kind = 'summary' AND forgotten = ? "
    f"AND substr(source, 1, {len(SHARED)}) <> '{SHARED}' AND seq > ? ORDER BY seq LIMIT ?"
)
"""The summaries of this home."""


class SummarySharing(Exchange):
    """Exchanges summaries. Each project is a topic, which is the same for every clone of its repository. An empty
    document is a summary that was forgotten."""

    subject = "summaries"

    def __init__(
        self,
        database: Database,
        memories: MemoryStore,
        shared: SharedDatabase | None,
        *,
        origin: str,
        projects: Callable[[], Mapping[str, str]],
        remember: Remember,
    ) -> None:
        """`origin` is the name of this home; `projects` returns the project of each workspace."""
        super().__init__(database, shared)
        self._memories = memories
        self._origin = origin
        self._projects = projects
        self._remember = remember

    def _send_and_fetch(self, shared: SharedDatabase) -> None:
        projects = self._projects()
        self._send(shared, projects)
        workspaces = {project: workspace for workspace, project in reversed([*projects.items()]) if project}
        for project, workspace in workspaces.items():
            self._fetch(shared, _topic(project), partial(self._store, workspace))

    def _send(self, shared: SharedDatabase, projects: Mapping[str, str]) -> None:
        """Send new summaries of workspaces whose project is known. If a workspace gets a project later, its earlier
        summaries are not sent."""
        # Forgotten summaries are few. Sending them again does no harm.
        forgotten = self._memories.load(_OURS, (True, 0, -1))
        self._push(shared, projects, [(memory, SharedRow(memory.id, {}, version=1)) for memory in forgotten])
        while memories := self._unsent(shared, PAGE):
            self._push(shared, projects, [(memory, self._to_shared(memory)) for memory in memories])
            last = memories[-1].seq
            self._database.write(lambda tx, last=last: state.put(tx, f"{SENT}.{shared.name}", last))  # type: ignore[misc]

    def _push(
        self, shared: SharedDatabase, projects: Mapping[str, str], rows: Sequence[tuple[Memory, SharedRow]]
    ) -> None:
        by_project: dict[str, list[SharedRow]] = {}
        for memory, row in rows:
            project = projects.get(memory.workspace, "")
            if project or not row.document:  # what was forgotten is emptied whatever became of its workspace
                by_project.setdefault(project, []).append(row)
        for project, of_project in by_project.items():
            shared.push(_topic(project), of_project)

    def _to_shared(self, memory: Memory) -> SharedRow:
        summary = SharedSummary(
            memory.text, memory.agent, memory.session, memory.ref, memory.tags, memory.at, self._origin
        )
        return SharedRow(memory.id, _SUMMARY.dump_python(summary, mode="json"))

    def _store(self, workspace: str, rows: Sequence[SharedRow]) -> None:
        """Remember the summaries of other machines, and forget what was forgotten there."""
        valid = [new for row in rows if row.document and (new := self._valid_memory(row, workspace)) is not None]
        if valid:
            self._remember(valid)
        if forgotten := [row.key for row in rows if not row.document]:
            self._database.write(lambda tx: self._memories.empty(tx, forgotten))

    def _valid_memory(self, row: SharedRow, workspace: str) -> NewMemory | None:
        """A summary of another machine as it is remembered here. None if it comes from this home, or if its id does not
        fit its content."""
        summary = _SUMMARY.validate_python(row.document)
        if summary.origin == self._origin:
            return None
        new = NewMemory(
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
        try:
            checked = check_memory(new)
            if memory_id(checked) == row.key:
                return checked
            log.warning("a shared summary of %s was left out: its id is not its own", summary.origin)
        except Refusal as refusal:
            log.warning("a shared summary of %s was left out: %s", summary.origin, refusal)
        return None

    def _unsent(self, shared: SharedDatabase, limit: int) -> list[Memory]:
        with self._database.read() as session:
            last_sent = int(state.get(session, f"{SENT}.{shared.name}", 0))
        return self._memories.load(_OURS, (False, last_sent, limit))

    def _unsent_count(self, shared: SharedDatabase) -> int:
        return len(self._unsent(shared, -1))


def _topic(project: str) -> str:
    return f"summaries/{project}"


def from_others(sources: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of summaries of other machines among a prompt's `memory_sources`, and the names of their homes. Pure."""
    theirs = [source for source in sources if str(source.get("source", "")).startswith(SHARED)]
    homes = dict.fromkeys(str(summary["source"]).removeprefix(SHARED) for summary in theirs)
    return tuple(str(summary["id"]) for summary in theirs), tuple(homes)
