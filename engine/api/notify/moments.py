"""What a fact of the ledger means to somebody who is away: one of the seven kinds of event, or nothing. Pure.

The outbox stores only which fact it was. Its text is made when it is sent, so that a card that was decided or forgotten
meanwhile (SPEC 4.10) is not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from engine.api.notify.matrix import Happening
from engine.frozen import frozen
from engine.model import (
    PROBLEM_FOUND,
    Card,
    DecidedBy,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
    Tier,
    dollars,
)
from engine.storage.ledger import LedgerEntry

HIGH = 0.6
"""A card with at least this stated confidence is high: it has the SUGGESTED badge (SPEC 2.5). A broken test is always
high."""

KINDS = frozenset({"PredictionCreated", "PredictionConfirmed", "SessionEnded", "CostWarned", "StateChanged"})
"""The kinds of facts that may be notified."""

FAILURES = frozenset({SessionState.FAILED, SessionState.CANNOT_RUN, SessionState.BLOCKED, SessionState.INTERRUPTED})

CARDS = frozenset({Happening.NEW_MEDIUM, Happening.NEW_HIGH})


@frozen
class Moment:
    """An event to notify. `words` says what happened, or is the prompt of a card. `confidence` in [0, 1] and `tier` are
    those of the card, None for none; `stated`: the confidence is meaningful; `asks`: a person must look at the card
    itself, because the content filter asks or no sandbox works."""

    happening: Happening
    at: datetime
    words: str
    card_id: str = ""
    channel: str = ""
    confidence: float | None = None
    stated: bool = False
    tier: Tier | None = None
    asks: bool = False


def happening_of(fact: LedgerEntry) -> Happening | None:
    """The kind of event that a fact is, None for none of them."""
    payload = fact.payload
    match fact.kind:
        case "PredictionCreated" if payload["source"] != Source.OPERATOR.value:
            # Else he made it himself.
            is_confident = payload.get("stated", False) and payload["confidence"] >= HIGH  # older facts say neither
            return Happening.NEW_HIGH if is_confident or payload.get("tier") == Tier.BROKEN else Happening.NEW_MEDIUM
        case "PredictionConfirmed" if payload["decided_by"] == DecidedBy.AUTONOMY.value:
            return Happening.ACTED
        case "SessionEnded" if payload["state"] == SessionState.SUCCEEDED.value:
            return Happening.COMPLETED
        case "SessionEnded" if payload["state"] in FAILURES:
            return Happening.FAILED
        case "CostWarned":
            return Happening.COST
        case "StateChanged" if payload["after"] == "PAUSED":
            return Happening.PAUSED
    return None


def moment(
    fact: LedgerEntry, card_of: Callable[[str], Card], session_of: Callable[[str], SessionView], now: datetime
) -> Moment | None:
    """What to send about a fact now; None when that is no longer needed."""
    happening = happening_of(fact)
    if happening is None:
        return None
    base = Moment(happening, fact.at, "")
    payload = fact.payload
    if happening is Happening.COST:
        cap, spent = payload["cap"], payload["spent"]
        share = 100 * spent // cap if cap else 100
        return replace(
            base, words=f"{share} % of the {payload['window']}'s cap: ${dollars(spent):.2f} of ${dollars(cap):.2f}"
        )
    if happening is Happening.PAUSED:
        return replace(base, words=f"Paused: {payload['cause']}")
    if happening in (Happening.COMPLETED, Happening.FAILED):
        return _ended(base, fact, session_of)
    try:
        card = card_of(fact.subject)
    except Refusal:  # forgotten
        return None
    snoozed = card.snoozed_until is not None and card.snoozed_until > now
    waits = card.status is Status.PENDING and card.expires_at > now and not snoozed
    if happening in CARDS and not waits:
        return None
    return replace(
        base,
        words=card.assignment.prompt,
        card_id=card.id,
        channel=card.assignment.channel,
        confidence=card.confidence,
        stated=card.stated,
        tier=card.tier,
        asks=card.asks or card.needs_confirmation,
    )


def _ended(base: Moment, fact: LedgerEntry, session_of: Callable[[str], SessionView]) -> Moment:
    word = "Done" if base.happening is Happening.COMPLETED else "Failed"
    if fact.payload["state"] == SessionState.CANNOT_RUN:
        word = "Could not run"
    try:
        session: SessionView | None = session_of(fact.subject)
    except Refusal:
        session = None
    if base.happening is Happening.COMPLETED and session is not None and session.has_problem:
        word = PROBLEM_FOUND.capitalize()
    error = session.error if session is not None and base.happening is Happening.FAILED else ""
    result = error or fact.payload["summary"] or (session.prompt if session else "") or fact.payload["state"]
    return replace(
        base,
        words=f"{word}: {result}",
        card_id=fact.payload["prediction_id"],
        channel=session.channel if session else "",
    )
