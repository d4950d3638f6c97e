"""Reflection (SPEC 5.1): turns ledger entries into learning records.

`entry_readers` reads single entries; here are sequences of tool calls over many sessions. A record's id is derived from
its entry and its subject, so that reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from engine.frozen import frozen
from engine.learning.candidates import scoring
from engine.learning.candidates.entry_readers import READERS, EntryContext, RecordDraft, Scope
from engine.learning.candidates.records import Records, Sources, record_id
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

# Finds sequences of tool calls that agents repeat in the same order (SPEC 5.1, 5.2). Pure.
#
# A sequence has 3 to 5 consecutive calls. It must occur in more sessions than if each session's own calls were in
# random order. Sessions are counted, not occurrences, so a single session that loops proves nothing. A longer sequence
# must also be more than a shorter one followed by a frequent call; if it is, it replaces the shorter ones in the places
# it covers.


MIN_LENGTH, MAX_LENGTH = 3, 5
"""Calls of a sequence."""

MIN_RUNS = 3
"""Minimum number of distinct sessions that must have a sequence."""

MIN_Z = 3.0
"""Minimum number of standard deviations above the sessions expected by chance."""

MAX_PROBABILITY = 0.01
"""Maximum probability that any sequence of its length occurs as often by chance."""

DOMINANT_SHARE = 2 / 3
"""A longer sequence replaces its part, whatever its probability, if this share of the runs with the part have it."""

EXEC = "exec:"
"""Prefix of calls that run a command, see `events.ToolsUsed`."""

Calls = tuple[str, ...]
Positions = dict[int, list[int]]
"""The positions where a sequence begins, by the number of the run."""


@frozen
class CallSequence:
    """A sequence of calls that occurs more often than by chance."""

    calls: tuple[str, ...]
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
    calls separate sequences, because a flow cannot run them."""
    calls = _CallIndex(
        [
            [call if call.startswith(EXEC) else f"\0{number}:{place}" for place, call in enumerate(run)]
            for number, run in enumerate(runs)
        ]
    )
    sequences: list[CallSequence] = []
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        # An overlap counts for the sequence in more runs; of equal ones, for the earlier one.
        surprising = {
            gram: positions
            for gram, positions in calls.frequent_sequences(length).items()
            if calls.is_surprising(gram, positions)
        }
        for gram in sorted(
            surprising, key=lambda gram: (-len(surprising[gram]), calls.mean_start(surprising[gram]), gram)
        ):
            positions = calls.free_positions(gram, surprising[gram])
            if len(positions) < MIN_RUNS or not calls.is_surprising(gram, positions):
                continue
            expected, z = calls.expectation(gram, len(positions))
            if z >= MIN_Z:
                sequences.append(
                    CallSequence(gram, sum(map(len, positions.values())), expected, z, tuple(sorted(positions)))
                )
                calls.mark_taken(length, positions)
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


