"""Follows in the ledger how sessions end, and what happens to their changes (SPEC 1.10, 5.7).

It updates the tables of `guided_sessions` and of the trials in `learning.candidates.overlays`.
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
"""Kinds of ledger entries about the end of a session, which is their subject."""

CHANGE_KINDS = frozenset(
    {"ChangeSetReady", "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"}
)
"""Kinds of ledger entries about the changes of a session, whose id is in their payload."""


def session_id_of(entry: LedgerEntry) -> str:
    """The id of the session that an entry of these kinds is about."""
    return entry.subject if entry.kind in SESSION_KINDS else str(entry.payload.get("session_id", ""))


def next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after an entry about it: "", "open" (its changes wait), "good" or "bad".

    A session is good if it ended well and left no changes, or if its changes were landed or committed. It is bad if it
    failed, was blocked or its tests still fail, or if its changes were discarded or undone. The operator's last
    decision on the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or "open"
        case "ChangeSetLanded" | "ChangeSetBranched":
            return "good"
        case "LandingUndone":
            return before if payload.get("left") else "bad"  # a part of the changes is still landed
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
    """Updates the `state` of the rows of a table by ledger entries about the session of each row. Callable from any
    thread."""

    def __init__(
        self, database: Database, entries: Ledger, table: type[RowT], *, cursor: str, begins: str = ""
    ) -> None:
        """`begins` is the kind of ledger entry for which `add_row` is called, "" if the rows are made elsewhere."""
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
        """Add a row for an entry of the kind `begins`."""

    def on_state_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the state of these rows changed."""

    def _is_relevant(self, entry: LedgerEntry) -> bool:
        return entry.kind == self._begins or entry.kind in SESSION_KINDS or entry.kind in CHANGE_KINDS

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> None:
        session_ids = {session_id_of(entry) for entry in entries}
        followed = select(self._table.session_id).where(col(self._table.session_id).in_(session_ids)).limit(1)
        begins = any(entry.kind == self._begins for entry in entries)
        with self._database.read() as session:
            if not begins and session.exec(followed).first() is None:  # most sessions have no rows
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
