"""The legal transitions of a card, and the cool-down of its evidence after one (SPEC 2.7, 2.9). Pure; `card_store`
carries the transitions out."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from engine.model import Outcome, Refusal, SessionState, Status
from engine.prediction.kinds import kind_of

LIFETIME = timedelta(hours=24)
"""Time after which a card expires, not counting quiet hours (SPEC 2.7)."""

DEFAULT_SNOOZE, MAX_SNOOZE = timedelta(hours=2), timedelta(days=30)
"""Default and maximum length of a snooze."""

MAX_COOL_DOWN = timedelta(days=7)


class Move(StrEnum):
    """A transition of a card."""

    APPROVE = "approved"
    DISMISS = "dismissed"
    SNOOZE = "snoozed"
    WAKE = "woken"  # a snooze is undone
    EXPIRE = "expired"  # its time is over
    WITHDRAW = "withdrawn"  # its evidence is gone
    REOPEN = "reopened"  # a decision is undone before it had an effect
    EXECUTE = "executed"  # its session has ended


TRANSITIONS: dict[tuple[Status, Move], Status] = {
    (Status.PENDING, Move.APPROVE): Status.CONFIRMED,
    (Status.PENDING, Move.DISMISS): Status.REJECTED,
    (Status.PENDING, Move.SNOOZE): Status.PENDING,
    (Status.PENDING, Move.WAKE): Status.PENDING,
    (Status.PENDING, Move.EXPIRE): Status.EXPIRED,
    (Status.PENDING, Move.WITHDRAW): Status.EXPIRED,
    (Status.CONFIRMED, Move.REOPEN): Status.PENDING,
    (Status.REJECTED, Move.REOPEN): Status.PENDING,
    (Status.CONFIRMED, Move.EXECUTE): Status.EXECUTED,
}
"""The legal transitions; all others are refused."""

OUTCOMES: dict[SessionState, Outcome] = {
    SessionState.SUCCEEDED: Outcome.SUCCEEDED,
    SessionState.FAILED: Outcome.FAILED,
    SessionState.CANNOT_RUN: Outcome.CANNOT_RUN,
    SessionState.CANCELLED: Outcome.CANCELLED,
    SessionState.BLOCKED: Outcome.BLOCKED,
    SessionState.INTERRUPTED: Outcome.FAILED,
}
"""The outcome of a card by the final state of its session."""

_IN_WORDS = {
    Status.PENDING: "is still pending",
    Status.CONFIRMED: "was already approved",
    Status.REJECTED: "was already dismissed",
    Status.EXPIRED: "has expired",
    Status.EXECUTED: "was already executed",
}


def next_status(card_id: str, status: Status, move: Move) -> Status:
    """The status after `move`. Raises `Refusal` `already_decided`, or `nothing_to_undo` for `WAKE` and `REOPEN`."""
    new_status = TRANSITIONS.get((status, move))
    if new_status is not None:
        return new_status
    message = f"card {card_id} {_IN_WORDS[status]} and cannot be {move.value}"
    if move in (Move.WAKE, Move.REOPEN):
        raise Refusal("nothing_to_undo", message)
    undoable = status in (Status.CONFIRMED, Status.REJECTED)
    raise Refusal("already_decided", message, f"undo it first: clawpy undo {card_id}" if undoable else "")


def cool_down(status: Status, outcome: Outcome | None, *, shown: bool, undone: bool) -> timedelta:
    """The time after a card in which no card with the same evidence is made; see `dismissals` for dismissed ones.

    7 days after work that succeeded or was undone, since the same evidence would propose it again; a day after any
    other end; a day after a card that was shown and expired; none after one that was never shown.
    """
    if status is Status.EXECUTED:
        return timedelta(days=7) if undone or outcome is Outcome.SUCCEEDED else timedelta(days=1)
    if status is Status.EXPIRED and outcome is not Outcome.WITHDRAWN and shown:
        return timedelta(days=1)
    return timedelta(0)


def is_cooling_down(
    now: datetime,
    kind: str,
    status: Status,
    outcome: Outcome | None,
    closed_at: datetime | None,
    shown_at: datetime | None,
    undone_at: datetime | None,
) -> bool:
    """Whether the cool-down of a card still lasts at `now`."""
    if closed_at is None:
        return True
    if kind_of(kind).comes_back:
        return False
    return now < closed_at + cool_down(status, outcome, shown=shown_at is not None, undone=undone_at is not None)
