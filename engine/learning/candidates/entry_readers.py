"""Reads ledger entries into record drafts, with a function for each kind of entry (SPEC 5.1).

`Sources` supplies what an entry lacks, and `scoring` the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from engine.frozen import frozen
from engine.learning.candidates import scoring
from engine.learning.candidates.scoring import Score, difference, error_kind, slug
from engine.learning.candidates.sources import Sources
from engine.learning.candidates.transcripts import quote
from engine.model import PermissionAnswer
from engine.model.adaptation import RecordKind
from engine.model.lessons import added_sentences, distil
from engine.storage.ledger import LedgerEntry

MAX_TESTS = 5
"""Maximum number of tests of one session that become records, the first by name."""

MAX_ADDED = 5
"""Maximum number of sentences of one edit that become records."""

Scope = tuple[str, str]
"""Type and id."""

CountBefore = Callable[[str, Scope], int]
"""Counts the earlier records of a label in a scope."""


@frozen
class RecordDraft:
    """A learning record without an id."""

    kind: RecordKind
    label: str
    scope: Scope
    score: Score
    key: str = ""
    """Distinguishes the records of one ledger entry."""
    agent: str = ""
    session_id: str = ""
    is_key_unique: bool = False
    """Whether `key` is unique by itself, so that other entries with the same key make the same record."""
    details: Mapping[str, Any] = field(default_factory=dict)


def _test_records(
    entry: LedgerEntry, kind: RecordKind, score: Score, tests: list[str], **more: Any
) -> Iterator[RecordDraft]:
    """A record for each test, in the scope of its workspace."""
    for test in sorted(tests)[:MAX_TESTS]:
        details = {"test": test, "failing": sorted(tests), **more.get("details", {})}
        scope = ("workspace", entry.workspace)
        yield RecordDraft(kind, f"{kind}/{test}", scope, score, key=test, **more | {"details": details})


def _read_validation(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    healed = entry.kind == "ValidationHealed"
    weigh, kind = scoring.failed_tdd, RecordKind.FAILED_TDD
    if healed:
        weigh, kind = scoring.successful_heal, RecordKind.SUCCESSFUL_HEAL
    tests = list(map(str, payload["failing"]))
    details = {name: payload[name] for name in ("attempts", "cost")} | (
        {} if healed else {"gave_up": payload["reason"]}
    )
    about = {"agent": str(payload["agent"]), "session_id": entry.subject, "details": details}
    yield from _test_records(entry, kind, weigh(payload["attempts"], payload["cost"], len(tests)), tests, **about)


def _read_retry(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    score = scoring.repeated_retry(payload["attempts"], payload["cost"])
    yield _agent_record(
        RecordKind.REPEATED_RETRY,
        payload["agent"],
        score,
        entry.subject,
        _select(payload, "attempts", "cost", "failing"),
    )


def _read_overlap(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    score = scoring.task_conflict(len(payload["files"]), len(payload["conflicting"]))
    details = _select(payload, "files", "conflicting", "other")
    details |= {"change_set": entry.subject, "other_session": payload["other_session_id"]}
    yield _agent_record(RecordKind.TASK_CONFLICT, payload["agent"], score, payload["session_id"], details)


def _read_exceeded_budget(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    """One record a day, although a spent budget blocks the agent again and again."""
    spent, budget, day = entry.payload["spent"], entry.payload["budget"], sources.local_day(entry.at)
    details = {"spent": spent, "budget": budget, "day": day}
    score = scoring.budget_incident(spent, budget)
    record = _agent_record(RecordKind.BUDGET_INCIDENT, entry.subject, score, "", details, f"{entry.subject}/{day}")
    yield replace(record, is_key_unique=True)


def _read_card_approval(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    by = entry.payload["decided_by"]
    if by == "autonomy":
        return
    edit = sources.card_correction(entry.subject) if entry.payload.get("edited") else None
    if edit is None:
        yield _approval_record(
            entry, "card", scoring.approval(scoring.APPROVED, "a card was approved unchanged"), by=by
        )
        return
    for number, sentence in enumerate(added_sentences(edit.original, edit.edited)[:MAX_ADDED]):
        yield RecordDraft(
            RecordKind.HUMAN_APPROVAL,
            f"human_approval/edited:{edit.channel}:{slug(distil(sentence).text)}",
            ("agent", edit.agent),
            scoring.edited_approval(difference(edit.original, edit.edited), len(sentence.split())),
            key=f"edit {number}",
            agent=edit.agent,
            session_id=edit.session,
            details={
                "card": entry.subject,
                "original": edit.original[:500],
                "edited": edit.edited[:500],
                "added": sentence[:300],
                "kind": edit.kind,
                "channel": edit.channel,
                "by": by,
            },
        )


def _read_permission(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    if not PermissionAnswer(payload["answer"]).allows or payload.get("by"):  # `by`: an earlier answer that counts again
        return
    lasts = payload["answer"] == PermissionAnswer.ALLOW_SESSION
    points = scoring.LASTING_PERMISSION if lasts else scoring.PERMISSION
    words = "a tool was allowed for the whole session" if lasts else "a tool was allowed once"
    record = _approval_record(
        entry, f"permission:{payload['tool']}", scoring.approval(points, words), tool=payload["tool"]
    )
    yield replace(record, session_id=payload["session_id"])


def _read_landing(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    if not entry.payload.get("left"):  # otherwise the operator has not decided on the rest yet
        yield from _landed_changes(entry, sources, entry.payload["files"])


def _read_branch(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    if files := entry.payload.get("landed"):
        yield from _landed_changes(entry, sources, files)


def _landed_changes(entry: LedgerEntry, sources: Sources, files: int) -> Iterator[RecordDraft]:
    """Records of landed changes, once for each change set: the approval, and the tests that it fixed."""
    session_id = entry.payload["session_id"]
    record = _approval_record(entry, "change_set", scoring.landed(files), files=files)
    yield replace(record, session_id=session_id, key=entry.subject, is_key_unique=True)
    repair = sources.healed_tests(session_id)
    if repair is not None:
        causes = sorted({cause for cause in repair.tests.values() if cause})
        details = {"causes": causes, "project": repair.project, "landed": entry.subject, "cost": repair.cost}
        about = {"agent": repair.agent, "session_id": session_id, "details": details}
        score = scoring.successful_heal(1, repair.cost, len(repair.tests))
        for record in _test_records(entry, RecordKind.SUCCESSFUL_HEAL, score, list(repair.tests), **about):
            yield replace(record, key=f"{entry.subject}/{record.key}", is_key_unique=True)


def _read_kept_fact(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    para_fact = sources.kept_fact(entry.subject) if entry.payload["by"] == "operator" else None
    if para_fact is None or not para_fact.fact:
        return
    what = f"fact:{slug(para_fact.category) or 'other'}"
    number = count_before(f"human_approval/{what}", ("workspace", entry.workspace))
    details = {"kept": entry.subject, "text": para_fact.fact, "trust": para_fact.trust.value}
    yield _approval_record(
        entry, what, scoring.kept_fact(para_fact.trust, number, quote(para_fact.fact, 120)), **details
    )


def _approval_record(entry: LedgerEntry, what: str, score: Score, **details: Any) -> RecordDraft:
    scope = ("workspace", entry.workspace)
    return RecordDraft(RecordKind.HUMAN_APPROVAL, f"human_approval/{what}", scope, score, details=details)


def _read_error(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    agent, tool, message = (str(entry.payload[name]) for name in ("agent", "tool", "message"))
    points, words, signature, explained = error_kind(tool, message)
    label = f"agent_error/{tool}/{signature}"
    score = scoring.agent_error(points, words, explained=explained, before=count_before(label, ("agent", agent)))
    details = {"tool": tool, "message": message}
    record = _agent_record(RecordKind.AGENT_ERROR, agent, score, entry.subject, details, f"{tool}/{message}")
    yield replace(record, label=label)


def _read_findings(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    columns = (entry.payload[name] for name in ("bubbles", "patterns", "agents", "confidences", "importances"))
    for bubble, pattern, agent, confidence, importance in zip(*columns, strict=True):
        score = scoring.successful_bubble(confidence, importance)
        details = {"bubble": bubble, "leader": entry.subject, "pattern": pattern}
        yield _agent_record(RecordKind.SUCCESSFUL_BUBBLE, agent, score, "", details, bubble)


def _read_guidance(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    score = scoring.guidance_applied(len(payload["items"]), len(payload["sources"]))
    details = _select(payload, "call", "sources", "items")
    yield _agent_record(RecordKind.GUIDANCE_APPLIED, entry.subject, score, payload["session_id"], details)


def _read_noisy_guidance(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    """A record of harmful guidance, or of a harmful candidate: it is rolled back, and counts against similar ones."""
    payload = entry.payload
    promoted = entry.kind == "OverlayFoundHarmful"
    score = scoring.guidance_noisy(max(0.0, -payload.get("high", 0.0)) if promoted else payload["harm"])
    record = _agent_record(RecordKind.GUIDANCE_NOISY, payload["agent"], score, "", {"ref": entry.subject, **payload})
    yield replace(record, label="guidance_noisy/overlay") if promoted else record


def _read_stale_guidance(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    score = scoring.stale_guidance(payload["days"], payload["most"], len(payload["gone"]), payload["told"])
    scope, details = ("leader", payload["leader"]), {"ref": entry.subject, **payload}
    yield RecordDraft(RecordKind.STALE_GUIDANCE, "stale_guidance", scope, score, details=details)


def _read_teaching(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    score = scoring.teaching_refresh(entry.payload["taught"], entry.payload["unchanged"])
    yield RecordDraft(
        RecordKind.TEACHING_REFRESH, "teaching_refresh", ("leader", ""), score, details=dict(entry.payload)
    )


def _read_sync_failure(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    label, scope = f"cloud_sync_failure/{entry.subject}", ("leader", "")
    score = scoring.cloud_sync_failure(entry.payload["unsent"], count_before(label, scope))
    yield RecordDraft(RecordKind.CLOUD_SYNC_FAILURE, label, scope, score, details=dict(entry.payload))


def _read_recall(entry: LedgerEntry, sources: Sources, count_before: CountBefore) -> Iterator[RecordDraft]:
    payload = entry.payload
    for memory, origin in zip(payload["memories"], payload["origins"], strict=False):
        label = f"cloud_memory_recall_hit/{memory}"
        score = scoring.recall_hit(count_before(label, ("agent", entry.subject)))
        details = {"memory": memory, "origin": origin}
        record = _agent_record(
            RecordKind.CLOUD_MEMORY_RECALL_HIT, entry.subject, score, payload["session_id"], details, memory
        )
        yield replace(record, label=label)


def _agent_record(
    kind: RecordKind, agent: str, score: Score, session_id: str, details: Mapping[str, Any], key: str = ""
) -> RecordDraft:
    return RecordDraft(kind, kind.value, ("agent", agent), score, key, agent, session_id, details=details)


def _select(payload: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: list(payload[name]) if isinstance(payload[name], (list, tuple)) else payload[name] for name in names}


READERS: Mapping[str, Callable[[LedgerEntry, Sources, CountBefore], Iterator[RecordDraft]]] = {
    "ValidationFailed": _read_validation,
    "ValidationHealed": _read_validation,
    "RetryRepeated": _read_retry,
    "WorkOverlapped": _read_overlap,
    "BudgetExceeded": _read_exceeded_budget,
    "PredictionConfirmed": _read_card_approval,
    "PermissionAnswered": _read_permission,
    "ChangeSetLanded": _read_landing,
    "ChangeSetNarrowed": _read_landing,
    "ChangeSetBranched": _read_branch,
    "FactPromoted": _read_kept_fact,
    "AgentErred": _read_error,
    "MemoryBubbleFlushed": _read_findings,
    "GuidanceApplied": _read_guidance,
    "GuidanceFoundNoisy": _read_noisy_guidance,
    "OverlayFoundHarmful": _read_noisy_guidance,
    "GuidanceFoundStale": _read_stale_guidance,
    "TeachingRefreshed": _read_teaching,
    "CloudSyncFailed": _read_sync_failure,
    "CloudMemoryRecalled": _read_recall,
}
"""The reader of each kind of ledger entry. `reflection` reads `ToolsUsed`."""
