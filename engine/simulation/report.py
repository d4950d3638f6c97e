"""What a simulated month was, as one JSON-able document; nothing in it depends on the machine or its clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.hierarchy.bubbles import GATES
from engine.model import (
    BubbleState,
    Card,
    DecidedBy,
    LogEntry,
    Outcome,
    SessionState,
    SessionView,
    Source,
    Status,
    Verdict,
    dollars,
)
from engine.safety.pipeline import ORDER
from engine.simulation.month import Seen

EVERYTHING = 1_000_000

MADE_UP = (
    "the clock, chance, and the operator",
    "what collectors find in a made-up project called shop",
    "the runner: it accepts everything, does nothing, and costs something",
    "the sandbox: it only claims to confine",
)
REAL = "database, rails, permits, cards, Twin, state machine, schedule decisions, quiet hours, costs"


def document(engine: Engine, seen: Seen, *, days: int, seed: int, begin: datetime) -> dict[str, Any]:
    """The whole month. Money in dollars, times as the gateway writes them."""
    cards = engine.cards.recent(EVERYTHING)
    log = engine.safety.log(EVERYTHING)[::-1]
    sessions = engine.sessions.list(limit=EVERYTHING)
    blocked = [entry for entry in log if entry.blocked]
    caps = engine.safety.costs.state()
    return {
        "days": days,
        "seed": seed,
        "from": begin.isoformat(),
        "real": REAL,
        "madeUp": list(MADE_UP),
        "cards": _cards(cards),
        "kinds": _kinds(cards),
        "rails": [_rail(name, blocked) for name in ORDER],
        "gates": _gates(engine),
        "wentUp": len(engine.wisdom.bubbles(state=BubbleState.FLUSHED, limit=EVERYTHING)),
        "states": {state: round(hours, 2) for state, hours in sorted(seen.hours.items())},
        "asleepHours": round(seen.asleep.total_seconds() / 3600, 2),
        "cycles": {name: seen.jobs[name] for name in ("cards", "act")},
        "phases": [{"phase": number, "at": at.isoformat()} for number, at in seen.phases],
        "holds": [{"at": at.isoformat(), "word": word, "reason": reason} for at, word, reason in seen.holds],
        "cost": {
            "total": dollars(sum(view.cost for view in sessions)),
            "peaks": {window: dollars(amount) for window, amount in seen.peak.items()},
            "caps": {"hour": dollars(caps.hour_cap), "day": dollars(caps.day_cap), "month": dollars(caps.month_cap)},
            "endedByCap": [
                {"at": _at(view.ended_at), "channel": view.channel, "prompt": view.prompt, "reason": view.error}
                for view in reversed(sessions)
                if view.state is SessionState.FAILED and (view.error or "").startswith("cost: ")
            ],
        },
        "perDay": [_day(number, begin, cards, log, sessions, seen) for number in range(days)],
        "blocked": [_blocked(entry) for entry in blocked],
    }


def _cards(cards: Sequence[Card]) -> dict[str, int]:
    statuses = Counter(card.status for card in cards)
    return {
        "made": len(cards),
        "approved": sum(card.decided_by is DecidedBy.OPERATOR and card.status is not Status.REJECTED for card in cards),
        "dismissed": statuses[Status.REJECTED],
        "expired": sum(card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN for card in cards),
        "withdrawn": sum(card.outcome is Outcome.WITHDRAWN for card in cards),
        "executed": statuses[Status.EXECUTED],
        "executedByAutonomy": sum(card.decided_by is DecidedBy.AUTONOMY for card in cards),
        "followUps": sum(card.source is Source.FOLLOW_UP for card in cards),
        "pending": statuses[Status.PENDING],
    }


def _kinds(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """What the operator decided on each kind of predicted card, and the confidence that its newest card states, None
    while none does. `cards`: the newest first."""
    kinds: dict[str, list[Card]] = {}
    for card in cards:
        if card.source is not Source.OPERATOR:
            kinds.setdefault(card.kind, []).append(card)
    told = []
    for kind, these in sorted(kinds.items()):
        mine = Counter(card.status for card in these if card.decided_by is DecidedBy.OPERATOR)
        stated = next((round(card.confidence, 3) for card in these if card.stated), None)
        dismissed = mine[Status.REJECTED]
        told.append({"kind": kind, "approved": mine.total() - dismissed, "dismissed": dismissed, "confidence": stated})
    return told


def _rail(name: str, blocked: Sequence[LogEntry]) -> dict[str, Any]:
    """How often this rail was the first to say no, how often another had said it before, and one example."""
    first = [entry for entry in blocked if first_objection(entry)[0] == name]
    objected = sum(
        any(verdict.rail == name and verdict.verdict is not Verdict.ALLOW for verdict in entry.verdicts)
        for entry in blocked
    )
    return {
        "rail": name,
        "blocked": len(first),
        "alsoObjected": objected - len(first),
        "example": _blocked(first[0]) if first else None,
    }


def _gates(engine: Engine) -> list[dict[str, Any]]:
    """How often each gate between a worker's lesson and its leader refused (SPEC 1.7), with one example."""
    bubbles = engine.wisdom.bubbles(limit=EVERYTHING)[::-1]
    found: list[dict[str, Any]] = []
    for number, name in enumerate(GATES, 1):
        refused = [bubble for bubble in bubbles if bubble.refused_by is not None and bubble.refused_by.number == number]
        gate = refused[0].refused_by if refused else None
        example = {"text": refused[0].learning.text, "reason": gate.reason} if gate else None
        found.append({"gate": number, "name": name, "refused": len(refused), "example": example})
    return found


def first_objection(entry: LogEntry) -> tuple[str, str]:
    """The rail that decided a blocked entry, and its reason."""
    return next((verdict.rail, verdict.reason) for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW)


def _blocked(entry: LogEntry) -> dict[str, Any]:
    rail, reason = first_objection(entry)
    return {
        "at": entry.at.isoformat(),
        "rail": rail,
        "reason": reason,
        "by": entry.decided_by,
        "triggerType": entry.trigger_type.value,
        "workspace": Path(entry.workspace).name,
        "channel": entry.channel,
        "prompt": entry.prompt,
    }


def _at(instant: datetime | None) -> str:
    return "" if instant is None else instant.isoformat()


def _day(
    number: int,
    begin: datetime,
    cards: Sequence[Card],
    log: Sequence[LogEntry],
    sessions: Sequence[SessionView],
    seen: Seen,
) -> dict[str, Any]:
    start = begin + timedelta(days=number)
    end = start + timedelta(days=1)

    def within(at: datetime | None) -> bool:
        return at is not None and start <= at < end

    passed = Counter(entry.decided_by for entry in log if not entry.blocked and within(entry.at))
    return {
        "day": number + 1,
        "odd": [odd for day, odd in seen.odd if day == number],
        "made": sum(within(card.created_at) for card in cards),
        "approved": passed[DecidedBy.OPERATOR.value],
        "dismissed": sum(card.status is Status.REJECTED and within(card.decided_at) for card in cards),
        "byAutonomy": passed[DecidedBy.AUTONOMY.value],
        "blocked": sum(entry.blocked and within(entry.at) for entry in log),
        "cost": dollars(sum(view.cost for view in sessions if within(view.ended_at))),
    }
