"""Reads the content of a notification from a fact of the ledger (SPEC 10.2). Pure.

The outbox stores only which fact it was. Its text is made when it is sent, so that a card that was decided or forgotten
meanwhile (SPEC 4.10) is not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from engine.api.notify.forms import NotificationKind
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

HIGH_CONFIDENCE = 0.6
"""A card with at least this stated confidence is high: it has the SUGGESTED badge (SPEC 2.5). A broken test is always
high."""

FACT_KINDS = frozenset({"PredictionCreated", "PredictionConfirmed", "SessionEnded", "CostWarned", "StateChanged"})
"""The kinds of facts that may be notified."""

FAILED_STATES = frozenset(
    {SessionState.FAILED, SessionState.CANNOT_RUN, SessionState.BLOCKED, SessionState.INTERRUPTED}
)

NEW_CARDS = frozenset({NotificationKind.NEW_MEDIUM, NotificationKind.NEW_HIGH})


@frozen
class NotificationContent:
    """The content of a notification, before it has the form of a surface. `words` says what happened, or is the prompt
    of a card. `confidence` in [0, 1] and `tier` are those of the card, None for none; `stated`: the confidence is
    meaningful; `asks`: a person must look at the card itself, because the content filter asks or no sandbox works."""

    kind: NotificationKind
    at: datetime
    words: str
    card_id: str = ""
    channel: str = ""
    confidence: float | None = None
    stated: bool = False
    tier: Tier | None = None
    asks: bool = False


def kind_of(fact: LedgerEntry) -> NotificationKind | None:
    """The kind of event that a fact is, None for none of them."""
    payload = fact.payload
    match fact.kind:
        case "PredictionCreated" if payload["source"] != Source.OPERATOR:  # else the operator made it
            is_confident = payload.get("stated", False) and payload["confidence"] >= HIGH_CONFIDENCE
            is_high = is_confident or payload.get("tier") == Tier.BROKEN  # older facts have no tier
            return NotificationKind.NEW_HIGH if is_high else NotificationKind.NEW_MEDIUM
        case "PredictionConfirmed" if payload["decided_by"] == DecidedBy.AUTONOMY:
            return NotificationKind.ACTED
        case "SessionEnded" if payload["state"] == SessionState.SUCCEEDED:
            return NotificationKind.COMPLETED
        case "SessionEnded" if payload["state"] in FAILED_STATES:
            return NotificationKind.FAILED
        case "CostWarned":
            return NotificationKind.COST
        case "StateChanged" if payload["after"] == "PAUSED":
            return NotificationKind.PAUSED
    return None


def content_of(
    fact: LedgerEntry, card_of: Callable[[str], Card], session_of: Callable[[str], SessionView], now: datetime
) -> NotificationContent | None:
    """The content to send about a fact now; None when that is no longer needed."""
    kind, payload = kind_of(fact), fact.payload
    match kind:
        case None:
            return None
        case NotificationKind.COST:
            cap, spent = payload["cap"], payload["spent"]
            share = 100 * spent // cap if cap else 100
            words = f"{share} % of the {payload['window']}'s cap: ${dollars(spent):.2f} of ${dollars(cap):.2f}"
            return NotificationContent(kind, fact.at, words)
        case NotificationKind.PAUSED:
            return NotificationContent(kind, fact.at, f"Paused: {payload['cause']}")
        case NotificationKind.COMPLETED | NotificationKind.FAILED:
            return _session_content(kind, fact, session_of)
    try:
        card = card_of(fact.subject)
    except Refusal:  # forgotten
        return None
    is_waiting = card.status is Status.PENDING and card.expires_at > now and not card.snoozed(now)
    if kind in NEW_CARDS and not is_waiting:
        return None
    return NotificationContent(
        kind,
        fact.at,
        card.assignment.prompt,
        card_id=card.id,
        channel=card.assignment.channel,
        confidence=card.confidence,
        stated=card.stated,
        tier=card.tier,
        asks=card.asks or card.needs_confirmation,
    )


def _session_content(
    kind: NotificationKind, fact: LedgerEntry, session_of: Callable[[str], SessionView]
) -> NotificationContent:
    """The result of a session, also of one that was forgotten."""
    payload = fact.payload
    try:
        session: SessionView | None = session_of(fact.subject)
    except Refusal:
        session = None
    result = payload["summary"] or (session.prompt if session else "") or payload["state"]
    if kind is NotificationKind.FAILED:
        outcome = "Could not run" if payload["state"] == SessionState.CANNOT_RUN else "Failed"
        result = (session.error if session else "") or result
    else:
        outcome = PROBLEM_FOUND.capitalize() if session and session.has_problem else "Done"
    return NotificationContent(
        kind,
        fact.at,
        f"{outcome}: {result}",
        card_id=payload["prediction_id"],
        channel=session.channel if session else "",
    )
