"""Reads ledger entries into record drafts, with a function for each kind of entry (SPEC 5.1).

`Sources` supplies what an entry lacks, and `scoring` the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from engine.frozen import frozen
from engine.learning.candidates import scoring
from engine.learning.candidates.records import Sources
from engine.learning.candidates.scoring import RecordScore, slug
from engine.model import PermissionAnswer
from engine.model.adaptation import RecordKind
from engine.model.learnings import added_sentences, distil
from engine.model.text import quote
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
class EntryContext:
    """A ledger entry, and what readers may ask about it."""

    entry: LedgerEntry
    sources: Sources
    count_before: CountBefore

    @property
    def payload(self) -> Mapping[str, Any]:
        """The fields of the entry."""
        return self.entry.payload

    @property
    def subject(self) -> str:
        """What the entry is about."""
        return self.entry.subject

    @property
    def workspace_scope(self) -> Scope:
        """The scope of its workspace."""
        return "workspace", self.entry.workspace

    def select(self, *names: str) -> dict[str, Any]:
        """These fields of the entry."""
        return {name: self.payload[name] for name in names}


@frozen
class RecordDraft:
    """A learning record without an id."""

    kind: RecordKind
    scope: Scope
    score: RecordScore
    details: Mapping[str, Any]
    cause: str = ""
    """Signature of the cause, for a kind with different causes."""
    key: str = ""
    """Distinguishes the records of one ledger entry."""
    global_key: str = ""
    """Where it is given, other entries with the same key make the same record."""
    agent: str = ""
    """The agent of a record that is not in the scope of an agent."""
    session_id: str = ""

    @property
    def label(self) -> str:
        """See `LearningRecord.source_label`."""
        return label_of(self.kind, self.cause)


def label_of(kind: RecordKind, cause: str) -> str:
    """The label of records of a kind with the same cause."""
    return f"{kind}/{cause}" if cause else kind.value


Drafts = Iterator[RecordDraft]


def _test_records(
    context: EntryContext,
    kind: RecordKind,
    score: RecordScore,
    tests: Iterable[str],
    *,
    agent: str,
    session_id: str,
    details: Mapping[str, Any],
) -> Drafts:
    """A record for each test, in the scope of its workspace; once for each change set that was `landed`."""
    failing = sorted(tests)
    for test in failing[:MAX_TESTS]:
        yield RecordDraft(
            kind,
            context.workspace_scope,
            score,
            {"test": test, "failing": failing, **details},
            cause=test,
            key=test,
            global_key=f"{details['landed']}/{test}" if "landed" in details else "",
            agent=agent,
            session_id=session_id,
        )


def _read_failed_validation(context: EntryContext) -> Drafts:
    details = context.select("attempts", "cost") | {"gave_up": context.payload["reason"]}
    yield from _validation_records(context, RecordKind.FAILED_TDD, scoring.failed_tdd, details)


def _read_healed_validation(context: EntryContext) -> Drafts:
    details = context.select("attempts", "cost")
    yield from _validation_records(context, RecordKind.SUCCESSFUL_HEAL, scoring.successful_heal, details)


def _validation_records(
    context: EntryContext, kind: RecordKind, score: Callable[[int, int, int], RecordScore], details: Mapping[str, Any]
) -> Drafts:
    payload = context.payload
    points = score(payload["attempts"], payload["cost"], len(payload["failing"]))
    tests = map(str, payload["failing"])
    yield from _test_records(
        context, kind, points, tests, agent=payload["agent"], session_id=context.subject, details=details
    )


def _read_retry(context: EntryContext) -> Drafts:
    payload = context.payload
    score = scoring.repeated_retry(payload["attempts"], payload["cost"])
    details = context.select("attempts", "cost", "failing")
    yield RecordDraft(
        RecordKind.REPEATED_RETRY, ("agent", payload["agent"]), score, details, session_id=context.subject
    )


def _read_overlap(context: EntryContext) -> Drafts:
    payload = context.payload
    score = scoring.task_conflict(len(payload["files"]), len(payload["conflicting"]))
    details = context.select("files", "conflicting", "other")
    details |= {"change_set": context.subject, "other_session": payload["other_session_id"]}
    yield RecordDraft(
        RecordKind.TASK_CONFLICT, ("agent", payload["agent"]), score, details, session_id=payload["session_id"]
    )


def _read_exceeded_budget(context: EntryContext) -> Drafts:
    """One record a day, although a spent budget blocks the agent again and again."""
    agent, day = context.subject, context.sources.local_day(context.entry.at)
    details = context.select("spent", "budget") | {"day": day}
    score = scoring.budget_incident(details["spent"], details["budget"])
    yield RecordDraft(RecordKind.BUDGET_INCIDENT, ("agent", agent), score, details, global_key=f"{agent}/{day}")


def _read_card_approval(context: EntryContext) -> Drafts:
    by = context.payload["decided_by"]
    if by == "autonomy":
        return
    edit = context.sources.card_correction(context.subject) if context.payload.get("edited") else None
    if edit is None:
        score = scoring.approval(scoring.APPROVED, "a card was approved unchanged")
        yield RecordDraft(RecordKind.HUMAN_APPROVAL, context.workspace_scope, score, {"by": by}, cause="card")
        return
    for number, sentence in enumerate(added_sentences(edit.original, edit.edited)[:MAX_ADDED]):
        details = {
            "card": context.subject,
            "original": edit.original[:500],
            "edited": edit.edited[:500],
            "added": sentence[:300],
            "kind": edit.kind,
            "channel": edit.channel,
            "by": by,
        }
        yield RecordDraft(
            RecordKind.HUMAN_APPROVAL,
            ("agent", edit.agent),
            scoring.edited_approval(scoring.difference(edit.original, edit.edited), len(sentence.split())),
            details,
            cause=f"edited:{edit.channel}:{slug(distil(sentence).text)}",
            key=f"edit {number}",
            session_id=edit.session,
        )


def _read_permission(context: EntryContext) -> Drafts:
    payload = context.payload
    if not PermissionAnswer(payload["answer"]).allows or payload.get("by"):  # `by`: an earlier answer that counts again
        return
    score = scoring.approval(scoring.PERMISSION, "a tool was allowed once")
    if payload["answer"] == PermissionAnswer.ALLOW_SESSION:
        score = scoring.approval(scoring.LASTING_PERMISSION, "a tool was allowed for the whole session")
    yield RecordDraft(
        RecordKind.HUMAN_APPROVAL,
        context.workspace_scope,
        score,
        context.select("tool"),
        cause=f"permission:{payload['tool']}",
        session_id=payload["session_id"],
    )


def _read_landing(context: EntryContext) -> Drafts:
    if not context.payload.get("left"):  # otherwise the operator has not decided on the rest yet
        yield from _landed_changes(context, context.payload["files"])


def _read_branch(context: EntryContext) -> Drafts:
    if files := context.payload.get("landed"):
        yield from _landed_changes(context, files)


def _landed_changes(context: EntryContext, files: int) -> Drafts:
    """Records of landed changes, once for each change set: the approval, and the tests that it fixed."""
    session_id, change_set = context.payload["session_id"], context.subject
    yield RecordDraft(
        RecordKind.HUMAN_APPROVAL,
        context.workspace_scope,
        scoring.landed(files),
        {"files": files},
        cause="change_set",
        global_key=change_set,
        session_id=session_id,
    )
    repair = context.sources.healed_tests(session_id)
    if repair is not None:
        causes = sorted({cause for cause in repair.tests.values() if cause})
        details = {"causes": causes, "project": repair.project, "landed": change_set, "cost": repair.cost}
        score = scoring.successful_heal(1, repair.cost, len(repair.tests))
        yield from _test_records(
            context,
            RecordKind.SUCCESSFUL_HEAL,
            score,
            repair.tests,
            agent=repair.agent,
            session_id=session_id,
            details=details,
        )


def _read_kept_fact(context: EntryContext) -> Drafts:
    kept = context.sources.kept_fact(context.subject) if context.payload["by"] == "operator" else None
    if kept is None or not kept.fact:
        return
    kind, cause = RecordKind.HUMAN_APPROVAL, f"fact:{slug(kept.category) or 'other'}"
    number = context.count_before(label_of(kind, cause), context.workspace_scope)
    score = scoring.kept_fact(kept.trust, number, quote(kept.fact, 120))
    details = {"kept": context.subject, "text": kept.fact, "trust": kept.trust.value}
    yield RecordDraft(kind, context.workspace_scope, score, details, cause=cause)


def _read_error(context: EntryContext) -> Drafts:
    agent, tool, message = (str(context.payload[name]) for name in ("agent", "tool", "message"))
    error = scoring.classify_error(tool, message)
    kind, scope, cause = RecordKind.AGENT_ERROR, ("agent", agent), f"{tool}/{error.signature}"
    score = scoring.agent_error(error, context.count_before(label_of(kind, cause), scope))
    yield RecordDraft(
        kind,
        scope,
        score,
        {"tool": tool, "message": message},
        cause=cause,
        key=f"{tool}/{message}",
        session_id=context.subject,
    )


def _read_findings(context: EntryContext) -> Drafts:
    columns = (context.payload[name] for name in ("bubbles", "patterns", "agents", "confidences", "importances"))
    for bubble, pattern, agent, confidence, importance in zip(*columns, strict=True):
        score = scoring.successful_bubble(confidence, importance)
        details = {"bubble": bubble, "leader": context.subject, "pattern": pattern}
        yield RecordDraft(RecordKind.SUCCESSFUL_BUBBLE, ("agent", agent), score, details, key=bubble)


def _read_guidance(context: EntryContext) -> Drafts:
    payload = context.payload
    score = scoring.guidance_applied(len(payload["items"]), len(payload["sources"]))
    details = context.select("call", "sources", "items")
    yield RecordDraft(
        RecordKind.GUIDANCE_APPLIED, ("agent", context.subject), score, details, session_id=payload["session_id"]
    )


def _read_noisy_guidance(context: EntryContext) -> Drafts:
    payload = context.payload
    score = scoring.guidance_noisy(payload["harm"])
    yield RecordDraft(RecordKind.GUIDANCE_NOISY, ("agent", payload["agent"]), score, _with_ref(context))


def _read_harmful_overlay(context: EntryContext) -> Drafts:
    """A record of a harmful candidate: it is rolled back, and counts against similar ones."""
    payload = context.payload
    score = scoring.guidance_noisy(max(0.0, -payload["high"]))
    scope = ("agent", payload["agent"])
    yield RecordDraft(RecordKind.GUIDANCE_NOISY, scope, score, _with_ref(context), cause="overlay")


def _read_stale_guidance(context: EntryContext) -> Drafts:
    payload = context.payload
    score = scoring.stale_guidance(payload["days"], payload["most"], len(payload["gone"]), payload["told"])
    yield RecordDraft(RecordKind.STALE_GUIDANCE, ("leader", payload["leader"]), score, _with_ref(context))


def _with_ref(context: EntryContext) -> Mapping[str, Any]:
    """The fields of an entry about guidance, with its reference."""
    return {"ref": context.subject, **context.payload}


def _read_teaching(context: EntryContext) -> Drafts:
    score = scoring.teaching_refresh(context.payload["taught"], context.payload["unchanged"])
    yield RecordDraft(RecordKind.TEACHING_REFRESH, ("leader", ""), score, context.payload)


def _read_sync_failure(context: EntryContext) -> Drafts:
    kind, scope, cause = RecordKind.CLOUD_SYNC_FAILURE, ("leader", ""), context.subject
    score = scoring.cloud_sync_failure(context.payload["unsent"], context.count_before(label_of(kind, cause), scope))
    yield RecordDraft(kind, scope, score, context.payload, cause=cause)


def _read_recall(context: EntryContext) -> Drafts:
    kind, scope, payload = RecordKind.CLOUD_MEMORY_RECALL_HIT, ("agent", context.subject), context.payload
    for memory, origin in zip(payload["memories"], payload["origins"], strict=True):
        score = scoring.recall_hit(context.count_before(label_of(kind, memory), scope))
        details = {"memory": memory, "origin": origin}
        yield RecordDraft(kind, scope, score, details, cause=memory, key=memory, session_id=payload["session_id"])


READERS: Mapping[str, Callable[[EntryContext], Drafts]] = {
    "ValidationFailed": _read_failed_validation,
    "ValidationHealed": _read_healed_validation,
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
    "OverlayFoundHarmful": _read_harmful_overlay,
    "GuidanceFoundStale": _read_stale_guidance,
    "TeachingRefreshed": _read_teaching,
    "CloudSyncFailed": _read_sync_failure,
    "CloudMemoryRecalled": _read_recall,
}
"""The reader of each kind of ledger entry. `reflection` reads `ToolsUsed`."""
