"""Follows in the ledger how sessions ended that carried guidance or an overlay (SPEC 1.10, 5.7)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from sqlmodel import col, select

from engine.model.work import CHANGE_FACTS, SESSION_FACTS, judged, session_of
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

RowT = TypeVar("RowT", bound=Any)


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
        return entry.kind == self._begins or entry.kind in SESSION_FACTS or entry.kind in CHANGE_FACTS

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> None:
        session_ids = {session_of(entry.kind, entry.subject, entry.payload) for entry in entries}
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
            session_id = session_of(entry.kind, entry.subject, entry.payload)
            for row in tx.session.exec(select(self._table).where(col(self._table.session_id) == session_id)):
                state = judged(entry.kind, entry.payload, row.state)
                if state != row.state:
                    row.state = state
                    tx.session.add(row)
                    changed.append(row)
        if changed:
            tx.session.flush()
            self.on_state_change(tx, changed)
