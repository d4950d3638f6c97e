"""The outcomes of sessions, by how they end and what happens to their changes (SPEC 1.10, 5.7).

A `SessionFollower` reads that in the ledger: for sessions with guidance (`guided_sessions`), and for those in the trial
of a candidate (`learning.candidates.overlays`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry
from engine.storage.rows import load_all

UNKNOWN, OPEN, GOOD, BAD = "", "open", "good", "bad"
"""The outcomes. A session is open while its changes wait for the operator."""

OUTCOME_KINDS = frozenset(
    {
        "SessionEnded",
        "ValidationFailed",
        "ChangeSetReady",
        "ChangeSetLanded",
        "ChangeSetBranched",
        "ChangeSetDiscarded",
        "LandingUndone",
    }
)
"""Kinds of ledger entries that may change the outcome of a session."""

RowT = TypeVar("RowT", bound=Any)


def compute_next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after a ledger entry about it.

    A session is good if it ended well and left no changes, or if its changes were landed or committed. It is bad if it
    failed, was blocked or its tests still fail, or if its changes were discarded or undone. The operator's last
    decision on the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or OPEN
        case "ChangeSetLanded" | "ChangeSetBranched":
            return GOOD
        case "LandingUndone":
            return before if payload.get("left") else BAD  # a part of the changes is still landed
        case "ChangeSetDiscarded":
            return UNKNOWN if payload.get("continued_in") else BAD
        case "ValidationFailed":
            return BAD
        case "SessionEnded" if payload.get("state") in ("failed", "blocked"):
            return BAD
        case "SessionEnded" if payload.get("state") == "succeeded":
            return before or GOOD
    return before


class SessionFollower(Generic[RowT]):
    """Keeps the outcome of the session of each row of a table in the row's `outcome`. Callable from any thread."""

    def __init__(self, database: Database, ledger: Ledger, table: type[RowT], *, cursor: str) -> None:
        self._database = database
        self._table = table
        self._cursor = LedgerCursor(ledger, cursor, lambda entry: entry.kind in OUTCOME_KINDS)
        self._lock = threading.Lock()

    def catch_up(self) -> None:
        """Read the new ledger entries."""
        with self._lock:
            self._cursor.handle_new(lambda entries: self._database.write(partial(self._apply_entries, entries)))

    def on_outcome_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the outcomes of these rows changed."""

    def _apply_entries(self, entries: Sequence[LedgerEntry], tx: Transaction) -> None:
        changed: list[RowT] = []
        for entry in entries:
            for row in load_all(tx.session, self._table, "WHERE session_id = :id", {"id": entry.session_id}):
                outcome = compute_next_outcome(entry.kind, entry.payload, row.outcome)
                if outcome != row.outcome:
                    row.outcome = outcome
                    changed.append(row)
        if changed:
            self.on_outcome_change(tx, changed)
