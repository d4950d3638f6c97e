"""The service `engine.cards`: reads cards and carries out the operator's decisions on them (SPEC 2.7, 2.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlmodel import col, desc, select

from engine.events import MuteLifted
from engine.execution.runners.flow_registry import named_flow
from engine.model import (
    UNDONE,
    Assignment,
    Card,
    DecidedBy,
    DecisionSignal,
    DismissReason,
    Mute,
    Proposal,
    Randomness,
    Refusal,
    SessionView,
    Source,
    Status,
)
from engine.model.text import text_hash
from engine.prediction import card_rules
from engine.prediction.approvals import ApprovalRequest, Approvals
from engine.prediction.card_rows import (
    Prediction,
    card_of,
    copy_card,
    last_trigger_times,
    load_card,
    load_pending,
    make_row,
)
from engine.prediction.card_rules import DEFAULT_SNOOZE, MAX_SNOOZE
from engine.prediction.card_store import CardStore
from engine.prediction.cycle import Predictions
from engine.prediction.dismissals import MuteIndex, describe_switch_off, end_mute, read_mutes
from engine.prediction.kinds import OWN_PROMPT, SUGGESTED, kind_of, kind_title
from engine.prediction.routing import Route, Router
from engine.storage.database import Transaction
from engine.storage.rows import ids_with_prefix, load

OWN_PROMPT_REASON = "your own prompt"


class Cards:
    """`engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        predictions: Predictions,
        router: Router,
        randomness: Randomness,
        *,
        reverse: Callable[[str], bool],
    ) -> None:
        """`reverse` undoes what a session landed: False if it has no landed changes, `Refusal` if later edits would be
        lost or it is undone already."""
        self.store = store
        self.approvals = approvals
        self._database = store.database
        self._predictions = predictions
        self._router = router
        self._randomness = randomness
        self._reverse_landing = reverse
        self.get = store.get
        self.expire_due = store.expire_due
        self.follow_landings = store.follow_landings
        self.rails = approvals.preview
        self.describe_sandbox = approvals.describe_sandbox
        self.recover = approvals.recover
        self.refresh_runners = approvals.refresh_runners

    # -- reading

    def pending(
        self, *, workspace: str | None = None, channel: str | None = None, include_snoozed: bool = False
    ) -> list[Card]:
        """The stack from the top (SPEC 2.11). A woken card is hidden until there is a place for it."""
        now = self.store.clock.now()
        cards = [card for card in self.store.pending() if not card.is_expired(now)]
        hidden = card_rules.ids_without_place(cards, now, self.store.settings.current)
        return [
            card
            for card in card_rules.sort_cards(cards, now)
            if (include_snoozed or not (card.snoozed(now) or card.id in hidden))
            and workspace in (None, card.workspace)
            and channel in (None, card.assignment.channel)
        ]

    def correction(self, card_id: str) -> tuple[str, str] | None:
        """See `Prediction.correction`. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return load_card(session, card_id).correction

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of cards of any age with this prefix; see `engine.storage.rows`."""
        with self._database.read() as session:
            return ids_with_prefix(session, col(Prediction.id), prefix)

    def recent(self, limit: int = 50, workspace: str | None = None) -> list[Card]:
        """Cards of any status, newest first."""
        query = select(Prediction).order_by(desc(col(Prediction.created_at)), desc(col(Prediction.id))).limit(limit)
        if workspace is not None:
            query = query.where(col(Prediction.workspace) == workspace)
        with self._database.read() as session:
            return [card_of(row) for row in session.exec(query)]

    def similar(self, card_id: str) -> tuple[int, int]:
        """(approved, decided) of the operator's decisions on similar cards (SPEC 2.5)."""
        with self._database.read() as session:
            row = load_card(session, card_id)
            return self.store.history.count_similar(session, row.kind, row.target_channel, row.workspace)

    # -- deciding

    def approve(
        self,
        card_id: str,
        *,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        by: DecidedBy = DecidedBy.OPERATOR,
        without_sandbox: bool = False,
    ) -> Card:
        """Approve a card and start it. `edit` is a new prompt, or new parameters of a flow; `parameters` are the latter
        as data. A prompt that names a flow turns the card into that flow. A sentence instead of a flow's parameters
        turns the card into one for an agent or a model; the card then shows the new runner, and a second call approves
        it. `without_sandbox`: see `ApprovalRequest`.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`,
        `secret_in_text`, `no_sandbox` (none works here, and the operator did not confirm that), `blocked` (by a rail),
        `needs_acknowledgement` (a rail asks the operator, or the runner changed; the card now shows it), or why the
        session could not start. Afterwards the card is as before, or pending with the reason in its note.
        """
        request = ApprovalRequest(by, without_sandbox=without_sandbox)
        return self.approvals.approve(card_id, edit=edit, parameters=parameters, request=request)

    def trigger(self, card_id: str, *, force: bool = False, by: str) -> Card:
        """Run a card for a program (SPEC 3.1). All rails are asked as for cards that run by themselves; `force` skips
        only the rate (SPEC 3.2). `by` is the start of the chain (SPEC 3.3): the program, or the channel that it works
        for. Raises `Refusal` as `approve`; the card is then pending."""
        return self.approvals.approve(card_id, request=ApprovalRequest(DecidedBy.AUTONOMY, by, force))

    def dismiss(self, card_id: str, *, reason: DismissReason | None = None, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Dismiss a card and mute its subject for 7 days, twice as long after each further time (SPEC 2.9). The note of
        the returned card says if this switched its kind off.

        Raises `Refusal` `unknown_card`, `already_decided`."""
        return self._with_switch_note(
            self.store.change(card_id, lambda tx, row: self.store.reject(tx, row, by, reason))
        )

    def explain(self, card_id: str, reason: DismissReason) -> Card:
        """Store the reason of a dismissal; the last one counts. The note is as that of `dismiss`.

        Raises `Refusal` `unknown_card`, `not_dismissed`."""
        return self._with_switch_note(self.store.change(card_id, lambda tx, row: self.store.explain(tx, row, reason)))

    def _with_switch_note(self, card: Card) -> Card:
        """A dismissed card, with a note if its kind is switched off now."""
        for mute in self.muted():
            if not mute.subject and mute.kind == card.kind and mute.workspace in (card.workspace, ""):
                return replace(card, note=describe_switch_off(mute))
        return card

    def muted(self) -> list[Mute]:
        """The mutes that follow from dismissals (SPEC 2.9), newest first."""
        with self._database.read() as session:
            return read_mutes(session, self.store.clock.now())

    def unmute(self, mute_id: str) -> Mute:
        """End a mute from the next cycle on. Raises `Refusal` `unknown_mute`."""

        def work(tx: Transaction) -> Mute:
            muted = read_mutes(tx.session, tx.now)
            mute = next((mute for mute in muted if mute.id == mute_id), None)
            if mute is None:
                raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
            end_mute(tx, mute)
            tx.record(
                MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind))
            )
            return mute

        return self._database.write(work)

    def snooze(self, card_id: str, *, span: timedelta = DEFAULT_SNOOZE) -> Card:
        """Hide a card for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. Gives no signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= MAX_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "give a time of up to 30 days, for example --for 2h")
        return self.store.change(card_id, lambda tx, row: self.store.snooze(tx, row, span))

    def undo(self, card_id: str) -> Card:
        """Undo the last decision on a card (SPEC 2.7).

        A snooze ends. A dismissed card, or an approved one whose session has not started, is pending again. A running
        session is stopped; landed changes are reversed. For a check that ran by itself only the signal changes (SPEC
        8.1). Raises `Refusal` `unknown_card`, `nothing_to_undo`, or why a landing cannot be reversed.
        """
        store, launcher = self.store, self.approvals.launcher
        with store.deciding:
            with self._database.read() as session:
                row = load_card(session, card_id)
            view = launcher.of_prediction(card_id) if row.status == Status.CONFIRMED else None
            if view is not None and not view.state.over:
                row = self._database.write(lambda tx: _request_undo(tx, card_id))
                if row.status == Status.CONFIRMED:
                    launcher.stop(view.id, UNDONE)
                    return self.get(card_id)
            if row.status != Status.EXECUTED:
                return store.change(card_id, store.bring_back)
            if not (row.ran_by_itself and row.check_only):
                self._reverse(row)
            return store.change(card_id, lambda tx, row: store.retract_approval(tx, row, DecisionSignal.UNDONE, tx.now))

    def propose_again(self, card_id: str, note: str) -> Card:
        """Make a new pending card for the same work, because this one was interrupted (SPEC 7.5). Raises `Refusal`
        `unknown_card`."""
        new_id = self._randomness.new_id("pred")
        expires_at = self.store.expiry(self.store.clock.now())

        def work(tx: Transaction) -> Card:
            row = load_card(tx.session, card_id)
            if duplicate := self.store.duplicate_of(tx, row):
                return card_of(load_card(tx.session, duplicate))
            copy = copy_card(row, new_id, tx.now, expires_at, note)
            card = self.store.add(tx, copy)
            self.store.make_room(tx, copy)
            return card

        with self.store.deciding:
            return self._database.write(work)

    def propose(
        self, text: str, *, workspace: str, channel: str | None = None, continues: str = "", reasoning: str = ""
    ) -> Card:
        """Make a card of the operator's own prompt. Text that names a flow becomes that flow. With `reasoning` it is a
        suggestion by an agent or a program: it has an estimated confidence, takes a place, and never runs by itself.

        `continues` is a finished session: the card continues it in its workspace, on its channel unless another is
        given, with its conversation and its changes (SPEC 9.4).

        Raises `Refusal` `empty_prompt`, `secret_in_text`, `unknown_channel`, `bad_parameters`, `unknown_session`,
        `still_running`; for a suggestion `too_many_cards`, `autonomy_off`, `muted`, `already_pending`.
        """
        prompt = self.approvals.checked_prompt(text)
        if continues:
            session = self._finished_session(continues)
            assignment, route = self._continue(session, prompt, channel)
            why = f"continues “{session.prompt}”"
        else:
            assignment, route = self._assign(prompt, workspace, channel)
            own = f"{OWN_PROMPT_REASON}; to {route.agent}: {route.why}" if route.why else OWN_PROMPT_REASON
            why = reasoning or own
        assignment, other_runner = self.approvals.launcher.choose(assignment)
        row = self._make_row(assignment, why, is_suggestion=bool(reasoning))
        row.meaning = route.meaning
        row.note = other_runner or row.note

        def work(tx: Transaction) -> Card:
            if reasoning:
                self._check_suggestion(tx, row)
            card = self.store.add(tx, row)
            if reasoning:
                self.store.make_room(tx, row)
            return card

        return self._database.write(work)

    def _make_row(self, assignment: Assignment, reasoning: str, *, is_suggestion: bool) -> Prediction:
        """The row of a card that a person or a program asked for, with the verdicts of the rails.

        The operator's own prompt has no estimate and a kind of its own, so that its approval gives no prediction the
        right to run by itself (SPEC 2.5). A suggestion is shown whatever its confidence."""
        now, card_id = self.store.clock.now(), self._randomness.new_id("pred")
        proposal = Proposal(
            kind=SUGGESTED if is_suggestion else OWN_PROMPT,
            workspace=assignment.workspace,
            prompt=assignment.prompt,
            reasoning=reasoning,
            subject=text_hash(assignment.prompt) if is_suggestion else card_id,
            facts={"card": card_id},
            flow=assignment.flow,
            evidence_at=now,
            source=Source.PREDICTOR_HOOK if is_suggestion else Source.OPERATOR,
        )
        info = self.approvals.launcher.check(assignment)
        row = make_row(
            card_id,
            proposal,
            assignment,
            info,
            now=now,
            expires_at=self.store.expiry(now),
            context=self._predictions.situation(assignment.workspace),
            estimate=self._predictions.estimate(proposal, assignment) if is_suggestion else None,
        )
        if not info.available and assignment.flow is None:
            row.note = f"{info.reason}. Or name a flow, such as `run the tests`: `clawpy help flows` lists them"
        with self._database.read() as session:
            row.set_verdicts(self.approvals.preview_work(session, row, assignment, info))
        return row

    def _assign(self, prompt: str, workspace: str, channel: str | None) -> tuple[Assignment, Route]:
        """The work of a prompt, and its route."""
        channels, flows = self.store.settings.current.channels, self.approvals.flows
        named = named_flow(prompt, flows)
        home = kind_of(named[0]).channel if named else ""
        route = self._route("" if named else prompt, channel, home if home in channels else "")
        if prompt in flows:
            prompt = prompt.replace("_", " ").capitalize()  # what a person reads; it names the same flow
        runner = channels[route.channel].runner
        assignment = Assignment(prompt, route.channel, workspace, runner, agent=route.agent)
        return (self.approvals.as_flow(assignment, *named) if named else assignment), route

    def _continue(self, session: SessionView, prompt: str, channel: str | None) -> tuple[Assignment, Route]:
        """The work that continues a session, and its route. The same runner goes on; after a flow it is the
        channel's."""
        route = self._route(prompt, channel or session.channel)
        runner = self.store.settings.current.channels[route.channel].runner if session.flow else session.runner
        parameters = {"continues": session.id}
        workspace, agent = session.workspace, session.agent
        return Assignment(prompt, route.channel, workspace, runner, parameters=parameters, agent=agent), route

    def _route(self, prose: str, channel: str | None, affinity: str = "") -> Route:
        with self._database.read() as session:
            triggered = last_trigger_times(session)
        return self._router.route(prose, named=channel, affinity=affinity, triggered=triggered, routed={})

    def _check_suggestion(self, tx: Transaction, row: Prediction) -> None:
        if self.store.is_off(row.workspace):
            message = "autonomy is off in this workspace, so it gets no cards"
            raise Refusal("autonomy_off", message, "the operator can set it to `cards`")
        if sum(other.kind == SUGGESTED for other in load_pending(tx.session)) >= card_rules.MAX_SUGGESTED:
            message = f"{card_rules.MAX_SUGGESTED} cards from agents and programs are already waiting"
            raise Refusal("too_many_cards", message, "the operator must decide them first")
        if MuteIndex(read_mutes(tx.session, tx.now)).covers(*row.about, row.tier):
            message = "the operator dismissed this, or mutes every suggestion here"
            raise Refusal("muted", message, "clawpy muted lists it")
        if other := self.store.duplicate_of(tx, row):
            message = f"card {other} already proposes this"
            raise Refusal("already_pending", message, "the operator must decide it first")

    def _finished_session(self, session_id: str) -> SessionView:
        former = self.approvals.launcher.get(session_id)
        if not former.state.over:
            fix = f"send it a message: clawpy reply {session_id} TEXT"
            raise Refusal("still_running", f"{session_id} is {former.state}", fix)
        return former

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """Mark cards as shown to the operator; unknown and decided ones are ignored."""
        ids = set(card_ids)
        new = {card.id for card in self.store.pending() if card.id in ids and card.shown_at is None}

        def work(tx: Transaction) -> None:
            for card_id in sorted(new):
                row = load(tx.session, Prediction, card_id)
                if row is not None and row.status == Status.PENDING and row.shown_at is None:
                    row.shown_at = tx.now

        if new:
            self._database.write(work)

    def mark_reviewed(self, card_id: str) -> None:
        """Mark the result of a card that ran by itself as reviewed, so that keeping it counts (SPEC 8.1). Other cards
        are ignored."""

        def work(tx: Transaction) -> None:
            row = load(tx.session, Prediction, card_id)
            if row is not None and row.ran_by_itself:
                row.shown_at = tx.now

        self._database.write(work)

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions: store the outcome of the card, or make it pending again if it was undone before it
        started."""
        row = load(tx.session, Prediction, view.prediction_id)
        if row is not None and row.status == Status.CONFIRMED:
            self.store.execute(tx, row, view)

    def _reverse(self, row: Prediction) -> None:
        """Undo what the session of an executed card landed. Raises `Refusal` as `undo`."""
        if row.session_id is not None and self._reverse_landing(row.session_id):
            return
        if row.check_only:
            message = f"card {row.id} was read-only and changed nothing"
            raise Refusal("nothing_to_undo", message, "there is nothing to undo")
        session = self.approvals.launcher.of_prediction(row.id)
        has_waiting_changes = session is not None and session.change_set_id is not None
        command = (
            f"discard {row.id}` discards what waits" if has_waiting_changes else f"work {row.id}` shows what it did"
        )
        raise Refusal("nothing_to_undo", f"card {row.id} has no landed changes", f"`clawpy {command}")


def _request_undo(tx: Transaction, card_id: str) -> Prediction:
    """Mark a card as undone, unless its session ended meanwhile; returns its row."""
    row = load_card(tx.session, card_id)
    if row.status == Status.CONFIRMED:
        row.undo_requested_at = tx.now
    return row
