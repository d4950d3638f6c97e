"""Reflection (SPEC 5.1): reads new ledger entries into learning records.

`entry_readers` reads single entries, and `sequences` finds commands that are repeated over many sessions. The id of a
record is derived from its entry and its subject, so reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from engine.clock import Clock
from engine.learning.candidates.entry_readers import READERS
from engine.learning.candidates.reading import Reading, Scope, Sources
from engine.learning.candidates.records import Records
from engine.learning.candidates.sequences import MIN_RUNS, CallSequence, find_sequences
from engine.model.adaptation import LearningRecord, RecordKind
from engine.model.text import count
from engine.statistics import share
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

ENTRY_CURSOR, CALL_CURSOR = "adaptation.reflection", "adaptation.sequences"
"""Names of the cursors in the ledger."""

TOOLS_USED = "ToolsUsed"
"""The kind of ledger entries that name the tool calls of a session."""

MAX_SESSIONS, MAX_CALLS = 80, 200
"""Maximum number of an agent's latest sessions, and of calls of each, that are searched for sequences."""

SEQUENCE_SPAN = timedelta(days=30)
"""Maximum age of these sessions."""


class Reflection:
    """Reads the ledger into records. Callable from any thread; one runs at a time."""

    def __init__(self, database: Database, records: Records, *, clock: Clock, ledger: Ledger, sources: Sources) -> None:
        self._database = database
        self._clock = clock
        self._ledger = ledger
        self._records = records
        self._sources = sources
        self._entry_cursor = LedgerCursor(ledger, ENTRY_CURSOR, lambda entry: entry.kind in READERS)
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

        cursor.each(handle)
        return stored

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        unwritten: Counter[tuple[str, Scope]] = Counter()
        records: list[LearningRecord] = []
        zone = self._clock.local().tzinfo
        for entry in entries:

            def count_before(label: str, scope: Scope, ledger_id: int = entry.id) -> int:
                return self._records.count_before(label, *scope, ledger_id) + unwritten[label, scope]

            new = list(READERS[entry.kind](Reading(entry, self._sources, count_before, zone)))
            unwritten.update((each.source_label, (each.scope_type, each.scope_id)) for each in new)
            records += new
        return records

    def _read_tool_calls(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        """Search the recent sessions of each agent once, up to the newest of these entries of the agent."""
        newest_entries = {str(entry.payload["agent"]): entry for entry in entries}
        records = []
        for agent, newest in newest_entries.items():
            runs = self._runs(newest, agent) if agent else []
            if len(runs) < MIN_RUNS:
                continue
            for sequence in find_sequences([run.payload["calls"][:MAX_CALLS] for run in runs]):
                supporting_runs = [runs[number] for number in sequence.runs]
                records += [
                    _sequence_record(
                        Reading(run, self._sources, lambda *_: 0), sequence, agent, supporting_runs, len(runs)
                    )
                    for run in supporting_runs
                    if run.id >= entries[0].id
                ]
        return records

    def _runs(self, newest: LedgerEntry, agent: str) -> list[LedgerEntry]:
        """The entries of the agent's recent sessions up to `newest`, oldest first."""
        until = newest.at + timedelta(microseconds=1)
        entries = self._ledger.between(newest.at - SEQUENCE_SPAN, until, (TOOLS_USED,))
        of_agent = [entry for entry in entries if entry.id <= newest.id and entry.payload["agent"] == agent]
        return of_agent[-MAX_SESSIONS:]


def _sequence_record(
    reading: Reading, sequence: CallSequence, agent: str, runs: Sequence[LedgerEntry], all_runs: int
) -> LearningRecord:
    """The record of a sequence that is in `runs`; `all_runs` is the number of sessions that were searched. 40 points,
    up to 20 for `z` (all 20 at 10), up to 20 for the share of sessions that have it, 4 for each step."""
    calls = sequence.calls
    steps = " > ".join(calls)
    in_runs = len(runs) / all_runs
    parts = (
        (40.0, "the same steps recur"),
        (20.0 * share(sequence.z, 10.0), f"{sequence.z:.1f} standard deviations beyond chance"),
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
    return reading.record(
        RecordKind.TOOL_SEQUENCE,
        ("agent", agent),
        parts,
        details,
        cause=steps,
        key=steps,
        session_id=reading.entry.subject,
    )
