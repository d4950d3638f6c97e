"""Stores cards and carries out their transitions, with the signals for learning and the events (SPEC 2.7, 8.1).

Everything that becomes of a card passes here: what the operator decides (`cards`, `approvals`), what a check finds
(`checks`), what its session does (`session_ended`), and what becomes of the changes (`follow_landings`). Each
transition is checked by `card_rows.compute_next_status`, and is one transaction together with its effects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from engine.clock import Clock, add_active_time
from engine.config.settings import SettingsSource, WorkspaceAutonomy
from engine.events import Event
from engine.events.work import (
    DismissalExplained,
    PredictionConfirmed,
    PredictionExecuted,
    PredictionExpired,
    PredictionRejected,
    PredictionReopened,
    PredictionSnoozed,
)
from engine.git.repository import find_workspace_refusal
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    ENGINE_CLOSED,
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
from engine.prediction.card_rows import (
    CardRow,
    Move,
    compute_next_status,
    copy_card,
    find_pending_id,
    load_card,
    load_pending,
    load_pending_cards,
    make_card_of_row,
    make_created_event,
    make_decided_card,
)
from engine.prediction.dismissals import (
    read_mute_index,
    remove_dismissal,
    restart_dismissal_count,
    store_dismissal,
)
from engine.prediction.stack import find_displaced_ids
from engine.randomness import Randomness
from engine.safety.safety import Safety
from engine.storage import load, load_all, read_all
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

CARD_LIFETIME = timedelta(hours=24)
"""Time after which a card expires, not counting quiet hours (SPEC 2.7)."""

LANDINGS_CURSOR = "cards.aftermath"
"""Name of the cursor in the ledger of `follow_landings`."""

SIGNAL_OF_EVENT = {"LandingUndone": DecisionSignal.UNDONE, "ChangeSetDiscarded": DecisionSignal.DISCARDED}
"""The signal about a card that follows from an event of its session's change set."""

LANDING_EVENTS = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
"""Events after which changes that were undone before are wanted again."""

KEPT_AFTER = timedelta(hours=24)
"""A card that ran by itself and was looked at counts as wanted after this long."""

MAX_KEPT_AGE = timedelta(days=14)
"""Maximum age of such cards that are read."""

NOT_NOW_WEIGHT = 0.5
"""Weight of the dismissal reason "not now"; other dismissals weigh 1."""

_WHERE_KEPT = f"""
    WHERE status = '{Status.EXECUTED}' AND decided_by = '{DecidedBy.AUTONOMY}' AND outcome = '{Outcome.SUCCEEDED}'
    AND undo_requested_at IS NULL AND shown_at > executed_at AND executed_at > :since AND executed_at <= :until
    AND NOT EXISTS (SELECT 1 FROM decisions WHERE prediction_id = predictions.id AND taken_back_at IS NULL)
"""
"""Selects the cards that `credit_kept` credits."""


