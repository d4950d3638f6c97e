"""The stored cards, and their transitions: what changes in a row, which signal it gives, which fact it is (SPEC 2.7,
8.1). `lifecycle.py` says which are legal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import bindparam, exists
from sqlmodel import Session, col, select

from engine.clock import Clock
from engine.config import Autonomy, SettingsSource
from engine.events import (
    DismissalExplained,
    Event,
    PredictionConfirmed,
    PredictionExecuted,
    PredictionExpired,
    PredictionRejected,
    PredictionReopened,
    PredictionSnoozed,
)
from engine.learning.decisions.decisions import Decision, Decisions
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
from engine.prediction import stack
from engine.prediction.card_rows import Prediction, all_pending, card_of, created_event, decided_card, find_card
from engine.prediction.dismissals import Dismissals
from engine.prediction.lifecycle import LIFE, OUTCOMES, Move, add_active, next_status
from engine.safety.safety import Safety
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry
from engine.storage.rows import load_all, select_all
from engine.storage.table_cache import TableCache
from engine.storage.types import UtcDateTime

CURSOR = "cards.aftermath"

TURNED_DOWN = {"LandingUndone": DecisionSignal.UNDONE, "ChangeSetDiscarded": DecisionSignal.DISCARDED}
"""Kinds of facts about change sets, and what they say about the card whose session made one."""

TAKEN = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
"""The kinds which say that the operator wants it after all."""

KEPT_AFTER, LOOKED_BACK = timedelta(hours=24), timedelta(days=14)
"""What ran by itself, was looked at and stands for so long was wanted; what ran longer ago is not asked about."""

NOT_NOW = 0.5
"""How loudly "not now" speaks against a card: it was only the wrong moment. Any other dismissal counts in full."""

_KEPT = select_all(Prediction).where(
    col(Prediction.status) == Status.EXECUTED.value,
    col(Prediction.decided_by) == DecidedBy.AUTONOMY.value,
    col(Prediction.outcome) == Outcome.SUCCEEDED.value,
    col(Prediction.undo_requested_at).is_(None),
    col(Prediction.shown_at) > col(Prediction.executed_at),
    col(Prediction.executed_at) > bindparam("since", type_=UtcDateTime()),
    col(Prediction.executed_at) <= bindparam("until", type_=UtcDateTime()),
    ~exists().where(col(Decision.prediction_id) == col(Prediction.id), col(Decision.taken_back_at).is_(None)),
)


def status_after(row: Prediction, move: Move, now: datetime) -> str:
    """The status after an operator's `move`; a pending card whose time is over is treated as expired."""
    if row.status == Status.PENDING and row.is_expired(now):
        raise Refusal(
            "already_decided", f"card {row.id} has expired", "clawpy predict makes cards for the present state"
        )
    return next_status(row.id, Status(row.status), move).value


