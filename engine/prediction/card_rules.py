"""The order of the pending cards (SPEC 2.11), their maximum number (2.9), and the tier that follows from the operator's
decisions (2.5). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum

from engine.config import Settings
from engine.model import Card, Outcome, Refusal, SessionState, Source, Status, Tier
from engine.prediction.kinds import is_ordered, kind_of
from engine.safety.gate import MIN_APPROVAL_BOUND
from engine.statistics import wilson_lower_bound

# Quiet hours (SPEC 7.3), and the end of time spans that do not count them. Pure.
#
# Hours are those of the local clock, also when it skips or repeats an hour.


def is_quiet(local: datetime, start: int, end: int) -> bool:
    """Whether a local time is in the quiet hours from `start`:00 to before `end`:00. Equal hours mean never."""
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


def add_active_time(instant: datetime, span: timedelta, zone: tzinfo, start: int, end: int) -> datetime:
    """The instant (UTC) when `span` without quiet hours has passed since `instant`.

    Real time counts: an hour that the clock repeats counts twice, one that it skips not at all.
    """
    now, remaining = instant.astimezone(UTC), span
    if start == end:
        return now + remaining
    while True:
        if is_quiet(now.astimezone(zone), start, end):
            now = next_hour(now, end, zone)
            continue
        until = next_hour(now, start, zone)
        if now + remaining <= until:
            return now + remaining
        remaining -= until - now
        now = until


# The legal transitions of a card, and the cool-down of its evidence after one (SPEC 2.7, 2.9). Pure; `card_store`
# carries the transitions out.


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


MAX_SUGGESTED = 3
"""Maximum number of pending cards of agents and programs."""

MAX_SAME_KIND = 4
"""Maximum number of pending cards of one kind in a workspace."""

FRESHNESS_STEPS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""Steps of the age of evidence. Cards of the same step are ordered by kind (`kinds.Kind.place`), not by minutes."""


class Room:
    """The free places of the stack. `awake` are the pending cards that are not snoozed, also those without a place."""

    def __init__(self, settings: Settings, awake: Iterable[Card]) -> None:
        self._settings = settings
        self._awake = list(awake)

    def take(self, card: Card, now: datetime) -> list[str] | None:
        """Take a place for this card; returns the ids of the cards that it displaces, or None if there is no place.

        A workspace has one upkeep card at most (SPEC 2.11). If all places are taken, the last card of a lower tier is
        displaced, preferably one that was not shown yet.
        """
        seated = [other for other in self._awake if takes_place(other, now)]
        if _other_upkeep(card, self._awake):
            return None
        if not takes_place(card, now):
            self._awake.append(card)
            return []
        if sum((other.workspace, other.kind) == (card.workspace, card.kind) for other in seated) >= MAX_SAME_KIND:
            return None
        displaced: set[str] = set()
        limits = (self._settings.max_pending_cards, card.workspace), (self._settings.max_pending_cards_in_all, None)
        for limit, workspace in limits:
            others = [other for other in seated if workspace in (None, other.workspace) and other.id not in displaced]
            if len(others) < limit:
                continue
            lower = [other for other in reversed(sort_cards(others, now)) if other.tier > card.tier]
            if not lower:
                return None
            displaced.add(min(lower, key=lambda other: other.shown_at is not None).id)
        self._awake = [other for other in self._awake if other.id not in displaced] + [card]
        return sorted(displaced)

    def leave(self, card: Card) -> None:
        """Free the place of this card."""
        self._awake.remove(card)


def _other_upkeep(card: Card, awake: Iterable[Card]) -> list[str]:
    """Ids of the other upkeep cards in the workspace of this upkeep card."""
    if card.tier is not Tier.UPKEEP:
        return []
    seat = (card.workspace, card.tier)
    return [other.id for other in awake if (other.workspace, other.tier) == seat and other.id != card.id]


