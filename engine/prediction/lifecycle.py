"""The legal transitions of a card (SPEC 2.7) in one table. Pure; `cards.py` carries them out."""

from __future__ import annotations

from enum import StrEnum

from engine.model import Outcome, Refusal, SessionState, Status


class Move(StrEnum):
    """What can happen to a card."""

    APPROVE = "approve"
    DISMISS = "dismiss"
    SNOOZE = "snooze"
    WAKE = "wake"  # a snooze is undone
    EXPIRE = "expire"  # its time is over
    WITHDRAW = "withdraw"  # its evidence is gone
    REOPEN = "reopen"  # a decision is undone before anything came of it
    EXECUTE = "execute"  # its session has ended


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
"""Everything that is not here is refused."""

OUTCOMES: dict[SessionState, Outcome] = {
    SessionState.SUCCEEDED: Outcome.SUCCEEDED,
    SessionState.FAILED: Outcome.FAILED,
    SessionState.CANNOT_RUN: Outcome.CANNOT_RUN,
    SessionState.CANCELLED: Outcome.CANCELLED,
    SessionState.BLOCKED: Outcome.BLOCKED,
    SessionState.INTERRUPTED: Outcome.FAILED,
}
"""How a card ended, by how its session ended."""

_IN_WORDS = {
    Status.PENDING: "is still pending",
    Status.CONFIRMED: "was already approved",
    Status.REJECTED: "was already dismissed",
    Status.EXPIRED: "has expired",
    Status.EXECUTED: "was already executed",
}


def after(card_id: str, status: Status, move: Move) -> Status:
    """The status after `move`. Raises `Refusal` `already_decided`, or `nothing_to_undo` for `WAKE` and `REOPEN`."""
    following = TRANSITIONS.get((status, move))
    if following is not None:
        return following
    told = f"card {card_id} {_IN_WORDS[status]} and cannot be {_PAST[move]}"
    if move in (Move.WAKE, Move.REOPEN):
        raise Refusal("nothing_to_undo", told)
    undoable = status in (Status.CONFIRMED, Status.REJECTED)
    raise Refusal("already_decided", told, f"undo it first: clawpy undo {card_id}" if undoable else "")


_PAST = {
    Move.APPROVE: "approved",
    Move.DISMISS: "dismissed",
    Move.SNOOZE: "snoozed",
    Move.WAKE: "woken",
    Move.EXPIRE: "expired",
    Move.WITHDRAW: "withdrawn",
    Move.REOPEN: "reopened",
    Move.EXECUTE: "executed",
}
