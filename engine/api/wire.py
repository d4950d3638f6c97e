"""Values as JSON documents with the gateway's field names (SPEC 9.8, 10.1). Money in dollars, instants in ISO, UTC.

Light: a verb that an engine answers for imports this and no engine.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.model import (
    AgentView,
    Card,
    ChangeSet,
    CheckResult,
    CostState,
    Hold,
    Mute,
    RailVerdict,
    Refusal,
    SessionView,
    Signal,
    Task,
    TranscriptLine,
    Waiting,
    dollars,
)
from engine.prediction.kinds import kind_title

if TYPE_CHECKING:
    from engine.views import Since

Document = dict[str, Any]


def instant(at: datetime | None) -> str | None:
    """`2026-01-05T09:30:00Z`; microseconds only when there are any."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def refusal(error: Refusal) -> Document:
    """What is printed and sent when something is not done."""
    return {"error": {"code": error.code, "message": error.message, "fix": error.fix}}


def card(one: Card) -> Document:
    """A prediction."""
    return {
        "id": one.id,
        "prompt": one.assignment.prompt,
        "targetAgent": one.agent,
        "targetChannel": one.assignment.channel,
        "confidence": round(one.confidence, 4),
        "stated": one.stated,
        "tier": int(one.tier),
        "tierWord": one.tier_word,
        "reasoning": one.reasoning,
        "createdAt": instant(one.created_at),
        "status": one.status.value,
        "source": one.source.value,
        "kind": one.kind,
        "kindTitle": kind_title(one.kind),
        "workspace": one.assignment.workspace,
        "runner": one.assignment.runner,
        "flow": one.assignment.flow,
        "parameters": dict(one.assignment.parameters),
        "band": one.band.value,
        "novel": one.novel,
        "confidenceParts": None
        if one.parts is None
        else {
            "twin": round(one.parts.twin, 4),
            "pattern": round(one.parts.pattern, 4),
            "urgency": round(one.parts.urgency, 4),
            "time": round(one.parts.time, 4),
            "total": round(one.parts.total, 4),
            "words": list(one.parts.words),
            "fewDecisions": one.parts.few,
        },
        "signals": [signal(each) for each in one.signals],
        "verdicts": [verdict(each) for each in one.verdicts],
        "estimatedCost": dollars(one.estimate),
        "checkOnly": one.check_only,
        "undoNote": one.undo_note,
        "withoutSandbox": one.without_sandbox,
        "needsConfirmation": one.needs_confirmation,
        "servedBy": one.served,
        "expiresAt": instant(one.expires_at),
        "snoozedUntil": instant(one.snoozed_until),
        "decidedBy": None if one.decided_by is None else one.decided_by.value,
        "decidedAt": instant(one.decided_at),
        "outcome": None if one.outcome is None else one.outcome.value,
        "session": one.session_id,
        "taskId": one.task_id,
        "note": one.note,
    }


def mute(one: Mute) -> Document:
    """What stays away because it was dismissed; `until` null is until it is lifted, `workspace` null everywhere, and
    `subject` null the whole kind."""
    return {
        "id": one.id,
        "kind": one.kind,
        "kindTitle": kind_title(one.kind),
        "workspace": one.workspace or None,
        "subject": one.subject or None,
        "dismissals": one.dismissals,
        "since": instant(one.at),
        "until": instant(one.until),
        "reason": None if one.reason is None else one.reason.value,
        "why": one.why,
        "prediction": one.card,
        "prompt": one.prompt,
    }


def signal(one: Signal) -> Document:
    """What one collector found."""
    return {
        "name": one.name,
        "weight": one.weight,
        "relevance": round(one.relevance, 4),
        "share": round(one.share, 4),
        "evidence": list(one.evidence),
        "error": one.error,
    }


def verdict(one: RailVerdict) -> Document:
    """One rail's word."""
    return {"rail": one.rail, "verdict": one.verdict.value, "reason": one.reason, "rule": one.rule}


def check(one: CheckResult | None) -> Document | None:
    """What a run of the project's tests said."""
    if one is None:
        return None
    return {
        "tool": one.tool,
        "green": one.green,
        "passed": one.passed,
        "failed": one.failed,
        "skipped": one.skipped,
        "errors": one.errors,
        "seconds": round(one.seconds, 3),
        "failing": list(one.failing),
        "counted": one.counted,
    }


