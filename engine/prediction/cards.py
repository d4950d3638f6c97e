"""Cards: what the operator sees of predictions, and everything that he can do with one (SPEC 2.7, 2.9).

`lifecycle.py` says what is legal; here each transition is one transaction. `approving.py` approves cards and starts
them; `intake.py` does what the cycle does to cards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import PurePath

from sqlmodel import col, desc, select

from engine.clock import Clock
from engine.config import Autonomy, SettingsSource
from engine.events import MuteLifted
from engine.execution.launcher import Launcher
from engine.execution.runners.flow_names import named_flow
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.learner import Seen
from engine.model import (
    UNDONE,
    Assignment,
    Card,
    ConfidenceParts,
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
from engine.prediction import limits
from engine.prediction.aftermath import Aftermath
from engine.prediction.approving import Approving, Asked, link_session
from engine.prediction.cards_store import (
    Prediction,
    again,
    all_pending,
    card_of,
    created,
    find,
    last_triggered,
)
from engine.prediction.dismissals import Dismissals
from engine.prediction.intake import Intake
from engine.prediction.kinds import SUGGESTED, kind_of, kind_title
from engine.prediction.limits import ActiveTime
from engine.prediction.own_prompts import checked, own_row, suggest, suggestion
from engine.prediction.routing import Router
from engine.prediction.transitions import Deciding, Transitions, ran_by_itself
from engine.prediction.twin import Calibrator
from engine.safety.pipeline import Pipeline
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Facts
from engine.storage.ids import beginning
from engine.storage.kept import Kept
from engine.storage.quick import load

LONGEST_SNOOZE = timedelta(days=30)


class Cards:
    """The port `engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        rails: Pipeline,
        launcher: Launcher,
        reverse: Callable[[str], bool],
        history: Decisions,
        calibrator: Calibrator,
        active_time: ActiveTime,
        facts: Facts,
        router: Router,
        flows: Collection[str] = (),
        on_decision: Callable[[Transaction], object] = lambda tx: None,
        session: Callable[[str], SessionView],
        secrets: Callable[[], Iterable[str]] = tuple,
        estimate: Callable[[Proposal, Assignment], tuple[ConfidenceParts, Seen]],
        situation: Callable[[str], str],
        deleted: Callable[[str], bool] = lambda workspace: False,
    ) -> None:
        """`reverse` undoes what a session landed: False when nothing of it was ever decided, `Refusal` when later edits
        would be lost or it is undone already. `flows`: names that a prompt of your own may call. `session` finds one by
        its id; `secrets` are values that no prompt may hold; `estimate` says how sure a suggestion is; `situation`
        how a workspace stands, in words; `deleted`
        whether a workspace is gone from the disk. `on_decision` is called inside the transaction of each decision by a
        person (the rails count rejections)."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._randomness = randomness
        self._launcher = launcher
        self._router = router
        self._reverse_landing = reverse
        self._history = history
        self._active_time = active_time
        self._flows = flows
        self._session = session
        self._secrets = secrets
        self._estimate = estimate
        self._situation = situation
        self._deleted = deleted
        self.dismissals = Dismissals(database)
        """What the operator turned down, and what is muted by it."""
        self._transitions = Transitions(rails, history, self.dismissals, settings, active_time, on_decision)
        self._deciding = Deciding(database)
        self._stack: Kept[list[tuple[limits.Seat, Card]]] = Kept(database, Prediction)
        self.intake = Intake(database, self._transitions, self.dismissals, settings, randomness, active_time)
        """What the cycle does to cards."""
        self.approving = Approving(
            database,
            clock=clock,
            rails=rails,
            launcher=launcher,
            history=history,
            calibrator=calibrator,
            transitions=self._transitions,
            deciding=self._deciding,
            flows=flows,
            secrets=secrets,
        )
        """Approving them, and starting what was approved."""
        self.rails, self.approve, self.recover = self.approving.preview, self.approving.approve, self.approving.recover
        self.session_started = link_session
        self.aftermath = Aftermath(database, clock, facts, history, self._transitions)
        """What later behaviour says about them."""

    # -- reading

    def pending(
        self, *, workspace: str | None = None, channel: str | None = None, include_snoozed: bool = False
    ) -> list[Card]:
        """The stack from the top (SPEC 2.11), in a stable order. A woken card waits until there is a seat for it."""
        now = self._clock.now()
        cards = {seat.id: (seat, card) for seat, card in self._stack.get("", self._read_stack) if not card.due(now)}
        seats = [seat for seat, _ in cards.values()]
        asleep = limits.overdue_for_a_seat(seats, now, limits.Caps.of(self._settings.current))
        return [
            card
            for seat, card in (cards[seat.id] for seat in limits.order(seats, now))
            if (include_snoozed or not (limits.is_snoozed(seat, now) or seat.id in asleep))
            and workspace in (None, card.assignment.workspace)
            and channel in (None, card.assignment.channel)
        ]

    def get(self, card_id: str) -> Card:
        """One card. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return card_of(find(session, card_id))

    def correction(self, card_id: str) -> tuple[str, str] | None:
        """See `Prediction.correction`; whatever became of the work later. Raises `Refusal` `unknown_card`."""
        with self._database.read() as session:
            return find(session, card_id).correction

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

    def similar(self, card_id: str) -> tuple[int, int]:
        """(approved, decided) of the operator's decisions on like cards (SPEC 2.5)."""
        with self._database.read() as session:
            row = find(session, card_id)
            return self._history.approvals_of_like(session, row.kind, row.target_channel, row.workspace)

    # -- deciding

    def trigger(self, card_id: str, *, force: bool = False, by: str) -> Card:
        """A program asks for this card to be run (SPEC 3.1): every rail is asked as for what runs by itself, and
        `force` skips the rate alone (SPEC 3.2). `by` is where the link of the chain begins (SPEC 3.3): the program, or
        the channel that it works for. Raises `Refusal` as `approve` does; the card is then pending."""
        return self.approve(card_id, by=DecidedBy.AUTONOMY, asked=Asked(force, by))

    def dismiss(self, card_id: str, *, reason: DismissReason | None = None, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Turn down. What it is about stays away for 7 days, twice as long after each further time (SPEC 2.9). The card
        that is returned says in its note when this switched its kind off. Of what ran by itself it is the report that
        is turned down: you would not have run it.

        Raises `Refusal` `unknown_card`, `already_decided`."""
        card = self._deciding.change(card_id, lambda tx, row: self._transitions.reject(tx, row, by, reason))
        return self._with_switch(card)

    def explain(self, card_id: str, reason: DismissReason) -> Card:
        """Say why a card was dismissed; the last word counts. The note is as that of `dismiss`.

        Raises `Refusal` `unknown_card`, `not_dismissed`."""
        return self._with_switch(
            self._deciding.change(card_id, lambda tx, row: self._transitions.explain(tx, row, reason))
        )

    def _with_switch(self, card: Card) -> Card:
        """A dismissed card, with a note when all cards of its kind are switched off now."""
        here = (card.assignment.workspace, "")
        kinds = (one for one in self.muted() if not one.subject and one.kind == card.kind and one.workspace in here)
        off = next(kinds, None)
        return card if off is None else replace(card, note=_switched_off(off))

    def muted(self) -> list[Mute]:
        """What stays away because it was dismissed (SPEC 2.9), the newest first."""
        with self._database.read() as session:
            return self.dismissals.mutes(session, self._clock.now())

    def lift(self, mute_id: str) -> Mute:
        """Let what is muted come back, at the next cycle. Raises `Refusal` `unknown_mute`."""

        def work(tx: Transaction) -> Mute:
            mute = next((one for one in self.dismissals.mutes(tx.session, tx.now) if one.id == mute_id), None)
            if mute is None:
                raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
            self.dismissals.lift(tx, mute)
            tx.record(
                MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind))
            )
            return mute

        return self._database.write(work)

    def snooze(self, card_id: str, *, span: timedelta = limits.SNOOZE) -> Card:
        """Put off for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. No signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= LONGEST_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "give a time of up to 30 days, for example --for 2h")
        return self._deciding.change(card_id, lambda tx, row: self._transitions.snooze(tx, row, span))

    def undo(self, card_id: str) -> Card:
        """Take the last decision back (SPEC 2.7).

        A snooze ends; a dismissal or an approval whose session has not started is pending again, its signal taken
        back; a running session is stopped; what it landed is reversed. Of a check that ran by itself nothing is left to
        take back: the undo is a complaint (SPEC 8.1). Raises `Refusal` `unknown_card`, `nothing_to_undo`,
        `evidence_gone`, or why a landing cannot be reversed.
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
                if not (ran_by_itself(row) and row.check_only):
                    self._reverse(row)
                return self._deciding.change(
                    card_id, lambda tx, row: self._transitions.turn_down(tx, row, DecisionSignal.UNDONE, tx.now)
                )
            return self._deciding.change(card_id, self._bring_back)

    def give_back(self, card_id: str, note: str) -> Card:
        """A card for the same once more, pending: what this one started was cut short, and the operator decides anew
        (SPEC 7.5). Raises `Refusal` `unknown_card`."""
        new_id = self._randomness.new_id("pred")
        expires_at = self._active_time(self._clock.now(), limits.LIFE)

        def work(tx: Transaction) -> Card:
            row = find(tx.session, card_id)
            for other in all_pending(tx.session):
                if (other.workspace, other.kind, other.subject) == (row.workspace, row.kind, row.subject):
                    return card_of(other)
            copy = again(row, new_id, tx.now, expires_at, note)
            tx.session.add(copy)
            tx.record(created(copy))
            self._transitions.make_room(tx, copy)
            return card_of(copy)

        with self._deciding:
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
        prompt = checked(text, self._secrets())
        now, channels = self._clock.now(), self._settings.current.channels
        former = self._finished(continues) if continues else None
        if former is not None:
            workspace, channel = former.workspace, channel or former.channel
        named = None if former else named_flow(prompt, self._flows)
        if prompt in self._flows:
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
            assignment = self.approving.as_flow(assignment, *named)
        assignment, otherwise = self._launcher.choose(assignment)
        info = self._launcher.check(assignment)
        card_id, expires_at = self._randomness.new_id("pred"), self._active_time(now, limits.LIFE)
        row = own_row(
            card_id, assignment, info, route=route, now=now, expires_at=expires_at, context=self._situation(workspace)
        )
        if reasoning:
            proposal = suggestion(assignment, reasoning, now)
            suggest(row, proposal, *self._estimate(proposal, assignment))
        if former is not None:
            row.reasoning = f"continues “{former.prompt}”"
        if not info.takes and assignment.flow is None:
            row.note = f"{info.reason}. Or name a flow, such as `run the tests`: `clawpy help flows` lists them"
        row.note = otherwise or row.note
        row.judge(self.approving.preview_new(row, assignment, info))

        def work(tx: Transaction) -> Card:
            if reasoning:
                self._check_suggestion(tx, row)
            tx.session.add(row)
            tx.record(created(row))
            if reasoning:
                self._transitions.make_room(tx, row)
            return card_of(row)

        return self._database.write(work)

    def _check_suggestion(self, tx: Transaction, row: Prediction) -> None:
        if self._is_off(row.workspace, Source(row.source)):
            raise Refusal(
                "autonomy_off",
                "autonomy is off in this workspace, so it gets no cards",
                "the operator can set it to `cards`",
            )
        if sum(one.kind == SUGGESTED for one in all_pending(tx.session)) >= limits.SUGGESTED_MOST:
            told = f"{limits.SUGGESTED_MOST} cards from agents and programs are already waiting"
            raise Refusal("too_many_cards", told, "the operator must decide them first")
        if self.dismissals.muted(tx.session, tx.now).covers(row.workspace, row.kind, row.subject, row.tier):
            raise Refusal(
                "muted", "the operator dismissed this, or mutes every suggestion here", "clawpy muted lists it"
            )
        others = self._transitions.others(tx, row)
        if others:
            raise Refusal(
                "already_pending", f"card {others} already proposes this", "the operator must decide it first"
            )

    def _finished(self, session_id: str) -> SessionView:
        former = self._session(session_id)
        if not former.state.over:
            raise Refusal(
                "still_running", f"{session_id} is {former.state}", f"send it a message: clawpy reply {session_id} TEXT"
            )
        return former

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """The operator has had these on his screen; ids that are unknown or decided are passed over."""
        wanted = set(card_ids)
        new = {seat.id for seat, _ in self._stack.get("", self._read_stack) if seat.id in wanted and not seat.shown}

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
            if row is not None and ran_by_itself(row):
                row.shown_at = tx.now

        self._database.write(work)

    def expire_due(self) -> int:
        """Expire every card whose time is over, and withdraw those of workspaces that were switched off or deleted
        since; returns how many. One that was never shown gives no signal."""
        now = self._clock.now()
        stack = self._stack.get("", self._read_stack)
        gone = {one for one in {card.assignment.workspace for _, card in stack} if self._deleted(one)}
        if not any(
            card.due(now) or card.assignment.workspace in gone or self._is_off(card.assignment.workspace, card.source)
            for _, card in stack
        ):
            return 0

        def work(tx: Transaction) -> int:
            over = 0
            for row in all_pending(tx.session):
                if row.workspace in gone:
                    self._transitions.withdraw(tx, row, "its workspace was deleted")
                elif row.due(tx.now):
                    self._transitions.expire(tx, row)
                elif self._is_off(row.workspace, Source(row.source)):
                    self._transitions.withdraw(tx, row, "autonomy is off in this workspace")
                else:
                    continue
                over += 1
            return over

        return self._database.write(work)

    def look_again(self) -> int:
        """Have pending cards of prose say who would do them now: a model or an agent came, or went. Returns how many
        say something else than before."""
        prose = any(card.assignment.flow is None for _, card in self._stack.get("", self._read_stack))
        return self.approving.look_again() if prose else 0

    def _read_stack(self) -> list[tuple[limits.Seat, Card]]:
        with self._database.read() as session:
            return [(row.seat, card_of(row)) for row in all_pending(session)]

    def _is_off(self, workspace: str, source: Source) -> bool:
        """No card is made for this workspace any more (SPEC 7.4); a prompt of the operator's own is his own."""
        return source is not Source.OPERATOR and self._settings.current.workspace(workspace).autonomy is Autonomy.OFF

    # -- what others tell: sessions and tasks, each inside its own transaction

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

    # -- inside

    def _bring_back(self, tx: Transaction, row: Prediction) -> None:
        if row.status == Status.PENDING and row.snoozed_until is not None:
            self._transitions.wake(tx, row)
            self._transitions.make_room(tx, row)
        else:
            self._transitions.reopen(tx, row)

    def _reverse(self, row: Prediction) -> None:
        if row.session_id is None or not self._reverse_landing(row.session_id):
            told = f"card {row.id} has no landed changes"
            raise Refusal("nothing_to_undo", told, f"to discard waiting changes: clawpy discard {row.id}")


def _ask_undo(tx: Transaction, card_id: str) -> Prediction:
    """Mark the card, unless its session ended meanwhile; its row as it is then."""
    row = find(tx.session, card_id)
    if row.status == Status.CONFIRMED:
        row.undo_requested_at = tx.now
    return row


def _switched_off(mute: Mute) -> str:
    """What a dismissal came to, in words."""
    where = f"in {PurePath(mute.workspace).name}" if mute.workspace else "everywhere"
    return f"cards “{kind_title(mute.kind)}” are switched off {where}: {mute.why}"
