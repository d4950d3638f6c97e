"""Reflection (SPEC 5.1): reads new ledger entries into learning records, which say what happened from which an agent
could learn, each with a score, and stores them in a table.

`entry_readers` reads single entries, and `sequences` finds commands that an agent repeats. The id of a record is
derived from its entry and its subject, so reading an entry again after a crash adds nothing. `evaluation` says what the
records mean for candidates.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field

from engine.clock import Clock
from engine.inference import compute_share
from engine.learning.candidates import CandidateSources, EntryReading, RecordIdentity, RecordScope
from engine.learning.candidates.entry_readers import READER_OF_KIND
from engine.learning.candidates.sequences import CallSequence, find_sequences
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage import Row, ask, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry
from engine.wording import count

ENTRY_CURSOR, CALL_CURSOR = "adaptation.reflection", "adaptation.sequences"
"""Names of the cursors in the ledger."""

TOOLS_USED = "ToolsUsed"
"""The kind of ledger entries that name the tool calls of a session."""

MAX_SESSIONS, MAX_CALLS = 80, 200
"""Maximum number of an agent's latest sessions, and of calls of each, that are searched for sequences."""

SEQUENCE_SPAN = timedelta(days=30)
"""Maximum age of these sessions."""


MAX_PER_SCOPE = 500
"""Maximum number of records of one scope that are read, the newest first."""


class LearningRecordRow(Row, table=True):
    """One record. `seq` grows with each new record."""

    __tablename__ = "learning_records"

    seq: int = Field(default=None, primary_key=True)
    """Set by the database."""
    id: str
    at: datetime
    kind: RecordKind
    source_label: str
    scope_type: str
    scope_id: str
    score: float
    reason: str
    workspace: str = ""
    agent: str = ""
    session_id: str = ""
    ledger_id: int = 0
    """The id of the ledger entry that it was made from."""
    details: dict[str, Any]


_OF_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
_BY_ID = "id IN (SELECT value FROM json_each(:ids))"
_WITH_SCORE = "score >= :score AND at >= :since"
_OF_SCOPE = "scope_type = :type AND scope_id = :id"
_COUNT_BEFORE = """
    SELECT count(*) FROM learning_records
    WHERE source_label = :label AND scope_type = :type AND scope_id = :id AND ledger_id < :ledger_id
"""


