"""Reflection (SPEC 5.1): reads new ledger entries into learning records, which say what happened from which an agent
could learn, each with a score, and stores them in a table.

`entry_readers` reads single entries. `find_sequences` finds commands that an agent repeats over many sessions, more
often than by chance. The id of a record is derived from its entry and its subject, so reading an entry again after a
crash adds nothing. `evaluation` says what the records mean for candidates.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field

from engine.clock import Clock
from engine.frozen import frozen
from engine.inference import share
from engine.learning.candidates import Sources
from engine.learning.candidates.entry_readers import READER_OF_KIND, EntryReading, RecordIdentity, RecordScope
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


# -- the table of records


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


MAX_PER_SCOPE = 500
"""Maximum number of records of one scope that are read, the newest first."""

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


# -- from the ledger to the table


class Reflection:
    """Reads the ledger into records. Callable from any thread; one runs at a time."""

    def __init__(self, database: Database, records: Records, *, clock: Clock, ledger: Ledger, sources: Sources) -> None:
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
    scope = ("agent", reading.entry.payload["agent"])
    return reading.record(RecordKind.TOOL_SEQUENCE, scope, parts, details, RecordIdentity(cause=steps, key=steps))


# -- sequences of calls

MIN_LENGTH, MAX_LENGTH = 3, 5
"""Minimum and maximum number of calls of a sequence."""

MIN_RUNS = 3
"""Minimum number of distinct sessions that must have a sequence."""

EXEC_PREFIX = "exec:"
"""Prefix of calls that run a command, see `events.ToolsUsed`."""

Calls = tuple[str, ...]
"""The calls of a sequence or of a run, in order."""

Places = Mapping[int, Sequence[int]]
"""The indexes where a sequence begins, by the number of the run."""


@frozen
class CallSequence:
    """A sequence of calls that occurs more often than by chance."""

    calls: Calls
    count: int
    """Number of occurrences without overlaps."""
    expected: float
    """Number of runs that would have it by chance."""
    z: float
    """Standard deviations between the number of runs and `expected`."""
    runs: tuple[int, ...]
    """The numbers of the runs that have it, in ascending order."""


def find_sequences(runs: Sequence[Sequence[str]]) -> Sequence[CallSequence]:
    """The repeated sequences of commands in `runs` (the calls of one session each, in order), highest `z` first. Other
    calls separate sequences, because a flow cannot run them.

    Sessions are counted, not occurrences, so a single session that loops proves nothing. A sequence must occur in more
    of them than if each session's own calls were in random order. The longest comes first; shorter ones are searched in
    the calls that are left.
    """
    lines = [_separate_commands(run, number) for number, run in enumerate(runs)]
    counts = [Counter(line) for line in lines]
    places = {length: _find_places(lines, length) for length in range(MIN_LENGTH - 1, MAX_LENGTH + 1)}
    sequences: list[CallSequence] = []
    used_calls: set[tuple[int, int]] = set()  # (number of the run, index of the call)
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        for calls in _select_repeated(places, length):
            unused_places = _leave_out(places[length][calls], length, used_calls)
            if sequence := _test_against_chance(calls, unused_places, counts):
                sequences.append(sequence)
                used_calls |= {
                    (run, start + step)
                    for run, starts in unused_places.items()
                    for start in starts
                    for step in range(length)
                }
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


def _separate_commands(run: Sequence[str], number: int) -> Calls:
    """The calls of a run. A call that is no command becomes a value that occurs only once, so that no repeated sequence
    goes through it."""
    return tuple(call if call.startswith(EXEC_PREFIX) else f"\0{number}:{index}" for index, call in enumerate(run))


def _find_places(lines: Sequence[Calls], length: int) -> dict[Calls, dict[int, list[int]]]:
    """All sequences of a length with their places. If places overlap, only the first of them counts."""
    by_calls: dict[Calls, dict[int, list[int]]] = defaultdict(dict)
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            starts = by_calls[line[start : start + length]].setdefault(number, [])
            if not starts or start >= starts[-1] + length:
                starts.append(start)
    return by_calls


def _select_repeated(places: Mapping[int, Mapping[Calls, Places]], length: int) -> list[Calls]:
    """The sequences of a length that are in enough runs: those in most runs first, and of parts of one longer sequence
    the earlier one. `places` has the places of all sequences, by length."""

    def rank(calls: Calls) -> tuple[int, float, Calls]:
        starts_by_run = places[length][calls]
        mean_start = sum(starts[0] for starts in starts_by_run.values()) / len(starts_by_run)
        return -len(starts_by_run), mean_start, calls

    repeated = [
        calls
        for calls, starts_by_run in places[length].items()
        if len(starts_by_run) >= MIN_RUNS
        and not any(call == following for call, following in pairwise(calls))  # agents often repeat a call
    ]
    if length > MIN_LENGTH:
        repeated = [calls for calls in repeated if _is_dominant(calls, places)]
    return sorted(repeated, key=rank)


DOMINANT_SHARE = 2 / 3
"""A sequence must be in this share of the sessions that have it without its first or its last call: otherwise that
call is only frequent around it."""


def _is_dominant(calls: Calls, places: Mapping[int, Mapping[Calls, Places]]) -> bool:
    """Whether enough of the runs that have a sequence without its first or its last call have all of it
    (`DOMINANT_SHARE`)."""
    shorter = places[len(calls) - 1]
    most_runs_of_part = max(len(shorter[calls[1:]]), len(shorter[calls[:-1]]))
    return len(places[len(calls)][calls]) >= DOMINANT_SHARE * most_runs_of_part


def _leave_out(places: Places, length: int, used_calls: set[tuple[int, int]]) -> Places:
    """The places of a sequence of this length that have no call of a longer sequence."""
    unused = {
        run: [start for start in starts if used_calls.isdisjoint((run, start + step) for step in range(length))]
        for run, starts in places.items()
    }
    return {run: starts for run, starts in unused.items() if starts}


MIN_DEVIATIONS = 3.0
"""Minimum number of standard deviations above the sessions expected by chance."""

MAX_PROBABILITY = 0.01
"""Maximum probability that any sequence of its length occurs as often by chance."""


def _test_against_chance(calls: Calls, places: Places, runs: Sequence[Counter[str]]) -> CallSequence | None:
    """The sequence with these places if it occurs in more `runs` than by chance. `runs` are the numbers of each call in
    each run: by chance means that they are in random order."""
    if len(places) < MIN_RUNS:
        return None
    probabilities = [_estimate_probability(calls, run) for run in runs]
    expected = sum(probabilities)
    spread = math.sqrt(sum(probability * (1 - probability) for probability in probabilities))
    z = (len(places) - expected) / spread if spread else 0.0
    if z < MIN_DEVIATIONS:
        return None
    runs_with = Counter(call for run in runs for call in run)
    possible_sequences = sum(number >= MIN_RUNS for number in runs_with.values()) ** len(calls)
    if compute_poisson_tail(len(places), expected) * possible_sequences > MAX_PROBABILITY:
        return None
    return CallSequence(calls, sum(map(len, places.values())), expected, z, tuple(sorted(places)))


def _estimate_probability(calls: Calls, run: Counter[str]) -> float:
    """The probability that a run with these numbers of each call has a sequence in random order."""
    probability, total = 1.0, run.total()
    for index, call in enumerate(calls):
        probability *= max(0, run[call] - calls[:index].count(call)) / max(1, total - index)
    return 1 - (1 - probability) ** max(0, total - len(calls) + 1)


def compute_poisson_tail(count: int, mean: float) -> float:
    """The Poisson probability of `count` or more where `mean` are expected, 0 < `mean` < `count`. This is an upper
    bound for trials with different probabilities."""
    # From the largest term on, which is the first one: nothing cancels, however small the sum is.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total = 0.0
    while term > total * 1e-12:
        total += term
        count += 1
        term *= mean / count
    return min(1.0, total)
