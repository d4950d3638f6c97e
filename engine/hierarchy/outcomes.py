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


class FollowedSessions(Generic[RowT]):
    """Keeps the `state` of the rows of a table, each of one `session_id`, by what the ledger says of the session.
    Callable from any thread."""

    def __init__(self, database: Database, facts: Ledger, table: type[RowT], *, cursor: str, begins: str = "") -> None:
        """`begins` is the kind of fact that makes a row, "" where others make them."""
        self._database = database
        self._table = table
        self._begins = begins
        self._facts = LedgerCursor(facts, cursor, self._concerns)
        self._busy = threading.Lock()

    def catch_up(self) -> None:
        """Take in what happened since the last time. Nothing while another thread is at it."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._facts.each(self._take_in)
        finally:
            self._busy.release()

    def began(self, tx: Transaction, fact: LedgerEntry) -> None:
        """A fact of the kind `begins`: make its row."""

    def moved(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """The state of these rows is another now."""

    def _concerns(self, fact: LedgerEntry) -> bool:
        return fact.kind == self._begins or fact.kind in SESSION_FACTS or fact.kind in CHANGE_FACTS

    def _take_in(self, facts: Sequence[LedgerEntry]) -> None:
        session_ids = {session_of(fact.kind, fact.subject, fact.payload) for fact in facts}
        followed = select(self._table.session_id).where(col(self._table.session_id).in_(session_ids)).limit(1)
        begins = any(fact.kind == self._begins for fact in facts)
        with self._database.read() as session:
            if not begins and session.exec(followed).first() is None:  # nearly all sessions went without
                return
        self._database.write(lambda tx: self._take(tx, facts))

    def _take(self, tx: Transaction, facts: Sequence[LedgerEntry]) -> None:
        moved: list[RowT] = []
        for fact in facts:
            if fact.kind == self._begins:
                self.began(tx, fact)
                continue
            session_id = session_of(fact.kind, fact.subject, fact.payload)
            for row in tx.session.exec(select(self._table).where(col(self._table.session_id) == session_id)):
                state = judged(fact.kind, fact.payload, row.state)
                if state != row.state:
                    row.state = state
                    tx.session.add(row)
                    moved.append(row)
        if moved:
            tx.session.flush()
            self.moved(tx, moved)
