"""What sessions had changed that an end of the engine cut short (SPEC 3.8, 3.9): kept at the next start.

Each is one transaction, which makes the change set and has the session name it; a start that is killed too finds the
worktree as it was, or the change set.
"""

from __future__ import annotations

import logging

from engine.execution.changesets import Captured, ChangeSets
from engine.execution.continuing import continued
from engine.execution.session_store import KEPT, SessionRow, attach
from engine.execution.worktrees import Worktree, Worktrees
from engine.model import UNDONE, Refusal, SessionState
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)


class Salvage:
    """Asked once, at start-up, when no session runs and every session of an earlier run is over."""

    def __init__(self, database: Database, *, worktrees: Worktrees, changes: ChangeSets) -> None:
        self._database = database
        self._worktrees = worktrees
        self._changes = changes

    def recover(self) -> tuple[list[str], set[str]]:
        """What it kept, in words, and the sessions whose worktrees must stay, for what is in them could not be."""
        words, stay = [], set()
        for worktree in self._worktrees.left():
            row = self._row(worktree.session_id)
            if row is None or not lost(row) or self._changes.for_session(row.id) is not None:
                continue
            try:
                captured = self._changes.capture(worktree)
            except (Refusal, OSError) as error:
                log.warning("the changes of %s cannot be saved", row.id, exc_info=True)
                words.append(
                    f"the changes of {row.id} cannot be saved yet: {error}; "
                    f"look into {worktree.folder}, and delete it if you do not need what is there"
                )
                stay.add(row.id)
                continue
            if captured is not None and self._keep(worktree, row, captured):
                files = len(captured.files)
                words.append(f"{KEPT}: {files} {'file' if files == 1 else 'files'} ({row.id})")
        return words, stay

    def _keep(self, worktree: Worktree, row: SessionRow, captured: Captured) -> bool:
        former = continued(row.assignment)

        def write(tx: Transaction) -> str:
            stored = self._changes.store(tx, captured, prediction_id=row.prediction_id, title=row.prompt)
            if former:
                self._changes.supersede(tx, former, by=row.id)
            return stored.id

        return self._database.write(lambda tx: attach(tx, row.id, write, cwd=str(worktree.folder)))

    def _row(self, session_id: str) -> SessionRow | None:
        with self._database.read() as session:
            return session.get(SessionRow, session_id)


def lost(row: SessionRow) -> bool:
    """Whether what this session changed would be lost, though nobody decided that it shall be."""
    state = SessionState(row.state)
    return state.over and state is not SessionState.SUCCEEDED and row.error != UNDONE and not row.change_set_id
