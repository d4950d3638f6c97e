"""The outcome of sessions: follows in the ledger what became of a session and of its changes (SPEC 1.10, 5.7).

`guided_sessions` and the trials of `learning.candidates.overlays` keep tables that it updates.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlmodel import col, select

from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

RowT = TypeVar("RowT", bound=Any)

SESSION_KINDS = frozenset({"SessionEnded", "ValidationFailed"})
"""Kinds of ledger entries whose subject is a session, and that say how it ended."""

CHANGE_KINDS = frozenset(
    {"ChangeSetReady", "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"}
)
"""Kinds of ledger entries that say what became of the changes of a session, whose id is in their payload."""


def session_id_of(entry: LedgerEntry) -> str:
    """The session that an entry of these kinds is about."""
    return entry.subject if entry.kind in SESSION_KINDS else str(entry.payload.get("session_id", ""))


def next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after an entry about it: "", "open" (its changes wait), "good" or "bad".

    Good is a session that ended well and left no changes, or whose changes were landed or committed. Bad is a session
    that failed, was blocked or stayed red, or whose changes were discarded or undone. The operator's last decision on
    the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or "open"
        case "ChangeSetLanded" | "ChangeSetBranched":
            return "good"
        case "LandingUndone":
            return before if payload.get("left") else "bad"  # other parts stand
        case "ChangeSetDiscarded":
            return "" if payload.get("continued_in") else "bad"
        case "ValidationFailed":
            return "bad"
        case "SessionEnded" if payload.get("state") in ("failed", "blocked"):
            return "bad"
        case "SessionEnded" if payload.get("state") == "succeeded":
            return before or "good"
    return before


class SessionFollower(Generic[RowT]):
    """Updates the `state` of the rows of a table, each with a `session_id`, from ledger entries about the session.
    Callable from any thread."""

    def __init__(
        self, database: Database, entries: Ledger, table: type[RowT], *, cursor: str, begins: str = ""
    ) -> None:
        """`begins` is the kind of ledger entry that makes a row, "" if others make the rows."""
        self._database = database
        self._table = table
        self._begins = begins
        self._cursor = LedgerCursor(entries, cursor, self._is_relevant)
        self._busy = threading.Lock()

    def catch_up(self) -> None:
        """Read the new ledger entries. Does nothing while another thread does so."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._cursor.each(self._read_entries)
        finally:
            self._busy.release()

    def add_row(self, tx: Transaction, entry: LedgerEntry) -> None:
        """Make the row of an entry of the kind `begins`."""

    def on_state_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the state of these rows changed."""

    def _is_relevant(self, entry: LedgerEntry) -> bool:
        return entry.kind == self._begins or entry.kind in SESSION_KINDS or entry.kind in CHANGE_KINDS

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> None:
        session_ids = {session_id_of(entry) for entry in entries}
        followed = select(self._table.session_id).where(col(self._table.session_id).in_(session_ids)).limit(1)
        begins = any(entry.kind == self._begins for entry in entries)
        with self._database.read() as session:
            if not begins and session.exec(followed).first() is None:  # nearly all sessions went without
                return
        self._database.write(lambda tx: self._apply_entries(tx, entries))

    def _apply_entries(self, tx: Transaction, entries: Sequence[LedgerEntry]) -> None:
        changed: list[RowT] = []
        for entry in entries:
            if entry.kind == self._begins:
                self.add_row(tx, entry)
                continue
            session_id = session_id_of(entry)
            for row in tx.session.exec(select(self._table).where(col(self._table.session_id) == session_id)):
                state = next_outcome(entry.kind, entry.payload, row.state)
                if state != row.state:
                    row.state = state
                    tx.session.add(row)
                    changed.append(row)
        if changed:
            tx.session.flush()
            self.on_state_change(tx, changed)
