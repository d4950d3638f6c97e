"""Values as JSON documents, for verbs, the API and screens (SPEC 9.8, 10.1).

A field has its name in camelCase; `documents.toml` has the exceptions of a class. Money is in dollars, instants are in
ISO 8601 and UTC.

`document` is called by all operations, and by the console for what it shows as fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel

from engine.clock import format_instant
from engine.files import read_table
from engine.model import (
    AcceptedFinding,
    AgentView,
    Bubble,
    Card,
    DiffComment,
    Insights,
    LeaderProfile,
    LearningEntry,
    LearningView,
    Mute,
    ParaFact,
    RecallMatch,
    SessionView,
    TasteShift,
)
from engine.model.prompts import label_trust
from engine.prediction import kind_title
from engine.wording import to_dollars

Document = dict[str, Any]

_RENAMED_FIELDS = {
    "agent": "targetAgent",
    "agent_id": "targetAgent",
    "channel": "targetChannel",
    "session_id": "session",
}
"""Names of fields in all documents, unless the rules of a class give another name."""

_MONEY_FIELDS = frozenset({"cost", "spent", "estimate", "cost_per_accepted"})
"""Fields in micro-dollars."""


class _FieldRules(NamedTuple):
    """The rules of a class, as `documents.toml` explains them."""

    left_out: str = ""
    renamed: Mapping[str, str] = {}
    properties: str = ""
    values: Mapping[str, str] = {}
    money: bool = False
    digits: int | None = None


_RULES_BY_CLASS = {name: _FieldRules(**row) for name, row in read_table(__file__, "documents.toml").items()}


def instant(at: datetime | None) -> str | None:
    """See `format_instant`; None for None."""
    return None if at is None else format_instant(at)


def document(value: Any) -> Any:
    """The JSON of `value`, which is a value of the model, a collection of such values, or already JSON."""
    if convert := _DOCUMENT_MAKERS.get(type(value)):
        return convert(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    match value:
        case Enum():
            return value.value
        case datetime():
            return instant(value)
        case Mapping():
            return {document(name): document(item) for name, item in value.items()}
        case list() | tuple():
            return list(map(document, value))
        case Path():
            return str(value)
    return _make_document_of_fields(value) if dataclasses.is_dataclass(value) else value


def _make_document_of_fields(value: Any) -> Document:
    kind = value.__class__
    rules = _RULES_BY_CLASS.get(kind.__name__, _FieldRules())
    fields: Document = {}
    for name, key in _list_keys(kind).items():
        fields[key] = _round_number(getattr(value, name), rules.digits, money=rules.money or name in _MONEY_FIELDS)
    for key, path in rules.values.items():
        fields[key] = _round_number(attrgetter(path)(value), rules.digits)
    for key, compute in _COMPUTED_FIELDS.get(kind, {}).items():
        fields[key] = _round_number(compute(value), rules.digits)
    return fields


@cache
def _list_keys(kind: type[Any]) -> dict[str, str]:
    """The fields and properties of a class that its document has, each with its name there."""
    rules = _RULES_BY_CLASS.get(kind.__name__, _FieldRules())
    left_out = rules.left_out.split()
    names = [field.name for field in dataclasses.fields(kind) if field.name not in left_out]
    return {
        name: rules.renamed.get(name) or _RENAMED_FIELDS.get(name) or to_camel(name)
        for name in (*names, *rules.properties.split())
    }


def _round_number(value: Any, digits: int | None, *, money: bool = False) -> Any:
    if money:
        return None if value is None else to_dollars(value)
    return round(value, digits) if digits is not None and isinstance(value, float) else document(value)


def _make_metrics_document(insights: Insights) -> Document:
    """All figures but those of past training runs."""
    return {
        "period": "all_time" if insights.days is None else f"last_{insights.days}_days",
        **document(insights.metrics),
        "calibrationError": _round_number(insights.check.error, 4),
        "calibrationErrorBound": _round_number(insights.check.bound, 4),
        "calibrationHolds": insights.check.is_calibrated,
        "calibrationWords": insights.check.reason,
        "autoExecuteThreshold": insights.threshold,
        "atThreshold": document(insights.at_threshold),
        "earning": insights.earning,
        "phase": insights.phase.number,
        "phaseReason": insights.phase.reason,
        "approvalOverTime": document(insights.over_time),
        "drift": document(insights.drift),
        "nextTraining": insights.training.words or "due",
        "pairs": insights.training.pairs,
        "pairsNeeded": insights.training.needed,
    }


def _make_profile_document(profile: LeaderProfile) -> Document:
    return {
        "domain": profile.domain,
        "principles": list(profile.principles),
        "guardrails": list(profile.guardrails),
        "patterns": [
            {"key": item.key, "text": item.text_with_name, "foundBy": len(item.sources), "uses": item.uses}
            for item in profile.patterns
        ],
        "decisions": [{"key": item.key, "text": item.text} for item in profile.decisions],
    }


def _make_learning_document(view: LearningView) -> Document:
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


_DOCUMENT_MAKERS: Mapping[type, Callable[[Any], Document]] = {
    Insights: _make_metrics_document,
    LeaderProfile: _make_profile_document,
    LearningView: _make_learning_document,
    DiffComment: dataclasses.asdict,
}
"""The classes that have their own function to make the document."""


def _find_kind_title(value: Card | Mute | TasteShift) -> str:
    return kind_title(value.kind)


_COMPUTED_FIELDS: Mapping[type, Mapping[str, Callable[[Any], Any]]] = {
    AgentView: {"cost": lambda agent: to_dollars(agent.activity.total_cost)},
    Bubble: {
        "reasons": lambda bubble: [*bubble.learning.confidence.reasons, *bubble.learning.importance.reasons],
        "refusedBy": lambda bubble: bubble.refused_by.name if bubble.refused_by else "",
        "trust": lambda bubble: label_trust(bubble.learning.trust, approved=bubble.approved_at is not None),
    },
    Card: {"kindTitle": _find_kind_title},
    Mute: {
        "kindTitle": _find_kind_title,
        "workspace": lambda mute: mute.workspace or None,
        "subject": lambda mute: mute.subject or None,
    },
    TasteShift: {"kindTitle": _find_kind_title},
    SessionView: {"state": lambda view: "discarded" if view.discarded_at else view.state},
    LearningEntry: {
        "trust": lambda entry: label_trust(entry.trust, approved=entry.approved_at is not None),
        "because": lambda entry: entry.retired_because or entry.merged_into,
    },
    AcceptedFinding: {"scope": lambda finding: "leadership"},
    ParaFact: {"status": lambda fact: "active" if fact.is_active else "superseded"},
    RecallMatch: {
        "id": lambda memory: memory.ref or memory.id,
        "parts": lambda memory: {part.name: round(part.value * part.weight, 6) for part in memory.parts},
    },
}
"""Further values of the documents of a class, each computed by a function."""
