"""The service `engine.cards`: makes cards of prompts, reads cards, and carries out the operator's decisions on them
(SPEC 2.7, 2.9, 9.4, 10.1, 10.4).

`Approvals` asks the rails and starts cards, `CardStore` carries out each change of a card. What the engine calls by
itself is on these two. A card that the engine proposes by itself comes from `engine.prediction.checks`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from engine.config import ACP_PREFIX
from engine.config.settings import Settings
from engine.execution.runners.flows import find_missing_file, find_named_flow, find_similar_flow, gives_change_set
from engine.execution.sessions import Sessions
from engine.model import (
    UNDONE,
    Assignment,
    Card,
    DecidedBy,
    DecisionSignal,
    DismissReason,
    Mute,
    Proposal,
    RailVerdict,
    Refusal,
    RunnerInfo,
    Source,
    Status,
)
from engine.prediction import OWN_PROMPT, SUGGESTED_KIND, get_kind
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
from engine.prediction.routing import Route, Router
from engine.prediction.selection import MAX_COOL_DOWN
from engine.prediction.stack import MAX_SUGGESTED, find_ids_without_place, sort_cards
from engine.prediction.twin import EmbeddedTwin
from engine.storage import find_ids_with_prefix, load, read_all
from engine.storage.database import Transaction
from engine.text import compute_text_hash
from engine.wording import capitalised

DEFAULT_SNOOZE = timedelta(hours=2)
"""The length of a snooze if none is given."""

MAX_SNOOZE = timedelta(days=30)
"""Maximum length of a snooze."""

MAX_TITLE_CHARS = 60
"""Maximum length of a card's prompt in a refusal."""

OWN_PROMPT_REASON = "your own prompt"
"""The reasoning of a card of the operator's own prompt."""


class _Work(NamedTuple):
    """The work of a prompt."""

    assignment: Assignment
    origin: str
    """Where the work comes from, in words: the reasoning of a card of the operator's own prompt."""
    embedding: bytes
    """See `Route.embedding`."""


_WHERE_UNDONE = f"""
    WHERE status = '{Status.EXECUTED}' AND fingerprint = :fingerprint
    AND undo_requested_at IS NOT NULL AND closed_at >= :since
    LIMIT 1
"""
"""Selects a card whose work the operator undid."""


