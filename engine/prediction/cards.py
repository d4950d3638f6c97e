"""The service `engine.cards`: makes cards of prompts, reads cards, and carries out the operator's decisions on them
(SPEC 2.7, 2.9, 9.4, 10.1, 10.4).

`Approvals` starts approved cards, `CardStore` stores every change. A card that the engine proposes by itself comes from
`engine.prediction.checks`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from sqlmodel import col, desc, select

from engine.config.sections import ACP_PREFIX
from engine.events import MuteLifted
from engine.execution.runners.flow_runner import find_missing_file, find_named_flow, find_similar_flow
from engine.model import (
    UNDONE,
    Assignment,
    Card,
    DecidedBy,
    DecisionSignal,
    DismissReason,
    Mute,
    Proposal,
    Refusal,
    RunnerInfo,
    Source,
    Status,
)
from engine.model.text import capitalised, compute_text_hash
from engine.prediction.approvals import ApprovalRequest, Approvals
from engine.prediction.card_rows import (
    CardRow,
    find_pending_id,
    load_card,
    load_last_trigger_times,
    load_pending,
    make_card_of_row,
    make_row,
)
from engine.prediction.card_store import CardStore
from engine.prediction.checks import CardChecks
from engine.prediction.dismissals import describe_switch_off, end_mute, read_mute_index, read_mutes
from engine.prediction.kinds import OWN_PROMPT, SUGGESTED_KIND, get_kind, kind_title
from engine.prediction.routing import Route, Router
from engine.prediction.stack import MAX_SUGGESTED, find_ids_without_place, sort_cards
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Transaction
from engine.storage.rows import find_ids_with_prefix

DEFAULT_SNOOZE, MAX_SNOOZE = timedelta(hours=2), timedelta(days=30)
"""Default and maximum length of a snooze."""

MAX_TITLE_CHARS = 60
"""Maximum length of a card's prompt in a refusal."""

OWN_PROMPT_REASON = "your own prompt"
"""The reasoning of a card of the operator's own prompt."""


class _Work(NamedTuple):
    """The work of a prompt."""

    assignment: Assignment
    reason: str
    """Why there is a card for it, in words."""
    meaning: bytes
    """See `Route.meaning`."""


