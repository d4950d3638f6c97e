"""The legal transitions of a card in one table, how long the same evidence stays away after one (SPEC 2.7, 2.9), and
spans of time that do not count quiet hours (7.3). Pure; `card_store.py` carries them out.

Hours are those of the wall clock, so an hour that the clocks skip or repeat is quiet or not as the clock shows it.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum

from engine.model import Outcome, Refusal, SessionState, Status
from engine.prediction.kinds import kind_of

LIFE = timedelta(hours=24)
"""A card expires after this long; quiet hours are not counted (SPEC 2.7)."""

SNOOZE, LONGEST_SNOOZE = timedelta(hours=2), timedelta(days=30)
"""How long a snooze is unless said, and at most."""

MAX_COOL_DOWN = timedelta(days=7)


class Move(StrEnum):
    """What can happen to a card; the value says it of the card."""

    APPROVE = "approved"
    DISMISS = "dismissed"
    SNOOZE = "snoozed"
    WAKE = "woken"  # a snooze is undone
    EXPIRE = "expired"  # its time is over
    WITHDRAW = "withdrawn"  # its evidence is gone
    REOPEN = "reopened"  # a decision is undone before anything came of it
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


def next_status(card_id: str, status: Status, move: Move) -> Status:
    """The status after `move`. Raises `Refusal` `already_decided`, or `nothing_to_undo` for `WAKE` and `REOPEN`."""
    following = TRANSITIONS.get((status, move))
    if following is not None:
        return following
    message = f"card {card_id} {_IN_WORDS[status]} and cannot be {move.value}"
    if move in (Move.WAKE, Move.REOPEN):
        raise Refusal("nothing_to_undo", message)
    undoable = status in (Status.CONFIRMED, Status.REJECTED)
    raise Refusal("already_decided", message, f"undo it first: clawpy undo {card_id}" if undoable else "")


def cool_down(status: Status, outcome: Outcome | None, *, shown: bool, undone: bool) -> timedelta:
    """How long the same evidence stays away after work on it, or after a card for it expired; new facts are new
    evidence and come at once. Dismissals keep whole subjects away: see `dismissals.py`.

    Done, or done and undone: 7 days, since the same facts would ask for the same work again. Any other end: a day.
    Ignored until it expired: a day; never seen: none.
    """
    if status is Status.EXECUTED:
        return timedelta(days=7) if undone or outcome is Outcome.SUCCEEDED else timedelta(days=1)
    if status is Status.EXPIRED and outcome is not Outcome.WITHDRAWN and shown:
        return timedelta(days=1)
    return timedelta(0)


def keeps_away(
    now: datetime,
    kind: str,
    status: str,
    outcome: str | None,
    closed_at: datetime | None,
    shown_at: datetime | None,
    undone_at: datetime | None,
) -> bool:
    """Whether a card keeps another for the same evidence away at `now`."""
    if closed_at is None:
        return True
    if kind_of(kind).comes_back:
        return False
    result = None if outcome is None else Outcome(outcome)
    return now < closed_at + cool_down(Status(status), result, shown=shown_at is not None, undone=undone_at is not None)


def is_quiet(local: datetime, start: int, end: int) -> bool:
    """Is this local time in quiet hours from `start`:00 (included) to `end`:00 (not)? Equal hours: never."""
    if start <= end:
        return start <= local.hour < end
    return local.hour >= start or local.hour < end


def next_hour(instant: datetime, hour: int, zone: tzinfo) -> datetime:
    """The first instant after `instant` (UTC) at which the wall clock comes to `hour`:00.

    On the day the clocks skip that hour, the moment they change.
    """
    local = instant.astimezone(zone)
    for days in range(3):
        day = local.date() + timedelta(days=days)
        for fold in (0, 1):
            candidate = datetime.combine(day, time(hour, fold=fold), tzinfo=zone).astimezone(UTC)
            if candidate > instant:
                return candidate
    raise AssertionError("a clock comes to every hour within three days")


def add_active(instant: datetime, span: timedelta, zone: tzinfo, start: int, end: int) -> datetime:
    """The instant (UTC) by which `span` has passed since `instant`, not counting quiet hours.

    Only real time counts: an hour that the clocks repeat counts twice, one that they skip not at all.
    """
    if start == end:
        return instant.astimezone(UTC) + span
    now, remaining = instant.astimezone(UTC), span
    while True:
        if is_quiet(now.astimezone(zone), start, end):
            now = _quiet_end(now, zone, start, end)
            continue
        until = next_hour(now, start, zone)
        if now + remaining <= until:
            return now + remaining
        remaining -= until - now
        now = until
        if not is_quiet(now.astimezone(zone), start, end):
            # The clocks skipped the whole of the quiet hours; go on from here.
            continue


def _quiet_end(now: datetime, zone: tzinfo, start: int, end: int) -> datetime:
    while is_quiet(now.astimezone(zone), start, end):
        now = next_hour(now, end, zone) if end != start else now
    return now
