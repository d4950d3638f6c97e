"""Cards: what the operator sees of predictions, and everything that he can do with one (SPEC 2.7, 2.9).

`lifecycle.py` says what is legal; here each transition is one transaction. Deciding and undoing are serialised by a
lock, so that an undo finds either no session or one that it can stop. `intake.py` does what the cycle does to cards.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlmodel import Session, col, desc, select

from engine.clock import Clock
from engine.config import Autonomy, SettingsSource
from engine.prediction import limits
from engine.prediction.aftermath import Aftermath
from engine.prediction.cards_store import (
    Prediction,
    again,
    all_pending,
    any_due,
    card_of,
    created,
    find,
    last_triggered,
    trigger_of,
)
from engine.prediction.flow_names import named_flow
from engine.prediction.intake import Intake
from engine.prediction.lifecycle import Move
from engine.prediction.own_prompts import checked, implied, own_row
from engine.prediction.phases import phase_of
from engine.prediction.ports import ActiveTime, Calibrator, History, Landings, Launcher, Rails
from engine.prediction.routing import route
from engine.prediction.transitions import Transitions, moved
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Facts
from engine.storage.ids import beginning
from engine.storage.quick import load
from engine.values import (
    UNDONE,
    Assignment,
    Card,
    DecidedBy,
    DecisionSignal,
    Permit,
    RailVerdict,
    Randomness,
    Refusal,
    RunnerInfo,
    SessionView,
    Source,
    Status,
    Trigger,
    Verdict,
    part_of_day,
)
from engine.values.shares import wilson_lower_bound

CODE = "koji-core"
"""The channel that flows of the operator's own go to when it is registered."""

LONGEST_SNOOZE = timedelta(days=30)


def unknown_session(session_id: str) -> SessionView:
    """For cards without sessions behind them."""
    raise Refusal("unknown_session", f"there is no session {session_id}")