class Cards:
    """`engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        checks: CardChecks,
        router: Router,
        twin: EmbeddedTwin,
        *,
        reverse: Callable[[str], int | None],
    ) -> None:
        """`reverse(session_id)` undoes the last landing of a session and returns the number of landings left. It
        returns None if nothing was landed, and raises `Refusal` if later edits would be lost or the landing is undone
        already."""
        self._store = store
        self._database = store.database
        self.approvals = approvals
        self._checks = checks
        self._router = router
        self._twin = twin
        self._reverse_landing = reverse
        self.get = store.get
        self.expire_due = store.expire_due
        self.follow_landings = store.follow_landings
        self.mark_shown = store.mark_shown
        self.mark_reviewed = store.mark_reviewed
        self.propose_again = store.propose_again
        self.session_ended = store.session_ended
        self.rails = approvals.preview
        self.describe_sandbox = approvals.describe_sandbox
        self.recover = approvals.recover
        self.refresh_runners = approvals.refresh_runners

    # -- reading

    def pending(self, *, channel: str | None = None, include_snoozed: bool = False) -> list[Card]:
        """The stack from the top (SPEC 2.11). A woken card is hidden until there is a place for it."""
        now = self._store.clock.now()
        cards = [card for card in self._store.pending() if not card.is_expired(now)]
        hidden = find_ids_without_place(cards, now, self._store.settings.current)
        return [
            card
            for card in sort_cards(cards, now)
            if (include_snoozed or not (card.snoozed(now) or card.id in hidden))
            and channel in (None, card.assignment.channel)
        ]

    def correction(self, card_id: str) -> tuple[str, str] | None:
        """See `CardRow.correction`. Raises `Refusal` `unknown_card`."""
        return self._store.load(card_id).correction

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of cards of any age with this prefix; see `engine.storage.rows`."""
        with self._database.read() as session:
            return find_ids_with_prefix(session, col(CardRow.id), prefix)

    def recent(self, limit: int = 50, *, workspaces: Sequence[str] = (), channel: str | None = None) -> list[Card]:
        """Cards of any status, newest first: of these workspaces, or of all if none is named, and of `channel` if that
        is given."""
        query = select(CardRow).order_by(desc(col(CardRow.created_at)), desc(col(CardRow.id))).limit(limit)
        if workspaces:
            query = query.where(col(CardRow.workspace).in_(workspaces))
        if channel is not None:
            query = query.where(CardRow.target_channel == channel)
        with self._database.read() as session:
            return [make_card_of_row(row) for row in session.exec(query)]

    def similar(self, card_id: str) -> tuple[int, int]:
        """How many similar cards the operator approved, and how many they decided (SPEC 2.5)."""
        with self._database.read() as session:
            row = load_card(session, card_id)
            return self._store.decisions.count_similar(session, row.kind, row.target_channel, row.workspace)

    # -- making cards of prompts

    def propose(
        self,
        text: str,
        *,
        workspace: str,
        channel: str | None = None,
        continues: str = "",
        reasoning: str = "",
        may_wait: bool = True,
    ) -> Card:
        """Make a card of a prompt. A prompt that names a flow becomes that flow. The title of a pending card of a flow
        returns that card.

        With `reasoning` it is a suggestion by an agent or a program: it has an estimated confidence, takes a place in
        the stack, and never runs by itself. Without, it is the operator's own prompt.

        `continues` is a finished session, without a `reasoning`. The card continues it in its workspace, with its
        conversation and its changes, and on its channel unless another is given (SPEC 9.4).

        Raises `Refusal`: `empty_prompt`, `long_prompt`, `secret_in_text`, `bad_arguments` (no workspace),
        `unknown_channel`, `bad_parameters`, `no_runner` (a learned flow of another workspace), `no_model` (none is set
        up for this text, and it may not wait for one), `unknown_session`, `still_running`; for a suggestion also
        `too_many_cards`, `autonomy_off`, `muted`, `already_pending`.
        """
        prompt = self.approvals.clean_prompt(text)
        if not (workspace.strip() or continues):
            raise Refusal("bad_arguments", "a prompt needs a repository", "name it with --workspace DIR")
        if not (reasoning or continues) and (titled := self._find_titled(prompt, workspace, channel)):
            return titled
        work = self._continue(continues, prompt, channel) if continues else self._assign(prompt, workspace, channel)
        row = self._make_row(work, reasoning, may_wait=may_wait)

        def add(tx: Transaction) -> Card:
            if reasoning:
                self._check_suggestion(tx, row)
            card = self._store.add(tx, row)
            if reasoning:
                self._store.make_room(tx, row)
            return card

        return self._database.write(add)

    def allow_once(self, card_id: str) -> None:
        """Allow one run of the work that the content filter blocked last for a card, and show that on it if it is
        pending. Raises `Refusal`: `nothing_blocked`, `cannot_be_allowed`."""
        self._store.safety.allow_once(card_id)
        with self._store.deciding:
            if any(card.id == card_id for card in self._store.pending()):
                verdicts = self.approvals.preview(card_id)

                def show(tx: Transaction, row: CardRow) -> None:
                    row.set_verdicts(verdicts)
                    row.note = ""

                self._store.change(card_id, show)

    def _make_row(self, work: _Work, reasoning: str, *, may_wait: bool) -> CardRow:
        """The row of a new card, with the verdicts of the rails; of a suggestion if there is a `reasoning`. Raises
        `Refusal` `no_model`.

        The operator's own prompt has no estimated confidence and a kind of its own, so that its approval gives no
        card the right to run by itself (SPEC 2.5). A suggestion is shown whatever its confidence."""
        store, launcher = self._store, self.approvals.launcher
        assignment, other_runner = launcher.choose(work.assignment)
        now, card_id, info = store.clock.now(), store.randomness.new_id("pred"), launcher.check(assignment)
        proposal = Proposal(
            kind=SUGGESTED_KIND if reasoning else OWN_PROMPT,
            workspace=assignment.workspace,
            prompt=assignment.prompt,
            reasoning=reasoning or work.reason,
            subject=compute_text_hash(assignment.prompt) if reasoning else card_id,
            facts={"card": card_id},
            flow=assignment.flow,
            evidence_at=now,
            source=Source.PREDICTOR_HOOK if reasoning else Source.OPERATOR,
        )
        situation, estimate = self._checks.describe_situation(assignment.workspace), None
        if reasoning:
            phase, local = self._twin.read_phase(), store.clock.local()
            estimate = self._twin.estimate(proposal, assignment, context=situation, phase=phase, local=local)
        row = make_row(
            card_id,
            proposal,
            assignment,
            info,
            now=now,
            expires_at=store.expiry(now),
            context=situation,
            estimate=estimate,
        )
        row.meaning = work.meaning
        if assignment.flow is None:
            row.note = self._advise_on_text(assignment, info, may_wait=may_wait)
        row.note = other_runner or row.note
        row.set_verdicts(self.approvals.preview_work(row, assignment, info))
        return row

    def _advise_on_text(self, assignment: Assignment, info: RunnerInfo, *, may_wait: bool) -> str:
        """The note of a card whose work is text: the flow that may be meant, and what lacks to run the text; "" for
        neither. Raises `Refusal` `no_model`."""
        flows = self.approvals.flows
        missing = find_missing_file(assignment.prompt, flows, assignment.workspace)
        similar = "" if missing else find_similar_flow(assignment.prompt, flows)
        question = f"Did you mean the flow `{similar}`? " if similar else ""
        if info.available:
            return question and f"{question}It needs no model"
        problem = f"This repository has no file with the path {missing}" if missing else ""
        other = "or name a flow, such as `run the tests`: `clawpy help flows` lists them"
        if not may_wait and not assignment.runner.startswith(ACP_PREFIX):
            message = problem or f"{question}No model or agent can run this text"
            raise Refusal("no_model", message, f"{info.reason}; {other}")
        return f"{problem and problem + '. '}{question}{capitalised(info.reason)}; {other}"

    def _find_titled(self, prompt: str, workspace: str, channel: str | None) -> Card | None:
        """The pending card of a flow in the workspace, and on the channel if one is given, whose title is the prompt.
        Cards of the operator's own prompts do not count."""
        for card in self.pending(channel=channel, include_snoozed=True):
            is_offered = card.assignment.flow and card.source is not Source.OPERATOR
            is_titled = _normalise_title(card.assignment.prompt) == _normalise_title(prompt)
            if is_offered and is_titled and card.workspace == workspace:
                return card
        return None

    def _assign(self, prompt: str, workspace: str, channel: str | None) -> _Work:
        """The work of a prompt that continues nothing."""
        channels, flows = self._store.settings.current.channels, self.approvals.flows
        named_flow = find_named_flow(prompt, flows, workspace)
        home_channel = get_kind(named_flow[0]).channel if named_flow else ""
        route = self._route("" if named_flow else prompt, channel, home_channel if home_channel in channels else "")
        if prompt in flows:
            prompt = prompt.replace("_", " ").capitalize()  # what a person reads; it names the same flow
        runner = channels[route.channel].runner
        assignment = Assignment(prompt, route.channel, workspace, runner, agent=route.agent)
        if named_flow:
            assignment = self.approvals.convert_to_flow(assignment, *named_flow)
        reason = f"{OWN_PROMPT_REASON}; to {route.agent}: {route.why}" if route.why else OWN_PROMPT_REASON
        return _Work(assignment, reason, route.meaning)

    def _continue(self, session_id: str, prompt: str, channel: str | None) -> _Work:
        """The work that continues a session. The runner stays the same; after a flow it is the runner of the channel.
        Raises `Refusal` `unknown_session`, `still_running`."""
        session = self.approvals.launcher.get(session_id)
        if not session.state.over:
            fix = f"send it a message: clawpy reply {session_id} TEXT"
            raise Refusal("still_running", f"{session_id} is {session.state}", fix)
        route = self._route(prompt, channel or session.channel)
        runner = self._store.settings.current.channels[route.channel].runner if session.flow else session.runner
        assignment = Assignment(
            prompt,
            route.channel,
            session.workspace,
            runner,
            parameters={"continues": session.id},
            agent=session.agent,
        )
        return _Work(assignment, f"continues “{session.prompt}”", route.meaning)

    def _route(self, text: str, channel: str | None, affinity: str = "") -> Route:
        """See `Router.route`."""
        with self._database.read() as session:
            triggered = load_last_trigger_times(session)
        return self._router.route(text, named=channel, affinity=affinity, triggered=triggered, routed={})

    def _check_suggestion(self, tx: Transaction, row: CardRow) -> None:
        """Raise `Refusal` if there is no place for a suggestion, or the operator does not want it."""
        if self._store.is_off(row.workspace):
            message = "autonomy is off in this workspace, so it gets no cards"
            raise Refusal("autonomy_off", message, "the operator can set it to `cards`")
        if sum(other.kind == SUGGESTED_KIND for other in load_pending(tx.session)) >= MAX_SUGGESTED:
            message = f"{MAX_SUGGESTED} cards from agents and programs are already waiting"
            raise Refusal("too_many_cards", message, "the operator must decide them first")
        if read_mute_index(tx.session, tx.now).covers(*row.about, row.tier):
            message = "the operator dismissed this, or mutes every suggestion here"
            raise Refusal("muted", message, "clawpy muted lists it")
        if other := find_pending_id(tx.session, row):
            message = f"card {other} already proposes this"
            raise Refusal("already_pending", message, "the operator must decide it first")

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
        """Approve a card and start it.

        `edit` is a new prompt, or new parameters of a flow as text; `parameters` are new parameters as data. A prompt
        that names a flow turns the card into that flow. A sentence in place of parameters turns a flow into work for an
        agent or a model: the card then shows the new runner, and a second call approves it. `without_sandbox`: see
        `ApprovalRequest`.

        Raises `Refusal`: `unknown_card`, `already_decided`, `no_runner`, `bad_parameters`, `empty_prompt`,
        `secret_in_text`, `no_sandbox` (none works here, and the operator did not confirm that), `blocked` (by a rail),
        `needs_acknowledgement` (a rail asks the operator, or the runner changed; the card now shows it), or why the
        session could not start. After a refusal the card is as before, or pending with the reason in its note.
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
        return self._add_switch_note(
            self._store.change(card_id, lambda tx, row: self._store.dismiss(tx, row, by, reason))
        )

    def explain(self, card_id: str, reason: DismissReason) -> Card:
        """Store the reason of a dismissal; the last one counts. The returned card has a note as after `dismiss`.

        Raises `Refusal` `unknown_card`, `not_dismissed`."""
        return self._add_switch_note(self._store.change(card_id, lambda tx, row: self._store.explain(tx, row, reason)))

    def _add_switch_note(self, card: Card) -> Card:
        """The dismissed card, with a note if the dismissal switched its kind off."""
        for mute in self.muted():
            if not mute.subject and mute.kind == card.kind and mute.workspace in (card.workspace, ""):
                return replace(card, note=describe_switch_off(mute))
        return card

    def muted(self) -> list[Mute]:
        """The mutes that follow from dismissals (SPEC 2.9), newest first."""
        with self._database.read() as session:
            return read_mutes(session, self._store.clock.now())

    def unmute(self, mute_id: str) -> Mute:
        """End a mute from the next check on. Raises `Refusal` `unknown_mute`."""

        def end(tx: Transaction) -> Mute:
            muted = read_mutes(tx.session, tx.now)
            mute = next((mute for mute in muted if mute.id == mute_id), None)
            if mute is None:
                raise Refusal("unknown_mute", f"nothing is muted as {mute_id}", "clawpy muted lists what is")
            end_mute(tx, mute)
            tx.record(
                MuteLifted(subject=mute.id, workspace=mute.workspace, card_kind=mute.kind, title=kind_title(mute.kind))
            )
            return mute

        return self._database.write(end)

    def snooze(self, card_id: str, *, span: timedelta = DEFAULT_SNOOZE) -> Card:
        """Hide a card for `span`, in (0, 30 days]; its 24 h begin anew when it wakes. Gives no signal.

        Raises `Refusal` `unknown_card`, `already_decided`, `bad_span`.
        """
        if not timedelta(0) < span <= MAX_SNOOZE:
            raise Refusal("bad_span", f"cannot snooze for {span}", "give a time of up to 30 days, for example --for 2h")
        return self._store.change(card_id, lambda tx, row: self._store.snooze(tx, row, span))

    def undo(self, card_id: str) -> tuple[Card, int]:
        """Undo the last decision on a card (SPEC 2.7). Returns the card, and the number of its landings that are left.

        A snooze ends. A dismissed card, or an approved one whose session has not started, is pending again. A running
        session is stopped; the last landing is reversed, and the note says how many are left. For a check that ran by
        itself only the signal changes (SPEC 8.1).

        Raises `Refusal` `unknown_card`, `nothing_to_undo`, or why a landing cannot be reversed.
        """
        store, launcher = self._store, self.approvals.launcher
        with store.deciding:
            row = store.load(card_id)
            view = launcher.of_card(card_id) if row.status == Status.APPROVED else None
            if view is not None and not view.state.over:
                row = self._database.write(lambda tx: _request_undo(tx, card_id))
                if row.status == Status.APPROVED:
                    launcher.stop(view.id, UNDONE)
                    return self.get(card_id), 0
            if row.status != Status.EXECUTED:
                return store.change(card_id, store.bring_back), 0
            if not (row.ran_by_itself and row.check_only) and (landings_left := self._reverse(row)):
                return replace(self.get(card_id), note=f"1 landing undone, {landings_left} left"), landings_left
            undone = DecisionSignal.UNDONE
            return store.change(card_id, lambda tx, row: store.retract_approval(tx, row, undone, tx.now)), 0

    def _reverse(self, row: CardRow) -> int:
        """Undo the last landing of an executed card's session. Returns the number of landings left. Raises `Refusal` as
        `undo`."""
        landings_left = None if row.session_id is None else self._reverse_landing(row.session_id)
        if landings_left is not None:
            return landings_left
        title = f"“{textwrap.shorten(row.prompt, MAX_TITLE_CHARS, placeholder='…')}”"
        if row.check_only:
            raise Refusal("nothing_to_undo", f"{title} was read-only and changed nothing", "there is nothing to undo")
        session = self.approvals.launcher.of_card(row.id)
        has_waiting_changes = session is not None and session.change_set_id is not None
        command = (
            f"discard {row.id} --yes` discards what waits"
            if has_waiting_changes
            else f"work {row.id}` shows what it did"
        )
        raise Refusal("nothing_to_undo", f"{title} has no landed changes", f"`clawpy {command}")


def _request_undo(tx: Transaction, card_id: str) -> CardRow:
    """Mark a card as undone, unless its session ended meanwhile; returns its row."""
    row = load_card(tx.session, card_id)
    if row.status == Status.APPROVED:
        row.undo_requested_at = tx.now
    return row


def _normalise_title(text: str) -> str:
    """A title without what a person may write in another way: the case of its first letter, backquotes, white space and
    a final full stop. Names of files stay as they are."""
    title = " ".join(text.replace("`", "").split()).removesuffix(".")
    return title[:1].lower() + title[1:]
