"""Simulates days in a temporary home, and reports on them, for `clawpy simulate`.

The report is a document that can be written as JSON. Nothing in it depends on the machine or its clock.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.git.environment import get_temporary_folder
from engine.hierarchy.bubbles import GATES
from engine.model import (
    BubbleState,
    Card,
    DecidedBy,
    LogEntry,
    Outcome,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
    dollars,
    group_pairs,
)
from engine.safety.pipeline import RAIL_ORDER
from engine.simulation.month import Observations, SimulatedMonth
from engine.simulation.world import FIRST_DAY, open_world

MAX_DAYS = 366
"""Maximum number of days that are simulated."""

NO_LIMIT = 1_000_000
"""More cards, entries and sessions than there are."""

SIMULATED = (
    "the clock, chance, and the operator",
    "what collectors find in a made-up project called shop",
    "the runner: it accepts everything, does nothing, and costs something",
    "the sandbox: it only claims to confine",
)

REAL = "database, rails, permits, cards, Twin, state machine, schedule decisions, quiet hours, costs"


def simulate(days: int = 30, seed: int = 1) -> dict[str, Any]:
    """Simulate `days` days (1 to 366) with `seed`. The same arguments give the same document. Raises `Refusal`
    `bad_days`."""
    if not 1 <= days <= MAX_DAYS:
        raise Refusal("bad_days", f"{days} days cannot be simulated", f"choose 1 to {MAX_DAYS}, for example --days 30")
    with (
        tempfile.TemporaryDirectory(prefix="clawpy-simulate-", dir=get_temporary_folder()) as folder,
        open_world(Path(folder), seed) as world,
    ):
        observed = _run_in_thread(SimulatedMonth(world, seed), days)
        return make_document(world.engine, observed, days=days, seed=seed)


def _run_in_thread(month: SimulatedMonth, days: int) -> Observations:
    """Simulate `days` days in another thread, because the main thread handles Ctrl-C. On Ctrl-C the simulation is
    cancelled, and its thread ends before this function returns."""
    with ThreadPoolExecutor(1, "clawpy-month") as executor:
        try:
            return executor.submit(month.run, days).result()
        except BaseException:
            month.cancel()
            raise


def make_document(engine: Engine, observed: Observations, *, days: int, seed: int) -> dict[str, Any]:
    """The report on all simulated days. Money is in dollars, and times are in ISO format."""
    cards = engine.cards.list_recent(NO_LIMIT)
    log = engine.safety.log(NO_LIMIT)[::-1]
    sessions = engine.sessions.list(limit=NO_LIMIT)
    blocked = [entry for entry in log if entry.blocked]
    return {
        "days": days,
        "seed": seed,
        "from": FIRST_DAY.isoformat(),
        "real": REAL,
        "madeUp": list(SIMULATED),
        "cards": _count_cards(cards),
        "kinds": _list_kinds(cards),
        "rails": [_describe_rail(name, blocked) for name in RAIL_ORDER],
        "gates": _list_gates(engine),
        "wentUp": len(engine.bubbles.list(state=BubbleState.FLUSHED, limit=NO_LIMIT)),
        "states": {state: round(hours, 2) for state, hours in sorted(observed.hours.items())},
        "asleepHours": round(observed.asleep.total_seconds() / 3600, 2),
        "cycles": {name: observed.jobs[name] for name in ("cards", "act")},
        "phases": [{"phase": number, "at": at.isoformat()} for number, at in observed.phases],
        "holds": [{"at": at.isoformat(), "word": hold.word, "reason": hold.reason} for at, hold in observed.holds],
        "cost": {
            "total": dollars(sum(view.cost for view in sessions)),
            "peaks": {window: dollars(amount) for window, amount in observed.peak.items()},
            "caps": {window: dollars(cap) for window, cap in engine.safety.costs.state().caps.items()},
            "endedByCap": _list_ended_by_cap(sessions),
        },
        "perDay": [_describe_day(number, cards, log, sessions, observed) for number in range(days)],
        "blocked": [_describe_blocked(entry) for entry in blocked],
    }


def _list_ended_by_cap(sessions: Sequence[SessionView]) -> list[dict[str, Any]]:
    """The sessions that a cost cap ended, oldest first. The newest of `sessions` comes first."""
    return [
        {
            "at": view.ended_at.isoformat() if view.ended_at else "",
            "channel": view.channel,
            "prompt": view.prompt,
            "reason": view.error,
        }
        for view in reversed(sessions)
        if view.state is SessionState.FAILED and (view.error or "").startswith("cost: ")
    ]


def _count_cards(cards: Sequence[Card]) -> dict[str, int]:
    statuses = Counter(card.status for card in cards)
    approved = [card for card in cards if card.decided_by is DecidedBy.OPERATOR and card.status is not Status.DISMISSED]
    return {
        "made": len(cards),
        "approved": len(approved),
        "approvedOwnPrompts": sum(card.source is Source.OPERATOR for card in approved),
        "dismissed": statuses[Status.DISMISSED],
        "expired": sum(card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN for card in cards),
        "withdrawn": sum(card.outcome is Outcome.WITHDRAWN for card in cards),
        "executed": statuses[Status.EXECUTED],
        "executedByAutonomy": sum(card.decided_by is DecidedBy.AUTONOMY for card in cards),
        "followUps": sum(card.source is Source.FOLLOW_UP for card in cards),
        "pending": statuses[Status.PENDING],
    }


def _list_kinds(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """The operator's decisions on each kind of predicted card, and the confidence that was stated last, None if none
    was. The newest of `cards` comes first."""
    kinds = group_pairs((card.kind, card) for card in cards if card.source is not Source.OPERATOR)
    rows = []
    for kind, cards_of_kind in sorted(kinds.items()):
        statuses = Counter(card.status for card in cards_of_kind if card.decided_by is DecidedBy.OPERATOR)
        stated = next((round(card.confidence, 3) for card in cards_of_kind if card.has_stated_confidence), None)
        dismissed = statuses[Status.DISMISSED]
        rows.append(
            {"kind": kind, "approved": statuses.total() - dismissed, "dismissed": dismissed, "confidence": stated}
        )
    return rows


def _describe_rail(name: str, blocked: Sequence[LogEntry]) -> dict[str, Any]:
    """How often this rail was the first to object, how often it objected after another one, and one example."""
    first = [entry for entry in blocked if _find_first_objection(entry)[0] == name]
    objected = sum(any(verdict.rail == name and not verdict.allows for verdict in entry.verdicts) for entry in blocked)
    return {
        "rail": name,
        "blocked": len(first),
        "alsoObjected": objected - len(first),
        "example": _describe_blocked(first[0]) if first else None,
    }


def _list_gates(engine: Engine) -> list[dict[str, Any]]:
    """How often each gate between a worker and its leader refused a lesson (SPEC 1.7), with one example."""
    refused = defaultdict[int, list[dict[str, str]]](list)
    for bubble in engine.bubbles.list(limit=NO_LIMIT)[::-1]:
        if gate := bubble.refused_by:
            refused[gate.number].append({"text": bubble.learning.text, "reason": gate.reason})
    return [
        {"gate": number, "name": name, "refused": len(refused[number]), "example": next(iter(refused[number]), None)}
        for number, name in enumerate(GATES, 1)
    ]


def _find_first_objection(entry: LogEntry) -> tuple[str, str]:
    """The rail that decided a blocked entry, and its reason."""
    return next((verdict.rail, verdict.reason) for verdict in entry.verdicts if not verdict.allows)


def _describe_blocked(entry: LogEntry) -> dict[str, Any]:
    rail, reason = _find_first_objection(entry)
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


def _describe_day(
    number: int,
    cards: Sequence[Card],
    log: Sequence[LogEntry],
    sessions: Sequence[SessionView],
    observed: Observations,
) -> dict[str, Any]:
    start = FIRST_DAY + timedelta(days=number)
    end = start + timedelta(days=1)

    def within(at: datetime | None) -> bool:
        return at is not None and start <= at < end

    passed = Counter(entry.decided_by for entry in log if not entry.blocked and within(entry.at))
    return {
        "day": number + 1,
        "odd": [odd for day, odd in observed.odd if day == number],
        "made": sum(within(card.created_at) for card in cards),
        "approved": passed[DecidedBy.OPERATOR.value],
        "dismissed": sum(card.status is Status.DISMISSED and within(card.decided_at) for card in cards),
        "byAutonomy": passed[DecidedBy.AUTONOMY.value],
        "blocked": sum(entry.blocked and within(entry.at) for entry in log),
        "cost": dollars(sum(view.cost for view in sessions if within(view.ended_at))),
    }
