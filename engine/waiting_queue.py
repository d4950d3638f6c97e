"""The queue of what waits for the operator: permissions, change sets, and interrupted sessions (SPEC 9.3).

An interrupted session leaves the queue when the operator acknowledges it, when the same work runs again, or after a
day.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.model import ChangeSet, PermissionRequest, RailVerdict, SessionState, SessionView, Waiting
from engine.model.text import count
from engine.safety.content.objections import objection
from engine.storage import state
from engine.storage.database import Database, Transaction

ACKNOWLEDGED_KEY = "views.acknowledged"
"""The state under this key has the sessions that were acknowledged, and when."""

INTERRUPTED_FOR = timedelta(hours=24)
"""How long an interrupted session is in the queue."""


def waiting_entries(
    changes: Iterable[ChangeSet],
    sessions: Sequence[SessionView],
    permissions: Iterable[PermissionRequest],
    now: datetime,
    acknowledged: Collection[str] = (),
) -> list[Waiting]:
    """Entries for permissions, change sets, and interrupted sessions that are not `acknowledged`. Sessions come newest
    first."""
    return [
        *(
            Waiting(
                kind="permission",
                id=request.id,
                title=f"{request.agent} asks: {request.title}",
                since=request.asked_at,
                session_id=request.session_id,
            )
            for request in permissions
        ),
        *(
            Waiting(
                kind="change_set",
                id=change.id,
                title=f"land {count(len(change.files), 'file')}? {change.title}",
                since=change.created_at,
                session_id=change.session_id,
            )
            for change in changes
        ),
        *_interrupted(sessions, now - INTERRUPTED_FOR, acknowledged),
    ]


def _interrupted(sessions: Sequence[SessionView], since: datetime, acknowledged: Collection[str]) -> Iterable[Waiting]:
    """Entries for sessions that were interrupted after `since`. One that ran again later needs no attention."""
    newer_work: set[tuple[str, str]] = set()
    for session in sessions:
        work, ended_at = (session.workspace, session.flow or session.prompt), session.ended_at
        interrupted = session.state is SessionState.INTERRUPTED and session.id not in acknowledged
        if interrupted and ended_at is not None and ended_at > since and work not in newer_work:
            yield Waiting(
                kind="interrupted",
                id=session.id,
                title=f"interrupted: {session.prompt}",
                since=ended_at,
                session_id=session.id,
            )
        newer_work.add(work)


def mark_hostile(entry: Waiting, check: Callable[[str], RailVerdict]) -> Waiting:
    """An entry, marked when the content filter objects to its text."""
    reason = objection(entry.text, check)
    return replace(entry, hostile=reason, title=f"▲ hostile: {reason}. {entry.title}") if reason else entry


def sort_queue(queue: Iterable[Waiting]) -> list[Waiting]:
    """What blocks an agent first, then the oldest first."""
    return sorted(queue, key=lambda entry: (entry.kind != "permission", entry.since))


def acknowledged_sessions(database: Database) -> frozenset[str]:
    """Interrupted sessions that the operator knows of."""
    with database.read() as session:
        return frozenset(state.get(session, ACKNOWLEDGED_KEY, {}))


def acknowledge_session(database: Database, session_id: str) -> None:
    """Remove an interrupted session from the queue."""

    def work(tx: Transaction) -> None:
        since = tx.now - INTERRUPTED_FOR  # what is older waits no longer anyway
        entries = state.get(tx.session, ACKNOWLEDGED_KEY, {})
        recent = {name: at for name, at in entries.items() if datetime.fromisoformat(at) > since}
        state.put(tx, ACKNOWLEDGED_KEY, recent | {session_id: tx.now.isoformat()})

    database.write(work)
