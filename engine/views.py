"""Cross-cutting reads for screens and verbs (ARCHITECTURE rule 8): what waits for the operator, and where we are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from engine.git import Git
from engine.values import ChangeSet, ChangeState, Refusal, SessionState, SessionView, Waiting, sanitise

INTERRUPTED_FOR = timedelta(hours=24)
"""So long an interruption is among what waits; the list of sessions has it for ever."""


class ChangeList(Protocol):
    def list(self, *, state: ChangeState | None = None, limit: int = 50) -> list[ChangeSet]: ...


class SessionList(Protocol):
    def list(self, *, workspace: str | None = None, limit: int = 50) -> list[SessionView]: ...


def waiting(changes: ChangeList, sessions: SessionList, now: datetime) -> list[Waiting]:
    """The operator's one queue (SPEC 9.3), longest waiting first: change sets to decide, interruptions to know of."""
    queue = [
        Waiting("change_set", change.id, f"land {_files(change)}? {change.title}", change.created_at, change.session_id)
        for change in changes.list(state=ChangeState.WAITING, limit=100)
    ]
    queue += [
        Waiting("interrupted", session.id, f"interrupted: {session.prompt}", ended_at, session.id)
        for session, ended_at in _interrupted(sessions.list(limit=20))
        if now - ended_at < INTERRUPTED_FOR
    ]
    return sorted(queue, key=lambda one: one.since)


def _interrupted(newest_first: Sequence[SessionView]) -> Iterator[tuple[SessionView, datetime]]:
    """What was interrupted and not run again since."""
    again: set[tuple[str, str]] = set()
    for session in newest_first:
        work = (session.workspace, session.flow or session.prompt)
        if session.state is SessionState.INTERRUPTED and session.ended_at is not None and work not in again:
            yield session, session.ended_at
        again.add(work)


def _files(change: ChangeSet) -> str:
    return "1 file" if len(change.files) == 1 else f"{len(change.files)} files"


def place(workspace: str) -> str:
    """Name and branch of a workspace as the status line says them, `shop main*`; a star for uncommitted changes."""
    folder = Path(workspace)
    git = Git(folder, timeout=5)
    try:
        branch = git.text("symbolic-ref", "--short", "-q", "HEAD", allowed=(0, 1)) or "detached"
        dirty = git.output("status", "--porcelain", "-uno", "--ignore-submodules=all")
    except Refusal as refusal:
        return sanitise(f"{folder.name} ({refusal.code})")
    return sanitise(f"{folder.name} {branch}{'*' if dirty else ''}")