def takes_place(card: Card, now: datetime) -> bool:
    """Whether a card takes a place: it is not snoozed, not the operator's own prompt or order, not a follow-up."""
    exempt = card.source in (Source.OPERATOR, Source.FOLLOW_UP) or is_ordered(card.kind)
    return not (exempt or card.snoozed(now))


def sort_cards(cards: Iterable[Card], now: datetime) -> list[Card]:
    """The stack from the top (SPEC 2.11): the operator's own prompts, newest first, then by tier, confidence and age of
    the evidence; equal cards by kind, age and id."""
    own_prompts: list[Card] = []
    others: list[Card] = []
    for card in cards:
        (own_prompts if card.source is Source.OPERATOR else others).append(card)
    own_prompts.sort(key=lambda card: (card.created_at, card.id), reverse=True)
    others.sort(
        key=lambda card: (
            card.tier,
            -card.confidence,
            sum(now - (card.evidence_at or card.created_at) > age for age in FRESHNESS_STEPS),
            kind_of(card.kind).tier is not card.tier,  # cards that were moved here come after those of this tier
            kind_of(card.kind).place,
            card.created_at,
            card.id,
        )
    )
    return [*own_prompts, *others]


def ids_without_place(cards: Sequence[Card], now: datetime, settings: Settings) -> set[str]:
    """Ids of woken cards without a place: they stay hidden until another card is decided.

    Cards that were not snoozed keep their places; the woken ones get the free ones in order. A woken upkeep card also
    waits while its workspace shows another.
    """
    awake = [card for card in sort_cards(cards, now) if not card.snoozed(now)]
    shown = [card for card in awake if card.snoozed_until is None]
    waiting = set()
    for card in awake:
        if card.snoozed_until is None:
            continue
        seated = [other for other in shown if takes_place(other, now)]
        in_workspace = sum(other.workspace == card.workspace for other in seated)
        full = in_workspace >= settings.max_pending_cards or len(seated) >= settings.max_pending_cards_in_all
        if _other_upkeep(card, shown) or (full and takes_place(card, now)):
            waiting.add(card.id)
        else:
            shown.append(card)
    return waiting


def displaced_ids(cards: Sequence[Card], returning: str, now: datetime, settings: Settings) -> list[str]:
    """Ids of the cards that the card `returning`, already in `cards`, displaces: the other upkeep card if it is one,
    and the last of the others, unseen ones first, of its own workspace while that has too many. Woken cards without a
    place are not displaced."""
    waiting = ids_without_place(cards, now, settings)
    shown = [card for card in sort_cards(cards, now) if not card.snoozed(now) and card.id not in waiting]
    returning_card = next((card for card in shown if card.id == returning), None)
    upkeep = _other_upkeep(returning_card, shown) if returning_card else []
    counted = [card for card in shown if takes_place(card, now) and card.id not in upkeep]
    home = returning_card.workspace if returning_card and takes_place(returning_card, now) else None
    in_home = sum(card.workspace == home for card in counted)
    others = [card for card in reversed(counted) if card.id != returning]
    others.sort(key=lambda card: card.shown_at is not None)
    home_ids = [card.id for card in others if card.workspace == home][: max(0, in_home - settings.max_pending_cards)]
    rest_ids = [card.id for card in others if card.id not in home_ids]
    return upkeep + home_ids + rest_ids[: max(0, len(counted) - len(home_ids) - settings.max_pending_cards_in_all)]


def adjusted_tier(tier: Tier, approved: int, decided: int) -> tuple[Tier, str]:
    """(tier, reason) of a kind in a workspace after the operator's decisions; reason "" if it stays (SPEC 2.11).

    One up if the one-sided 95 % Wilson bound of the share approved is at least 0.8 (from 11 of 11 on), one down if that
    of the share dismissed is. Nothing moves into tier 1 or out of it.
    """
    reason = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and wilson_lower_bound(approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {reason}"
    if tier in (Tier.BLOCKS, Tier.CHECK) and wilson_lower_bound(decided - approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {reason}"
    return tier, ""
