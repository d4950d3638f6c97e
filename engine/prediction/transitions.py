"""Carrying out a card's transitions (SPEC 2.7, 8.1): what changes in its row, which signal it gives, which fact it is.

Every method works inside the caller's transaction; `lifecycle.py` says which are legal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlmodel import col, select

from engine.config import SettingsSource
from engine.events import (
    DismissalExplained,
    PredictionConfirmed,
    PredictionExecuted,
    PredictionExpired,
    PredictionRejected,
    PredictionReopened,
    PredictionSnoozed,
)
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    Card,
    DecidedBy,
    DecisionSignal,
    DismissReason,
    Outcome,
    Permit,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
)
from engine.prediction import limits
from engine.prediction.cards_store import Prediction, all_pending, card_of, decided, find
from engine.prediction.dismissals import Dismissals
from engine.prediction.lifecycle import OUTCOMES, Move, after
from engine.prediction.limits import ActiveTime
from engine.safety.pipeline import Pipeline
from engine.storage.database import Database, Transaction


def moved(row: Prediction, move: Move, now: datetime) -> str:
    """The status after an operator's `move`; a pending card whose time is over is treated as expired."""
    if row.status == Status.PENDING and row.due(now):
        raise Refusal(
            "already_decided", f"card {row.id} has expired", "clawpy predict makes cards for the present state"
        )
    return after(row.id, Status(row.status), move).value


