"""Values as JSON documents, for verbs, the API and screens (SPEC 9.8, 10.1).

A field has its name in camelCase; `_RULES` has the exceptions of a class. Money is in dollars, instants are in ISO 8601
and UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from engine.activity import ActivitySince, BlockedWork, LearnedCounts
from engine.model import (
    MICRO,
    AcceptedFinding,
    AgentView,
    Bubble,
    Card,
    ChangeSet,
    CheckResult,
    ConfidenceBucket,
    ConfidenceParts,
    CostState,
    DiffComment,
    Drift,
    EntrySource,
    FactDraft,
    FileDiff,
    Group,
    Guidance,
    GuidanceItem,
    Hold,
    Insights,
    LeaderProfile,
    LearningEntry,
    LearningView,
    Metrics,
    ModelCall,
    Mute,
    ParaFact,
    RecallMatch,
    SessionView,
    Shift,
    Signal,
    Slice,
    Task,
    TeachingState,
    Waiting,
)
from engine.model.adaptation import Candidate, LearningRecord, Lift, Overlay
from engine.model.base import label
from engine.prediction.kinds import kind_title

Document = dict[str, Any]

_RENAMED = {"agent": "targetAgent", "agent_id": "targetAgent", "channel": "targetChannel", "session_id": "session"}
"""Names of fields in all documents, unless the rules of a class give another name."""

_MONEY = frozenset({"cost", "spent", "estimate", "cost_per_accepted"})
"""Fields in micro-dollars."""


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldRules:
    """The differences between the fields of a class and its document: fields that are left out or have another name,
    properties that are included, computed values, and the number of `digits` after the decimal point."""

    left_out: str = ""
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    properties: str = ""
    computed: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    digits: int | None = None


def instant(at: datetime | None) -> str | None:
    """An instant as `2026-01-05T09:30:00Z`; with microseconds only if they are not 0."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def document(value: Any) -> Any:
    """The JSON of `value`, which is a value of the model, a collection of such values, or already JSON."""
    if convert := _CUSTOM.get(type(value)):
        return convert(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    match value:
        case Enum():
            return value.value
        case datetime():
            return instant(value)
        case Mapping():
            return {document(name): document(each) for name, each in value.items()}
        case list() | tuple():
            return [document(each) for each in value]
        case Path():
            return str(value)
    if not dataclasses.is_dataclass(value):
        return value
    shape = _RULES.get(type(value), _FieldRules())
    excluded = shape.left_out.split()
    fields: Document = {}
    for name in (*_fields(value.__class__), *shape.properties.split()):
        if name not in excluded:
            key = shape.renamed.get(name) or _RENAMED.get(name) or to_camel(name)
            fields[key] = _number(getattr(value, name), shape.digits, money=name in _MONEY)
    for key, of in shape.computed.items():
        fields[key] = _number(of(value), shape.digits)
    return fields


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _number(value: Any, digits: int | None, *, money: bool = False) -> Any:
    if money:
        return dollars(value)
    return round(value, digits) if digits is not None and isinstance(value, float) else document(value)


def dollars(amount: float | None) -> float | None:
    """The dollars of an amount in micro-dollars, with six decimals."""
    return None if amount is None else round(amount / MICRO, 6)


def _title(value: Card | Mute | Shift) -> str:
    return kind_title(value.kind)


def _metrics(read: Insights) -> Document:
    """All figures but those of past training runs."""
    return {
        "period": "all_time" if read.days is None else f"last_{read.days}_days",
        **document(read.metrics),
        "calibrationError": _number(read.check.error, 4),
        "calibrationErrorBound": _number(read.check.bound, 4),
        "calibrationHolds": read.check.holds,
        "calibrationWords": read.check.reason,
        "autoExecuteThreshold": read.threshold,
        "atThreshold": document(read.at_threshold),
        "earning": read.earning,
        "phase": read.phase.number,
        "phaseReason": read.phase.reason,
        "approvalOverTime": document(read.over_time),
        "drift": document(read.drift),
        "nextTraining": read.training.words or "due",
        "pairs": read.training.pairs,
        "pairsNeeded": read.training.needed,
    }


def _profile(profile: LeaderProfile) -> Document:
    return {
        "domain": profile.domain,
        "principles": list(profile.principles),
        "guardrails": list(profile.guardrails),
        "patterns": [
            {"key": item.key, "text": item.text_with_name, "foundBy": len(item.sources), "uses": item.uses}
            for item in profile.patterns
        ],
        "decisions": [{"key": item.id, "text": item.text} for item in profile.decisions],
    }


def _costs(state: CostState) -> Document:
    """Costs against caps, as part of `crossPollStatus`."""
    return {
        "costThisHour": dollars(state.hour),
        "costCapPerHour": dollars(state.hour_cap),
        "costToday": dollars(state.day),
        "costCapPerDay": dollars(state.day_cap),
        "costThisMonth": dollars(state.month),
        "costCapPerMonth": dollars(state.month_cap),
    }


def _bubble(bubble: Bubble) -> Document:
    """A finding with the results of its gates."""
    learning, refused = bubble.learning, bubble.refused_by
    return {
        "id": bubble.id,
        "state": bubble.state.value,
        "targetAgent": learning.agent,
        "leader": bubble.leader,
        "text": learning.text,
        "category": learning.category,
        "confidence": learning.confidence.value,
        "importance": learning.importance.value,
        "evidence": list(learning.evidence),
        "reasons": [*learning.confidence.reasons, *learning.importance.reasons],
        "gates": document(bubble.gates),
        "refusedBy": refused.name if refused else "",
        "session": learning.session,
        "workspace": learning.workspace,
        "createdAt": instant(bubble.at),
        "flushedAt": instant(bubble.flushed_at),
        "pattern": bubble.pattern,
        "trust": label(learning.trust, approved=bubble.approved_at is not None),
    }


def _learning(view: LearningView) -> Document:
    """A learning with its sources and the entries that were promoted from it."""
    return {
        **document(view.entry),
        "from": document(view.promoted_from),
        "became": document(view.promoted_to),
        "sessions": list(view.sessions),
        "gone": list(view.gone),
        "prompts": view.prompts,
        "reached": document(view.reached),
    }


_CUSTOM: Mapping[type, Callable[[Any], Document]] = {
    Insights: _metrics,
    LeaderProfile: _profile,
    CostState: _costs,
    Bubble: _bubble,
    LearningView: _learning,
    DiffComment: dataclasses.asdict,
}
"""The classes that have their own function to make the document."""

_RULES: Mapping[type, _FieldRules] = {
    Card: _FieldRules(
        left_out="assignment tier shown_at subject fingerprint evidence_at",
        renamed={"estimate": "estimatedCost", "parts": "confidenceParts", "served": "servedBy"},
        properties="tier_word stated without_sandbox needs_confirmation",
        computed={
            "prompt": lambda card: card.assignment.prompt,
            "targetChannel": lambda card: card.assignment.channel,
            "workspace": lambda card: card.assignment.workspace,
            "runner": lambda card: card.assignment.runner,
            "flow": lambda card: card.assignment.flow,
            "parameters": lambda card: card.assignment.parameters,
            "kindTitle": _title,
            "tier": lambda card: int(card.tier),
        },
        digits=4,
    ),
    ConfidenceParts: _FieldRules(
        left_out="stated decided", renamed={"few": "fewDecisions"}, properties="few", digits=4
    ),
    Signal: _FieldRules(properties="share", digits=4),
    Mute: _FieldRules(
        left_out="tier workspace subject",
        renamed={"card": "prediction", "at": "since"},
        properties="why",
        computed={
            "kindTitle": _title,
            "workspace": lambda mute: mute.workspace or None,
            "subject": lambda mute: mute.subject or None,
        },
    ),
    CheckResult: _FieldRules(left_out="durations", properties="green", digits=3),
    SessionView: _FieldRules(
        left_out="next_step not_begun project facts state",
        renamed={"change_set_id": "changeSet"},
        properties="result",
        computed={"state": lambda view: "discarded" if view.discarded_at else view.state},
    ),
    ChangeSet: _FieldRules(renamed={"landed": "landedFiles"}),
    FileDiff: _FieldRules(left_out="cut all_or_nothing", renamed={"landed": "landedHunks"}),
    Task: _FieldRules(renamed={"channel": "channel"}),
    AgentView: _FieldRules(left_out="archetype", renamed={"used": "tokensUsed", "spent": "cost"}),
    Hold: _FieldRules(left_out="by"),
    Waiting: _FieldRules(left_out="text"),
    BlockedWork: _FieldRules(renamed={"at": "createdAt"}),
    ActivitySince: _FieldRules(renamed={"instant": "at", "waits": "waiting"}),
    LearnedCounts: _FieldRules(renamed={"by_itself": "inForceByItself"}),
    Guidance: _FieldRules(left_out="lines", renamed={"block": "guidance"}, properties="block provenance"),
    GuidanceItem: _FieldRules(left_out="sources trust"),
    TeachingState: _FieldRules(left_out="agent"),
    LearningEntry: _FieldRules(
        left_out="reinforced_by retired_because merged_into about review_since continues trust",
        renamed={"session_task": "task"},
        computed={
            "trust": lambda entry: label(entry.trust, approved=bool(entry.approved_by)),
            "because": lambda entry: entry.retired_because or entry.merged_into,
        },
    ),
    EntrySource: _FieldRules(renamed={"entry": "id"}),
    AcceptedFinding: _FieldRules(computed={"scope": lambda finding: "leadership"}),
    ModelCall: _FieldRules(digits=3),
    FactDraft: _FieldRules(left_out="trust"),
    ParaFact: _FieldRules(
        left_out="status created_at access_count last_accessed superseded_by forgotten trust approved_at",
        computed={"status": lambda fact: "active" if fact.active else "superseded"},
    ),
    RecallMatch: _FieldRules(
        left_out="id parts at tokens ref trust approved about place",
        computed={
            "id": lambda memory: memory.ref or memory.id,
            "timestamp": lambda memory: memory.at,
            "parts": lambda memory: {part.name: round(part.value * part.weight, 6) for part in memory.parts},
        },
        digits=6,
    ),
    ConfidenceBucket: _FieldRules(
        left_out="low high",
        renamed={"confidence": "avgConfidence", "at_least": "low", "at_most": "high", "name": "bucket"},
        properties="name",
        digits=4,
    ),
    Group: _FieldRules(digits=4),
    Metrics: _FieldRules(
        renamed={
            "total": "totalPredictions",
            "undecided": "waiting",
            "own": "ownPrompts",
            "auto_undone": "autoExecutedUndone",
            "confidence": "avgConfidence",
            "approved_confidence": "avgApprovedConfidence",
            "rejected_confidence": "avgRejectedConfidence",
            "trend": "trendDirection",
            "parts": "partsOfDay",
        },
        digits=4,
    ),
    Slice: _FieldRules(renamed={"start": "from", "end": "to"}, properties="approval_rate", digits=4),
    Drift: _FieldRules(renamed={"shifts": "kinds"}, properties="changed"),
    Shift: _FieldRules(renamed={"before": "approvalRateBefore"}, computed={"kindTitle": _title}, digits=4),
    Candidate: _FieldRules(left_out="trust", properties="dedupe_key"),
    LearningRecord: _FieldRules(left_out="fact", renamed={"at": "createdAt"}),
    Lift: _FieldRules(left_out="overlay_id"),
    Overlay: _FieldRules(left_out="candidate_id type agent_id run_kind workspace effect trust"),
}