class CardStore:
    """The cards of a home. Methods that take a transaction work inside the caller's."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: SettingsSource,
        *,
        safety: Safety,
        history: Decisions,
        facts: Ledger,
        deleted: Callable[[str], bool] = lambda workspace: not Path(workspace).is_dir(),
    ) -> None:
        """`deleted`: whether a workspace is gone from the disk."""
        self.database = database
        self.clock = clock
        self.settings = settings
        self.safety = safety
        self.history = history
        self.facts = facts
        self._deleted = deleted
        self.dismissals = Dismissals(database)
        """What the operator turned down, and what is muted by it."""
        self.deciding = threading.RLock()
        """One decision at a time, so that an undo finds either no session or one that it can stop."""
        self._pending: TableCache[list[Card]] = TableCache(database, Prediction)
        self._aftermath = LedgerCursor(facts, CURSOR, lambda fact: fact.kind in TURNED_DOWN or fact.kind in TAKEN)

    def pending(self, session: Session | None = None) -> list[Card]:
        """Every pending card, oldest first: as `session` sees them, else as they are stored."""
        if session is not None:
            return self._pending.seen(session, "", _read_pending)
        return self._pending.get("", self._stored)

    def _stored(self) -> list[Card]:
        with self.database.read() as session:
            return _read_pending(session)

    def get(self, card_id: str) -> Card:
        """One card. Raises `Refusal` `unknown_card`."""
        with self.database.read() as session:
            return card_of(find_card(session, card_id))

    def expiry(self, instant: datetime) -> datetime:
        """When a card expires that is new at `instant`: quiet hours are not counted (SPEC 2.7)."""
        settings, zone = self.settings.current, self.clock.local().tzinfo
        assert zone is not None
        return add_active(instant, LIFE, zone, settings.quiet_hours_start, settings.quiet_hours_end)

    def is_off(self, workspace: str, source: str = "") -> bool:
        """Whether no card is made for this workspace (SPEC 7.4); the operator's own prompts are still accepted."""
        off = self.settings.current.workspace(workspace).autonomy is Autonomy.OFF
        return off and source != Source.OPERATOR

    def change(self, card_id: str, change: Callable[[Transaction, Prediction], None]) -> Card:
        """One transition in one transaction; the card after it. Raises `Refusal` `unknown_card`."""

        def work(tx: Transaction) -> Card:
            row = find_card(tx.session, card_id)
            change(tx, row)
            return card_of(row)

        with self.deciding:
            return self.database.write(work)

    # -- transitions

    def add(self, tx: Transaction, row: Prediction) -> Card:
        """A new card."""
        tx.insert(row)
        tx.record(created_event(row))
        return card_of(row)

    def confirm(self, tx: Transaction, row: Prediction, permit: Permit, by: DecidedBy) -> None:
        """Approved with this permit. An approval by autonomy says nothing about the operator yet."""
        row.status = status_after(row, Move.APPROVE, tx.now)
        row.decided_by = by.value
        row.decided_at = row.confirmed_at = tx.now
        row.permit_id = permit.id
        row.trigger_type = permit.trigger_type.value
        row.snoozed_until = row.undo_requested_at = None
        row.note = ""
        if by is not DecidedBy.AUTONOMY:
            self.history.record(tx, DecisionSignal.APPROVED, decided_card(row, by))
            self.dismissals.approved(tx, row.workspace, row.kind)
            self.safety.decided(tx)
        _record(tx, row, PredictionConfirmed, decided_by=by.value, edited=row.edited)

    def reject(self, tx: Transaction, row: Prediction, by: DecidedBy, reason: DismissReason | None) -> None:
        """Dismissed: its subject stays away (SPEC 2.9). What ran by itself stays executed, and is complained of."""
        if row.ran_by_itself:
            row.undo_requested_at = tx.now
            self.history.take_back(tx, row.id)
        else:
            row.status = status_after(row, Move.DISMISS, tx.now)
            row.decided_by = by.value
            row.decided_at = row.closed_at = tx.now
            row.snoozed_until = None
        _record(tx, row, PredictionRejected, decided_by=by.value)
        self._turned_down(tx, row, by, reason)

    def explain(self, tx: Transaction, row: Prediction, reason: DismissReason) -> None:
        """Why it was dismissed. Raises `Refusal` `not_dismissed`."""
        if row.status != Status.REJECTED or row.decided_by is None:
            message = f"card {row.id} is {row.status}, not dismissed"
            raise Refusal("not_dismissed", message, "give a reason after dismissing the card")
        _record(tx, row, DismissalExplained, reason=reason.value)
        self._turned_down(tx, row, DecidedBy(row.decided_by), reason)

    def _turned_down(self, tx: Transaction, row: Prediction, by: DecidedBy, reason: DismissReason | None) -> None:
        """Learn from a dismissal, and take further cards away that it switches off."""
        if reason is DismissReason.ALREADY_DONE:
            self.history.take_back(tx, row.id)  # it was worth doing
        else:
            if self.history.current_signal(tx.session, row.id) is None:
                self.history.record(tx, DecisionSignal.DISMISSED, decided_card(row, by))
            if reason is not None:
                self.history.set_weight(tx, row.id, NOT_NOW if reason is DismissReason.NOT_NOW else 1.0)
        self.safety.decided(tx)
        if row.source == Source.OPERATOR:
            return  # a prompt of his own is nothing that would be offered again
        self.dismissals.add(tx, row, reason)
        muted = self.dismissals.muted(tx.session, tx.now)
        for other in all_pending(tx.session):
            if muted.covers(*other.about, other.tier):
                self.withdraw(tx, other, "its kind was switched off: clawpy muted")

    def snooze(self, tx: Transaction, row: Prediction, span: timedelta) -> None:
        """Asleep for `span`; its 24 h begin anew when it wakes. No signal."""
        row.status = status_after(row, Move.SNOOZE, tx.now)
        row.snoozed_until = tx.now + span
        row.expires_at = self.expiry(row.snoozed_until)
        _record(tx, row, PredictionSnoozed, until=row.snoozed_until.isoformat())

    def bring_back(self, tx: Transaction, row: Prediction) -> None:
        """Its snooze, or the decision on it, is undone."""
        if row.status != Status.PENDING or row.snoozed_until is None:
            self.reopen(tx, row)
            return
        row.status = next_status(row.id, Status(row.status), Move.WAKE).value
        row.snoozed_until = None
        _record(tx, row, PredictionReopened, was="snoozed")
        self.make_room(tx, row)

    def expire(self, tx: Transaction, row: Prediction) -> None:
        """Its time is over. One that was never shown gives no signal."""
        row.status = next_status(row.id, Status(row.status), Move.EXPIRE).value
        row.closed_at = tx.now
        if row.shown_at is not None:
            self.history.record(tx, DecisionSignal.EXPIRED, decided_card(row, DecidedBy.OPERATOR))
        _record(tx, row, PredictionExpired, withdrawn=False, reason="it had expired")

    def withdraw(self, tx: Transaction, row: Prediction, reason: str, *, by_operator: bool = False) -> None:
        """Remove it because its evidence is gone. A signal only when the operator had seen it and did the work."""
        row.status = next_status(row.id, Status(row.status), Move.WITHDRAW).value
        row.outcome = Outcome.WITHDRAWN.value
        row.closed_at = tx.now
        row.note = reason
        if by_operator and row.shown_at is not None:
            self.history.record(tx, DecisionSignal.DID_HIMSELF, decided_card(row, DecidedBy.OPERATOR))
        _record(tx, row, PredictionExpired, withdrawn=True, reason=reason)

    def reopen(self, tx: Transaction, row: Prediction, note: str = "") -> None:
        """Pending again: permit void, signal taken back. The note of a dismissed one stays.

        Raises `Refusal`: `nothing_to_undo`, `evidence_gone` (a dismissed card whose evidence or time is over).
        """
        before = Status(row.status)
        following = next_status(row.id, before, Move.REOPEN)
        if before is Status.REJECTED and (row.evidence_gone or row.is_expired(tx.now)):
            raise Refusal("evidence_gone", f"the reason for card {row.id} no longer applies", "clawpy predict")
        if duplicate := self.duplicate_of(tx, row):
            raise Refusal(
                "nothing_to_undo", f"card {duplicate} for the same thing is already pending", "decide that one"
            )
        row.status = following.value
        row.decided_by = row.decided_at = row.confirmed_at = row.closed_at = None
        row.trigger_type = row.permit_id = row.session_id = row.undo_requested_at = None
        row.note = row.note if before is Status.REJECTED else note
        if row.is_expired(tx.now):  # an approval that never started gets its time again, or it would be gone at once
            row.expires_at = self.expiry(tx.now)
        self.safety.pipeline.revoke(tx, row.id)
        self.history.take_back(tx, row.id)
        self.dismissals.remove(tx, row.id)
        _record(tx, row, PredictionReopened, was=before.value)
        self.make_room(tx, row)

    def execute(self, tx: Transaction, row: Prediction, view: SessionView) -> None:
        """Its session has ended; pending again when the operator undid the approval before it had started, or when
        nothing was done for want of something (a provider that is down: SPEC 3.8)."""
        if row.undo_requested_at is not None and view.started_at is None:
            self.reopen(tx, row, "undone before it started")
            return
        if view.not_begun and row.undo_requested_at is None and not self.duplicate_of(tx, row):
            self.reopen(tx, row, f"not done: {view.error}")
            return
        row.status = next_status(row.id, Status(row.status), Move.EXECUTE).value
        row.session_id = view.id
        row.outcome = OUTCOMES.get(view.state, Outcome.FAILED).value
        row.executed_at = row.closed_at = tx.now
        if view.state is SessionState.INTERRUPTED:
            row.note = "interrupted"
        if view.state is SessionState.CANNOT_RUN:
            self.history.take_back(tx, row.id)  # what was missing says nothing about the card (SPEC 2.12)
        elif row.undo_requested_at is not None:
            self.history.record(tx, DecisionSignal.UNDONE, decided_card(row, DecidedBy.OPERATOR))
        _record(tx, row, PredictionExecuted, outcome=row.outcome)

    def turn_down(self, tx: Transaction, row: Prediction, signal: DecisionSignal, at: datetime) -> None:
        """The operator undid or discarded the result, `at` that time: that signal replaces the approval, once."""
        if self.history.current_signal(tx.session, row.id) in (DecisionSignal.UNDONE, DecisionSignal.DISCARDED):
            return
        row.undo_requested_at = row.undo_requested_at or at
        if signal is DecisionSignal.DISCARDED:
            row.discarded_at = at
        self.history.record(tx, signal, decided_card(row, DecidedBy.OPERATOR), at=at)

    def make_room(self, tx: Transaction, returning: Prediction) -> None:
        """No more than fit (SPEC 2.9), also after a card came back or was suggested: the lowest ranked of the others
        goes, without signal and without cool-down."""
        tx.session.flush()
        cards = self.pending(tx.session)
        for card_id in stack.displaced_by(cards, returning.id, tx.now, self.settings.current):
            self.withdraw(tx, find_card(tx.session, card_id), "made room for another card")

    @staticmethod
    def duplicate_of(tx: Transaction, row: Prediction) -> str:
        """A card for the same thing that is pending, "" for none."""
        query = select(col(Prediction.id)).where(
            col(Prediction.workspace) == row.workspace,
            col(Prediction.kind) == row.kind,
            col(Prediction.subject) == row.subject,
            col(Prediction.status) == Status.PENDING.value,
        )
        return tx.session.exec(query).first() or ""

    # -- what comes round

    def expire_due(self) -> int:
        """Expire every card whose time is over, and withdraw those of workspaces that were switched off or deleted
        since; returns how many. One that was never shown gives no signal."""
        now, cards = self.clock.now(), self.pending()
        deleted = {workspace for workspace in {card.workspace for card in cards} if self._deleted(workspace)}
        off = {card.id for card in cards if self.is_off(card.workspace, card.source)}
        if not any(card.is_expired(now) or card.workspace in deleted or card.id in off for card in cards):
            return 0

        def work(tx: Transaction) -> int:
            over = 0
            for row in all_pending(tx.session):
                if row.workspace in deleted:
                    self.withdraw(tx, row, "its workspace was deleted")
                elif row.is_expired(tx.now):
                    self.expire(tx, row)
                elif self.is_off(row.workspace, row.source):
                    self.withdraw(tx, row, "autonomy is off in this workspace")
                else:
                    continue
                over += 1
            return over

        return self.database.write(work)

    def follow_landings(self) -> None:
        """Take in what became of the changes that cards made: undone, thrown away, landed again (SPEC 8.1). Each fact
        is handled once, and once again harmlessly."""
        self._aftermath.each(lambda facts: self.database.write(lambda tx: self._take_in(tx, facts)))

    def _take_in(self, tx: Transaction, facts: Sequence[LedgerEntry]) -> None:
        for fact in facts:
            is_taken = fact.kind in TAKEN
            if not is_taken and (fact.payload.get("continued_in") or fact.payload.get("left")):
                continue  # it lives on in what went on with it, or other parts of it stand
            session_id = fact.payload["session_id"]
            row = tx.session.exec(select(Prediction).where(col(Prediction.session_id) == session_id)).first()
            if row is not None and is_taken:
                self._take_up_again(tx, row, fact.at)
            elif row is not None:
                self.turn_down(tx, row, TURNED_DOWN[fact.kind], fact.at)

    def _take_up_again(self, tx: Transaction, row: Prediction, at: datetime) -> None:
        """The operator undid the result and landed it again, `at` that time: the approval counts again."""
        if self.history.current_signal(tx.session, row.id) is not DecisionSignal.UNDONE:
            return
        row.undo_requested_at = None
        self.history.take_back(tx, row.id)
        if row.decided_by is not None and row.decided_by != DecidedBy.AUTONOMY:
            self.history.record(tx, DecisionSignal.APPROVED, decided_card(row, DecidedBy(row.decided_by)), at=at)

    def credit_kept(self) -> int:
        """Chosen 0.5 for what ran by itself, succeeded, was looked at and not undone for 24 h; returns how many."""
        now = self.clock.now()
        span = {"since": now - LOOKED_BACK, "until": now - KEPT_AFTER}
        with self.database.read() as session:
            if not load_all(session, Prediction, _KEPT, span):
                return 0

        def work(tx: Transaction) -> int:
            rows = load_all(tx.session, Prediction, _KEPT, span)
            for row in rows:
                self.history.record(tx, DecisionSignal.KEPT, decided_card(row, DecidedBy.AUTONOMY))
            return len(rows)

        return self.database.write(work)


def _read_pending(session: Session) -> list[Card]:
    return [card_of(row) for row in all_pending(session)]


def _record(tx: Transaction, row: Prediction, event: Callable[..., Event], **more: object) -> None:
    tx.record(event(subject=row.id, workspace=row.workspace, **more))
