"""Values as JSON documents, for verbs, the API and screens (SPEC 9.8, 10.1).

A field of a class stands under its name in camelCase; `_SHAPES` says what else is particular about a class. Money is in
dollars, instants are in ISO 8601 and UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any

from pydantic.alias_generators import to_camel

from engine.model import (
    MICRO,
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
    Learnt,
    Metrics,
    ModelCall,
    Mute,
    ParaFact,
    Recalled,
    SessionView,
    Shift,
    Signal,
    Slice,
    Task,
    TeachingState,
    Waiting,
)
from engine.model import adaptation as change
from engine.model.trust import label
from engine.prediction.kinds import kind_title
from engine.views import Blocked, Since
from engine.views import Learnt as LearntSince

Document = dict[str, Any]

_EVERYWHERE = {"agent": "targetAgent", "agent_id": "targetAgent", "channel": "targetChannel", "session_id": "session"}
"""What fields of these names are called in every document that does not say otherwise."""

_MONEY = frozenset({"cost", "spent", "estimate", "cost_per_accepted"})
"""Fields in micro-dollars."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """What is particular about the document of a class. `leave`: fields that are not in it; `names`: of fields that are
    called otherwise; `also`: properties that are in it; `more`: what it has besides; `digits` of its numbers after the
    point."""

    leave: str = ""
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    also: str = ""
    more: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    digits: int | None = None


def instant(at: datetime | None) -> str | None:
    """`2026-01-05T09:30:00Z`; microseconds only when there are any."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def document(value: Any) -> Any:
    """`value` as JSON: one of the model's, a collection of them, or what is JSON already."""
    if convert := _OWN.get(type(value)):
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
    if not dataclasses.is_dataclass(value):
        return value
    shape = _SHAPES.get(type(value), _Shape())
    left_out = shape.leave.split()
    fields: Document = {}
    for name in (*_fields(value.__class__), *shape.also.split()):
        if name not in left_out:
            key = shape.names.get(name) or _EVERYWHERE.get(name) or to_camel(name)
            fields[key] = _number(getattr(value, name), shape.digits, money=name in _MONEY)
    for key, of in shape.more.items():
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
    """Micro-dollars as dollars, to the micro-dollar."""
    return None if amount is None else round(amount / MICRO, 6)


def _title(value: Card | Mute | Shift) -> str:
    return kind_title(value.kind)


def _metrics(read: Insights) -> Document:
    """All figures but those of the trainings that were made."""
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
            {"key": each.key, "text": each.said, "foundBy": len(each.sources), "uses": each.uses}
            for each in profile.patterns
        ],
        "decisions": [{"key": each.id, "text": each.text} for each in profile.decisions],
    }


def _costs(state: CostState) -> Document:
    """Cost against caps, as part of `crossPollStatus`."""
    return {
        "costThisHour": dollars(state.hour),
        "costCapPerHour": dollars(state.hour_cap),
        "costToday": dollars(state.day),
        "costCapPerDay": dollars(state.day_cap),
        "costThisMonth": dollars(state.month),
        "costCapPerMonth": dollars(state.month_cap),
    }


def _bubble(bubble: Bubble) -> Document:
    """A finding on its way up, with what the gates said."""
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
    """A learning with where it came from and went."""
    return {
        **document(view.entry),
        "from": document(view.promoted_from),
        "became": document(view.promoted_to),
        "sessions": list(view.sessions),
        "gone": list(view.gone),
        "prompts": view.prompts,
        "reached": document(view.reached),
    }


_OWN: Mapping[type, Callable[[Any], Document]] = {
    Insights: _metrics,
    LeaderProfile: _profile,
    CostState: _costs,
    Bubble: _bubble,
    LearningView: _learning,
    DiffComment: dataclasses.asdict,
}
"""Classes whose document has another form than they have."""

_SHAPES: Mapping[type, _Shape] = {
    Card: _Shape(
        "assignment tier shown_at subject fingerprint evidence_at",
        {"estimate": "estimatedCost", "parts": "confidenceParts", "served": "servedBy"},
        "tier_word stated without_sandbox needs_confirmation",
        {
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
    ConfidenceParts: _Shape("stated decided", {"few": "fewDecisions"}, "few", digits=4),
    Signal: _Shape(also="share", digits=4),
    Mute: _Shape(
        "tier workspace subject",
        {"card": "prediction", "at": "since"},
        "why",
        {
            "kindTitle": _title,
            "workspace": lambda mute: mute.workspace or None,
            "subject": lambda mute: mute.subject or None,
        },
    ),
    CheckResult: _Shape("durations", also="green", digits=3),
    SessionView: _Shape(
        "next_step not_begun project facts state",
        {"change_set_id": "changeSet"},
        "result",
        {"state": lambda view: "discarded" if view.discarded_at else view.state},
    ),
    ChangeSet: _Shape(names={"landed": "landedFiles"}),
    FileDiff: _Shape("cut whole", {"landed": "landedHunks"}),
    Task: _Shape(names={"channel": "channel"}),
    AgentView: _Shape("archetype", {"used": "tokensUsed", "spent": "cost"}),
    Hold: _Shape("by"),
    Waiting: _Shape("text"),
    Blocked: _Shape(names={"at": "createdAt"}),
    Since: _Shape(names={"instant": "at", "waits": "waiting"}),
    LearntSince: _Shape(names={"by_itself": "inForceByItself"}),
    Guidance: _Shape("lines", {"block": "guidance"}, "block provenance"),
    GuidanceItem: _Shape("sources trust"),
    TeachingState: _Shape("agent"),
    LearningEntry: _Shape(
        "reinforced_by retired_because merged_into about review_since continues trust",
        {"session_task": "task"},
        more={
            "trust": lambda entry: label(entry.trust, approved=bool(entry.approved_by)),
            "because": lambda entry: entry.retired_because or entry.merged_into,
        },
    ),
    EntrySource: _Shape(names={"entry": "id"}),
    Learnt: _Shape(more={"scope": lambda learnt: "leadership"}),
    ModelCall: _Shape(digits=3),
    FactDraft: _Shape("trust"),
    ParaFact: _Shape(
        "status created_at access_count last_accessed superseded_by forgotten trust approved_at",
        more={"status": lambda fact: "active" if fact.active else "superseded"},
    ),
    Recalled: _Shape(
        "id parts at tokens ref trust approved about place",
        more={
            "id": lambda memory: memory.ref or memory.id,
            "timestamp": lambda memory: memory.at,
            "parts": lambda memory: {part.name: round(part.value * part.weight, 6) for part in memory.parts},
        },
        digits=6,
    ),
    ConfidenceBucket: _Shape(
        "low high",
        {"confidence": "avgConfidence", "at_least": "low", "at_most": "high", "name": "bucket"},
        "name",
        digits=4,
    ),
    Group: _Shape(digits=4),
    Metrics: _Shape(
        names={
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
    Slice: _Shape(names={"start": "from", "end": "to"}, also="approval_rate", digits=4),
    Drift: _Shape(names={"shifts": "kinds"}, also="changed"),
    Shift: _Shape(names={"before": "approvalRateBefore"}, more={"kindTitle": _title}, digits=4),
    change.Candidate: _Shape("trust", also="dedupe_key"),
    change.LearningRecord: _Shape("fact", {"at": "createdAt"}),
    change.Lift: _Shape("overlay_id"),
    change.Overlay: _Shape("candidate_id type agent_id run_kind workspace effect trust"),
}
