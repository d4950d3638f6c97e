"""Reflection (SPEC 5.1): facts of the ledger become learning records, each once, and once again harmlessly.

What a fact lacks is asked of `Sources`; the rest is `weighing`. A record's id comes from its fact and what it is about,
so that a fact which is read again after a crash writes what is there already.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from engine.learning.candidates import weighing
from engine.learning.candidates.readers import READERS, Found, Scope
from engine.learning.candidates.records import Records, record_id
from engine.learning.candidates.sequences import LEAST_RUNS, FoundSequence, detect
from engine.learning.candidates.sources import Sources
from engine.model.adaptation import LearningRecord, RecordKind
from engine.storage.database import Database
from engine.storage.facts_read import Fact, Facts, FactsRead

log = logging.getLogger(__name__)

CURSOR = "adaptation.reflection"
SEQUENCES = "adaptation.sequences"
CALLS = "ToolsUsed"

MOST_RUNS, MOST_CALLS = 80, 200
"""So many of an agent's latest sessions, and so many calls of each, are looked through for sequences."""

SEQUENCE_SPAN = timedelta(days=30)


class Reflection:
    """Follows the ledger. Callable from any thread; one at a time."""

    def __init__(self, database: Database, records: Records, *, ledger: Facts, sources: Sources) -> None:
        self._database = database
        self._records = records
        self._sources = sources
        self._facts = FactsRead(database, ledger, CURSOR, _concerns)
        self._sequences = FactsRead(database, ledger, SEQUENCES, lambda fact: fact.kind == CALLS)
        self._busy = threading.Lock()
        self._made = 0
        self.calls_waiting = False
        """Whether agents called something since `look_for_sequences`."""

    def catch_up(self) -> int:
        """Take in all facts since the last time; how many records came of them. 0 when another thread is at it."""
        if not self._busy.acquire(blocking=False):
            return 0
        try:
            self._made = 0
            self._facts.each(self._take)
            return self._made
        finally:
            self._busy.release()

    def look_for_sequences(self) -> int:
        """Look through what agents called since the last time; how many records came of it. Takes a moment."""
        with self._busy:
            self._made, self.calls_waiting = 0, False
            self._sequences.each(self._take_calls)
            return self._made

    def _take(self, facts: Sequence[Fact]) -> None:
        here: Counter[tuple[str, Scope]] = Counter()  # what is not written yet
        records = []
        for fact in facts:
            if fact.kind == CALLS:
                self.calls_waiting = True
                continue

            def before(label: str, scope: Scope, fact: Fact = fact) -> int:
                return self._records.before(label, *scope, fact.id) + here[label, scope]

            try:
                found = list(READERS[fact.kind](fact, self._sources, before))
            except (KeyError, TypeError, ValueError):  # of a version that said less: passed over, not in the way
                log.warning("fact %d, a %s, says too little to learn from", fact.id, fact.kind, exc_info=True)
                continue
            here.update((one.label, one.scope) for one in found)
            records += [_record(fact, one) for one in found]
        self._store(records)

    def _take_calls(self, facts: Sequence[Fact]) -> None:
        """Of each agent its sessions of late are looked through once, up to its newest of these facts."""
        newest = {str(fact.payload.get("agent", "")): fact for fact in facts}
        records = []
        for agent, last in newest.items():
            runs = self._runs(last, agent) if agent else []
            for one in detect([run.payload["calls"][:MOST_CALLS] for run in runs]) if len(runs) >= LEAST_RUNS else ():
                having = [runs[number] for number in one.runs]
                sessions = [run.subject for run in having]
                records += [
                    _record(run, _sequence(one, sessions, len(runs), agent, run.subject))
                    for run in having
                    if run.id >= facts[0].id
                ]
        self._store(records)

    def _runs(self, last: Fact, agent: str) -> list[Fact]:
        """The calls of the agent's sessions of late up to this one, oldest first."""
        told = self._sources.between(last.at - SEQUENCE_SPAN, last.at + timedelta(microseconds=1), (CALLS,))
        return [one for one in told if one.id <= last.id and one.payload.get("agent") == agent][-MOST_RUNS:]

    def _store(self, records: Sequence[LearningRecord]) -> None:
        if records:
            self._database.write(lambda tx: self._records.add(tx, records))
            self._made += len(records)


def _sequence(one: FoundSequence, sessions: Sequence[str], runs: int, agent: str, session_id: str) -> Found:
    steps = " > ".join(one.calls)
    return Found(
        RecordKind.TOOL_SEQUENCE,
        f"tool_sequence/{steps}",
        ("agent", agent),
        weighing.tool_sequence(len(one.calls), one.z, len(one.runs) / runs),
        key=steps,
        agent=agent,
        session_id=session_id,
        details={
            "calls": list(one.calls),
            "count": one.count,
            "expected": round(one.expected, 2),
            "z": round(one.z, 2),
            "sessions": list(sessions),
        },
    )


def _concerns(fact: Fact) -> bool:
    return fact.kind in READERS or fact.kind == CALLS


def _record(fact: Fact, one: Found) -> LearningRecord:
    own = (one.kind.value, one.key) if one.whole_key else (fact.id, one.kind.value, one.key)
    return LearningRecord(
        id=record_id(*own),
        at=fact.at,
        kind=one.kind,
        source_label=one.label,
        scope_type=one.scope[0],
        scope_id=one.scope[1],
        score=one.weight.score,
        reason=one.weight.reason,
        workspace=fact.workspace,
        agent=one.agent,
        session_id=one.session_id,
        fact=fact.id,
        details=one.details,
    )
