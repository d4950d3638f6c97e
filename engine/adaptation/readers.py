"""What each fact of the ledger says that is worth learning from (SPEC 5.1): one reader a fact. Pure but for `Known`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from engine.adaptation import weighing
from engine.adaptation.material import Mended
from engine.adaptation.saying import quoted
from engine.adaptation.signatures import added, difference, error_kind, slug
from engine.adaptation.weighing import Weight
from engine.storage.facts_read import Fact
from engine.values import PermissionAnswer, Trust
from engine.values.adaptation import RecordKind

MOST_TESTS = 5
"""So many red tests of one session become records, the first by name."""


class Edit(Protocol):
    """What the operator made of a card's prompt."""

    @property
    def agent(self) -> str: ...
    @property
    def original(self) -> str: ...
    @property
    def edited(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def channel(self) -> str: ...
    @property
    def session(self) -> str: ...


class KeptFact(Protocol):
    """A fact of layer G."""

    @property
    def fact(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def trust(self) -> Trust: ...


class Known(Protocol):
    """What facts are about, as their owners know it."""

    def edit(self, card_id: str, /) -> Edit | None:
        """None for a card that was approved as it was."""

    def kept_fact(self, fact_id: str, /) -> KeptFact | None:
        """None for one that is not there any more."""

    def mended(self, session_id: str, /) -> Mended | None:
        """What a session turned from red to green; None for nothing."""

    def day(self, at: datetime, /) -> str:
        """The operator's day that an instant falls into, as `2026-01-05`."""


class Counted(Protocol):
    """How often something came before."""

    def before(self, label: str, scope: tuple[str, str], fact: Fact, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Found:
    """A record before it is one. `key` tells it from others of its fact; with `whole_key` that alone makes its id."""

    kind: RecordKind
    label: str
    scope: tuple[str, str]
    weight: Weight
    key: str = ""
    agent: str = ""
    session_id: str = ""
    whole_key: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


def _healing(fact: Fact, kind: RecordKind, weight: Weight) -> Iterator[Found]:
    """A record for each red test, for what recurs is the test."""
    told = fact.payload
    failing = sorted(map(str, told.get("failing", ())))
    for test in failing[:MOST_TESTS]:
        yield Found(
            kind,
            f"{kind.value}/{test}",
            ("workspace", fact.workspace),
            weight,
            key=test,
            agent=str(told["agent"]),
            session_id=fact.subject,
            details={
                "test": test,
                "failing": failing,
                "attempts": told["attempts"],
                "cost": told["cost"],
                **({"gave_up": told["reason"]} if "reason" in told else {}),
            },
        )


def _failed(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    weight = weighing.failed_tdd(told["attempts"], told["cost"], len(told["failing"]))
    return _healing(fact, RecordKind.FAILED_TDD, weight)


def _healed(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    weight = weighing.successful_heal(told["attempts"], told["cost"], len(told["failing"]))
    return _healing(fact, RecordKind.SUCCESSFUL_HEAL, weight)


def _retried(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    yield Found(
        RecordKind.REPEATED_RETRY,
        "repeated_retry",
        ("agent", told["agent"]),
        weighing.repeated_retry(told["attempts"], told["cost"]),
        agent=told["agent"],
        session_id=fact.subject,
        details={"attempts": told["attempts"], "cost": told["cost"], "failing": list(told["failing"])},
    )


def _overlapped(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    yield Found(
        RecordKind.TASK_CONFLICT,
        "task_conflict",
        ("agent", told["agent"]),
        weighing.task_conflict(len(told["files"]), len(told["conflicting"])),
        agent=told["agent"],
        session_id=told["session_id"],
        details={
            "files": list(told["files"]),
            "conflicting": list(told["conflicting"]),
            "change_set": fact.subject,
            "other": told["other"],
            "other_session": told["other_session_id"],
        },
    )


def _over_budget(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    """One incident a day: an agent whose budget is spent is held back again and again."""
    day = known.day(fact.at)
    yield Found(
        RecordKind.BUDGET_INCIDENT,
        "budget_incident",
        ("agent", fact.subject),
        weighing.budget_incident(fact.payload["spent"], fact.payload["budget"]),
        key=f"{fact.subject}/{day}",
        whole_key=True,
        agent=fact.subject,
        details={"spent": fact.payload["spent"], "budget": fact.payload["budget"], "day": day},
    )


def _approved(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    by = fact.payload["decided_by"]
    if by == "autonomy":
        return
    edit = known.edit(fact.subject) if fact.payload.get("edited") else None
    if edit is None:
        yield _approval(fact, "card", weighing.APPROVED, "a card was approved as it was proposed", by=by)
        return
    for number, (phrase, said) in enumerate(added(edit.original, edit.edited)):
        yield Found(
            RecordKind.HUMAN_APPROVAL,
            f"human_approval/edited:{edit.channel}:{phrase}",
            ("agent", edit.agent),
            weighing.edited_approval(difference(edit.original, edit.edited), len(said.split())),
            key=f"edit {number}",
            agent=edit.agent,
            session_id=edit.session,
            details={
                "card": fact.subject,
                "original": edit.original[:500],
                "edited": edit.edited[:500],
                "added": said[:300],
                "kind": edit.kind,
                "channel": edit.channel,
                "by": by,
            },
        )


def _permitted(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    if not PermissionAnswer(told["answer"]).allows or told.get("by"):  # `by`: an earlier answer that counts again
        return
    lasts = told["answer"] == PermissionAnswer.ALLOW_SESSION
    points = weighing.LASTING_PERMISSION if lasts else weighing.PERMISSION
    words = "a tool was allowed for the whole session" if lasts else "a tool was allowed once"
    found = _approval(fact, f"permission:{told['tool']}", points, words, tool=told["tool"])
    yield replace(found, session_id=told["session_id"])


def _landed(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    session_id = fact.payload["session_id"]
    found = _approval(fact, "change_set", weighing.LANDED, "a change set was taken", files=fact.payload["files"])
    yield replace(found, session_id=session_id)
    mended = known.mended(session_id)
    if mended is None:
        return
    failing = sorted(mended.tests)
    for test in failing[:MOST_TESTS]:
        yield Found(
            RecordKind.SUCCESSFUL_HEAL,
            f"{RecordKind.SUCCESSFUL_HEAL}/{test}",
            ("workspace", fact.workspace),
            weighing.successful_heal(1, mended.cost, len(failing)),
            key=test,
            agent=mended.agent,
            session_id=session_id,
            details={
                "test": test,
                "failing": failing,
                "causes": sorted({cause for cause in mended.tests.values() if cause}),
                "project": mended.project,
                "landed": fact.subject,
                "cost": mended.cost,
            },
        )


def _kept(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    if fact.payload["by"] != "operator":
        return
    kept = known.kept_fact(fact.subject)
    if kept is None or not kept.fact:
        return
    category = slug(kept.category) or "other"
    words = f"the operator keeps {quoted(kept.fact, 120)} as a fact"
    yield _approval(
        fact, f"fact:{category}", weighing.KEPT_FACT, words, kept=fact.subject, text=kept.fact, trust=kept.trust.value
    )


def _approval(fact: Fact, what: str, points: float, words: str, **details: Any) -> Found:
    return Found(
        RecordKind.HUMAN_APPROVAL,
        f"human_approval/{what}",
        ("workspace", fact.workspace),
        weighing.approval(points, words),
        details=details,
    )


def _erred(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    tool, message = str(told["tool"]), str(told["message"])
    points, words, signature, explained = error_kind(tool, message)
    label, scope = f"agent_error/{tool}/{signature}", ("agent", str(told["agent"]))
    yield Found(
        RecordKind.AGENT_ERROR,
        label,
        scope,
        weighing.agent_error(points, words, explained=explained, before=counted.before(label, scope, fact)),
        key=f"{tool}/{message}",
        agent=str(told["agent"]),
        session_id=fact.subject,
        details={"tool": tool, "message": message},
    )


def _flushed(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    for bubble, pattern, agent, confidence, importance in zip(
        told["bubbles"], told["patterns"], told["agents"], told["confidences"], told["importances"], strict=True
    ):
        yield Found(
            RecordKind.SUCCESSFUL_BUBBLE,
            "successful_bubble",
            ("agent", agent),
            weighing.successful_bubble(confidence, importance),
            key=bubble,
            agent=agent,
            details={"bubble": bubble, "leader": fact.subject, "pattern": pattern},
        )


def _guided(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    yield Found(
        RecordKind.GUIDANCE_APPLIED,
        "guidance_applied",
        ("agent", fact.subject),
        weighing.guidance_applied(len(told["items"]), len(told["sources"])),
        agent=fact.subject,
        session_id=told["session_id"],
        details={"call": told["call"], "sources": list(told["sources"]), "items": list(told["items"])},
    )


def _noisy(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    yield Found(
        RecordKind.GUIDANCE_NOISY,
        "guidance_noisy",
        ("agent", told["agent"]),
        weighing.guidance_noisy(told["harm"]),
        agent=told["agent"],
        details={"ref": fact.subject, **told},
    )


def _harmful(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    """Of what was promoted: it is rolled back, and weighs against the like of it."""
    told = fact.payload
    yield Found(
        RecordKind.GUIDANCE_NOISY,
        "guidance_noisy/overlay",
        ("agent", told["agent"]),
        weighing.guidance_noisy(max(0.0, -told.get("high", 0.0))),
        agent=told["agent"],
        details={"ref": fact.subject, **told},
    )


def _stale(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    yield Found(
        RecordKind.STALE_GUIDANCE,
        "stale_guidance",
        ("leader", told["leader"]),
        weighing.stale_guidance(told["days"], told["most"], len(told["gone"]), told["told"]),
        details={"ref": fact.subject, **told},
    )


def _taught(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    yield Found(
        RecordKind.TEACHING_REFRESH,
        "teaching_refresh",
        ("leader", ""),
        weighing.teaching_refresh(fact.payload["taught"], fact.payload["unchanged"]),
        details=dict(fact.payload),
    )


def _not_shared(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    label, scope = f"cloud_sync_failure/{fact.subject}", ("leader", "")
    yield Found(
        RecordKind.CLOUD_SYNC_FAILURE,
        label,
        scope,
        weighing.cloud_sync_failure(fact.payload["unsent"], counted.before(label, scope, fact)),
        details=dict(fact.payload),
    )


def _recalled(fact: Fact, known: Known, counted: Counted) -> Iterator[Found]:
    told = fact.payload
    for memory, origin in zip(told["memories"], told["origins"], strict=False):
        label, scope = f"cloud_memory_recall_hit/{memory}", ("agent", fact.subject)
        yield Found(
            RecordKind.CLOUD_MEMORY_RECALL_HIT,
            label,
            scope,
            weighing.recall_hit(counted.before(label, scope, fact)),
            key=memory,
            agent=fact.subject,
            session_id=told["session_id"],
            details={"memory": memory, "origin": origin},
        )


Reader = Callable[[Fact, Known, Counted], Iterator[Found]]

READERS: Mapping[str, Reader] = {
    "ValidationFailed": _failed,
    "ValidationHealed": _healed,
    "RetryRepeated": _retried,
    "WorkOverlapped": _overlapped,
    "BudgetExceeded": _over_budget,
    "PredictionConfirmed": _approved,
    "PermissionAnswered": _permitted,
    "ChangeSetLanded": _landed,
    "FactPromoted": _kept,
    "AgentErred": _erred,
    "MemoryBubbleFlushed": _flushed,
    "GuidanceApplied": _guided,
    "GuidanceFoundNoisy": _noisy,
    "OverlayFoundHarmful": _harmful,
    "GuidanceFoundStale": _stale,
    "TeachingRefreshed": _taught,
    "CloudSyncFailed": _not_shared,
    "CloudMemoryRecalled": _recalled,
}
"""By fact, who makes records of it; `ToolsUsed` makes `tool_sequence`, see `sequences_in`."""
