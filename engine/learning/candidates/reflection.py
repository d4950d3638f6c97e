"""Reflection (SPEC 5.1): turns ledger entries into learning records.

`entry_readers` reads single entries; here are sequences of tool calls over many sessions. A record's id is derived from
its entry and its subject, so that reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from engine.learning.candidates import scoring
from engine.learning.candidates.entry_readers import READERS, EntryContext, RecordDraft, Scope
from engine.learning.candidates.records import Records, record_id
from engine.learning.candidates.sequences import MIN_RUNS, CallSequence, find_sequences
from engine.learning.candidates.sources import Sources
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

log = logging.getLogger(__name__)

ENTRY_CURSOR = "adaptation.reflection"
CALL_CURSOR = "adaptation.sequences"

TOOLS_USED = "ToolsUsed"
"""The kind of ledger entries that name the tool calls of a session."""

MAX_SESSIONS, MAX_CALLS = 80, 200
"""Maximum number of an agent's latest sessions, and of calls of each, that are searched for sequences."""

SEQUENCE_SPAN = timedelta(days=30)
"""Maximum age of these sessions."""


class Reflection:
    """Reads the ledger into records. Callable from any thread; one runs at a time."""

    def __init__(self, database: Database, records: Records, *, ledger: Ledger, sources: Sources) -> None:
        self._database = database
        self._records = records
        self._sources = sources
        self._entry_cursor = LedgerCursor(ledger, ENTRY_CURSOR, _is_relevant)
        self._call_cursor = LedgerCursor(ledger, CALL_CURSOR, lambda entry: entry.kind == TOOLS_USED)
        self._lock = threading.Lock()
        self.has_new_calls = False
        """Whether there are tool calls since the last `find_sequences`."""

    def catch_up(self) -> int:
        """Read the new ledger entries; returns the number of records. 0 while another thread does it."""
        if not self._lock.acquire(blocking=False):
            return 0
        try:
            return self._store_records(self._entry_cursor, self._read_entries)
        finally:
            self._lock.release()

    def find_sequences(self) -> None:
        """Search the new tool calls for sequences. Slow."""
        with self._lock:
            self.has_new_calls = False
            self._store_records(self._call_cursor, self._read_tool_calls)

    def _store_records(
        self, cursor: LedgerCursor, read: Callable[[Sequence[LedgerEntry]], Sequence[LearningRecord]]
    ) -> int:
        """Store what `read` makes of the new entries; returns the number of records."""
        count = 0

        def handle(entries: Sequence[LedgerEntry]) -> None:
            nonlocal count
            if records := read(entries):
                self._database.write(lambda tx: self._records.add(tx, records))
                count += len(records)

        cursor.each(handle)
        return count

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        unwritten: Counter[tuple[str, Scope]] = Counter()
        records: list[LearningRecord] = []
        for entry in entries:
            if entry.kind == TOOLS_USED:
                self.has_new_calls = True
                continue

            def count_before(label: str, scope: Scope, ledger_id: int = entry.id) -> int:
                return self._records.count_before(label, *scope, ledger_id) + unwritten[label, scope]

            try:
                drafts = list(READERS[entry.kind](EntryContext(entry, self._sources, count_before)))
            except (KeyError, TypeError, ValueError):  # written by an older version: skip it
                log.warning("fact %d, a %s, says too little to learn from", entry.id, entry.kind, exc_info=True)
                continue
            unwritten.update((draft.label, draft.scope) for draft in drafts)
            records += [_to_record(entry, draft) for draft in drafts]
        return records

    def _read_tool_calls(self, entries: Sequence[LedgerEntry]) -> list[LearningRecord]:
        """Search the recent sessions of each agent once, up to its newest of these entries."""
        newest_entries = {str(entry.payload["agent"]): entry for entry in entries}
        records = []
        for agent, newest in newest_entries.items():
            runs = self._runs(newest, agent) if agent else []
            if len(runs) < MIN_RUNS:
                continue
            for sequence in find_sequences([run.payload["calls"][:MAX_CALLS] for run in runs]):
                supporting_runs = [runs[number] for number in sequence.runs]
                draft = _sequence_draft(sequence, agent, supporting_runs, len(runs))
                records += [
                    _to_record(run, replace(draft, session_id=run.subject))
                    for run in supporting_runs
                    if run.id >= entries[0].id
                ]
        return records

    def _runs(self, newest: LedgerEntry, agent: str) -> list[LedgerEntry]:
        """The entries of the agent's recent sessions up to `newest`, oldest first."""
        until = newest.at + timedelta(microseconds=1)
        entries = self._sources.entries_between(newest.at - SEQUENCE_SPAN, until, (TOOLS_USED,))
        of_agent = [entry for entry in entries if entry.id <= newest.id and entry.payload["agent"] == agent]
        return of_agent[-MAX_SESSIONS:]


def _sequence_draft(sequence: CallSequence, agent: str, runs: Sequence[LedgerEntry], all_runs: int) -> RecordDraft:
    """The record of a sequence in `runs`, of `all_runs` that were searched."""
    steps = " > ".join(sequence.calls)
    return RecordDraft(
        RecordKind.TOOL_SEQUENCE,
        ("agent", agent),
        scoring.tool_sequence(len(sequence.calls), sequence.z, len(runs) / all_runs),
        {
            "calls": list(sequence.calls),
            "count": sequence.count,
            "expected": round(sequence.expected, 2),
            "z": round(sequence.z, 2),
            "sessions": [run.subject for run in runs],
        },
        cause=steps,
        key=steps,
    )


def _is_relevant(entry: LedgerEntry) -> bool:
    return entry.kind in READERS or entry.kind == TOOLS_USED


def _to_record(entry: LedgerEntry, draft: RecordDraft) -> LearningRecord:
    key = (draft.kind, draft.global_key) if draft.global_key else (entry.id, draft.kind, draft.key)
    scope_type, scope_id = draft.scope
    return LearningRecord(
        id=record_id(*key),
        at=entry.at,
        kind=draft.kind,
        source_label=draft.label,
        scope_type=scope_type,
        scope_id=scope_id,
        score=draft.score.score,
        reason=draft.score.reason,
        workspace=entry.workspace,
        agent=scope_id if scope_type == "agent" else draft.agent,
        session_id=draft.session_id,
        fact=entry.id,
        details=draft.details,
    )
