"""Makes cards of prompts: the operator's own, those that continue a session, and suggestions of agents and programs
(SPEC 9.4, 10.1, 10.4).

A card that the engine proposes by itself comes from `engine.prediction.cycle`.
"""

from __future__ import annotations

from engine.execution.runners.flow_registry import named_flow
from engine.model import Assignment, Card, Proposal, Randomness, Refusal, SessionView, Source
from engine.model.text import text_hash
from engine.prediction import card_rules
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import (
    CardRow,
    card_of,
    copy_card,
    last_trigger_times,
    load_card,
    load_pending,
    make_row,
)
from engine.prediction.card_store import CardStore
from engine.prediction.cycle import CardCycle
from engine.prediction.dismissals import MuteIndex, read_mutes
from engine.prediction.kinds import OWN_PROMPT, SUGGESTED, kind_of
from engine.prediction.routing import Route, Router
from engine.storage.database import Transaction

OWN_PROMPT_REASON = "your own prompt"


class PromptCards:
    """Makes cards of prompts. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        card_cycle: CardCycle,
        router: Router,
        randomness: Randomness,
    ) -> None:
        self._store = store
        self._database = store.database
        self._approvals = approvals
        self._card_cycle = card_cycle
        self._router = router
        self._randomness = randomness

    def propose(
        self, text: str, *, workspace: str, channel: str | None = None, continues: str = "", reasoning: str = ""
    ) -> Card:
        """Make a card of a prompt. A prompt that names a flow becomes that flow.

        With `reasoning` it is a suggestion by an agent or a program: it has an estimated confidence, takes a place in
        the stack, and never runs by itself. Without, it is the operator's own prompt.

        `continues` is a finished session. The card continues it in its workspace, with its conversation and its
        changes, and on its channel unless another is given (SPEC 9.4).

        Raises `Refusal`: `empty_prompt`, `long_prompt`, `secret_in_text`, `unknown_channel`, `bad_parameters`,
        `no_runner` (a learned flow of another workspace), `unknown_session`, `still_running`; for a suggestion also
        `too_many_cards`, `autonomy_off`, `muted`, `already_pending`.
        """
        prompt = self._approvals.checked_prompt(text)
        if continues:
            session = self._finished_session(continues)
            assignment, route = self._continue(session, prompt, channel)
            why = f"continues “{session.prompt}”"
        else:
            assignment, route = self._assign(prompt, workspace, channel)
            own = f"{OWN_PROMPT_REASON}; to {route.agent}: {route.why}" if route.why else OWN_PROMPT_REASON
            why = reasoning or own
        assignment, other_runner = self._approvals.launcher.choose(assignment)
        row = self._make_row(assignment, why, is_suggestion=bool(reasoning))
        row.meaning = route.meaning
        row.note = other_runner or row.note

        def work(tx: Transaction) -> Card:
            if reasoning:
                self._check_suggestion(tx, row)
            card = self._store.add(tx, row)
            if reasoning:
                self._store.make_room(tx, row)
            return card

        return self._database.write(work)

    def _make_row(self, assignment: Assignment, reasoning: str, *, is_suggestion: bool) -> CardRow:
        """The row of a new card, with the verdicts of the rails.

        The operator's own prompt has no estimated confidence and a kind of its own, so that its approval gives no
        card the right to run by itself (SPEC 2.5). A suggestion is shown whatever its confidence."""
        now, card_id = self._store.clock.now(), self._randomness.new_id("pred")
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
        info = self._approvals.launcher.check(assignment)
        row = make_row(
            card_id,
            proposal,
            assignment,
            info,
            now=now,
            expires_at=self._store.expiry(now),
            context=self._card_cycle.situation(assignment.workspace),
            estimate=self._card_cycle.estimate(proposal, assignment) if is_suggestion else None,
        )
        if not info.available:
            row.note = f"{info.reason}. Or name a flow, such as `run the tests`: `clawpy help flows` lists them"
        with self._database.read() as session:
            row.set_verdicts(self._approvals.preview_work(session, row, assignment, info))
        return row

    def _assign(self, prompt: str, workspace: str, channel: str | None) -> tuple[Assignment, Route]:
        """The work of a prompt that continues nothing, and its route."""
        channels, flows = self._store.settings.current.channels, self._approvals.flows
        named = named_flow(prompt, flows)
        home = kind_of(named[0]).channel if named else ""
        route = self._route("" if named else prompt, channel, home if home in channels else "")
        if prompt in flows:
            prompt = prompt.replace("_", " ").capitalize()  # what a person reads; it names the same flow
        runner = channels[route.channel].runner
        assignment = Assignment(prompt, route.channel, workspace, runner, agent=route.agent)
        return (self._approvals.as_flow(assignment, *named) if named else assignment), route

    def _continue(self, session: SessionView, prompt: str, channel: str | None) -> tuple[Assignment, Route]:
        """The work that continues a session, and its route. The runner stays the same; after a flow it is the runner
        of the channel."""
        route = self._route(prompt, channel or session.channel)
        runner = self._store.settings.current.channels[route.channel].runner if session.flow else session.runner
        parameters = {"continues": session.id}
        workspace, agent = session.workspace, session.agent
        return Assignment(prompt, route.channel, workspace, runner, parameters=parameters, agent=agent), route

    def _route(self, prose: str, channel: str | None, affinity: str = "") -> Route:
        """See `Router.route`."""
        with self._database.read() as session:
            triggered = last_trigger_times(session)
        return self._router.route(prose, named=channel, affinity=affinity, triggered=triggered, routed={})

    def _check_suggestion(self, tx: Transaction, row: CardRow) -> None:
        """Raise `Refusal` if there is no place for a suggestion, or the operator does not want it."""
        if self._store.is_off(row.workspace):
            message = "autonomy is off in this workspace, so it gets no cards"
            raise Refusal("autonomy_off", message, "the operator can set it to `cards`")
        if sum(other.kind == SUGGESTED for other in load_pending(tx.session)) >= card_rules.MAX_SUGGESTED:
            message = f"{card_rules.MAX_SUGGESTED} cards from agents and programs are already waiting"
            raise Refusal("too_many_cards", message, "the operator must decide them first")
        if MuteIndex(read_mutes(tx.session, tx.now)).covers(*row.about, row.tier):
            message = "the operator dismissed this, or mutes every suggestion here"
            raise Refusal("muted", message, "clawpy muted lists it")
        if other := self._store.duplicate_of(tx, row):
            message = f"card {other} already proposes this"
            raise Refusal("already_pending", message, "the operator must decide it first")

    def _finished_session(self, session_id: str) -> SessionView:
        """The session to continue. Raises `Refusal`: `unknown_session`, `still_running`."""
        former = self._approvals.launcher.get(session_id)
        if not former.state.over:
            fix = f"send it a message: clawpy reply {session_id} TEXT"
            raise Refusal("still_running", f"{session_id} is {former.state}", fix)
        return former

    def propose_again(self, card_id: str, note: str) -> Card:
        """A pending card for the work of a card that was interrupted (SPEC 7.5). A new one is made unless there is one
        about the same subject. Raises `Refusal` `unknown_card`."""
        with self._store.deciding:
            return self._database.write(lambda tx: self.add_again(tx, load_card(tx.session, card_id), note))

    def add_again(self, tx: Transaction, row: CardRow, note: str) -> Card:
        """See `propose_again`."""
        if duplicate := self._store.duplicate_of(tx, row):
            return card_of(load_card(tx.session, duplicate))
        copy = copy_card(row, self._randomness.new_id("pred"), tx.now, self._store.expiry(tx.now), note)
        card = self._store.add(tx, copy)
        self._store.make_room(tx, copy)
        return card