def session(one: SessionView | None) -> Document | None:
    """A session."""
    if one is None:
        return None
    return {
        "id": one.id,
        "predictionId": one.prediction_id,
        "prompt": one.prompt,
        "workspace": one.workspace,
        "targetChannel": one.channel,
        "targetAgent": one.agent,
        "runner": one.runner,
        "flow": one.flow,
        "state": "discarded" if one.discarded_at else one.state.value,
        "result": None if one.result is None else one.result.value,
        "mode": one.mode,
        "sandbox": one.sandbox,
        "cwd": one.cwd,
        "gone": one.gone,
        "createdAt": instant(one.created_at),
        "startedAt": instant(one.started_at),
        "endedAt": instant(one.ended_at),
        "discardedAt": instant(one.discarded_at),
        "tokens": one.tokens,
        "cost": dollars(one.cost),
        "summary": one.summary,
        "error": one.error,
        "check": check(one.check),
        "changeSet": one.change_set_id,
        "lines": one.lines,
    }


def line(one: TranscriptLine) -> Document:
    """One line of a transcript."""
    return {"number": one.number, "at": instant(one.at), "kind": one.kind, "text": one.text}


def change_set(one: ChangeSet | None) -> Document | None:
    """A change set."""
    if one is None:
        return None
    return {
        "id": one.id,
        "session": one.session_id,
        "predictionId": one.prediction_id,
        "workspace": one.workspace,
        "state": one.state.value,
        "title": one.title,
        "files": [
            {
                "path": file.path,
                "status": file.status,
                "added": file.added,
                "removed": file.removed,
                "oldPath": file.old_path,
                "note": file.note,
                "refused": file.refused,
            }
            for file in one.files
        ],
        "createdAt": instant(one.created_at),
        "decidedAt": instant(one.decided_at),
        "branch": one.branch,
        "check": check(one.check),
        "note": one.note,
        "landedFiles": one.landed,
        "landings": one.landings,
        "comments": [dataclasses.asdict(comment) for comment in one.comments],
    }


def task(one: Task) -> Document:
    """A task."""
    return {
        "id": one.id,
        "title": one.title,
        "state": one.state,
        "channel": one.channel,
        "workspace": one.workspace,
        "source": one.source,
        "createdAt": instant(one.created_at),
        "updatedAt": instant(one.updated_at),
        "session": one.session_id,
        "note": one.note,
        "needs": list(one.needs),
        "waitsFor": list(one.waits_for),
    }


def agent(one: AgentView) -> Document:
    """An agent."""
    return {
        "id": one.id,
        "title": one.title,
        "reportsTo": one.reports_to,
        "tier": one.tier,
        "tierRule": one.tier_rule,
        "domain": one.domain,
        "channels": list(one.channels),
        "state": one.state,
        "tokens": one.tokens,
        "sessions": one.sessions,
        "tokensUsed": one.used,
        "cost": dollars(one.spent),
        "broken": one.broken,
    }


def hold(one: Hold) -> Document:
    """Something that stops or pauses the engine."""
    return {"word": one.word, "reason": one.reason, "since": instant(one.since), "until": instant(one.until)}


def waiting(one: Waiting) -> Document:
    """One entry of the operator's queue."""
    return {
        "kind": one.kind,
        "id": one.id,
        "title": one.title,
        "since": instant(one.since),
        "session": one.session_id,
        "hostile": one.hostile,
    }


def since(one: Since) -> Document:
    """The morning look."""
    return {
        "at": instant(one.instant),
        "ran": [session(each) for each in one.ran],
        "blocked": [
            {
                "predictionId": each.prediction_id,
                "prompt": each.prompt,
                "rail": each.rail,
                "verdict": each.verdict.value,
                "reason": each.reason,
                "decidedBy": each.decided_by,
                "createdAt": instant(each.at),
            }
            for each in one.blocked
        ],
        "approved": one.approved,
        "approvedByItself": one.approved_by_itself,
        "rejected": one.rejected,
        "spent": dollars(one.spent),
        "learnt": {
            "learnings": one.learnt.learnings,
            "facts": one.learnt.facts,
            "proposed": one.learnt.proposed,
            "inForceByItself": one.learnt.by_itself,
        },
        "waiting": [waiting(each) for each in one.waits],
    }


def costs(one: CostState) -> Document:
    """Cost against caps, as part of `crossPollStatus`."""
    return {
        "costThisHour": dollars(one.hour),
        "costCapPerHour": dollars(one.hour_cap),
        "costToday": dollars(one.day),
        "costCapPerDay": dollars(one.day_cap),
        "costThisMonth": dollars(one.month),
        "costCapPerMonth": dollars(one.month_cap),
    }


def by_itself(earned: Any) -> Document | None:
    """What is still needed before anything runs by itself; null where nothing acts."""
    return None if earned is None else {"missing": list(earned.missing), "words": earned.words}