class Cards:
    """The port `engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        rails: Rails,
        launcher: Launcher,
        landings: Landings,
        history: History,
        calibrator: Calibrator,
        active_time: ActiveTime,
        facts: Facts,
        flows: Collection[str] = (),
        on_decision: Callable[[Transaction], object] = lambda tx: None,
        session: Callable[[str], SessionView] = unknown_session,
    ) -> None:
        """`flows`: names that a prompt of one's own may call. `session` finds one by its id. `on_decision` is called
        inside the transaction of each decision by a person (the rails count rejections)."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._randomness = randomness
        self._rails = rails
        self._launcher = launcher
        self._landings = landings
        self._history = history
        self._calibrator = calibrator
        self._active_time = active_time
        self._flows = flows
        self._session = session
        self._transitions = Transitions(rails, history, settings, active_time, on_decision)
        self._deciding = threading.RLock()
        self.intake = Intake(self._transitions, settings, randomness, active_time)
        """What the cycle does to cards."""
        self.aftermath = Aftermath(database, clock, facts, history, self._transitions)
        """What later behaviour says about them."""

    # -- reading

    def pending(
        self, *, workspace: str | None = None, channel: str | None = None, include_snoozed: bool = False
    ) -> list[Card]:
        """The stack, highest rank first, in a stable order. A woken card waits until there is a seat for it."""
        now = self._clock.now()
        with self._database.read() as session:
            rows = {row.id: row for row in all_pending(session) if not row.due(now)}
        seats = [row.seat for row in rows.values()]
        asleep = limits.overdue_for_a_seat(seats, now, self._settings.current.max_pending_cards)
        return [
            card_of(rows[seat.id])
            for seat in limits.order(seats)
            if (include_snoozed or not (limits.is_snoozed(seat, now) or seat.id in asleep))
            and workspace in (None, rows[seat.id].workspace)
            and channel in (None, rows[seat.id].target_channel)
        ]

    def get(self, card_id: str) -> Card:
        """One card. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return card_of(find(session, card_id))

    def beginning(self, wanted: str) -> list[str]:
        """Ids of cards, of any age, that begin so; see `engine.storage.ids`."""
        with self._database.read() as session:
            return beginning(session, col(Prediction.id), wanted)

    def recent(self, limit: int = 50, workspace: str | None = None) -> list[Card]:
        """Cards of any status, newest first."""
        query = select(Prediction).order_by(desc(col(Prediction.created_at)), desc(col(Prediction.id))).limit(limit)
        if workspace is not None:
            query = query.where(col(Prediction.workspace) == workspace)
        with self._database.read() as session:
            return [card_of(row) for row in session.exec(query)]

    def rails(self, card_id: str) -> tuple[RailVerdict, ...]:
        """What the rails would say now of an approval by the operator, before any acknowledgement; nothing is decided
        or logged. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            row = find(session, card_id)
            info = self._launcher.check(row.assignment)
            trigger = self._trigger(row, row.assignment, info, DecidedBy.OPERATOR, session)
        return self._rails.preview(replace(trigger, acknowledged_digest=""))

    def similar(self, card_id: str) -> tuple[int, int, str]:
        """(approved, decided, in words) of the operator's decisions on like cards (SPEC 2.5)."""
        with self._database.read() as session:
            row = find(session, card_id)
            approved, count = self._history.approvals_of_like(session, row.kind, row.target_channel, row.workspace)
        if count == 0:
            return 0, 0, "nothing like this was decided here before"
        return approved, count, f"approved {approved} of {count} like this"

    # -- deciding

    def approve(
        self,
        card_id: str,
        *,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        by: DecidedBy = DecidedBy.OPERATOR,
    ) -> Card:
        """Approve and start. `edit` is a new prompt, or a flow's new parameters; `parameters` are the latter as data.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`, `blocked`
        (a rail said no), `needs_acknowledgement` (a rail asks for a person, or another than the card said would do it;
        the card now shows what), or why the session could not start. After each of them the card is as it was, or
        pending with the reason in its note.
        """
        with self._deciding:
            with self._database.read() as session:
                row = find(session, card_id)
                moved(row, Move.APPROVE, self._clock.now())
            assignment, otherwise = self._launcher.choose(self._edited(row.assignment, edit, parameters))
            info = self._launcher.check(assignment)
            if not info.takes:
                raise Refusal("no_runner", info.reason, _how_to_run(assignment, card_id))
            if info.served != row.served:
                told = otherwise or f"it would now be done by {info.served or 'a flow'}"
                if by is DecidedBy.OPERATOR:
                    self._show(card_id, assignment, info, told)
                raise Refusal("needs_acknowledgement", told, "look at the card and approve it again")
            permit, blocked_by = self._database.write(lambda tx: self._rule(tx, card_id, assignment, info, by))
            if permit is None:
                assert blocked_by is not None
                told = f"{blocked_by.rail}: {blocked_by.reason}"
                if _asks(blocked_by):
                    raise Refusal("needs_acknowledgement", told, "look at the card and approve it again")
                raise Refusal("blocked", told, "the card stays pending; mend the reason and approve it again")
            self._start(card_id, permit, by)
            return self.get(card_id)

    def dismiss(self, card_id: str, *, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Turn down. The same evidence stays away for 7 days. Raises `Refusal` `unknown_card`, `already_decided`."""
        return self._change(card_id, lambda tx, row: self._transitions.reject(tx, row, by))

    def snooze(self, card_id: str, *, span: timedelta = limits.SNOOZE) -> Card:
        """Put off for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. No signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= LONGEST_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "more than nothing, at most 30 days: --for 2h")
        return self._change(card_id, lambda tx, row: self._transitions.snooze(tx, row, span))

    def undo(self, card_id: str) -> Card:
        """Take the last decision back (SPEC 2.7).

        A snooze ends; a dismissal or an approval whose session has not started is pending again, its signal taken
        back; a running session is stopped; what it landed is reversed. Raises `Refusal` `unknown_card`,
        `nothing_to_undo`, `evidence_gone`, or why a landing cannot be reversed.
        """
        with self._deciding:
            with self._database.read() as session:
                row = find(session, card_id)
            view = self._launcher.session_of(card_id) if row.status == Status.CONFIRMED else None
            if view is not None and not view.state.over:
                row = self._database.write(lambda tx: _ask_undo(tx, card_id))
                if row.status == Status.CONFIRMED:
                    self._launcher.stop(view.id, UNDONE)
                    return self.get(card_id)
            if row.status == Status.EXECUTED:
                self._reverse(row)
                return self._change(
                    card_id, lambda tx, row: self._transitions.turn_down(tx, row, DecisionSignal.UNDONE)
                )
            return self._change(card_id, self._bring_back)

    def give_back(self, card_id: str, note: str) -> Card:
        """A card for the same once more, pending: what this one started was cut short, and the operator decides anew
        (SPEC 7.5). Raises `Refusal` `unknown_card`."""
        new_id = self._randomness.new_id("pred")
        expires_at = self._active_time(self._clock.now(), limits.LIFE)

        def work(tx: Transaction) -> Card:
            row = find(tx.session, card_id)
            for other in all_pending(tx.session):
                if other.fingerprint == row.fingerprint:
                    return card_of(other)
            copy = again(row, new_id, tx.now, expires_at, note)
            tx.session.add(copy)
            tx.record(created(copy))
            self._transitions.make_room(tx, copy)
            return card_of(copy)

        with self._deciding:
            return self._database.write(work)

    def propose(self, text: str, *, workspace: str, channel: str | None = None, continues: str = "") -> Card:
        """A card of the operator's own. Text that names a flow becomes one; other text waits for a runner of prose.

        `continues` names a session that is over: the card goes on in its workspace, on its channel unless another is
        named, with its conversation and its changes (SPEC 9.4); it is prose, whatever it says.

        Raises `Refusal` `empty_prompt`, `unknown_channel`, `bad_parameters`, `unknown_session`, `still_running`.
        """
        prompt = checked(text)
        now, channels = self._clock.now(), self._settings.current.channels
        former = self._finished(continues) if continues else None
        if former is not None:
            workspace, channel = former.workspace, channel or former.channel
        named = None if former else named_flow(prompt, self._flows)
        with self._database.read() as session:
            triggered = last_triggered(session)
        to = route(
            twin=channel,
            affinity=CODE if named and CODE in channels else "",
            registered=list(channels),
            triggered=triggered,
            routed={},
            part=part_of_day(self._clock.local()),
            now=now,
            randomness=self._randomness,
        ).channel
        assignment = Assignment(prompt, to, workspace, channels[to].runner)
        if former is not None:
            # The one who did the work goes on with it; after a flow it is the channel's.
            runner = channels[to].runner if former.flow else former.runner
            assignment = replace(assignment, runner=runner, parameters={"continues": former.id})
        if named:
            flow, parameters = named
            assignment = replace(assignment, runner="flow", flow=flow, parameters=implied(flow, self._clock.local()))
            assignment = self._launcher.reparameterise(assignment, parameters) if parameters else assignment
        assignment, otherwise = self._launcher.choose(assignment)
        info = self._launcher.check(assignment)
        card_id, expires_at = self._randomness.new_id("pred"), self._active_time(now, limits.LIFE)
        row = own_row(card_id, assignment, info, agent=channels[to].agent, now=now, expires_at=expires_at)
        if former is not None:
            row.reasoning = f"continues “{former.prompt}”"
        if not info.takes and assignment.flow is None:
            row.note = f"{info.reason}; flows: {', '.join(self._flows)}"
        row.note = otherwise or row.note
        row.judge(self._rails.preview(self._trigger(row, assignment, info, DecidedBy.OPERATOR, None)))

        def work(tx: Transaction) -> Card:
            tx.session.add(row)
            tx.record(created(row))
            return card_of(row)

        return self._database.write(work)

    def _finished(self, session_id: str) -> SessionView:
        former = self._session(session_id)
        if not former.state.over:
            raise Refusal("still_running", f"{session_id} is {former.state}", "reply to it instead")
        return former

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """The operator has had these on his screen; ids that are unknown or decided are passed over."""
        wanted = set(card_ids)

        def work(tx: Transaction) -> None:
            for row in tx.session.exec(select(Prediction).where(col(Prediction.id).in_(wanted))):
                if row.status == Status.PENDING and row.shown_at is None:
                    row.shown_at = tx.now

        if wanted:
            self._database.write(work)

    def expire_due(self) -> int:
        """Expire every card whose time is over, and withdraw those of workspaces that were switched off since; returns
        how many. One that was never shown gives no signal."""
        now = self._clock.now()
        off = [path for path, one in self._settings.current.workspaces.items() if one.autonomy is Autonomy.OFF]
        with self._database.read() as session:
            if not any_due(session, now) and not (off and any(map(self._is_off, all_pending(session)))):
                return 0

        def work(tx: Transaction) -> int:
            over = 0
            for row in all_pending(tx.session):
                if row.due(tx.now):
                    self._transitions.expire(tx, row)
                elif self._is_off(row):
                    self._transitions.withdraw(tx, row, "autonomy is off in this workspace")
                else:
                    continue
                over += 1
            return over

        return self._database.write(work)

    def _is_off(self, row: Prediction) -> bool:
        """No card is made for this workspace any more (SPEC 7.4); a prompt of the operator's own is his own."""
        off = self._settings.current.workspace(row.workspace).autonomy is Autonomy.OFF
        return off and row.source != Source.OPERATOR

    # -- what others tell: sessions and tasks, each inside its own transaction

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        """A session of this card has been queued, or has begun."""
        row = load(tx.session, Prediction, view.prediction_id)
        if row is not None and row.status == Status.CONFIRMED:
            row.session_id = view.id

    def session_ended(self, tx: Transaction, view: SessionView, result: object = None) -> None:
        """The card is executed, with its outcome; or pending again when it was undone before it had started."""
        row = load(tx.session, Prediction, view.prediction_id)
        if row is not None and row.status == Status.CONFIRMED:
            self._transitions.execute(tx, row, view)

    def task_of(self, transaction: Transaction, prediction_id: str) -> str | None:
        """The task this card belongs to."""
        row = load(transaction.session, Prediction, prediction_id)
        return None if row is None else row.task_id

    def link_task(self, transaction: Transaction, prediction_id: str, task_id: str) -> None:
        """The task that stands for this card's session."""
        row = load(transaction.session, Prediction, prediction_id)
        if row is not None:
            row.task_id = task_id

    def recover(self, unconsumed: Sequence[Permit], *, resume: bool = True) -> list[str]:
        """At start-up: start what was approved and never began, while its permit holds, else make it pending again.

        Returns in words what was done. A card whose session exists is left to the sessions' own recovery. Without
        `resume` nothing is started: it stays approved for an engine that lasts, or until its permit has run out.
        """
        now = self._clock.now()
        permits = {permit.prediction_id: permit for permit in unconsumed if permit.expires_at > now}
        with self._database.read() as session:
            confirmed = session.exec(select(Prediction).where(col(Prediction.status) == Status.CONFIRMED.value)).all()
        told = []
        for row in confirmed:
            if row.session_id is not None or self._begun(row.id) or self.get(row.id).status is not Status.CONFIRMED:
                continue
            permit = permits.get(row.id)
            if permit is None:
                self._reopen_unstarted(row.id, "it was approved but never started; approve it again")
                told.append(f"pending again, its permit has run out: {row.prompt}")
                continue
            if not resume:
                told.append(f"approved, and waits for the console: {row.prompt}")
                continue
            try:
                self._start(row.id, permit, DecidedBy(row.decided_by or DecidedBy.OPERATOR))
                told.append(f"started, it was approved before the interruption: {row.prompt}")
            except Refusal as refusal:
                told.append(f"pending again, it could not start: {row.prompt}: {refusal.message}")
        return told

    # -- inside

    def _change(self, card_id: str, change: Callable[[Transaction, Prediction], None]) -> Card:
        """One transition in one transaction."""

        def work(tx: Transaction) -> Card:
            row = find(tx.session, card_id)
            change(tx, row)
            return card_of(row)

        with self._deciding:
            return self._database.write(work)

    def _show(self, card_id: str, assignment: Assignment, info: RunnerInfo, note: str) -> None:
        """Have the card say what would be done now and by whom, and what the rails say of just that."""
        with self._database.read() as session:
            trigger = self._trigger(find(session, card_id), assignment, info, DecidedBy.OPERATOR, session)
        verdicts = self._rails.preview(replace(trigger, acknowledged_digest=""))

        def change(tx: Transaction, row: Prediction) -> None:
            moved(row, Move.APPROVE, tx.now)
            row.take(assignment)
            row.serve(info)
            row.judge(verdicts)
            row.note = note

        self._change(card_id, change)

    def _edited(self, assignment: Assignment, edit: str | None, parameters: Mapping[str, Any] | None) -> Assignment:
        if edit is None and parameters is None:
            return assignment
        if assignment.flow is not None:
            text = edit if parameters is None else json.dumps(dict(parameters))
            return self._launcher.reparameterise(assignment, text or "")
        if edit is None:
            raise Refusal("bad_parameters", "this card is prose, it has no parameters", "edit its prompt instead")
        return replace(assignment, prompt=checked(edit))

    def _trigger(
        self, row: Prediction, assignment: Assignment, info: RunnerInfo, by: DecidedBy, session: Session | None
    ) -> Trigger:
        """The trigger of a card; without a session (a card just made) nothing is known of like ones."""
        phase, bound = 0, 0.0
        if session is not None:
            phase = phase_of(self._history.total(session), self._calibrator.check()).number
            like = self._history.approvals_of_like(session, row.kind, row.target_channel, row.workspace)
            bound = wilson_lower_bound(*like)
        return trigger_of(row, assignment, by=by, estimate=info.estimate, phase=phase, approval_bound=bound)

    def _rule(
        self, tx: Transaction, card_id: str, assignment: Assignment, info: RunnerInfo, by: DecidedBy
    ) -> tuple[Permit | None, RailVerdict | None]:
        """Ask the rails and carry their word out, in one transaction."""
        row = find(tx.session, card_id)
        moved(row, Move.APPROVE, tx.now)
        ruling = self._rails.rule(tx, self._trigger(row, assignment, info, by, tx.session))
        changed = assignment.digest != row.assignment.digest
        if (
            changed
        ):  # blocked or not: the card holds what was asked for, so that it shows what the rails say of just that
            row.take(assignment)
            row.estimate_microusd = info.estimate
        if ruling.permit is not None:
            row.judge(ruling.verdicts)
            self._transitions.confirm(tx, row, ruling.permit, by)
            return ruling.permit, None
        assert ruling.blocked_by is not None, "a ruling has a permit or what blocked it"
        if changed or _asks(ruling.blocked_by):
            row.judge(ruling.verdicts)
        row.note = f"{ruling.blocked_by.rail}: {ruling.blocked_by.reason}"
        return None, ruling.blocked_by

    def _start(self, card_id: str, permit: Permit, by: DecidedBy) -> None:
        card = self.get(card_id)
        mode = "autonomous" if by is DecidedBy.AUTONOMY else "approved"
        try:
            view = self._launcher.start(permit, card.assignment, agent=card.agent, mode=mode, estimate=card.estimate)
        except BaseException as error:
            if not self._begun(card_id):
                self._reopen_unstarted(card_id, f"could not start: {error}")
            raise
        self._database.write(lambda tx: self.session_started(tx, view))

    def _begun(self, card_id: str) -> bool:
        """A session of this card waits or runs. One of an earlier approval, which was undone, is over."""
        view = self._launcher.session_of(card_id)
        return view is not None and not view.state.over

    def _reopen_unstarted(self, card_id: str, note: str) -> None:
        def change(tx: Transaction, row: Prediction) -> None:
            if row.status == Status.CONFIRMED:
                self._transitions.reopen(tx, row, note)

        self._change(card_id, change)

    def _bring_back(self, tx: Transaction, row: Prediction) -> None:
        if row.status == Status.PENDING and row.snoozed_until is not None:
            self._transitions.wake(tx, row)
            self._transitions.make_room(tx, row)
        else:
            self._transitions.reopen(tx, row)

    def _reverse(self, row: Prediction) -> None:
        if row.session_id is None or not self._landings.reverse(row.session_id):
            told = f"nothing of card {row.id} is landed"
            raise Refusal("nothing_to_undo", told, f"throw away what waits, if anything does: clawpy discard {row.id}")


def _ask_undo(tx: Transaction, card_id: str) -> Prediction:
    """Mark the card, unless its session ended meanwhile; its row as it is then."""
    row = find(tx.session, card_id)
    if row.status == Status.CONFIRMED:
        row.undo_requested_at = tx.now
    return row


def _how_to_run(assignment: Assignment, card_id: str) -> str:
    if assignment.flow:
        return f"say what is missing: clawpy approve {card_id} --edit 'KEY=VALUE …'"
    return "name a flow, or set up a runner that takes prose"


def _asks(verdict: RailVerdict) -> bool:
    """The content filter asks for a person; approving a card that shows it satisfies it (SPEC 3.5)."""
    return verdict.rail == "content" and verdict.verdict is Verdict.ASK
