"""Cross-cutting reads for screens and verbs (ARCHITECTURE rule 8): what waits for the operator, and where we are."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.git import Git
from engine.values import ChangeSet, ChangeState, Refusal, SessionState, SessionView, Waiting, sanitise


class ChangeList(Protocol):
    def list(self, *, state: ChangeState | None = None, limit: int = 50) -> list[ChangeSet]: ...


class SessionList(Protocol):
    def list(self, *, workspace: str | None = None, limit: int = 50) -> list[SessionView]: ...


def waiting(changes: ChangeList, sessions: SessionList) -> list[Waiting]:
    """The operator's one queue (SPEC 9.3), longest waiting first: change sets to decide, interruptions to know of."""
    queue = [
        Waiting("change_set", change.id, f"land {_files(change)}? {change.title}", change.created_at, change.session_id)
        for change in changes.list(state=ChangeState.WAITING, limit=100)
    ]
    queue += [
        Waiting("interrupted", session.id, f"interrupted: {session.prompt}", session.ended_at, session.id)
        for session in sessions.list(limit=20)
        if session.state is SessionState.INTERRUPTED and session.ended_at is not None
    ]
    return sorted(queue, key=lambda one: one.since)


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
