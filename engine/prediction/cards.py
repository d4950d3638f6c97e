"""Cards: what the operator sees of predictions, and everything that can be done with one (SPEC 2.7, 2.9).

`lifecycle.py` says what is legal; here each transition is one transaction of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlmodel import col, desc, select

from engine.events import MuteLifted
from engine.execution.runners.parameters import named_flow
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
from engine.model.text import mark
from engine.prediction import stack
from engine.prediction.approvals import ApprovalRequest, Approvals, link_session
from engine.prediction.card_rows import Prediction, all_pending, card_of, copy_of, find_card, last_triggered, new_row
from engine.prediction.card_store import CardStore
from engine.prediction.cycle import Predictions
from engine.prediction.dismissals import switched_off
from engine.prediction.kinds import OWN, SUGGESTED, kind_of, kind_title
from engine.prediction.lifecycle import LONGEST_SNOOZE, SNOOZE
from engine.prediction.routing import Router
from engine.storage.database import Transaction
from engine.storage.rows import ids_with_prefix, load

TOLD = "your own prompt"


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
        """`reverse` undoes what a session landed: False when nothing of it was ever decided, `Refusal` when later edits
        would be lost or it is undone already."""
        self.store = store
        self.approvals = approvals
        self._database = store.database
        self._predictions = predictions
        self._router = router
        self._randomness = randomness
        self._reverse_landing = reverse
        self.get, self.expire_due, self.follow_landings = store.get, store.expire_due, store.follow_landings
        self.rails, self.recover, self.refresh_runners = approvals.preview, approvals.recover, approvals.refresh_runners
        self.session_started = link_session

    # -- reading

    def pending(
        self, *, workspace: str | None = None, channel: str | None = None, include_snoozed: bool = False
    ) -> list[Card]:
        """The stack from the top (SPEC 2.11), in a stable order. A woken card waits until there is a place for it."""
        now = self.store.clock.now()
        cards = [card for card in self.store.pending() if not card.is_expired(now)]
        asleep = stack.waiting_for_a_place(cards, now, self.store.settings.current)
        return [
            card
            for card in stack.order(cards, now)
            if (include_snoozed or not (card.snoozed(now) or card.id in asleep))
            and workspace in (None, card.workspace)
            and channel in (None, card.assignment.channel)
        ]

    def correction(self, card_id: str) -> tuple[str, str] | None:
        """See `Prediction.correction`; whatever became of the work later. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return find_card(session, card_id).correction

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of cards, of any age, that begin so; see `engine.storage.rows`."""
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
        """(approved, decided) of the operator's decisions on like cards (SPEC 2.5)."""
        with self._database.read() as session:
            row = find_card(session, card_id)
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
        """Approve and start. `edit` is a new prompt, or a flow's new parameters; `parameters` are the latter as data.
        A prompt that names a flow makes the card that flow, whatever it was before.
        A sentence in the place of a flow's parameters makes the card one for an agent or a model; as somebody else does
        it then, that is shown first, and approved by a second call. `without_sandbox`: see `ApprovalRequest`.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`,
        `secret_in_text`, `no_sandbox` (none works here and that was not confirmed), `blocked` (a rail said no),
        `needs_acknowledgement` (a rail asks for a person, or another than the card said would do it; the card now
        shows what), or why the session could not start. After each of them the card is as it was, or pending with the
        reason in its note.
        """
        request = ApprovalRequest(by, without_sandbox=without_sandbox)
        return self.approvals.approve(card_id, edit=edit, parameters=parameters, request=request)

    def trigger(self, card_id: str, *, force: bool = False, by: str) -> Card:
        """A program asks for this card to be run (SPEC 3.1): every rail is asked as for what runs by itself, and
        `force` skips the rate alone (SPEC 3.2). `by` is where the link of the chain begins (SPEC 3.3): the program, or
        the channel that it works for. Raises `Refusal` as `approve` does; the card is then pending."""
        return self.approvals.approve(card_id, request=ApprovalRequest(DecidedBy.AUTONOMY, by, force))

    def dismiss(self, card_id: str, *, reason: DismissReason | None = None, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Turn down. What it is about stays away for 7 days, twice as long after each further time (SPEC 2.9). The card
        that is returned says in its note when this switched its kind off. Of what ran by itself it is the report that
        is turned down: you would not have run it.

        Raises `Refusal` `unknown_card`, `already_decided`."""
        return self._with_switch(self.store.change(card_id, lambda tx, row: self.store.reject(tx, row, by, reason)))

    def explain(self, card_id: str, reason: DismissReason) -> Card:
        """Say why a card was dismissed; the last word counts. The note is as that of `dismiss`.

        Raises `Refusal` `unknown_card`, `not_dismissed`."""
        return self._with_switch(self.store.change(card_id, lambda tx, row: self.store.explain(tx, row, reason)))

    def _with_switch(self, card: Card) -> Card:
        """A dismissed card, with a note when all cards of its kind are switched off now."""
        for mute in self.muted():
            if not mute.subject and mute.kind == card.kind and mute.workspace in (card.workspace, ""):
                return replace(card, note=switched_off(mute))
        return card

    def muted(self) -> list[Mute]:
        """What stays away because it was dismissed (SPEC 2.9), the newest first."""
        with self._database.read() as session:
            return self.store.dismissals.mutes(session, self.store.clock.now())

    def lift(self, mute_id: str) -> Mute:
        """Let what is muted come back, at the next cycle. Raises `Refusal` `unknown_mute`."""

        def work(tx: Transaction) -> Mute:
            muted = self.store.dismissals.mutes(tx.session, tx.now)
            mute = next((mute for mute in muted if mute.id == mute_id), None)
            if mute is None:
                raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
            self.store.dismissals.lift(tx, mute)
            tx.record(
                MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind))
            )
            return mute

        return self._database.write(work)

    def snooze(self, card_id: str, *, span: timedelta = SNOOZE) -> Card:
        """Put off for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. No signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= LONGEST_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "give a time of up to 30 days, for example --for 2h")
        return self.store.change(card_id, lambda tx, row: self.store.snooze(tx, row, span))

    def undo(self, card_id: str) -> Card:
        """Take the last decision back (SPEC 2.7).

        A snooze ends; a dismissal or an approval whose session has not started is pending again, its signal taken
        back; a running session is stopped; what it landed is reversed. Of a check that ran by itself nothing is left to
        take back: the undo is a complaint (SPEC 8.1). Raises `Refusal` `unknown_card`, `nothing_to_undo`,
        `evidence_gone`, or why a landing cannot be reversed.
        """
        store, launcher = self.store, self.approvals.launcher
        with store.deciding:
            with self._database.read() as session:
                row = find_card(session, card_id)
            view = launcher.session_of(card_id) if row.status == Status.CONFIRMED else None
            if view is not None and not view.state.over:
                row = self._database.write(lambda tx: _ask_undo(tx, card_id))
                if row.status == Status.CONFIRMED:
                    launcher.stop(view.id, UNDONE)
                    return self.get(card_id)
            if row.status != Status.EXECUTED:
                return store.change(card_id, store.bring_back)
            if not (row.ran_by_itself and row.check_only):
                self._reverse(row)
            return store.change(card_id, lambda tx, row: store.turn_down(tx, row, DecisionSignal.UNDONE, tx.now))

    def give_back(self, card_id: str, note: str) -> Card:
        """A card for the same once more, pending: what this one started was cut short, and the operator decides anew
        (SPEC 7.5). Raises `Refusal` `unknown_card`."""
        new_id = self._randomness.new_id("pred")
        expires_at = self.store.expiry(self.store.clock.now())

        def work(tx: Transaction) -> Card:
            row = find_card(tx.session, card_id)
            if duplicate := self.store.duplicate_of(tx, row):
                return card_of(find_card(tx.session, duplicate))
            copy = copy_of(row, new_id, tx.now, expires_at, note)
            card = self.store.add(tx, copy)
            self.store.make_room(tx, copy)
            return card

        with self.store.deciding:
            return self._database.write(work)

    def propose(
        self, text: str, *, workspace: str, channel: str | None = None, continues: str = "", reasoning: str = ""
    ) -> Card:
        """A card of the operator's own. Text that names a flow becomes one; other text waits for a runner of prose.
        `reasoning`: what the card says when an agent or a program suggests it: then it is of their source, with an
        estimate of its confidence, takes a place (the last of the others makes room), and runs never by itself.

        `continues` names a session that is over: the card goes on in its workspace, on its channel unless another is
        named, with its conversation and its changes (SPEC 9.4); it is prose, whatever it says.

        Raises `Refusal` `empty_prompt`, `secret_in_text`, `unknown_channel`, `bad_parameters`, `unknown_session`,
        `still_running`; for a suggestion `too_many_cards`, `autonomy_off`, `muted`, `already_pending`.
        """
        approvals, store, flows = self.approvals, self.store, self.approvals.flows
        prompt = approvals.checked_prompt(text)
        now, channels = store.clock.now(), store.settings.current.channels
        former = self._finished(continues) if continues else None
        if former is not None:
            workspace, channel = former.workspace, channel or former.channel
        named = None if former else named_flow(prompt, flows)
        if prompt in flows:
            prompt = prompt.replace("_", " ").capitalize()  # what a person reads; it names the same flow
        with self._database.read() as session:
            triggered = last_triggered(session)
        home = kind_of(named[0]).channel if named else ""
        route = self._router.route(
            "" if named else prompt,
            named=channel,
            affinity=home if home in channels else "",
            triggered=triggered,
            routed={},
        )
        to = route.channel
        assignment = Assignment(prompt, to, workspace, channels[to].runner, agent=route.agent)
        if former is not None:
            # The one who did the work goes on with it; after a flow it is the channel's.
            runner = channels[to].runner if former.flow else former.runner
            assignment = replace(assignment, runner=runner, parameters={"continues": former.id}, agent=former.agent)
        if named:
            assignment = approvals.as_flow(assignment, *named)
        assignment, otherwise = approvals.launcher.choose(assignment)
        info = approvals.launcher.check(assignment)
        card_id = self._randomness.new_id("pred")
        reason = f"{TOLD}; to {route.agent}: {route.why}" if route.why else TOLD
        # Nothing estimates what he typed himself, and its kind is its own, so that approving it earns no prediction the
        # right to run by itself (SPEC 2.5). A suggestion is shown whatever its confidence: somebody asked for it.
        proposal = Proposal(
            kind=SUGGESTED if reasoning else OWN,
            workspace=workspace,
            prompt=assignment.prompt,
            reasoning=f"continues “{former.prompt}”" if former else reasoning or reason,
            subject=mark(assignment.prompt) if reasoning else card_id,
            facts={"card": card_id},
            flow=assignment.flow,
            evidence_at=now,
            source=Source.PREDICTOR_HOOK if reasoning else Source.OPERATOR,
        )
        context = self._predictions.situation(workspace)
        parts, seen = self._predictions.estimate(proposal, assignment) if reasoning else (None, None)
        row = new_row(
            card_id,
            proposal,
            assignment,
            info,
            now=now,
            expires_at=store.expiry(now),
            context=context,
            parts=parts,
            meaning=route.meaning,
            seen=seen.pack() if seen else b"",
        )
        if not info.available and assignment.flow is None:
            row.note = f"{info.reason}. Or name a flow, such as `run the tests`: `clawpy help flows` lists them"
        row.note = otherwise or row.note
        row.set_verdicts(approvals.preview_new(row, assignment, info))

        def work(tx: Transaction) -> Card:
            if reasoning:
                self._check_suggestion(tx, row)
            card = store.add(tx, row)
            if reasoning:
                store.make_room(tx, row)
            return card

        return self._database.write(work)

    def _check_suggestion(self, tx: Transaction, row: Prediction) -> None:
        if self.store.is_off(row.workspace):
            message = "autonomy is off in this workspace, so it gets no cards"
            raise Refusal("autonomy_off", message, "the operator can set it to `cards`")
        if sum(other.kind == SUGGESTED for other in all_pending(tx.session)) >= stack.SUGGESTED_MOST:
            message = f"{stack.SUGGESTED_MOST} cards from agents and programs are already waiting"
            raise Refusal("too_many_cards", message, "the operator must decide them first")
        if self.store.dismissals.muted(tx.session, tx.now).covers(*row.about, row.tier):
            message = "the operator dismissed this, or mutes every suggestion here"
            raise Refusal("muted", message, "clawpy muted lists it")
        if other := self.store.duplicate_of(tx, row):
            message = f"card {other} already proposes this"
            raise Refusal("already_pending", message, "the operator must decide it first")

    def _finished(self, session_id: str) -> SessionView:
        former = self.approvals.launcher.session(session_id)
        if not former.state.over:
            fix = f"send it a message: clawpy reply {session_id} TEXT"
            raise Refusal("still_running", f"{session_id} is {former.state}", fix)
        return former

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """These cards were on the operator's screen; unknown and decided ones are ignored."""
        ids = set(card_ids)
        new = {card.id for card in self.store.pending() if card.id in ids and card.shown_at is None}

        def work(tx: Transaction) -> None:
            for card_id in sorted(new):
                row = load(tx.session, Prediction, card_id)
                if row is not None and row.status == Status.PENDING and row.shown_at is None:
                    row.shown_at = tx.now

        if new:
            self._database.write(work)

    def look_at(self, card_id: str) -> None:
        """The operator looked at what came of a card that ran by itself: from then on its standing says something (SPEC
        8.1). Passed over for any other card."""

        def work(tx: Transaction) -> None:
            row = load(tx.session, Prediction, card_id)
            if row is not None and row.ran_by_itself:
                row.shown_at = tx.now

        self._database.write(work)

    def session_ended(self, tx: Transaction, view: SessionView, result: object = None) -> None:
        """Observer of sessions: the card is executed, with its outcome; or pending again when it was undone before it
        had started."""
        row = load(tx.session, Prediction, view.prediction_id)
        if row is not None and row.status == Status.CONFIRMED:
            self.store.execute(tx, row, view)

    def _reverse(self, row: Prediction) -> None:
        if row.session_id is None or not self._reverse_landing(row.session_id):
            message = f"card {row.id} has no landed changes"
            raise Refusal("nothing_to_undo", message, f"to discard waiting changes: clawpy discard {row.id}")


def _ask_undo(tx: Transaction, card_id: str) -> Prediction:
    """Mark the card, unless its session ended meanwhile; its row as it is then."""
    row = find_card(tx.session, card_id)
    if row.status == Status.CONFIRMED:
        row.undo_requested_at = tx.now
    return row