class _CallIndex:
    """The calls of all runs, and which of their positions belong to a sequence already."""

    def __init__(self, runs: Sequence[Sequence[str]]) -> None:
        self._runs = [tuple(run) for run in runs]
        self._counts: list[Mapping[str, int]] = [Counter(run) for run in self._runs]
        self._runs_with: dict[str, set[int]] = defaultdict(set)
        for number, counts in enumerate(self._counts):
            for call in counts:
                self._runs_with[call].add(number)
        # Only calls of this many runs can be part of a sequence.
        self._words = sum(len(who) >= MIN_RUNS for who in self._runs_with.values())
        self._taken: dict[int, set[int]] = defaultdict(set)
        self._positions: dict[int, dict[Calls, Positions]] = {}
        self._chances: dict[Calls, Sequence[float]] = {}

    def positions(self, length: int) -> dict[Calls, Positions]:
        """All runs of calls of a length with their positions; of positions that overlap, the first."""
        if length not in self._positions:
            by_gram: dict[Calls, Positions] = {}
            for number, run in enumerate(self._runs):
                for start in range(len(run) - length + 1):
                    starts = by_gram.setdefault(run[start : start + length], {}).setdefault(number, [])
                    if not starts or start >= starts[-1] + length:
                        starts.append(start)
            self._positions[length] = by_gram
        return self._positions[length]

    def frequent_sequences(self, length: int) -> dict[Calls, Positions]:
        """The sequences in enough runs in which no call follows itself: agents often repeat a single call."""
        return {
            gram: positions
            for gram, positions in self.positions(length).items()
            if len(positions) >= MIN_RUNS and all(call != following for call, following in pairwise(gram))
        }

    def is_surprising(self, gram: Calls, positions: Positions) -> bool:
        """Whether neither chance alone explains it, nor chance around a part of it."""
        length, runs = len(gram), len(positions)
        if poisson_tail(runs, sum(self._probabilities(gram))) * self._words**length > MAX_PROBABILITY:
            return False
        for less in range(1, length - 1):
            for at in range(less + 1):
                part, rest = gram[at : at + length - less], gram[:at] + gram[at + length - less :]
                is_dominant = runs >= DOMINANT_SHARE * len(self.positions(length - less)[part])
                if (
                    not is_dominant
                    and poisson_tail(runs, self._expected_around(part, rest)) * self._words**less > MAX_PROBABILITY
                ):
                    return False
        return True

    def expectation(self, gram: Calls, runs: int) -> tuple[float, float]:
        """Number of runs that would have it by chance, and z of the number of runs that have it."""
        likely = self._probabilities(gram)
        expected = sum(likely)
        spread = math.sqrt(sum(chance * (1 - chance) for chance in likely))
        return expected, (runs - expected) / spread if spread else 0.0

    def mean_start(self, positions: Positions) -> tuple[float, int]:
        """Its mean first position, to choose between parts of one longer sequence."""
        return sum(starts[0] for starts in positions.values()) / len(positions), min(positions)

    def free_positions(self, gram: Calls, positions: Positions) -> Positions:
        """Its positions that do not overlap an earlier sequence."""
        free = {
            number: [at for at in starts if self._taken[number].isdisjoint(range(at, at + len(gram)))]
            for number, starts in positions.items()
        }
        return {number: starts for number, starts in free.items() if starts}

    def mark_taken(self, length: int, positions: Positions) -> None:
        """Mark these positions as part of a sequence."""
        for number, starts in positions.items():
            for at in starts:
                self._taken[number].update(range(at, at + length))

    def _probabilities(self, gram: Calls) -> Sequence[float]:
        """For each run with these calls, the probability that it has `gram` if its calls were in random order."""
        key = tuple(sorted(gram))
        if key not in self._chances:
            runs = set.intersection(*(self._runs_with[call] for call in set(gram)))
            self._chances[key] = [self._probability(key, number) for number in sorted(runs)]
        return self._chances[key]

    def _probability(self, key: Calls, number: int) -> float:
        counts, calls = self._counts[number], len(self._runs[number])
        if calls < len(key):
            return 0.0
        share = _chance_of_order(key, counts, Counter(), calls)
        return -math.expm1((calls - len(key) + 1) * math.log1p(-share)) if share < 1 else 1.0

    def _expected_around(self, part: Calls, rest: Calls) -> float:
        """Number of runs that would have `part` with `rest` around it, if the other calls were in random order."""
        expected = 0.0
        for number, starts in self.positions(len(part))[part].items():
            counts, remaining = self._counts[number], len(self._runs[number]) - len(part)
            share = _chance_of_order(rest, counts, Counter(part), remaining)
            expected += 1 - (1 - share) ** len(starts)
        return expected


def _chance_of_order(calls: Calls, counts: Mapping[str, int], used: Counter[str], remaining: int) -> float:
    """The probability that calls drawn from a run in random order are `calls`: it has `counts` of each, of which `used`
    are taken, and `remaining` are left."""
    chance = 1.0
    for place, call in enumerate(calls):
        chance *= max(0, counts[call] - used[call]) / (remaining - place) if remaining > place else 0.0
        used[call] += 1
    return chance


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