class Deciding:
    """One decision at a time, so that an undo finds either no session or one that it can stop. Held with `with`; who
    holds it may take it again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def change(self, card_id: str, change: Callable[[Transaction, Prediction], None]) -> Card:
        """One transition in one transaction; the card after it. Raises `Refusal` `unknown_card`."""

        def work(tx: Transaction) -> Card:
            row = find(tx.session, card_id)
            change(tx, row)
            return card_of(row)

        with self:
            return self._database.write(work)


def ran_by_itself(row: Prediction) -> bool:
    """Whether a card was executed without the operator, who has not complained of it yet."""
    by_itself = row.status == Status.EXECUTED and row.decided_by == DecidedBy.AUTONOMY
    return by_itself and row.undo_requested_at is None


NOT_NOW = 0.5
"""How loudly "not now" speaks against a card: it was only the wrong moment. Any other dismissal counts in full."""


class Transitions:
    """One method a transition."""

    def __init__(
        self,
        rails: Pipeline,
        history: Decisions,
        dismissals: Dismissals,
        settings: SettingsSource,
        active_time: ActiveTime,
        on_decision: Callable[[Transaction], object],
    ) -> None:
        self._rails = rails
        self._history = history
        self._dismissals = dismissals
        self._settings = settings
        self._active_time = active_time
        self._on_decision = on_decision

    def confirm(self, tx: Transaction, row: Prediction, permit: Permit, by: DecidedBy) -> None:
        """Approved with this permit. An approval by autonomy says nothing about the operator yet."""
        row.status = moved(row, Move.APPROVE, tx.now)
        row.decided_by = by.value
        row.decided_at = row.confirmed_at = tx.now
        row.permit_id = permit.id
        row.trigger_type = permit.trigger_type.value
        row.snoozed_until = row.undo_requested_at = None
        row.note = ""
        if by is not DecidedBy.AUTONOMY:
            self._history.record(tx, DecisionSignal.APPROVED, decided(row, by))
            self._dismissals.approved(tx, row.workspace, row.kind)
            self._on_decision(tx)
        tx.record(PredictionConfirmed(subject=row.id, workspace=row.workspace, decided_by=by.value, edited=row.edited))

    def reject(self, tx: Transaction, row: Prediction, by: DecidedBy, reason: DismissReason | None) -> None:
        """Dismissed: its subject stays away (SPEC 2.9). What ran by itself stays executed, and is complained of."""
        if ran_by_itself(row):
            row.undo_requested_at = tx.now
            self._history.take_back(tx, row.id)
        else:
            row.status = moved(row, Move.DISMISS, tx.now)
            row.decided_by = by.value
            row.decided_at = row.closed_at = tx.now
            row.snoozed_until = None
        tx.record(PredictionRejected(subject=row.id, workspace=row.workspace, decided_by=by.value))
        self._turned_down(tx, row, by, reason)

    def explain(self, tx: Transaction, row: Prediction, reason: DismissReason) -> None:
        """Why it was dismissed. Raises `Refusal` `not_dismissed`."""
        if row.status != Status.REJECTED or row.decided_by is None:
            raise Refusal(
                "not_dismissed",
                f"card {row.id} is {row.status}, not dismissed",
                "give a reason after dismissing the card",
            )
        tx.record(DismissalExplained(subject=row.id, workspace=row.workspace, reason=reason.value))
        self._turned_down(tx, row, DecidedBy(row.decided_by), reason)

    def _turned_down(self, tx: Transaction, row: Prediction, by: DecidedBy, reason: DismissReason | None) -> None:
        """Learn from a dismissal, and take further cards away that it switches off."""
        if reason is DismissReason.ALREADY_DONE:
            self._history.take_back(tx, row.id)  # it was worth doing
        else:
            if self._history.standing(tx.session, row.id) is None:
                self._history.record(tx, DecisionSignal.DISMISSED, decided(row, by))
            if reason is not None:
                self._history.weigh(tx, row.id, NOT_NOW if reason is DismissReason.NOT_NOW else 1.0)
        self._on_decision(tx)
        if row.source == Source.OPERATOR:
            return  # a prompt of his own is nothing that would be offered again
        self._dismissals.add(tx, row, reason)
        muted = self._dismissals.muted(tx.session, tx.now)
        for other in all_pending(tx.session):
            if muted.covers(other.workspace, other.kind, other.subject, other.tier):
                self.withdraw(tx, other, "its kind was switched off: clawpy muted")

    def snooze(self, tx: Transaction, row: Prediction, span: timedelta) -> None:
        """Asleep for `span`; its 24 h begin anew when it wakes. No signal."""
        row.status = moved(row, Move.SNOOZE, tx.now)
        row.snoozed_until = tx.now + span
        row.expires_at = self._active_time(row.snoozed_until, limits.LIFE)
        tx.record(PredictionSnoozed(subject=row.id, workspace=row.workspace, until=row.snoozed_until.isoformat()))

    def wake(self, tx: Transaction, row: Prediction) -> None:
        """Its snooze is undone."""
        row.status = after(row.id, Status(row.status), Move.WAKE).value
        row.snoozed_until = None
        tx.record(PredictionReopened(subject=row.id, workspace=row.workspace, was="snoozed"))

    def expire(self, tx: Transaction, row: Prediction) -> None:
        """Its time is over. One that was never shown gives no signal."""
        row.status = after(row.id, Status(row.status), Move.EXPIRE).value
        row.closed_at = tx.now
        if row.shown_at is not None:
            self._history.record(tx, DecisionSignal.EXPIRED, decided(row, DecidedBy.OPERATOR))
        self._expired(tx, row, withdrawn=False, reason="it had expired")

    def withdraw(self, tx: Transaction, row: Prediction, reason: str, *, did_himself: bool = False) -> None:
        """Off the stack because its evidence is gone. A signal only when the operator saw it and did it himself."""
        row.status = after(row.id, Status(row.status), Move.WITHDRAW).value
        row.outcome = Outcome.WITHDRAWN.value
        row.closed_at = tx.now
        row.note = reason
        if did_himself and row.shown_at is not None:
            self._history.record(tx, DecisionSignal.DID_HIMSELF, decided(row, DecidedBy.OPERATOR))
        self._expired(tx, row, withdrawn=True, reason=reason)

    def reopen(self, tx: Transaction, row: Prediction, note: str = "") -> None:
        """Pending again: permit void, signal taken back. The note of a dismissed one stays.

        Raises `Refusal`: `nothing_to_undo`, `evidence_gone` (a dismissed card whose evidence or time is over).
        """
        was = Status(row.status)
        following = after(row.id, was, Move.REOPEN)
        if was is Status.REJECTED and (row.evidence_gone or row.due(tx.now)):
            raise Refusal("evidence_gone", f"the reason for card {row.id} no longer applies", "clawpy predict")
        self._check_alone(tx, row)
        row.status = following.value
        row.decided_by = row.decided_at = row.confirmed_at = row.closed_at = None
        row.trigger_type = row.permit_id = row.session_id = row.undo_requested_at = None
        row.note = row.note if was is Status.REJECTED else note
        if row.due(tx.now):  # an approval that never started gets its time again, or it would be gone at once
            row.expires_at = self._active_time(tx.now, limits.LIFE)
        self._rails.revoke(tx, row.id)
        self._history.take_back(tx, row.id)
        self._dismissals.remove(tx, row.id)
        tx.record(PredictionReopened(subject=row.id, workspace=row.workspace, was=was.value))
        self.make_room(tx, row)

    def execute(self, tx: Transaction, row: Prediction, view: SessionView) -> None:
        """Its session has ended; pending again when the operator undid the approval before it had started, or when
        nothing was done for want of something (a provider that is down: SPEC 3.8)."""
        if row.undo_requested_at is not None and view.started_at is None:
            self.reopen(tx, row, "undone before it started")
            return
        if view.not_begun and row.undo_requested_at is None and not self.others(tx, row):
            self.reopen(tx, row, f"not done: {view.error}")
            return
        row.status = after(row.id, Status(row.status), Move.EXECUTE).value
        row.session_id = view.id
        row.outcome = OUTCOMES.get(view.state, Outcome.FAILED).value
        row.executed_at = row.closed_at = tx.now
        if view.state is SessionState.INTERRUPTED:
            row.note = "interrupted"
        if view.state is SessionState.CANNOT_RUN:
            self._history.take_back(tx, row.id)  # what was missing says nothing about the card (SPEC 2.12)
        elif row.undo_requested_at is not None:
            self._history.record(tx, DecisionSignal.UNDONE, decided(row, DecidedBy.OPERATOR))
        tx.record(PredictionExecuted(subject=row.id, workspace=row.workspace, outcome=row.outcome))

    def turn_down(self, tx: Transaction, row: Prediction, signal: DecisionSignal, at: datetime) -> None:
        """The operator undid or discarded what came of it, `at` that time: his later word replaces the approval,
        once."""
        if self._history.standing(tx.session, row.id) in (DecisionSignal.UNDONE, DecisionSignal.DISCARDED):
            return
        row.undo_requested_at = row.undo_requested_at or at
        if signal is DecisionSignal.DISCARDED:
            row.discarded_at = at
        self._history.record(tx, signal, decided(row, DecidedBy.OPERATOR), at=at)

    def make_room(self, tx: Transaction, returning: Prediction) -> None:
        """No more than fit (SPEC 2.9), also after a card came back or was suggested: the lowest ranked of the others
        goes, without signal and without cool-down."""
        tx.session.flush()
        rows = {row.id: row for row in all_pending(tx.session)}
        seats = [row.seat for row in rows.values()]
        caps = limits.Caps.of(self._settings.current)
        for card_id in limits.makes_room(seats, returning.id, tx.now, caps):
            self.withdraw(tx, rows[card_id], "made room for another card")

    def _check_alone(self, tx: Transaction, row: Prediction) -> None:
        other = self.others(tx, row)
        if other:
            raise Refusal("nothing_to_undo", f"card {other} for the same thing is already pending", "decide that one")

    @staticmethod
    def others(tx: Transaction, row: Prediction) -> str:
        """A card for the same thing that is pending, "" for none."""
        query = select(col(Prediction.id)).where(
            col(Prediction.workspace) == row.workspace,
            col(Prediction.kind) == row.kind,
            col(Prediction.subject) == row.subject,
            col(Prediction.status) == Status.PENDING.value,
        )
        return tx.session.exec(query).first() or ""

    def _expired(self, tx: Transaction, row: Prediction, *, withdrawn: bool, reason: str) -> None:
        tx.record(PredictionExpired(subject=row.id, workspace=row.workspace, withdrawn=withdrawn, reason=reason))