class Cards:
    """`engine.cards`. Blocking calls of milliseconds, from any thread."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        launcher: Sessions,
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
        self._clock = store.clock
        self._settings = store.settings
        self._approvals = approvals
        self._launcher = launcher
        self._checks = checks
        self._router = router
        self._twin = twin
        self._reverse_landing = reverse

    # -- reading

    def get(self, card_id: str) -> Card:
        """One card. Raises `Refusal` `unknown_card`."""
        return self._store.get(card_id)

    def list_pending(self, *, channel: str | None = None, include_snoozed: bool = False) -> list[Card]:
        """The stack from the top (SPEC 2.11). A woken card is hidden until there is a place for it."""
        now = self._clock.now()
        cards = [card for card in self._store.read_pending() if not card.is_expired(now)]
        hidden = find_ids_without_place(cards, now, self._settings.current)
        return [
            card
            for card in sort_cards(cards, now)
            if (include_snoozed or not (card.is_snoozed(now) or card.id in hidden))
            and channel in (None, card.assignment.channel)
        ]

    def list_recent(self, limit: int = 50, *, workspaces: Sequence[str] = (), channel: str | None = None) -> list[Card]:
        """Cards of any status, newest first: of these workspaces, or of all if none is named, and of `channel` if that
        is given."""
        clauses = f"""
            WHERE (:workspaces = '[]' OR workspace IN (SELECT value FROM json_each(:workspaces)))
            {"" if channel is None else "AND target_channel = :channel"} ORDER BY created_at DESC, id DESC LIMIT :limit
        """
        values = {"workspaces": tuple(workspaces), "channel": channel, "limit": limit}
        with self._database.read() as session:
            return [make_card_of_row(row) for row in read_all(session, CardRow, clauses, values)]

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of cards of any age with this prefix; see `engine.storage`."""
        with self._database.read() as session:
            return find_ids_with_prefix(session, CardRow, prefix)

    def find_correction(self, card_id: str) -> tuple[str, str] | None:
        """See `CardRow.correction`. Raises `Refusal` `unknown_card`."""
        return self._store.load(card_id).correction

    def count_similar(self, card_id: str) -> tuple[int, int]:
        """How many similar cards the operator approved, and how many they decided (SPEC 2.5)."""
        with self._database.read() as session:
            row = load_card(session, card_id)
            return self._store.decisions.count_similar(session, row.kind, row.target_channel, row.workspace)

    def preview_rails(self, card_id: str) -> tuple[RailVerdict, ...]:
        """The verdicts of the rails if the operator approved a card now; nothing is decided or logged. Raises `Refusal`
        `unknown_card`."""
        row = self._store.load(card_id)
        return self._approvals.preview_work(row, row.assignment, self._launcher.check(row.assignment))

    def describe_sandbox(self, card_id: str) -> str:
        """The sandbox that would hold the work of a card, with the hosts that it may reach; "" while nothing can do
        the work. Raises `Refusal` `unknown_card`."""
        assignment = self._store.load(card_id).assignment
        return self._launcher.check(assignment).sandbox  # the first check tries the sandboxes, which takes a while

    # -- what the operator has seen

    def mark_shown(self, card_ids: Iterable[str]) -> None:
        """Mark cards as shown to the operator; unknown and decided ones are ignored."""
        ids = set(card_ids)

        def mark(tx: Transaction) -> None:
            for row in load_pending(tx.session):
                if row.id in ids and row.shown_at is None:
                    row.shown_at = tx.now

        if any(card.id in ids and card.shown_at is None for card in self._store.read_pending()):
            self._database.write(mark)

    def mark_reviewed(self, card_id: str) -> None:
        """Mark the result of a card that ran by itself as reviewed, so that keeping it counts (SPEC 8.1). Other cards
        are ignored."""

        def mark(tx: Transaction) -> None:
            row = load(tx.session, CardRow, card_id)
            if row is not None and row.ran_by_itself:
                row.shown_at = tx.now

        self._database.write(mark)

    # -- making cards of prompts

    def propose(
        self,
        text: str,
        *,
        workspace: str,
        channel: str | None = None,
        continues: str = "",
        may_wait: bool = True,
    ) -> Card:
        """Make a card of the operator's own prompt. A prompt that names a flow becomes that flow. The title of a
        pending card of a flow returns that card.

        `continues` is a finished session. The card continues it in its workspace, with its conversation and its
        changes, and on its channel unless another is given (SPEC 9.4).

        The card has no estimated confidence and a kind of its own, so that its approval gives no card the right to run
        by itself (SPEC 2.5).

        Raises `Refusal`: `empty_prompt`, `long_prompt`, `secret_in_text`, `bad_arguments` (no workspace),
        `unknown_channel`, `bad_parameters`, `no_runner` (a learned flow of another workspace), `no_model` (none is set
        up for this text, and it may not wait for one), `unknown_session`, `still_running`.
        """
        prompt = self._approvals.clean_prompt(text)
        if continues:
            work = self._continue(continues, prompt, channel)
        else:
            _refuse_no_workspace(workspace)
            if titled := self._find_titled(prompt, workspace, channel):
                return titled
            work = self._assign(prompt, workspace, channel)
        row = self._make_row(work, OWN_PROMPT, reasoning=work.origin, source=Source.OPERATOR, may_wait=may_wait)
        return self._database.write(lambda tx: self._store.add(tx, row))

    def suggest(self, text: str, *, workspace: str, reasoning: str, channel: str | None = None) -> Card:
        """Make a card of the prompt of an agent or a program. `reasoning` says who suggests it, and why. The card has
        an estimated confidence, takes a place in the stack whatever its confidence, and never runs by itself.

        Raises `Refusal` as `propose`, without those on sessions and models, and: `too_many_cards`, `autonomy_off`,
        `muted`, `already_pending`.
        """
        prompt = self._approvals.clean_prompt(text)
        _refuse_no_workspace(workspace)
        work = self._assign(prompt, workspace, channel)
        subject = compute_text_hash(work.assignment.prompt)
        row = self._make_row(work, SUGGESTED_KIND, reasoning=reasoning, source=Source.PREDICTOR_HOOK, subject=subject)

        def add(tx: Transaction) -> Card:
            self._refuse_unwanted(tx, row)
            card = self._store.add(tx, row)
            self._store.make_room(tx, row)
            return card

        return self._database.write(add)

    def _make_row(
        self,
        work: _Work,
        kind: str,
        *,
        reasoning: str,
        source: Source,
        subject: str = "",
        may_wait: bool = True,
    ) -> CardRow:
        """The row of a new card for the runner that would do the work now, with the verdicts of the rails. Without a
        `subject` it is about itself. Only what others suggest has an estimated confidence. Raises `Refusal`
        `no_model`."""
        card_id = self._store.randomness.new_id("pred")
        proposal = Proposal(
            kind=kind,
            workspace=work.assignment.workspace,
            prompt=work.assignment.prompt,
            reasoning=reasoning,
            subject=subject or card_id,
            facts={"card": card_id},
            flow=work.assignment.flow,
            evidence_at=self._clock.now(),
            source=source,
        )
        situation, estimate = self._checks.describe_situation(proposal.workspace), None
        if source is not Source.OPERATOR:
            phase, local = self._twin.read_phase(), self._clock.local()
            estimate = self._twin.estimate(proposal, work.assignment, context=situation, phase=phase, local=local)
        assignment, other_runner = self._launcher.choose(work.assignment)
        now, info = self._clock.now(), self._launcher.check(assignment)
        expires_at = self._store.compute_expiry(now)
        row = make_row(
            card_id, proposal, assignment, info, now=now, expires_at=expires_at, context=situation, estimate=estimate
        )
        row.embedding = work.embedding
        if assignment.flow is None:
            row.note = self._advise_on_text(assignment, info, may_wait=may_wait)
        row.note = other_runner or row.note
        row.set_verdicts(self._approvals.preview_work(row, assignment, info))
        return row

    def _advise_on_text(self, assignment: Assignment, info: RunnerInfo, *, may_wait: bool) -> str:
        """The note of a card whose work is text: the flow that may be meant, and what lacks to run the text; "" for
        neither. Raises `Refusal` `no_model`."""
        flows = self._approvals.flows
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
        for card in self.list_pending(channel=channel, include_snoozed=True):
            is_offered = card.assignment.flow and card.source is not Source.OPERATOR
            is_titled = _normalise_title(card.assignment.prompt) == _normalise_title(prompt)
            if is_offered and is_titled and card.workspace == workspace:
                return card
        return None

    def _assign(self, prompt: str, workspace: str, channel: str | None) -> _Work:
        """The work of a prompt that continues nothing."""
        settings, flows = self._settings.current, self._approvals.flows
        named_flow = find_named_flow(prompt, flows, workspace)
        home_channel = get_kind(named_flow[0]).channel if named_flow else ""
        affinity = home_channel if home_channel in settings.channels else ""
        route = self._route("" if named_flow else prompt, settings, channel, affinity)
        if prompt in flows:
            prompt = prompt.replace("_", " ").capitalize()  # what a person reads; it names the same flow
        runner = settings.channels[route.channel].runner
        assignment = Assignment(prompt, route.channel, workspace, runner, agent=route.agent)
        if named_flow:
            assignment = self._approvals.convert_to_flow(assignment, *named_flow)
        reason = f"{OWN_PROMPT_REASON}; to {route.agent}: {route.why}" if route.why else OWN_PROMPT_REASON
        return _Work(assignment, reason, route.embedding)

    def _continue(self, session_id: str, prompt: str, channel: str | None) -> _Work:
        """The work that continues a session. The runner stays the same; after a flow it is the runner of the channel.
        Raises `Refusal` `unknown_session`, `still_running`."""
        session = self._launcher.get(session_id)
        if not session.state.is_over:
            fix = f"send it a message: clawpy reply {session_id} TEXT"
            raise Refusal("still_running", f"{session_id} is {session.state}", fix)
        settings = self._settings.current
        route = self._route(prompt, settings, channel or session.channel)
        runner = settings.channels[route.channel].runner if session.flow else session.runner
        assignment = Assignment(
            prompt,
            route.channel,
            session.workspace,
            runner,
            parameters={"continues": session.id},
            agent=session.agent,
        )
        return _Work(assignment, f"continues “{session.prompt}”", route.embedding)

    def _route(self, text: str, settings: Settings, channel: str | None, affinity: str = "") -> Route:
        """See `Router.route`."""
        with self._database.read() as session:
            triggered = load_last_trigger_times(session)
        return self._router.route(text, settings, named=channel, affinity=affinity, triggered=triggered, routed={})

    def _refuse_unwanted(self, tx: Transaction, row: CardRow) -> None:
        """Refuse a suggestion that has no place, or that the operator does not want."""
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
        return self._approvals.approve(card_id, edit=edit, parameters=parameters, request=request)

    def trigger(self, card_id: str, *, force: bool = False, by: str) -> Card:
        """Run a card for a program (SPEC 3.1). All rails are asked as for cards that run by themselves; `force` skips
        only the rate (SPEC 3.2). `by` is the start of the chain (SPEC 3.3): the program, or the channel that it works
        for. Raises `Refusal` as `approve`; the card is then pending."""
        return self._approvals.approve(card_id, request=ApprovalRequest(DecidedBy.AUTONOMY, by, force))

    def allow_once(self, card_id: str) -> None:
        """Allow one run of the work that the content filter blocked last for a card, and show that on it if it is
        pending. Raises `Refusal`: `nothing_blocked`, `cannot_be_allowed`."""
        self._store.safety.allow_once(card_id)
        with self._store.deciding:
            if any(card.id == card_id for card in self._store.read_pending()):
                verdicts = self.preview_rails(card_id)

                def show(tx: Transaction, row: CardRow) -> None:
                    row.set_verdicts(verdicts)
                    row.note = ""

                self._store.change(card_id, show)

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
        for mute in self.list_mutes():
            if not mute.subject and mute.kind == card.kind and mute.workspace in (card.workspace, ""):
                return replace(card, note=describe_switch_off(mute))
        return card

    def list_mutes(self) -> list[Mute]:
        """The mutes that follow from dismissals (SPEC 2.9), newest first."""
        with self._database.read() as session:
            return read_mutes(session, self._clock.now())

    def unmute(self, mute_id: str) -> Mute:
        """End a mute from the next check on. Raises `Refusal` `unknown_mute`."""
        return self._database.write(lambda tx: end_mute(tx, mute_id))

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
        session is stopped, and its work is a new pending card; the last landing is reversed, and the note says how many
        are left. For a check that ran by itself only the signal changes (SPEC 8.1).

        Raises `Refusal` `unknown_card`, `nothing_to_undo`, or why a landing cannot be reversed.
        """
        store = self._store
        with store.deciding:
            row = store.load(card_id)
            session = self._launcher.find_of_card(card_id) if row.status == Status.APPROVED else None
            if session is not None and not session.state.is_over:
                row = self._database.write(lambda tx: _request_undo(tx, card_id))
                if row.status == Status.APPROVED:  # otherwise the session ended meanwhile
                    self._launcher.stop(session.id, UNDONE)
                    return self.get(card_id), 0
            if row.status != Status.EXECUTED:  # no session has begun, so there is only a decision or a snooze
                return store.change(card_id, store.bring_back), 0
            was_check_by_itself = row.ran_by_itself and row.check_only
            landings_left = 0 if was_check_by_itself else self._reverse(row)
            if landings_left:  # the approval still counts, because a part of what it brought is still landed
                return replace(self.get(card_id), note=f"1 landing undone, {landings_left} left"), landings_left
            undone = DecisionSignal.UNDONE
            return store.change(card_id, lambda tx, row: store.retract_approval(tx, row, undone, tx.now)), 0

    def was_undone(self, card: Card) -> bool:
        """Whether the operator undid work with the evidence of `card` lately: within `MAX_COOL_DOWN`."""
        values = {"fingerprint": card.fingerprint, "since": self._clock.now() - MAX_COOL_DOWN}
        with self._database.read() as session:
            return bool(read_all(session, CardRow, _WHERE_UNDONE, values))

    def _reverse(self, row: CardRow) -> int:
        """Undo the last landing of an executed card's session. Returns the number of landings left. Raises `Refusal` as
        `undo`."""
        landings_left = None if row.session_id is None else self._reverse_landing(row.session_id)
        if landings_left is not None:
            return landings_left
        title = f"“{textwrap.shorten(row.prompt, MAX_TITLE_CHARS, placeholder='…')}”"
        if not (row.check_only or gives_change_set(row.flow)):
            raise Refusal("nothing_to_undo", f"{title} cannot be undone by this", f"instead: {row.undo_note}")
        fix = f"`clawpy work {row.id}` shows what it did"
        raise Refusal("nothing_to_undo", f"{title} has no landed changes", fix)


def _refuse_no_workspace(workspace: str) -> None:
    if not workspace.strip():
        raise Refusal("bad_arguments", "a prompt needs a repository", "name it with --workspace DIR")


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
