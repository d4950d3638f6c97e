"""The verb `candidates` (SPEC 5, 9.8): what the system proposes to do otherwise, why, and the operator's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import Refusal
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    CandidateView,
    LearningRecord,
    Lift,
    Overlay,
)

if TYPE_CHECKING:
    from engine.engine import Engine

ACTIONS = ("list", "show", "approve", "reject", "rollback", "undo", "digest", "records")


def candidates(engine: Engine, arguments: Arguments) -> Document:
    """list (of one status or type), show, approve, reject, rollback, undo; digest looks for new ones now, records
    are what they are drawn from."""
    port = engine.adaptation
    limit = int(arguments.number("limit", 50, least=1, most=1000))
    reason = arguments.text("reason")
    match arguments.choice("action", ACTIONS, "list"):
        case "show":
            return view(port.view(arguments.needed("id")))
        case "approve":
            return {"candidate": candidate(port.approve(arguments.needed("id")))}
        case "reject":
            return {"candidate": candidate(port.reject(arguments.needed("id"), reason))}
        case "rollback":
            return {"candidate": candidate(port.roll_back(arguments.needed("id"), reason))}
        case "undo":
            return {"candidate": candidate(port.undo(arguments.needed("id")))}
        case "digest":
            drafted = port.digest()
            return {"drafted": [candidate(one) for one in drafted], "notDrafted": port.not_drafted()} | _counts(engine)
        case "records":
            return {"records": [record(one) for one in port.records(arguments.text("kind"), limit)]}
    found = port.candidates(_status(arguments.text("status")), _type(arguments.text("type")), limit)
    return {"candidates": [candidate(one) for one in found], "mode": engine.settings.current.adaptation.mode.value} | (
        _counts(engine)
    )


def candidate(one: Candidate) -> Document:
    """A proposed change of behaviour."""
    return {
        "id": one.id,
        "type": one.type.value,
        "status": one.status.value,
        "title": one.title,
        "score": one.score,
        "scopeType": one.scope_type,
        "scopeId": one.scope_id,
        "sourceLabel": one.source_label,
        "dedupeKey": one.dedupe_key,
        "effect": one.effect.to_json(),
        "targetAgent": one.agent_id,
        "runKind": one.run_kind,
        "workspace": one.workspace,
        "draftedFrom": list(one.drafted_from),
        "corroboratedBy": list(one.corroborated_by),
        "against": list(one.against),
        "createdAt": wire.instant(one.created_at),
        "changedAt": wire.instant(one.changed_at),
        "decidedBy": one.decided_by,
        "reason": one.reason,
    }


def view(one: CandidateView) -> Document:
    """All that a decision is made by."""
    return {
        "candidate": candidate(one.candidate),
        "records": [record(each) for each in one.records],
        "preview": {"before": list(one.preview.before), "after": list(one.preview.after)},
        "lift": None if one.lift is None else lift(one.lift),
        "overlays": [overlay(each) for each in one.overlays],
        "stations": [
            {"name": each.name, "at": wire.instant(each.at), "words": each.words, "state": each.state}
            for each in one.stations
        ],
    }


def record(one: LearningRecord) -> Document:
    """What happened once, weighed."""
    return {
        "id": one.id,
        "kind": one.kind.value,
        "score": one.score,
        "reason": one.reason,
        "sourceLabel": one.source_label,
        "scopeType": one.scope_type,
        "scopeId": one.scope_id,
        "targetAgent": one.agent,
        "session": one.session_id,
        "workspace": one.workspace,
        "createdAt": wire.instant(one.at),
        "details": dict(one.details),
    }


def lift(one: Lift) -> Document:
    """What an effect does to the share of runs that go well."""
    return {
        "withRuns": one.with_runs,
        "withGood": one.with_good,
        "withoutRuns": one.without_runs,
        "withoutGood": one.without_good,
        "difference": one.difference,
        "low": one.low,
        "high": one.high,
        "verdict": one.verdict,
    }


def overlay(one: Overlay) -> Document:
    """An effect that is, or was, in force."""
    return {"id": one.id, "since": wire.instant(one.since), "until": wire.instant(one.until)}


def _counts(engine: Engine) -> Document:
    counts = engine.adaptation.counts()
    return {"counts": {status.value: number for status, number in counts.statuses.items()}, "records": counts.records}


def _status(word: str) -> CandidateStatus | None:
    known = [one.value for one in CandidateStatus]
    if word and word not in known:
        raise Refusal("bad_status", f"candidates have no status {word[:40]!r}", "one of " + ", ".join(known))
    return CandidateStatus(word) if word else None


def _type(word: str) -> CandidateType | None:
    known = [one.value for one in CandidateType]
    if word and word not in known:
        raise Refusal("bad_type", f"candidates have no type {word[:40]!r}", "one of " + ", ".join(known))
    return CandidateType(word) if word else None
