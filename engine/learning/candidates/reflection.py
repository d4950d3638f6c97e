"""Reflection (SPEC 5.1): turns ledger entries into learning records.

`READERS` has a function for each kind of entry; `Sources` supplies what an entry lacks, and `weighing` the score. A
record's id is derived from its entry and its subject, so that reading an entry again after a crash adds nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from typing import Any

from engine.frozen import frozen
from engine.learning.candidates import weighing
from engine.learning.candidates.records import Records, record_id
from engine.learning.candidates.sequences import MIN_RUNS, FoundSequence, detect
from engine.learning.candidates.sources import Sources
from engine.learning.candidates.transcripts import quoted
from engine.learning.candidates.weighing import Weight, difference, error_kind, slug
from engine.model import PermissionAnswer
from engine.model.adaptation import LearningRecord, RecordKind
from engine.model.lessons import added, distil
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

MAX_TESTS = 5
"""Maximum number of tests of one session that become records, the first by name."""

MAX_ADDED = 5
"""Sentences of one edit."""

Scope = tuple[str, str]
Before = Callable[[str, Scope], int]
"""How often a label came before in a scope."""


@frozen
class NewRecord:
    """A record before it is one. `key` tells it from others of its fact; with `whole_key` that alone makes its id."""

    kind: RecordKind
    label: str
    scope: Scope
    weight: Weight
    key: str = ""
    agent: str = ""
    session_id: str = ""
    whole_key: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


def _test_records(
    fact: LedgerEntry, kind: RecordKind, weight: Weight, tests: list[str], **more: Any
) -> Iterator[NewRecord]:
    """A record for each test, for what recurs is the test, and whoever works in its workspace meets it."""
    for test in sorted(tests)[:MAX_TESTS]:
        details = {"test": test, "failing": sorted(tests), **more.get("details", {})}
        scope = ("workspace", fact.workspace)
        yield NewRecord(kind, f"{kind}/{test}", scope, weight, key=test, **more | {"details": details})


def _healing(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    healed = fact.kind == "ValidationHealed"
    weigh, kind = weighing.failed_tdd, RecordKind.FAILED_TDD
    if healed:
        weigh, kind = weighing.successful_heal, RecordKind.SUCCESSFUL_HEAL
    tests = list(map(str, payload["failing"]))
    details = {name: payload[name] for name in ("attempts", "cost")} | (
        {} if healed else {"gave_up": payload["reason"]}
    )
    about = {"agent": str(payload["agent"]), "session_id": fact.subject, "details": details}
    yield from _test_records(fact, kind, weigh(payload["attempts"], payload["cost"], len(tests)), tests, **about)


def _retried(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    weight = weighing.repeated_retry(payload["attempts"], payload["cost"])
    yield _agent_record(
        RecordKind.REPEATED_RETRY,
        payload["agent"],
        weight,
        fact.subject,
        _select(payload, "attempts", "cost", "failing"),
    )


def _overlapped(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    weight = weighing.task_conflict(len(payload["files"]), len(payload["conflicting"]))
    details = _select(payload, "files", "conflicting", "other")
    details |= {"change_set": fact.subject, "other_session": payload["other_session_id"]}
    yield _agent_record(RecordKind.TASK_CONFLICT, payload["agent"], weight, payload["session_id"], details)


def _over_budget(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    """One incident a day: an agent whose budget is spent is held back again and again."""
    spent, budget, day = fact.payload["spent"], fact.payload["budget"], sources.day(fact.at)
    details = {"spent": spent, "budget": budget, "day": day}
    weight = weighing.budget_incident(spent, budget)
    record = _agent_record(RecordKind.BUDGET_INCIDENT, fact.subject, weight, "", details, f"{fact.subject}/{day}")
    yield replace(record, whole_key=True)


def _approved(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    by = fact.payload["decided_by"]
    if by == "autonomy":
        return
    edit = sources.edited(fact.subject) if fact.payload.get("edited") else None
    if edit is None:
        yield _approval(fact, "card", weighing.approval(weighing.APPROVED, "a card was approved unchanged"), by=by)
        return
    for number, sentence in enumerate(added(edit.original, edit.edited)[:MAX_ADDED]):
        yield NewRecord(
            RecordKind.HUMAN_APPROVAL,
            f"human_approval/edited:{edit.channel}:{slug(distil(sentence).text)}",
            ("agent", edit.agent),
            weighing.edited_approval(difference(edit.original, edit.edited), len(sentence.split())),
            key=f"edit {number}",
            agent=edit.agent,
            session_id=edit.session,
            details={
                "card": fact.subject,
                "original": edit.original[:500],
                "edited": edit.edited[:500],
                "added": sentence[:300],
                "kind": edit.kind,
                "channel": edit.channel,
                "by": by,
            },
        )


def _permitted(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    if not PermissionAnswer(payload["answer"]).allows or payload.get("by"):  # `by`: an earlier answer that counts again
        return
    lasts = payload["answer"] == PermissionAnswer.ALLOW_SESSION
    points = weighing.LASTING_PERMISSION if lasts else weighing.PERMISSION
    words = "a tool was allowed for the whole session" if lasts else "a tool was allowed once"
    record = _approval(fact, f"permission:{payload['tool']}", weighing.approval(points, words), tool=payload["tool"])
    yield replace(record, session_id=payload["session_id"])


def _landed(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    if not fact.payload.get("left"):  # else it is not known yet what becomes of the rest
        yield from _changes_taken(fact, sources, fact.payload["files"])


def _branched(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    if files := fact.payload.get("landed"):
        yield from _changes_taken(fact, sources, files)


def _changes_taken(fact: LedgerEntry, sources: Sources, files: int) -> Iterator[NewRecord]:
    """The operator took so many files of it; and tests that it turned green were healed. Once a change set."""
    session_id = fact.payload["session_id"]
    approval = _approval(fact, "change_set", weighing.landed(files), files=files)
    yield replace(approval, session_id=session_id, key=fact.subject, whole_key=True)
    repair = sources.healed_tests(session_id)
    if repair is not None:
        causes = sorted({cause for cause in repair.tests.values() if cause})
        details = {"causes": causes, "project": repair.project, "landed": fact.subject, "cost": repair.cost}
        about = {"agent": repair.agent, "session_id": session_id, "details": details}
        weight = weighing.successful_heal(1, repair.cost, len(repair.tests))
        for record in _test_records(fact, RecordKind.SUCCESSFUL_HEAL, weight, list(repair.tests), **about):
            yield replace(record, key=f"{fact.subject}/{record.key}", whole_key=True)


def _fact_kept(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    para_fact = sources.kept_fact(fact.subject) if fact.payload["by"] == "operator" else None
    if para_fact is None or not para_fact.fact:
        return
    what = f"fact:{slug(para_fact.category) or 'other'}"
    number = before(f"human_approval/{what}", ("workspace", fact.workspace))
    details = {"kept": fact.subject, "text": para_fact.fact, "trust": para_fact.trust.value}
    yield _approval(fact, what, weighing.kept_fact(para_fact.trust, number, quoted(para_fact.fact, 120)), **details)


def _approval(fact: LedgerEntry, what: str, weight: Weight, **details: Any) -> NewRecord:
    scope = ("workspace", fact.workspace)
    return NewRecord(RecordKind.HUMAN_APPROVAL, f"human_approval/{what}", scope, weight, details=details)


def _erred(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    agent, tool, message = (str(fact.payload[name]) for name in ("agent", "tool", "message"))
    points, words, signature, explained = error_kind(tool, message)
    label = f"agent_error/{tool}/{signature}"
    weight = weighing.agent_error(points, words, explained=explained, before=before(label, ("agent", agent)))
    details = {"tool": tool, "message": message}
    record = _agent_record(RecordKind.AGENT_ERROR, agent, weight, fact.subject, details, f"{tool}/{message}")
    yield replace(record, label=label)


def _flushed(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    columns = (fact.payload[name] for name in ("bubbles", "patterns", "agents", "confidences", "importances"))
    for bubble, pattern, agent, confidence, importance in zip(*columns, strict=True):
        weight = weighing.successful_bubble(confidence, importance)
        details = {"bubble": bubble, "leader": fact.subject, "pattern": pattern}
        yield _agent_record(RecordKind.SUCCESSFUL_BUBBLE, agent, weight, "", details, bubble)


def _guided(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    weight = weighing.guidance_applied(len(payload["items"]), len(payload["sources"]))
    details = _select(payload, "call", "sources", "items")
    yield _agent_record(RecordKind.GUIDANCE_APPLIED, fact.subject, weight, payload["session_id"], details)


def _noisy(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    """Of guidance, and of what was promoted: that is rolled back, and weighs against the like of it."""
    payload = fact.payload
    promoted = fact.kind == "OverlayFoundHarmful"
    weight = weighing.guidance_noisy(max(0.0, -payload.get("high", 0.0)) if promoted else payload["harm"])
    record = _agent_record(RecordKind.GUIDANCE_NOISY, payload["agent"], weight, "", {"ref": fact.subject, **payload})
    yield replace(record, label="guidance_noisy/overlay") if promoted else record


def _stale(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    weight = weighing.stale_guidance(payload["days"], payload["most"], len(payload["gone"]), payload["told"])
    scope, details = ("leader", payload["leader"]), {"ref": fact.subject, **payload}
    yield NewRecord(RecordKind.STALE_GUIDANCE, "stale_guidance", scope, weight, details=details)


def _taught(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    weight = weighing.teaching_refresh(fact.payload["taught"], fact.payload["unchanged"])
    yield NewRecord(RecordKind.TEACHING_REFRESH, "teaching_refresh", ("leader", ""), weight, details=dict(fact.payload))


def _not_shared(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    label, scope = f"cloud_sync_failure/{fact.subject}", ("leader", "")
    weight = weighing.cloud_sync_failure(fact.payload["unsent"], before(label, scope))
    yield NewRecord(RecordKind.CLOUD_SYNC_FAILURE, label, scope, weight, details=dict(fact.payload))


def _recalled(fact: LedgerEntry, sources: Sources, before: Before) -> Iterator[NewRecord]:
    payload = fact.payload
    for memory, origin in zip(payload["memories"], payload["origins"], strict=False):
        label = f"cloud_memory_recall_hit/{memory}"
        weight = weighing.recall_hit(before(label, ("agent", fact.subject)))
        details = {"memory": memory, "origin": origin}
        record = _agent_record(
            RecordKind.CLOUD_MEMORY_RECALL_HIT, fact.subject, weight, payload["session_id"], details, memory
        )
        yield replace(record, label=label)


def _agent_record(
    kind: RecordKind, agent: str, weight: Weight, session_id: str, details: Mapping[str, Any], key: str = ""
) -> NewRecord:
    return NewRecord(kind, kind.value, ("agent", agent), weight, key, agent, session_id, details=details)


def _select(payload: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: list(payload[name]) if isinstance(payload[name], (list, tuple)) else payload[name] for name in names}


READERS: Mapping[str, Callable[[LedgerEntry, Sources, Before], Iterator[NewRecord]]] = {
    "ValidationFailed": _healing,
    "ValidationHealed": _healing,
    "RetryRepeated": _retried,
    "WorkOverlapped": _overlapped,
    "BudgetExceeded": _over_budget,
    "PredictionConfirmed": _approved,
    "PermissionAnswered": _permitted,
    "ChangeSetLanded": _landed,
    "ChangeSetNarrowed": _landed,
    "ChangeSetBranched": _branched,
    "FactPromoted": _fact_kept,
    "AgentErred": _erred,
    "MemoryBubbleFlushed": _flushed,
    "GuidanceApplied": _guided,
    "GuidanceFoundNoisy": _noisy,
    "OverlayFoundHarmful": _noisy,
    "GuidanceFoundStale": _stale,
    "TeachingRefreshed": _taught,
    "CloudSyncFailed": _not_shared,
    "CloudMemoryRecalled": _recalled,
}
"""By fact, who makes records of it; `ToolsUsed` makes `tool_sequence`, see `reflection`."""


log = logging.getLogger(__name__)

CURSOR = "adaptation.reflection"
SEQUENCES = "adaptation.sequences"
CALLS = "ToolsUsed"

MAX_RUNS, MAX_CALLS = 80, 200
"""Maximum number of an agent's latest sessions, and of calls of each, that are searched for sequences."""

