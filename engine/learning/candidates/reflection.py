"""Reflection (SPEC 5.1): turns ledger entries into learning records, and finds commands that agents repeat.

`entry_readers` reads single entries; here are sequences of commands over many sessions. A record's id is derived from
its entry and its subject, so that reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from engine.frozen import frozen
from engine.learning.candidates.entry_readers import READERS, Reading, Scope, share
from engine.learning.candidates.records import Records, Sources
from engine.model.adaptation import LearningRecord, RecordKind
from engine.model.text import count
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

MIN_LENGTH, MAX_LENGTH = 3, 5
"""Calls of a sequence."""

MIN_RUNS = 3
"""Minimum number of distinct sessions that must have a sequence."""

MIN_Z = 3.0
"""Minimum number of standard deviations above the sessions expected by chance."""

MAX_PROBABILITY = 0.01
"""Maximum probability that any sequence of its length occurs as often by chance."""

DOMINANT_SHARE = 2 / 3
"""A sequence must be in this share of the sessions that have it without its first or its last call: otherwise that
call is only frequent around it."""

EXEC = "exec:"
"""Prefix of calls that run a command, see `events.ToolsUsed`."""

Calls = tuple[str, ...]
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
    lines = [
        tuple(call if call.startswith(EXEC) else f"\0{number}:{index}" for index, call in enumerate(run))
        for number, run in enumerate(runs)
    ]
    chance = _Chance(lines)
    places = {length: _places(lines, length) for length in range(MIN_LENGTH - 1, MAX_LENGTH + 1)}
    sequences: list[CallSequence] = []
    used: set[tuple[int, int]] = set()
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        for calls, starts_by_run in sorted(places[length].items(), key=lambda item: _rank(*item)):
            unused = _unused_places(starts_by_run, length, used)
            is_repetition = any(call == following for call, following in pairwise(calls))  # agents often repeat a call
            if len(unused) < MIN_RUNS or is_repetition:
                continue
            most_runs_of_part = max(len(places[length - 1][calls[1:]]), len(places[length - 1][calls[:-1]]))
            if length > MIN_LENGTH and len(starts_by_run) < DOMINANT_SHARE * most_runs_of_part:
                continue
            if sequence := chance.test(calls, unused):
                sequences.append(sequence)
                used |= {
                    (run, index) for run, starts in unused.items() for start in starts
                    for index in range(start, start + length)
                }  # fmt: skip
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


def _places(lines: Sequence[Calls], length: int) -> dict[Calls, dict[int, list[int]]]:
    """All sequences of a length with their places; of places that overlap, the first."""
    by_calls: dict[Calls, dict[int, list[int]]] = defaultdict(dict)
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            starts = by_calls[line[start : start + length]].setdefault(number, [])
            if not starts or start >= starts[-1] + length:
                starts.append(start)
    return by_calls


def _rank(calls: Calls, places: Places) -> tuple[int, float, Calls]:
    """Sort key: the sequence of most runs; of parts of one longer sequence, the earlier one."""
    return -len(places), sum(starts[0] for starts in places.values()) / len(places), calls


def _unused_places(places: Places, length: int, used: set[tuple[int, int]]) -> dict[int, list[int]]:
    """The places none of whose calls is in a longer sequence; `used` are (run, index) of those."""
    unused: dict[int, list[int]] = {}
    for run, starts in places.items():
        free = [start for start in starts if used.isdisjoint((run, start + step) for step in range(length))]
        if free:
            unused[run] = free
    return unused


class _Chance:
    """Tests sequences against the same calls of each run in random order."""

    def __init__(self, lines: Sequence[Calls]) -> None:
        self._runs = [(Counter(line), len(line)) for line in lines]
        runs_with = Counter(call for counts, _ in self._runs for call in counts)
        self._common_calls = sum(runs >= MIN_RUNS for runs in runs_with.values())

    def test(self, calls: Calls, places: Places) -> CallSequence | None:
        """The sequence with these places if it occurs in more runs than by chance."""
        probabilities = [_probability(calls, *run) for run in self._runs]
        expected = sum(probabilities)
        spread = math.sqrt(sum(probability * (1 - probability) for probability in probabilities))
        z = (len(places) - expected) / spread if spread else 0.0
        if z < MIN_Z or poisson_tail(len(places), expected) * self._common_calls ** len(calls) > MAX_PROBABILITY:
            return None
        return CallSequence(calls, sum(map(len, places.values())), expected, z, tuple(sorted(places)))


def _probability(calls: Calls, counts: Mapping[str, int], total: int) -> float:
    """The probability that a run of `total` calls, so many of each, has a sequence in random order."""
    probability, used = 1.0, Counter[str]()
    for index, call in enumerate(calls):
        probability *= max(0, counts.get(call, 0) - used[call]) / max(1, total - index)
        used[call] += 1
    return 1 - (1 - probability) ** max(0, total - len(calls) + 1)


def poisson_tail(count: int, mean: float) -> float:
    """The Poisson probability of `count` or more where `mean` are expected. Above the mean, this is an upper bound for
    trials with different probabilities."""
    if count <= mean:
        return 1.0
    if mean <= 0:
        return 0.0
    # From the largest term on, which is the first one: nothing cancels, however small the sum is.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total = 0.0
    while term > total * 1e-12:
        total += term
        count += 1
        term *= mean / count
    return min(1.0, total)


# -- the reader of the ledger

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

    def __init__(self, database: Database, records: Records, *, ledger: Ledger, sources: Sources) -> None:
        self._database = database
        self._records = records
        self._sources = sources
        self._entry_cursor = LedgerCursor(ledger, ENTRY_CURSOR, lambda entry: entry.kind in READERS)
        self._call_cursor = LedgerCursor(ledger, CALL_CURSOR, lambda entry: entry.kind == TOOLS_USED)
        self._lock = threading.Lock()

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
            self._store_records(self._call_cursor, self._read_tool_calls)

    def _store_records(
        self, cursor: LedgerCursor, read: Callable[[Sequence[LedgerEntry]], Sequence[LearningRecord]]
    ) -> int:
        """Store what `read` makes of the new entries; returns the number of records."""
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
        for entry in entries:

            def count_before(label: str, scope: Scope, ledger_id: int = entry.id) -> int:
                return self._records.count_before(label, *scope, ledger_id) + unwritten[label, scope]

            new = list(READERS[entry.kind](Reading(entry, self._sources, count_before)))
            unwritten.update((each.source_label, (each.scope_type, each.scope_id)) for each in new)
            records += new
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
        entries = self._sources.entries_between(newest.at - SEQUENCE_SPAN, until, (TOOLS_USED,))
        of_agent = [entry for entry in entries if entry.id <= newest.id and entry.payload["agent"] == agent]
        return of_agent[-MAX_SESSIONS:]


def _sequence_record(
    reading: Reading, sequence: CallSequence, agent: str, runs: Sequence[LedgerEntry], all_runs: int
) -> LearningRecord:
    """The record of a sequence in `runs`, of `all_runs` that were searched: 40, 20 by how far beyond chance (z of 10 in
    full), 20 by the share of sessions that have it, 4 for each step."""
    calls, steps, in_runs = sequence.calls, " > ".join(sequence.calls), len(runs) / all_runs
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
    how = {"cause": steps, "key": steps, "session_id": reading.entry.subject}
    return reading.record(RecordKind.TOOL_SEQUENCE, ("agent", agent), parts, details, **how)