@dataclass(eq=False)
class CardStore:
    """The cards of a home. Methods that take a transaction work inside the caller's.

    Stored events and states have older names: an approved card is "confirmed", a dismissed one "rejected", and one
    whose session has ended "executed".
    """

    database: Database
    clock: Clock
    settings: SettingsSource
    randomness: Randomness
    _: KW_ONLY
    safety: Safety
    decisions: Decisions
    ledger: Ledger
    workspace_refusal: Callable[[str], Refusal | None] = find_workspace_refusal
    """Says why nothing can run in a workspace, because its repository is gone."""

    def __post_init__(self) -> None:
        self.deciding = threading.RLock()
        """Held during a decision, so that an undo finds either no session or one that it can stop."""
        self._changes = LedgerCursor(
            self.ledger, LANDINGS_CURSOR, lambda entry: entry.kind in {*SIGNAL_OF_EVENT, *LANDING_EVENTS}
        )
        self.read_pending = self.database.cached("predictions", load_pending_cards)
        """Returns all pending cards, oldest first."""

    def get(self, card_id: str) -> Card:
        """One card. Raises `Refusal` `unknown_card`."""
        return make_card_of_row(self.load(card_id))

    def load(self, card_id: str) -> CardRow:
        """The row of one card, to read. Raises `Refusal` `unknown_card`."""
        with self.database.read() as session:
            return load_card(session, card_id)

    def compute_expiry(self, instant: datetime) -> datetime:
        """When a card made at `instant` expires, not counting quiet hours (SPEC 2.7)."""
        settings, zone = self.settings.current, self.clock.local().tzinfo
        assert zone is not None
        return add_active_time(instant, CARD_LIFETIME, zone, settings.quiet_hours_start, settings.quiet_hours_end)

    def is_off(self, workspace: str, source: str = "") -> bool:
        """Whether no card is made for this workspace (SPEC 7.4); the operator's own prompts are still accepted."""
        off = self.settings.current.get_workspace(workspace).autonomy is WorkspaceAutonomy.OFF
        return off and source != Source.OPERATOR

    def change(self, card_id: str, change: Callable[[Transaction, CardRow], object]) -> Card:
        """Change a card in one transaction; returns the card after it. Raises `Refusal` `unknown_card`."""

        def change_row(tx: Transaction) -> Card:
            row = load_card(tx.session, card_id)
            change(tx, row)
            return make_card_of_row(row)

        with self.deciding:
            return self.database.write(change_row)

    def add(self, tx: Transaction, row: CardRow) -> Card:
        """Store a new card."""
        tx.insert(row)
        tx.record(make_created_event(row))
        return make_card_of_row(row)

    def propose_again(self, card_id: str, note: str) -> Card:
        """A pending card for the work of a card that was interrupted (SPEC 7.5). A new one is made unless there is one
        about the same subject. Raises `Refusal` `unknown_card`."""
        with self.deciding:
            return self.database.write(lambda tx: self._add_again(tx, load_card(tx.session, card_id), note))

    def _add_again(self, tx: Transaction, row: CardRow, note: str) -> Card:
        """See `propose_again`."""
        if duplicate := find_pending_id(tx.session, row):
            return make_card_of_row(load_card(tx.session, duplicate))
        copy = copy_card(row, self.randomness.new_id("pred"), tx.now, self.compute_expiry(tx.now), note)
        card = self.add(tx, copy)
        self.make_room(tx, copy)
        return card

    # -- transitions

    def approve(self, tx: Transaction, row: CardRow, permit: Permit, by: DecidedBy) -> None:
        """Approve a card with this permit. An approval by autonomy is no decision of the operator."""
        _move(tx, row, Move.APPROVE)
        row.decided_by = by
        row.decided_at = row.confirmed_at = tx.now
        row.permit_id = permit.id
        row.trigger_type = permit.trigger_type.value
        row.snoozed_until = row.undo_requested_at = None
        row.note = ""
        if by is not DecidedBy.AUTONOMY:
            self._signal(tx, row, DecisionSignal.APPROVED, by)
            restart_dismissal_count(tx, row.workspace, row.kind)
            self.safety.kill_switch.pause_after_rejections(tx)
        _record(tx, row, PredictionConfirmed, decided_by=by.value, edited=row.edited)

    def dismiss(self, tx: Transaction, row: CardRow, by: DecidedBy, reason: DismissReason | None) -> None:
        """Dismiss a card and mute its subject (SPEC 2.9). A card that ran by itself stays executed."""
        if row.ran_by_itself:
            row.undo_requested_at = tx.now
            self.decisions.take_back(tx, row.id)
        else:
            _move(tx, row, Move.DISMISS)
            row.decided_by = by
            row.decided_at = row.closed_at = tx.now
            row.snoozed_until = None
        _record(tx, row, PredictionRejected, decided_by=by.value)
        self._learn_dismissal(tx, row, by, reason)

    def explain(self, tx: Transaction, row: CardRow, reason: DismissReason) -> None:
        """Store the reason of a dismissal. Raises `Refusal` `not_dismissed`."""
        if row.status != Status.DISMISSED or row.decided_by is None:
            message = f"card {row.id} is {row.status}, not dismissed"
            raise Refusal("not_dismissed", message, "give a reason after dismissing the card")
        _record(tx, row, DismissalExplained, reason=reason.value)
        self._learn_dismissal(tx, row, row.decided_by, reason)

    def _learn_dismissal(self, tx: Transaction, row: CardRow, by: DecidedBy, reason: DismissReason | None) -> None:
        """Store the signal and the mute of a dismissal, and withdraw the cards that it mutes."""
        if reason is DismissReason.ALREADY_DONE:
            self.decisions.take_back(tx, row.id)  # the work was wanted
        else:
            if self.decisions.read_current_signal(tx.session, row.id) is None:
                self._signal(tx, row, DecisionSignal.DISMISSED, by)
            if reason is not None:
                self.decisions.set_weight(tx, row.id, NOT_NOW_WEIGHT if reason is DismissReason.NOT_NOW else 1.0)
        self.safety.kill_switch.pause_after_rejections(tx)
        if row.source == Source.OPERATOR:
            return  # the operator's own prompts are never proposed
        store_dismissal(tx, row, reason)
        muted = read_mute_index(tx.session, tx.now)
        for other in load_pending(tx.session):
            if muted.covers(*other.about, other.tier):
                self.withdraw(tx, other, "its kind was switched off: clawpy muted")

    def snooze(self, tx: Transaction, row: CardRow, span: timedelta) -> None:
        """Hide a card for `span`; its 24 h begin anew when it wakes. Gives no signal."""
        _move(tx, row, Move.SNOOZE)
        row.snoozed_until = tx.now + span
        row.expires_at = self.compute_expiry(row.snoozed_until)
        _record(tx, row, PredictionSnoozed, until=row.snoozed_until.isoformat())

    def bring_back(self, tx: Transaction, row: CardRow) -> None:
        """Undo the snooze of a card, whose 24 h begin anew, or the decision on it."""
        if row.status != Status.PENDING or row.snoozed_until is None:
            self.reopen(tx, row)
            return
        _move(tx, row, Move.WAKE)
        row.snoozed_until = None
        row.expires_at = self.compute_expiry(tx.now)
        _record(tx, row, PredictionReopened, was="snoozed")
        self.make_room(tx, row)

    def expire(self, tx: Transaction, row: CardRow) -> None:
        """Expire a card. One that was never shown gives no signal."""
        _move(tx, row, Move.EXPIRE)
        row.closed_at = tx.now
        if row.shown_at is not None:
            self._signal(tx, row, DecisionSignal.EXPIRED)
        _record(tx, row, PredictionExpired, withdrawn=False, reason="it had expired")

    def withdraw(self, tx: Transaction, row: CardRow, reason: str, *, by_operator: bool = False) -> None:
        """Withdraw a card for this `reason`. Gives a signal only if the operator saw it and did the work."""
        _move(tx, row, Move.WITHDRAW)
        row.outcome = Outcome.WITHDRAWN
        row.closed_at = tx.now
        row.note = reason
        if by_operator and row.shown_at is not None:
            self._signal(tx, row, DecisionSignal.DONE_BY_OPERATOR)
        _record(tx, row, PredictionExpired, withdrawn=True, reason=reason)

    def make_room(self, tx: Transaction, returning: CardRow) -> None:
        """Withdraw the lowest ranked other cards if there are too many (SPEC 2.9), without signal and cool-down."""
        tx.session.flush()
        cards = load_pending_cards(tx.session)
        for card_id in find_displaced_ids(cards, returning.id, tx.now, self.settings.current):
            self.withdraw(tx, load_card(tx.session, card_id), "made room for another card")

    def reopen(self, tx: Transaction, row: CardRow, note: str = "") -> None:
        """Make a card pending again: revoke its permit, take its signal back. The note of a dismissed one stays. If its
        time is over, it begins anew. Raises `Refusal` `nothing_to_undo`."""
        before, after = row.status, compute_next_status(row, Move.REOPEN, tx.now)
        if duplicate := find_pending_id(tx.session, row):
            message = f"card {duplicate} for the same thing is already pending"
            raise Refusal("nothing_to_undo", message, "decide that one")
        row.status = after
        row.decided_by = row.decided_at = row.confirmed_at = row.closed_at = None
        row.trigger_type = row.permit_id = row.session_id = row.undo_requested_at = None
        row.note = row.note if before is Status.DISMISSED else note
        if row.is_expired(tx.now):
            row.expires_at = self.compute_expiry(tx.now)
        self.safety.pipeline.revoke(tx, row.id)
        self.decisions.take_back(tx, row.id)
        remove_dismissal(tx, row.id)
        _record(tx, row, PredictionReopened, was=before.value)
        self.make_room(tx, row)

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Store the outcome of a session on its card. Sessions call this in the transaction of their end.

        The card is pending again if the operator undid the approval before the start, or if the session could not begin
        (a provider was down: SPEC 3.8). If the engine stopped or was closed while the session ran, or the operator
        undid the approval meanwhile, its work is another pending card, unless it had begun by itself."""
        row = load(tx.session, CardRow, view.prediction_id)
        if row is None or row.status != Status.APPROVED:
            return
        is_undone, is_interrupted = row.undo_requested_at is not None, view.state is SessionState.INTERRUPTED
        if is_undone and view.started_at is None:
            self.reopen(tx, row, "undone before it started")
        elif not is_undone and view.not_begun and not find_pending_id(tx.session, row):
            self.reopen(tx, row, f"not done: {view.error}")
        else:
            self._execute(tx, row, view)
            is_cancelled = view.state is SessionState.CANCELLED
            is_cut_short = is_interrupted or (is_cancelled and (is_undone or view.error == ENGINE_CLOSED))
            if is_cut_short and row.decided_by != DecidedBy.AUTONOMY:
                cause = "undone" if is_undone else "interrupted: the engine stopped"
                self._add_again(tx, row, f"{cause} while it ran")

    def _execute(self, tx: Transaction, row: CardRow, view: SessionView) -> None:
        """Store the outcome of a session that began."""
        _move(tx, row, Move.EXECUTE)
        row.session_id = view.id
        row.executed_at = row.closed_at = tx.now
        if view.state is SessionState.INTERRUPTED:
            row.outcome, row.note = Outcome.FAILED, "interrupted"
        else:
            row.outcome = Outcome(view.state.value)
        if view.state is SessionState.CANNOT_RUN:
            self.decisions.take_back(tx, row.id)  # a missing tool is no decision on the card (SPEC 2.12)
        elif row.undo_requested_at is not None:
            self._signal(tx, row, DecisionSignal.UNDONE)
        _record(tx, row, PredictionExecuted, outcome=row.outcome)

    def retract_approval(self, tx: Transaction, row: CardRow, signal: DecisionSignal, at: datetime) -> None:
        """Replace the approval of a card by the signal that the operator undid or discarded its result, once."""
        if self.decisions.read_current_signal(tx.session, row.id) in SIGNAL_OF_EVENT.values():
            return
        row.undo_requested_at = row.undo_requested_at or at
        if signal is DecisionSignal.DISCARDED:
            row.discarded_at = at
        self._signal(tx, row, signal, at=at)

    # -- regular work

    def expire_due(self) -> int:
        """Expire cards whose time is over, and withdraw those of workspaces that are off or deleted; returns how many.
        The operator's own prompts stay, because the folder may be back before their time is over."""
        workspaces = {card.workspace for card in self.read_pending()}
        deleted = {
            path for path in workspaces if (refusal := self.workspace_refusal(path)) and refusal.code == "no_folder"
        }

        def is_lost(card: Card | CardRow) -> bool:
            return card.workspace in deleted and card.source != Source.OPERATOR

        def is_due(card: Card | CardRow, now: datetime) -> bool:
            return card.is_expired(now) or is_lost(card) or self.is_off(card.workspace, card.source)

        def end_cards(tx: Transaction) -> int:
            due = [row for row in load_pending(tx.session) if is_due(row, tx.now)]
            for row in due:
                if is_lost(row):
                    self.withdraw(tx, row, "its workspace was deleted")
                elif row.is_expired(tx.now):
                    self.expire(tx, row)
                else:
                    self.withdraw(tx, row, "autonomy is off in this workspace")
            return len(due)

        now = self.clock.now()
        return self.database.write(end_cards) if any(is_due(card, now) for card in self.read_pending()) else 0

    def follow_landings(self) -> None:
        """Learn from what happened to the changes of cards: undone, discarded, landed again (SPEC 8.1)."""
        self._changes.handle_new(lambda entries: self.database.write(lambda tx: self._apply_entries(tx, entries)))

    def _apply_entries(self, tx: Transaction, entries: Sequence[LedgerEntry]) -> None:
        """Give the cards of these ledger entries the signals that follow."""
        for entry in entries:
            is_landing = entry.kind in LANDING_EVENTS
            if not is_landing and (entry.payload.get("continued_in") or entry.payload.get("left")):
                continue  # another session continues it, or other parts of it are still landed
            session_id = entry.payload["session_id"]
            for row in load_all(tx.session, CardRow, "WHERE session_id = :id LIMIT 1", {"id": session_id}):
                if is_landing:
                    self._restore_approval(tx, row, entry.at)
                else:
                    self.retract_approval(tx, row, SIGNAL_OF_EVENT[entry.kind], entry.at)

    def _restore_approval(self, tx: Transaction, row: CardRow, at: datetime) -> None:
        """Restore the approval of a card whose result the operator undid and landed again."""
        if self.decisions.read_current_signal(tx.session, row.id) is not DecisionSignal.UNDONE:
            return
        row.undo_requested_at = None
        self.decisions.take_back(tx, row.id)
        if row.decided_by is not None and row.decided_by != DecidedBy.AUTONOMY:
            self._signal(tx, row, DecisionSignal.APPROVED, row.decided_by, at=at)

    def credit_kept(self) -> int:
        """Store the signal "kept" for cards that ran by themselves, succeeded, were looked at and not undone for 24 h;
        returns how many."""
        now = self.clock.now()
        span = {"since": now - MAX_KEPT_AGE, "until": now - KEPT_AFTER}
        with self.database.read() as session:
            if not read_all(session, CardRow, _WHERE_KEPT, span):
                return 0

        def record_kept(tx: Transaction) -> int:
            rows = load_all(tx.session, CardRow, _WHERE_KEPT, span)
            for row in rows:
                self._signal(tx, row, DecisionSignal.KEPT, DecidedBy.AUTONOMY)
            return len(rows)

        return self.database.write(record_kept)

    def _signal(
        self,
        tx: Transaction,
        row: CardRow,
        signal: DecisionSignal,
        by: DecidedBy = DecidedBy.OPERATOR,
        at: datetime | None = None,
    ) -> None:
        """Record a signal about a card for learning, `at` a time or now."""
        self.decisions.record(tx, signal, make_decided_card(row, by), at=at)


def _move(tx: Transaction, row: CardRow, move: Move) -> None:
    """Give a card its status after `move`. Raises `Refusal` as `compute_next_status`."""
    row.status = compute_next_status(row, move, tx.now)


def _record(tx: Transaction, row: CardRow, event: Callable[..., Event], **fields: object) -> None:
    """Record an event about a card, with these other fields."""
    tx.record(event(subject=row.id, workspace=row.workspace, **fields))
