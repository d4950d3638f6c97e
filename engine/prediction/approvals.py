"""Approves cards and starts them, also after a crash between the two (SPEC 2.7, 3.1, 3.8).

The approval is one transaction: the rails rule, and the card is approved with its permit. Then the launcher uses the
permit. `recover` starts cards that were approved and not started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlmodel import Session

from engine.config import AUTO
from engine.events.work import PredictionReassigned
from engine.execution.runners.flows import find_named_flow
from engine.execution.session_store import CONTINUES
from engine.execution.sessions import Sessions
from engine.frozen import frozen
from engine.git import Git
from engine.git.repository import LOST_CODES
from engine.git.state import read_status
from engine.inference import compute_wilson_lower_bound
from engine.installed import SANDBOX_FIX
from engine.model import (
    ALREADY_REVIEWED,
    Assignment,
    Card,
    DecidedBy,
    GateRuleName,
    Permit,
    RailVerdict,
    Refusal,
    RunnerInfo,
    SessionView,
    Source,
    Status,
    TaskState,
    Trigger,
    TriggerType,
)
from engine.prediction import ALWAYS_ASK, REVIEWED_IN, REVIEWED_STATE, RUN_FACT, is_heartbeat
from engine.prediction.card_rows import CardRow, Move, compute_next_status, load_card, make_card_of_row
from engine.prediction.card_store import CardStore
from engine.prediction.tasks import HEARTBEAT_ORDER, TaskRow
from engine.prediction.templates.offers import make_default_parameters
from engine.prediction.twin import EmbeddedTwin
from engine.redaction import refuse_secret
from engine.safety import gate
from engine.safety.kill_switch import RAIL as KILL
from engine.storage import load, read_all
from engine.storage.database import Transaction
from engine.text import sanitise

STATUS_TIMEOUT_S = 5.0
"""Maximum time for reading whether anything changed since a review."""

MAX_PROMPT_CHARS = 20_000
"""Maximum number of characters of a prompt."""

NO_CONFINEMENT = "no sandbox on this machine, so nothing confines what this runs"
"""Why an approval must be confirmed where no sandbox works."""

HOW_TO_CONFIRM = f"{SANDBOX_FIX} to get one; or look at the card and confirm: clawpy approve {{}} --without-sandbox"
"""How to confirm that, with the id of the card."""

APPROVE_AGAIN = "look at the card and approve it again"
"""What to do after a card was changed or acknowledged."""

ALLOW_ONCE = "edit it, or allow it once in the list of blocked work on the safety screen,"
"""What the operator can do before approving a card again that the content filter blocked."""


@frozen
class ApprovalRequest:
    """A request to run a card."""

    by: DecidedBy = DecidedBy.OPERATOR
    """Who decided."""
    program: str = ""
    """The program that asks, or the channel that it works for (SPEC 3.3); "" for the engine and people."""
    force: bool = False
    """Whether to skip the rate (SPEC 3.2)."""
    without_sandbox: bool = False
    """Whether the operator confirms that it runs unconfined if no sandbox works."""

    @property
    def by_person(self) -> bool:
        """Whether a person decided."""
        return self.by is not DecidedBy.AUTONOMY


def link_session(tx: Transaction, view: SessionView) -> None:
    """Store the session of a card that was queued or has begun."""
    row = load(tx.session, CardRow, view.prediction_id)
    if row is not None and row.status == Status.APPROVED:
        row.session_id = view.id


class Approvals:
    """Asks the rails about cards and starts them by the launcher. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        store: CardStore,
        launcher: Sessions,
        twin: EmbeddedTwin,
        *,
        flows: Collection[str],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        """`flows`: names that a prompt of your own may call; `secrets`: values that no prompt may hold."""
        self.launcher = launcher
        self.flows = flows
        self._store = store
        self._database = store.database
        self._twin = twin
        self._secrets = secrets

    def preview_work(self, row: CardRow, assignment: Assignment, info: RunnerInfo) -> tuple[RailVerdict, ...]:
        """The verdicts of the rails if the operator approved a card, which may not be stored yet, as this work for this
        runner. Nothing is decided or logged."""
        with self._database.read() as session:
            trigger = self._make_trigger(session, row, assignment, info, ApprovalRequest())
        return self._store.safety.pipeline.preview(trigger)

    def clean_prompt(self, text: str) -> str:
        """The prompt without control characters. Raises `Refusal` `empty_prompt`, `long_prompt`, or `secret_in_text` if
        it contains a stored secret or what looks like one (SPEC 11.1)."""
        prompt = sanitise(text).strip()
        if not prompt:
            raise Refusal("empty_prompt", "the prompt is empty", "say what to do")
        if len(prompt) > MAX_PROMPT_CHARS:
            raise Refusal("long_prompt", f"the prompt has {len(prompt)} characters", f"at most {MAX_PROMPT_CHARS}")
        return refuse_secret(prompt, self._secrets())

    def approve(
        self,
        card_id: str,
        *,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        request: ApprovalRequest,
    ) -> Card:
        """See `Cards.approve`."""
        with self._store.deciding:
            row = self._store.load(card_id)
            compute_next_status(row, Move.APPROVE, self._store.clock.now())
            self._refuse_missing_workspace(row)
            assignment, other_runner = self._choose_runner(self._apply_operator_edit(row.assignment, edit, parameters))
            if assignment == row.assignment:
                _refuse_second_review(row)
            info = self.launcher.check(assignment)
            if not info.available:
                raise Refusal("no_runner", info.reason, self._describe_how_to_run(assignment, card_id))
            names_own_flow = edit and assignment.flow and not info.consent_text
            if info.consent_text != row.consent_text and not names_own_flow:
                message = other_runner or f"it would now be done by {info.consent_text or 'a flow'}"
                if request.by is DecidedBy.OPERATOR:
                    self._store_changed_offer(card_id, assignment, info, message)
                raise Refusal("needs_acknowledgement", message, APPROVE_AGAIN)
            ruling = self._database.write(lambda tx: self._ask_rails(tx, card_id, assignment, info, request))
            if isinstance(ruling, Permit):
                return self._start(card_id, ruling, request.by)
            raise _make_refusal(ruling, request, card_id)

    def refresh_runners(self) -> int:
        """Update the runner that pending cards without a flow name, after a model or an agent was added or removed.
        Returns how many cards changed."""
        return sum(self._refresh_runner(card.id) for card in self._store.read_pending() if card.assignment.flow is None)

    def _refresh_runner(self, card_id: str) -> bool:
        """Store the present runner of a pending card. Returns whether it changed."""
        row = self._store.load(card_id)
        assignment, other_runner = self._choose_runner(row.assignment)
        info = self.launcher.check(assignment)
        if (info.consent_text, info.undo_note) == (row.consent_text, row.undo_note):
            return False
        verdicts = self.preview_work(row, assignment, info)
        note = other_runner or ("" if info.available else info.reason)

        def change(tx: Transaction, row: CardRow) -> None:
            row.runner = assignment.runner
            row.set_offer(info, verdicts, note)
            subject, workspace = row.id, row.workspace
            tx.record(PredictionReassigned(subject=subject, workspace=workspace, served=info.consent_text, note=note))

        with self._store.deciding:
            card = self._store.get(card_id)
            is_same = card.status is Status.PENDING and card.assignment == row.assignment  # not decided or edited since
            if is_same:
                self._store.change(card_id, change)
        return is_same

    def _choose_runner(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The work with the runner that would do it now, and a sentence if that replaces the channel's. The settings of
        the channel may have changed since the card was made; only work that continues a session keeps its runner."""
        if assignment.flow is None and CONTINUES not in assignment.parameters:
            assignment = replace(assignment, runner=AUTO)
        return self.launcher.choose(assignment)

    def recover(self, unconsumed: Sequence[Permit], *, resume: bool = True) -> list[str]:
        """Start approved cards that never began, at the start of the engine; those whose permit expired become pending.

        Returns messages about what was done. Sessions recover their own cards. Without `resume` nothing is started, and
        cards stay approved until their permit expires.
        """
        now = self._store.clock.now()
        permits = {permit.prediction_id: permit for permit in unconsumed if permit.expires_at > now}
        with self._database.read() as session:
            approved = read_all(session, CardRow, "WHERE status = :status", {"status": Status.APPROVED})
        return [
            self._recover_card(row, permits.get(row.id), resume=resume)
            for row in approved
            if row.session_id is None
            and not self._has_live_session(row.id)
            and self._store.get(row.id).status is Status.APPROVED  # not decided again meanwhile
        ]

    def _recover_card(self, row: CardRow, permit: Permit | None, *, resume: bool) -> str:
        """Start an approved card that never began, or make it pending again; says what was done."""
        if permit is None:
            self._reopen_unstarted(row.id, "it was approved but did not start; approve it again")
            return f"pending again because its permit has expired: {row.prompt}"
        if not resume:
            return f"approved, waiting for the console: {row.prompt}"
        try:
            self._start(row.id, permit, row.decided_by or DecidedBy.OPERATOR)
        except Refusal as refusal:
            return f"pending again because it could not start: {row.prompt}: {refusal.message}"
        return f"started because it was approved before the interruption: {row.prompt}"

    def convert_to_flow(self, assignment: Assignment, flow: str, parameters: str) -> Assignment:
        """`assignment` as work for `flow`. Its prompt stays if there are no `parameters`, except that the prompt of a
        learned flow is its commands, so that the content filter judges them before they run.

        Raises `Refusal`: `bad_parameters`, also where the flow needs parameters and there are none; `no_runner` for a
        learned flow of another workspace."""
        implied_parameters = make_default_parameters(flow, self._store.clock.local())
        flow_work = replace(assignment, runner="flow", flow=flow, parameters=implied_parameters)
        edited = self.launcher.apply_edit(flow_work, parameters or "{}")
        return edited if parameters or self.launcher.check(edited).learned_commands else flow_work

    def _refuse_missing_workspace(self, row: CardRow) -> None:
        if refusal := self._store.workspace_refusal(row.workspace):
            way_out = "bring it back" if refusal.code in LOST_CODES else refusal.fix or "wait a moment"
            fix = f"{way_out}; then approve the card again, or: clawpy dismiss {row.id}"
            raise Refusal(refusal.code, f"nothing can run: {refusal.message}", fix)

    def _store_changed_offer(self, card_id: str, assignment: Assignment, info: RunnerInfo, note: str) -> None:
        """Store the changed work and runner on the card, with the verdicts of the rails."""
        verdicts = self.preview_work(self._store.load(card_id), assignment, info)

        def change(tx: Transaction, row: CardRow) -> None:
            compute_next_status(row, Move.APPROVE, tx.now)
            row.apply_edit(assignment)
            row.set_offer(info, verdicts, note)

        self._store.change(card_id, change)

    def _apply_operator_edit(
        self, assignment: Assignment, edit: str | None, parameters: Mapping[str, Any] | None
    ) -> Assignment:
        """The work after the operator's edit, see `Cards.approve`. Raises `Refusal` as that does."""
        if edit is None and parameters is None:
            return assignment
        if (
            edit is not None
            and (flow_and_parameters := find_named_flow(edit.strip(), self.flows, assignment.workspace)) is not None
        ):
            return self.convert_to_flow(replace(assignment, prompt=self.clean_prompt(edit)), *flow_and_parameters)
        if assignment.flow is not None:
            text = edit if parameters is None else json.dumps(dict(parameters))
            changed = self.launcher.apply_edit(assignment, refuse_secret(text or "", self._secrets()))
            return changed if changed.flow else replace(changed, prompt=self.clean_prompt(changed.prompt))
        if edit is None:
            message = "this card is a text prompt and has no parameters"
            raise Refusal("bad_parameters", message, "edit its prompt instead")
        return replace(assignment, prompt=self.clean_prompt(edit))

    def _make_trigger(
        self, session: Session, row: CardRow, assignment: Assignment, info: RunnerInfo, request: ApprovalRequest
    ) -> Trigger:
        """The request to the rails to run this card as `assignment`, which may be edited.

        An operator's approval starts a new chain (SPEC 3.2), and acknowledges what the card shows that rails ask.
        """
        by_person = request.by_person
        similar = self._store.decisions.count_similar(session, row.kind, row.target_channel, row.workspace)
        return Trigger(
            prediction_id=row.id,
            type=_find_trigger_type(row, request),
            assignment=assignment,
            agent=row.target_agent,
            confidence=row.confidence,
            estimate=info.estimate,
            decided_by=request.by,
            from_channel="owner" if by_person else row.from_channel,
            phase=self._twin.read_phase_within(session).number,
            approval_bound=compute_wilson_lower_bound(*similar),
            acknowledged_digest=row.assignment.digest if by_person and make_card_of_row(row).asks_about_content else "",
            is_forced=request.force,
            asked_by=request.program,
            is_suggested=row.kind in ALWAYS_ASK,
            is_ordered=_runs_when_due(session, row),
            without_sandbox=request.without_sandbox and by_person,
        )

    def _ask_rails(
        self, tx: Transaction, card_id: str, assignment: Assignment, info: RunnerInfo, request: ApprovalRequest
    ) -> Permit | RailVerdict:
        """Ask the rails and store their ruling: a permit, or the verdict that blocks."""
        row = load_card(tx.session, card_id)
        compute_next_status(row, Move.APPROVE, tx.now)
        trigger = self._make_trigger(tx.session, row, assignment, info, request)
        ruling = self._store.safety.pipeline.decide(tx, trigger)
        changed = assignment.digest != row.assignment.digest
        if changed:
            # Also if it is blocked, so that the card shows the verdicts on its own work.
            row.apply_edit(assignment)
            row.set_runner(info)
        blocked_by = ruling.blocked_by
        if ruling.permit is not None:
            row.set_verdicts(ruling.verdicts)
            self._store.approve(tx, row, ruling.permit, request.by)
            return ruling.permit
        assert blocked_by is not None, "a ruling has a permit or what blocked it"
        if changed or blocked_by.asks_about_content or _wants_confirmation(blocked_by, request):
            row.set_verdicts(ruling.verdicts)
        if blocked_by.rail != KILL:  # every screen shows the stop, and resuming ends it
            row.note = f"{blocked_by.rail}: {blocked_by.reason}"
        return blocked_by

    def _start(self, card_id: str, permit: Permit, by: DecidedBy) -> Card:
        """Start the session of an approved card. If that fails, the card is pending again, and the error is raised."""
        card = self._store.get(card_id)
        try:
            view = self.launcher.start(
                permit,
                card.assignment,
                agent=card.agent,
                mode="autonomous" if by is DecidedBy.AUTONOMY else "approved",
                estimate=card.estimate,
                without_sandbox=card.without_sandbox,  # as approved, even if the machine changed since
            )
        except BaseException as error:
            if not self._has_live_session(card_id):
                self._reopen_unstarted(card_id, f"could not start: {error}")
            raise
        return self._store.change(card_id, lambda tx, row: link_session(tx, view))

    def _has_live_session(self, card_id: str) -> bool:
        """Whether a session of this card is queued or running."""
        view = self.launcher.find_of_card(card_id)
        return view is not None and not view.state.is_over

    def _reopen_unstarted(self, card_id: str, note: str) -> None:
        """Make an approved card pending again, unless it was decided meanwhile."""

        def change(tx: Transaction, row: CardRow) -> None:
            if row.status == Status.APPROVED:
                self._store.reopen(tx, row, note)

        self._store.change(card_id, change)

    def _describe_how_to_run(self, assignment: Assignment, card_id: str) -> str:
        """What the operator can do if no runner takes the work of a card."""
        if assignment.flow and self.flows and assignment.flow not in self.flows:
            return (
                f"this learned flow was rolled back: clawpy dismiss {card_id}, or activate it again with clawpy "
                "candidates"
            )
        if assignment.flow:
            return f"set the missing parameters: clawpy approve {card_id} --edit 'KEY=VALUE …'"
        return "name a flow, or configure a model or an agent"


def _runs_when_due(session: Session, row: CardRow) -> bool:
    """Whether a heartbeat orders this card to run by itself when it is due, and still does."""
    if not is_heartbeat(row.kind) or row.facts.get(RUN_FACT) is not True or row.edited:
        return False
    task = load(session, TaskRow, row.task_id or "")
    return task is not None and (task.source, task.state) == (HEARTBEAT_ORDER, TaskState.OPEN)


def _find_trigger_type(row: CardRow, request: ApprovalRequest) -> TriggerType:
    """What starts a card: a person, the session before it, a program, a heartbeat, or the engine by itself."""
    if request.by_person:
        return TriggerType.MANUAL
    if row.source is Source.FOLLOW_UP:
        # It stays in its chain whoever asks for it; otherwise chains could grow without limit.
        return TriggerType.FOLLOW_UP
    if request.program:
        return TriggerType.CRON
    return TriggerType.HEARTBEAT if is_heartbeat(row.kind) else TriggerType.AUTONOMOUS


def _refuse_second_review(row: CardRow) -> None:
    """Raise `Refusal` if a session found what a warning says in the present HEAD, index and files. Not if the state
    cannot be read: a review too many is better than one too few."""
    if not row.facts.get(REVIEWED_STATE):
        return
    try:
        status = read_status(Git(Path(row.workspace), timeout=STATUS_TIMEOUT_S))
    except Refusal:
        return
    if status.digest == row.facts[REVIEWED_STATE]:
        fix = f"its details say what to do, and so does `clawpy work {row.facts[REVIEWED_IN]}`"
        raise Refusal(ALREADY_REVIEWED, "the same was reviewed already, and nothing has changed since", fix)


def _make_refusal(verdict: RailVerdict, request: ApprovalRequest, card_id: str) -> Refusal:
    """The refusal of an approval that a rail blocked."""
    rail, message = verdict.rail, f"{verdict.rail}: {verdict.reason}"
    if _wants_confirmation(verdict, request):
        return Refusal("no_sandbox", NO_CONFINEMENT, HOW_TO_CONFIRM.format(card_id), rail=rail)
    if verdict.asks_about_content:
        return Refusal("needs_acknowledgement", message, APPROVE_AGAIN, rail=rail)
    fix = ALLOW_ONCE if verdict.can_be_allowed_once else "resume" if rail == KILL else "fix the cause"
    return Refusal("blocked", message, f"the card stays pending; {fix} and approve it again", rail=rail)


def _wants_confirmation(verdict: RailVerdict, request: ApprovalRequest) -> bool:
    """Whether the gate asks the operator to confirm that it runs without a sandbox."""
    return request.by_person and verdict.rail == gate.RAIL and GateRuleName.NO_SANDBOX in verdict.rules
