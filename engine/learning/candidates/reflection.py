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
"""Where a sequence begins, by the number of the run."""


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
    of them than if each session's own calls were in random order. The longest comes first, and takes its places.
    """
    lines = [
        tuple(call if call.startswith(EXEC) else f"\0{number}:{place}" for place, call in enumerate(run))
        for number, run in enumerate(runs)
    ]
    counts = [Counter(line) for line in lines]
    common = sum(number >= MIN_RUNS for number in Counter(call for each in counts for call in each).values())
    found: list[CallSequence] = []
    taken: set[tuple[int, int]] = set()
    grams = {length: _places(lines, length) for length in range(MIN_LENGTH - 1, MAX_LENGTH + 1)}
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        for gram, places in sorted(grams[length].items(), key=lambda item: _rank(*item)):
            free = {
                number: kept
                for number, starts in places.items()
                if (kept := [at for at in starts if not any((number, at + step) in taken for step in range(length))])
            }
            repeats = any(call == following for call, following in pairwise(gram))  # agents often repeat one call
            parts = max(len(grams[length - 1][gram[1:]]), len(grams[length - 1][gram[:-1]]))
            if len(free) < MIN_RUNS or repeats or (length > MIN_LENGTH and len(places) < DOMINANT_SHARE * parts):
                continue
            chances = [_chance(gram, each, len(line)) for each, line in zip(counts, lines, strict=True)]
            expected, spread = sum(chances), math.sqrt(sum(chance * (1 - chance) for chance in chances))
            z = (len(free) - expected) / spread if spread else 0.0
            if z >= MIN_Z and poisson_tail(len(free), expected) * common**length <= MAX_PROBABILITY:
                number = sum(map(len, free.values()))
                found.append(CallSequence(gram, number, expected, z, tuple(sorted(free))))
                taken |= {(run, at + step) for run, starts in free.items() for at in starts for step in range(length)}
    return sorted(found, key=lambda sequence: (-sequence.z, sequence.calls))


def _places(lines: Sequence[Calls], length: int) -> dict[Calls, dict[int, list[int]]]:
    """All sequences of a length with their places; of places that overlap, the first."""
    by_gram: dict[Calls, dict[int, list[int]]] = defaultdict(dict)
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            starts = by_gram[line[start : start + length]].setdefault(number, [])
            if not starts or start >= starts[-1] + length:
                starts.append(start)
    return by_gram


def _rank(gram: Calls, places: Places) -> tuple[int, float, Calls]:
    """Sort key: the sequence of most runs; of parts of one longer sequence, the earlier one."""
    return -len(places), sum(starts[0] for starts in places.values()) / len(places), gram


def _chance(gram: Calls, counts: Mapping[str, int], calls: int) -> float:
    """The probability that a run with so many calls of each has `gram` if they were in random order."""
    share, used = 1.0, Counter[str]()
    for place, call in enumerate(gram):
        share *= max(0, counts.get(call, 0) - used[call]) / max(1, calls - place)
        used[call] += 1
    return 1 - (1 - share) ** max(0, calls - len(gram) + 1)


def poisson_tail(count: int, mean: float) -> float:
    """The Poisson probability of `count` or more where `mean` are expected. Above the mean, this is an upper bound for
    trials with different probabilities."""
    if count <= mean:
        return 1.0
    if mean <= 0:
        return 0.0
    # From the largest term on, which is the first one: nothing cancels, however small the sum is.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total, at = 0.0, count
    while term > total * 1e-12:
        total += term
        at += 1
        term *= mean / at
    return min(1.0, total)


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
