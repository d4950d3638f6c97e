"""Reflection (SPEC 5.1): turns ledger entries into learning records.

`entry_readers` reads single entries; here are sequences of tool calls over many sessions. A record's id is derived from
its entry and its subject, so that reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from engine.learning.candidates import scoring
from engine.learning.candidates.entry_readers import READERS, RecordDraft, Scope
from engine.learning.candidates.records import Records, record_id
from engine.learning.candidates.sequences import MIN_RUNS, CallSequence, find_sequences
from engine.learning.candidates.sources import Sources
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

log = logging.getLogger(__name__)

CURSOR = "adaptation.reflection"
SEQUENCE_CURSOR = "adaptation.sequences"
CALLS = "ToolsUsed"

MAX_SESSIONS, MAX_CALLS = 80, 200
"""Maximum number of an agent's latest sessions, and of calls of each, that are searched for sequences."""

SEQUENCE_SPAN = timedelta(days=30)


class Reflection:
    """Reads the ledger into records. Callable from any thread; one runs at a time."""

    def __init__(self, database: Database, records: Records, *, ledger: Ledger, sources: Sources) -> None:
        self._database = database
        self._records = records
        self._sources = sources
        self._entries = LedgerCursor(ledger, CURSOR, _is_relevant)
        self._sequences = LedgerCursor(ledger, SEQUENCE_CURSOR, lambda entry: entry.kind == CALLS)
        self._busy = threading.Lock()
        self._record_count = 0
        self.calls_waiting = False
        """Whether there are tool calls since the last `find_sequences`."""

    def catch_up(self) -> int:
        """Read the new ledger entries; returns the number of records. 0 while another thread does it."""
        if not self._busy.acquire(blocking=False):
            return 0
        try:
            self._record_count = 0
            self._entries.each(self._take)
            return self._record_count
        finally:
            self._busy.release()

    def find_sequences(self) -> int:
        """Search the new tool calls for sequences; returns the number of records. Slow."""
        with self._busy:
            self._record_count, self.calls_waiting = 0, False
            self._sequences.each(self._take_calls)
            return self._record_count

    def _take(self, entries: Sequence[LedgerEntry]) -> None:
        unwritten: Counter[tuple[str, Scope]] = Counter()  # records that are not stored yet
        records = []
        for entry in entries:
            if entry.kind == CALLS:
                self.calls_waiting = True
                continue

            def count_before(label: str, scope: Scope, before: int = entry.id) -> int:
                return self._records.count_before(label, *scope, before) + unwritten[label, scope]

            try:
                new = list(READERS[entry.kind](entry, self._sources, count_before))
            except (KeyError, TypeError, ValueError):  # written by an older version: skip it
                log.warning("fact %d, a %s, says too little to learn from", entry.id, entry.kind, exc_info=True)
                continue
            unwritten.update((each.label, each.scope) for each in new)
            records += [_record(entry, each) for each in new]
        self._store(records)

    def _take_calls(self, entries: Sequence[LedgerEntry]) -> None:
        """Search the recent sessions of each agent once, up to its newest of these entries."""
        newest = {str(entry.payload.get("agent", "")): entry for entry in entries}
        records = []
        for agent, last in newest.items():
            runs = self._runs(last, agent) if agent else []
            if len(runs) < MIN_RUNS:
                continue
            for sequence in find_sequences([run.payload["calls"][:MAX_CALLS] for run in runs]):
                supporting_records = [runs[number] for number in sequence.runs]
                sessions = [run.subject for run in supporting_records]
                records += [
                    _record(run, _sequence(sequence, sessions, len(runs), agent, run.subject))
                    for run in supporting_records
                    if run.id >= entries[0].id
                ]
        self._store(records)

    def _runs(self, last: LedgerEntry, agent: str) -> list[LedgerEntry]:
        """The entries of the agent's recent sessions up to `last`, oldest first."""
        entries = self._sources.entries_between(last.at - SEQUENCE_SPAN, last.at + timedelta(microseconds=1), (CALLS,))
        return [entry for entry in entries if entry.id <= last.id and entry.payload.get("agent") == agent][
            -MAX_SESSIONS:
        ]

    def _store(self, records: Sequence[LearningRecord]) -> None:
        if records:
            self._database.write(lambda tx: self._records.add(tx, records))
            self._record_count += len(records)


def _sequence(sequence: CallSequence, sessions: Sequence[str], runs: int, agent: str, session_id: str) -> RecordDraft:
    steps = " > ".join(sequence.calls)
    return RecordDraft(
        RecordKind.TOOL_SEQUENCE,
        f"tool_sequence/{steps}",
        ("agent", agent),
        scoring.tool_sequence(len(sequence.calls), sequence.z, len(sequence.runs) / runs),
        key=steps,
        agent=agent,
        session_id=session_id,
        details={
            "calls": list(sequence.calls),
            "count": sequence.count,
            "expected": round(sequence.expected, 2),
            "z": round(sequence.z, 2),
            "sessions": list(sessions),
        },
    )


def _is_relevant(entry: LedgerEntry) -> bool:
    return entry.kind in READERS or entry.kind == CALLS


def _record(entry: LedgerEntry, new: RecordDraft) -> LearningRecord:
    key = (new.kind.value, new.key) if new.is_key_unique else (entry.id, new.kind.value, new.key)
    return LearningRecord(
        id=record_id(*key),
        at=entry.at,
        kind=new.kind,
        source_label=new.label,
        scope_type=new.scope[0],
        scope_id=new.scope[1],
        score=new.score.score,
        reason=new.score.reason,
        workspace=entry.workspace,
        agent=new.agent,
        session_id=new.session_id,
        fact=entry.id,
        details=new.details,
    )