SEQUENCE_SPAN = timedelta(days=30)


class Reflection:
    """Follows the ledger. Callable from any thread; one at a time."""

    def __init__(self, database: Database, records: Records, *, ledger: Ledger, sources: Sources) -> None:
        self._database = database
        self._records = records
        self._sources = sources
        self._facts = LedgerCursor(ledger, CURSOR, _is_relevant)
        self._sequences = LedgerCursor(ledger, SEQUENCES, lambda fact: fact.kind == CALLS)
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

    def _take(self, facts: Sequence[LedgerEntry]) -> None:
        unwritten: Counter[tuple[str, Scope]] = Counter()  # what is not written yet
        records = []
        for fact in facts:
            if fact.kind == CALLS:
                self.calls_waiting = True
                continue

            def before(label: str, scope: Scope, fact: LedgerEntry = fact) -> int:
                return self._records.count_before(label, *scope, fact.id) + unwritten[label, scope]

            try:
                new = list(READERS[fact.kind](fact, self._sources, before))
            except (KeyError, TypeError, ValueError):  # of a version that said less: passed over, not in the way
                log.warning("fact %d, a %s, says too little to learn from", fact.id, fact.kind, exc_info=True)
                continue
            unwritten.update((each.label, each.scope) for each in new)
            records += [_record(fact, each) for each in new]
        self._store(records)

    def _take_calls(self, facts: Sequence[LedgerEntry]) -> None:
        """Of each agent its sessions of late are looked through once, up to its newest of these facts."""
        newest = {str(fact.payload.get("agent", "")): fact for fact in facts}
        records = []
        for agent, last in newest.items():
            runs = self._runs(last, agent) if agent else []
            for sequence in detect([run.payload["calls"][:MAX_CALLS] for run in runs]) if len(runs) >= MIN_RUNS else ():
                having = [runs[number] for number in sequence.runs]
                sessions = [run.subject for run in having]
                records += [
                    _record(run, _sequence(sequence, sessions, len(runs), agent, run.subject))
                    for run in having
                    if run.id >= facts[0].id
                ]
        self._store(records)

    def _runs(self, last: LedgerEntry, agent: str) -> list[LedgerEntry]:
        """The calls of the agent's sessions of late up to this one, oldest first."""
        facts = self._sources.between(last.at - SEQUENCE_SPAN, last.at + timedelta(microseconds=1), (CALLS,))
        return [fact for fact in facts if fact.id <= last.id and fact.payload.get("agent") == agent][-MAX_RUNS:]

    def _store(self, records: Sequence[LearningRecord]) -> None:
        if records:
            self._database.write(lambda tx: self._records.add(tx, records))
            self._made += len(records)


def _sequence(sequence: FoundSequence, sessions: Sequence[str], runs: int, agent: str, session_id: str) -> NewRecord:
    steps = " > ".join(sequence.calls)
    return NewRecord(
        RecordKind.TOOL_SEQUENCE,
        f"tool_sequence/{steps}",
        ("agent", agent),
        weighing.tool_sequence(len(sequence.calls), sequence.z, len(sequence.runs) / runs),
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


def _is_relevant(fact: LedgerEntry) -> bool:
    return fact.kind in READERS or fact.kind == CALLS


def _record(fact: LedgerEntry, new: NewRecord) -> LearningRecord:
    key = (new.kind.value, new.key) if new.whole_key else (fact.id, new.kind.value, new.key)
    return LearningRecord(
        id=record_id(*key),
        at=fact.at,
        kind=new.kind,
        source_label=new.label,
        scope_type=new.scope[0],
        scope_id=new.scope[1],
        score=new.weight.score,
        reason=new.weight.reason,
        workspace=fact.workspace,
        agent=new.agent,
        session_id=new.session_id,
        fact=fact.id,
        details=new.details,
    )