class Records:
    """Writes and reads records. A record is never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tx: Transaction, records: Iterable[LearningRecord]) -> None:
        """Write records; those with an existing id are ignored."""
        statement = insert(LearningRecordRow).on_conflict_do_nothing(index_elements=["id"])
        for record in records:
            tx.session.execute(statement, shallow_dict(record) | {"details": dict(record.details)})

    def read_last_seq(self) -> int:
        """The `seq` of the newest record, 0 without any."""
        with self._database.read() as session:
            return int(ask(session, "SELECT coalesce(max(seq), 0) FROM learning_records").scalar())

    def read_of_kinds(self, *kinds: RecordKind, limit: int = 200) -> list[LearningRecord]:
        """The newest records of these kinds, newest first."""
        return self._load(_OF_KINDS, kinds=kinds, limit=limit)

    def read_by_ids(self, ids: Collection[str]) -> list[LearningRecord]:
        """The records with these ids, oldest first."""
        return self._load(_BY_ID, ids=[*ids], limit=len(ids))[::-1]

    def read_of_scope(self, scope_type: str, scope_id: str) -> list[LearningRecord]:
        """The newest `MAX_PER_SCOPE` records of a scope, newest first."""
        return self._load(_OF_SCOPE, type=scope_type, id=scope_id, limit=MAX_PER_SCOPE)

    def read_strong(self, score: float, since: datetime, limit: int) -> list[LearningRecord]:
        """The newest records with at least this score and from this time on, newest first."""
        return self._load(_WITH_SCORE, score=score, since=since, limit=limit)

    def count_before(self, label: str, scope_type: str, scope_id: str, ledger_id: int) -> int:
        """Number of records of a label and scope from ledger entries before `ledger_id`."""
        values = {"label": label, "type": scope_type, "id": scope_id, "ledger_id": ledger_id}
        with self._database.read() as session:
            return int(ask(session, _COUNT_BEFORE, values).scalar())

    def _load(self, condition: str, **values: Any) -> list[LearningRecord]:
        """The newest records for which a condition with these values is true, at most `limit`."""
        clauses = f"WHERE {condition} ORDER BY seq DESC LIMIT :limit"
        with self._database.read() as session:
            rows = read_all(session, LearningRecordRow, clauses, values)
        return [value_of(row, LearningRecord) for row in rows]


class Reflection:
    """Reads the ledger into records. Callable from any thread; one runs at a time."""

    def __init__(
        self, database: Database, records: Records, *, clock: Clock, ledger: Ledger, sources: CandidateSources
    ) -> None:
        self._database = database
        self._clock = clock
        self._ledger = ledger
        self._records = records
        self._sources = sources
        self._entry_cursor = LedgerCursor(ledger, ENTRY_CURSOR, lambda entry: entry.kind in READER_OF_KIND)
        self._call_cursor = LedgerCursor(ledger, CALL_CURSOR, lambda entry: entry.kind == TOOLS_USED)
        self._lock = threading.Lock()

    def catch_up(self) -> int:
        """Read the new ledger entries; returns the number of new records. If another thread reads them now, returns
        0."""
        if not self._lock.acquire(blocking=False):
            return 0
        try:
            return self._store_records(self._entry_cursor, self._read_entries)
        finally:
            self._lock.release()

    def find_sequences(self) -> None:
        """Search the new tool calls for sequences. Slow."""
        with self._lock:
            self._store_records(self._call_cursor, self._read_tool_calls)

    def _store_records(
        self, cursor: LedgerCursor, read: Callable[[Sequence[LedgerEntry]], Sequence[LearningRecord]]
    ) -> int:
        """Store the records that `read` makes from the new entries; returns their number."""
        stored = 0

        def handle(entries: Sequence[LedgerEntry]) -> None:
            nonlocal stored
            if records := read(entries):
                self._database.write(lambda tx: self._records.add(tx, records))
                stored += len(records)

        cursor.handle_new(handle)
        return stored

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        """The records of these entries, by the reader of each kind of entry."""
        records: list[LearningRecord] = []
        unwritten: Counter[tuple[str, RecordScope]] = Counter()  # the number of `records` by label and scope
        zone = self._clock.local().tzinfo
        for entry in entries:

            def count_before(label: str, scope: RecordScope, ledger_id: int = entry.id) -> int:
                return self._records.count_before(label, *scope, ledger_id) + unwritten[label, scope]

            new_records = list(READER_OF_KIND[entry.kind](EntryReading(entry, self._sources, count_before, zone)))
            unwritten.update((record.source_label, (record.scope_type, record.scope_id)) for record in new_records)
            records += new_records
        return records

    def _read_tool_calls(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        """Search the recent sessions of each agent once, up to the newest of these entries of the agent."""
        newest_entries = {str(entry.payload["agent"]): entry for entry in entries}
        return [
            record
            for agent, newest in newest_entries.items()
            if agent
            for record in self._find_sequences(agent, newest, since_id=entries[0].id)
        ]

    def _find_sequences(self, agent: str, newest: LedgerEntry, *, since_id: int) -> list[LearningRecord]:
        """The records of the sequences in an agent's recent sessions up to `newest`: one for each session with a
        sequence whose ledger entry is not older than `since_id`. Older sessions have their records already."""
        until = newest.at + timedelta(microseconds=1)
        entries = self._ledger.read_between(newest.at - SEQUENCE_SPAN, until, (TOOLS_USED,))
        of_agent = [entry for entry in entries if entry.id <= newest.id and entry.payload["agent"] == agent]
        sessions = of_agent[-MAX_SESSIONS:]
        records = []
        for sequence in find_sequences([entry.payload["calls"][:MAX_CALLS] for entry in sessions]):
            supporting = [sessions[number] for number in sequence.runs]
            for entry in supporting:
                if entry.id >= since_id:
                    reading = EntryReading(entry, self._sources, lambda *_: 0)
                    records.append(_make_sequence_record(reading, sequence, supporting, len(sessions)))
        return records


def _make_sequence_record(
    reading: EntryReading, sequence: CallSequence, runs: Sequence[LedgerEntry], all_runs: int
) -> LearningRecord:
    """The record of a sequence that is in `runs`; `all_runs` is the number of sessions that were searched. 40 points,
    up to 20 for `z` (all 20 at 10), up to 20 for the share of sessions that have it, 4 for each step."""
    calls, in_runs = sequence.calls, len(runs) / all_runs
    steps = " > ".join(calls)
    parts = (
        (40.0, "the same steps recur"),
        (20.0 * compute_share(sequence.z, 10.0), f"{sequence.z:.1f} standard deviations beyond chance"),
        (20.0 * in_runs, f"in {in_runs:.0%} of the sessions"),
        (4.0 * len(calls), count(len(calls), "step")),
    )
    details = {
        "calls": list(calls),
        "count": sequence.count,
        "expected": round(sequence.expected, 2),
        "z": round(sequence.z, 2),
        "sessions": [run.subject for run in runs],
    }
    scope = ("agent", reading.entry.payload["agent"])
    return reading.record(RecordKind.TOOL_SEQUENCE, scope, parts, details, RecordIdentity(cause=steps, key=steps))
