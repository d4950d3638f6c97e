"""Approving cards and starting what was approved, also after a crash between the two (SPEC 2.7, 3.1, 3.8).

Approving is a transaction, starting is not: the rails rule and the card is confirmed with its permit; then the launcher
uses the permit up. What dies in between is found by `recover`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session, col, select

from engine.clock import Clock
from engine.events import PredictionReassigned
from engine.execution.launcher import Launcher
from engine.execution.runners.flow_names import named_flow
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    NO_SANDBOX,
    Assignment,
    Card,
    DecidedBy,
    Permit,
    RailVerdict,
    Refusal,
    RunnerInfo,
    SessionView,
    Status,
    Trigger,
    TriggerType,
    Verdict,
)
from engine.model.secrets import refuse_secret
from engine.model.shares import wilson_lower_bound
from engine.prediction.cards_store import Prediction, all_pending, card_of, find, runs_when_due, trigger_of
from engine.prediction.lifecycle import Move
from engine.prediction.own_prompts import checked
from engine.prediction.phases import phase_of
from engine.prediction.templates.history import implied
from engine.prediction.transitions import Deciding, Transitions, moved
from engine.prediction.twin import Calibrator
from engine.safety.pipeline import Pipeline
from engine.storage.database import Database, Transaction
from engine.storage.quick import load

UNCONFINED = "no sandbox on this machine, so nothing confines what this runs"
HOW_TO_CONFIRM = "install bubblewrap to get one; or look at the card and confirm: clawpy approve {} --without-sandbox"

KILL = "kill"
"""The rail whose word is of no card: a stop is told wherever one looks, and over as soon as it is lifted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a program's to run a card; `force` skips the rate (SPEC 3.2), `by` is the program, or the channel
    that it says it works for (SPEC 3.3)."""

    force: bool
    by: str


def link_session(tx: Transaction, view: SessionView) -> None:
    """A session of this card has been queued, or has begun."""
    row = load(tx.session, Prediction, view.prediction_id)
    if row is not None and row.status == Status.CONFIRMED:
        row.session_id = view.id


class Approving:
    """Has the rails rule on cards and the launcher start them. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        rails: Pipeline,
        launcher: Launcher,
        history: Decisions,
        calibrator: Calibrator,
        transitions: Transitions,
        deciding: Deciding,
        flows: Collection[str],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        """As those of `Cards`; `deciding` is shared with it."""
        self._database = database
        self._clock = clock
        self._rails = rails
        self._launcher = launcher
        self._history = history
        self._calibrator = calibrator
        self._transitions = transitions
        self._deciding = deciding
        self._flows = flows
        self._secrets = secrets

    def preview(self, card_id: str) -> tuple[RailVerdict, ...]:
        """What the rails would say now of an approval by the operator, before any acknowledgement; nothing is decided
        or logged. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            row = find(session, card_id)
            info = self._launcher.check(row.assignment)
            trigger = self._trigger(row, row.assignment, info, DecidedBy.OPERATOR, session)
        return self._rails.preview(replace(trigger, acknowledged_digest=""))

    def preview_new(
        self, row: Prediction, assignment: Assignment, info: RunnerInfo, session: Session | None = None
    ) -> tuple[RailVerdict, ...]:
        """The same of a card that was just made and is not stored yet; without a session nothing is known of like
        ones."""
        return self._rails.preview(self._trigger(row, assignment, info, DecidedBy.OPERATOR, session))

    def approve(
        self,
        card_id: str,
        *,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        by: DecidedBy = DecidedBy.OPERATOR,
        asked: Asked | None = None,
        without_sandbox: bool = False,
    ) -> Card:
        """Approve and start. `edit` is a new prompt, or a flow's new parameters; `parameters` are the latter as data.
        A prompt that names a flow makes the card that flow, whatever it was before.
        A sentence in the place of a flow's parameters makes the card one for an agent or a model; as somebody else does
        it then, that is shown first, and approved by a second call.
        `asked`: no operator approves this, a program asks for it. `without_sandbox`: the operator confirms that it runs
        unconfined where no sandbox works.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`,
        `secret_in_text`, `no_sandbox` (none works here and that was not confirmed), `blocked` (a rail said no),
        `needs_acknowledgement` (a rail asks for a person, or another than the card said would do it; the card now
        shows what), or why the session could not start. After each of them the card is as it was, or pending with the
        reason in its note.
        """
        with self._deciding:
            with self._database.read() as session:
                row = find(session, card_id)
                moved(row, Move.APPROVE, self._clock.now())
            assignment, otherwise = self._launcher.choose(self._edited(row.assignment, edit, parameters))
            info = self._launcher.check(assignment)
            if not info.takes:
                raise Refusal("no_runner", info.reason, _how_to_run(assignment, card_id, self._flows))
            # Whoever names a flow of the program's own has agreed that no agent does the work.
            if info.served != row.served and not (edit and assignment.flow and not info.served):
                told = otherwise or f"it would now be done by {info.served or 'a flow'}"
                if by is DecidedBy.OPERATOR:
                    self._show(card_id, assignment, info, told)
                raise Refusal("needs_acknowledgement", told, "look at the card and approve it again")
            permit, blocked_by = self._database.write(
                lambda tx: self._rule(tx, card_id, assignment, info, by, asked, without_sandbox)
            )
            if permit is None:
                assert blocked_by is not None
                told = f"{blocked_by.rail}: {blocked_by.reason}"
                if _wants_confirmation(blocked_by, by):
                    raise Refusal("no_sandbox", UNCONFINED, HOW_TO_CONFIRM.format(card_id))
                if _asks(blocked_by):
                    raise Refusal("needs_acknowledgement", told, "look at the card and approve it again")
                fix = "resume" if blocked_by.rail == KILL else "fix the cause"
                raise Refusal("blocked", told, f"the card stays pending; {fix} and approve it again")
            return self._start(card_id, permit, by)

    def look_again(self) -> int:
        """See `Cards.look_again`."""
        with self._database.read() as session:
            rows = [row for row in all_pending(session) if row.flow is None]
        return sum(self._look_again(row) for row in rows)

    def _look_again(self, row: Prediction) -> bool:
        assignment, otherwise = self._launcher.choose(row.assignment)
        info = self._launcher.check(assignment)
        if (info.served, info.undo_note) == (row.served, row.undo_note):
            return False
        verdicts = self.preview_new(row, assignment, info)
        note = otherwise or ("" if info.takes else info.reason)

        def change(tx: Transaction, now: Prediction) -> None:
            now.serve(info)
            now.judge(verdicts)
            now.note = note
            told = PredictionReassigned(subject=now.id, workspace=now.workspace, served=info.served, note=note)
            tx.record(told)

        with self._deciding:
            with self._database.read() as session:
                if Status(find(session, row.id).status) is not Status.PENDING:
                    return False  # it was decided meanwhile
            self._deciding.change(row.id, change)
        return True

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
            if row.session_id is not None or self._begun(row.id) or self._card(row.id).status is not Status.CONFIRMED:
                continue
            permit = permits.get(row.id)
            if permit is None:
                self._reopen_unstarted(row.id, "it was approved but did not start; approve it again")
                told.append(f"pending again because its permit has expired: {row.prompt}")
                continue
            if not resume:
                told.append(f"approved, waiting for the console: {row.prompt}")
                continue
            try:
                self._start(row.id, permit, DecidedBy(row.decided_by or DecidedBy.OPERATOR))
                told.append(f"started because it was approved before the interruption: {row.prompt}")
            except Refusal as refusal:
                told.append(f"pending again because it could not start: {row.prompt}: {refusal.message}")
        return told

    def _card(self, card_id: str) -> Card:
        with self._database.read() as session:
            return card_of(find(session, card_id))

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

        self._deciding.change(card_id, change)

    def _edited(self, assignment: Assignment, edit: str | None, parameters: Mapping[str, Any] | None) -> Assignment:
        if edit is None and parameters is None:
            return assignment
        if edit is not None and (named := named_flow(edit.strip(), self._flows)) is not None:
            return self.as_flow(replace(assignment, prompt=checked(edit, self._secrets())), *named)
        if assignment.flow is not None:
            text = edit if parameters is None else json.dumps(dict(parameters))
            changed = self._launcher.reparameterise(assignment, refuse_secret(text or "", self._secrets()))
            return changed if changed.flow else replace(changed, prompt=checked(changed.prompt, self._secrets()))
        if edit is None:
            raise Refusal(
                "bad_parameters", "this card is a text prompt and has no parameters", "edit its prompt instead"
            )
        return replace(assignment, prompt=checked(edit, self._secrets()))

    def as_flow(self, assignment: Assignment, flow: str, parameters: str) -> Assignment:
        """`assignment` as work for `flow`. Raises `Refusal` `bad_parameters`."""
        named = replace(assignment, runner="flow", flow=flow, parameters=implied(flow, self._clock.local()))
        return self._launcher.reparameterise(named, parameters) if parameters else named

    def _trigger(
        self, row: Prediction, assignment: Assignment, info: RunnerInfo, by: DecidedBy, session: Session | None
    ) -> Trigger:
        """The trigger of a card; without a session (a card just made) nothing is known of like ones."""
        phase, bound = 0, 0.0
        if session is not None:
            phase = phase_of(self._history.total(session), self._calibrator.check).number
            like = self._history.approvals_of_like(session, row.kind, row.target_channel, row.workspace)
            bound = wilson_lower_bound(*like)
        return trigger_of(
            row,
            assignment,
            by=by,
            estimate=info.estimate,
            phase=phase,
            approval_bound=bound,
            ordered=runs_when_due(session, row),
        )

    def _rule(
        self,
        tx: Transaction,
        card_id: str,
        assignment: Assignment,
        info: RunnerInfo,
        by: DecidedBy,
        asked: Asked | None,
        without_sandbox: bool,
    ) -> tuple[Permit | None, RailVerdict | None]:
        """Ask the rails and carry their word out, in one transaction."""
        row = find(tx.session, card_id)
        moved(row, Move.APPROVE, tx.now)
        trigger = self._trigger(row, assignment, info, by, tx.session)
        trigger = replace(trigger, without_sandbox=without_sandbox and by is not DecidedBy.AUTONOMY)
        if asked is not None:
            # A follow-up goes on with its chain, whoever asks for it: else that could be made as long as one likes.
            kind = trigger.type if trigger.type is TriggerType.FOLLOW_UP else TriggerType.CRON
            trigger = replace(trigger, type=kind, force=asked.force, asked_by=asked.by)
        ruling = self._rails.rule(tx, trigger)
        changed = assignment.digest != row.assignment.digest
        if (
            changed
        ):  # blocked or not: the card holds what was asked for, so that it shows what the rails say of just that
            row.take(assignment)
            row.serve(info)
        if ruling.permit is not None:
            row.judge(ruling.verdicts)
            self._transitions.confirm(tx, row, ruling.permit, by)
            return ruling.permit, None
        assert ruling.blocked_by is not None, "a ruling has a permit or what blocked it"
        if changed or _asks(ruling.blocked_by) or _wants_confirmation(ruling.blocked_by, by):
            row.judge(ruling.verdicts)
        if ruling.blocked_by.rail != KILL:
            row.note = f"{ruling.blocked_by.rail}: {ruling.blocked_by.reason}"
        return None, ruling.blocked_by

    def _start(self, card_id: str, permit: Permit, by: DecidedBy) -> Card:
        card = self._card(card_id)
        mode = "autonomous" if by is DecidedBy.AUTONOMY else "approved"
        try:
            view = self._launcher.start(
                permit,
                card.assignment,
                agent=card.agent,
                mode=mode,
                estimate=card.estimate,
                without_sandbox=card.without_sandbox,  # as its approval said: the machine may have changed since
            )
        except BaseException as error:
            if not self._begun(card_id):
                self._reopen_unstarted(card_id, f"could not start: {error}")
            raise

        def linked(tx: Transaction) -> Card:
            link_session(tx, view)
            return card_of(find(tx.session, card_id))

        return self._database.write(linked)

    def _begun(self, card_id: str) -> bool:
        """A session of this card waits or runs. One of an earlier approval, which was undone, is over."""
        view = self._launcher.session_of(card_id)
        return view is not None and not view.state.over

    def _reopen_unstarted(self, card_id: str, note: str) -> None:
        def change(tx: Transaction, row: Prediction) -> None:
            if row.status == Status.CONFIRMED:
                self._transitions.reopen(tx, row, note)

        self._deciding.change(card_id, change)


def _how_to_run(assignment: Assignment, card_id: str, flows: Collection[str]) -> str:
    if assignment.flow and flows and assignment.flow not in flows:
        return (
            f"this learned flow was rolled back: clawpy dismiss {card_id}, or activate it again with clawpy candidates"
        )
    if assignment.flow:
        return f"set the missing parameters: clawpy approve {card_id} --edit 'KEY=VALUE …'"
    return "name a flow, or configure a model or an agent"


def _asks(verdict: RailVerdict) -> bool:
    """The content filter asks for a person; approving a card that shows it satisfies it (SPEC 3.5)."""
    return verdict.rail == "content" and verdict.verdict is Verdict.ASK


def _wants_confirmation(verdict: RailVerdict, by: DecidedBy) -> bool:
    """The gate asks the operator to confirm that it runs without a sandbox."""
    return by is not DecidedBy.AUTONOMY and verdict.rail == "gate" and NO_SANDBOX in verdict.rule.split(",")
