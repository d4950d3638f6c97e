"""Selects after each check which proposals become cards, and which pending cards stay (SPEC 2.4, 2.5, 2.9).

Proposals are selected by confidence, places and rails. A card whose evidence is gone must be withdrawn, one whose
evidence stays gives the reasons of the last check, and work that the operator did without a card is recognised. `cycle`
asks this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

from engine.config.sections import FLOW
from engine.frozen import frozen
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    Assignment,
    Band,
    Card,
    Phase,
    Proposal,
    RailVerdict,
    Randomness,
    Refusal,
    Source,
    Tier,
    sanitise,
)
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import CardRow, load_card, load_last_trigger_times, make_card_of_row, make_row
from engine.prediction.card_rules import (
    MAX_COOL_DOWN,
    EarlierCard,
    Room,
    adjust_tier,
    find_exclusive_group,
    is_cooling_down,
    rank_cards,
)
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import MuteIndex, read_mutes
from engine.prediction.kinds import is_ordered
from engine.prediction.routing import Router
from engine.prediction.twin import EmbeddedTwin, find_band
from engine.storage.rows import UtcDateTime, ask, select_each

BOUND_TO_EVIDENCE = (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
"""Sources of cards that are withdrawn when their evidence is gone."""

EXPLORED_IN = 10
"""One cycle in this many shows a card of low confidence, to learn whether the operator wants it."""

EXPLORED_BELOW = 3
"""A kind with this many recent decisions, in all workspaces together, is not shown to learn."""

EXPLORED_AFTER = timedelta(days=30)
"""Decisions older than this do not count for `EXPLORED_BELOW`. What was dismissed last month may be welcome now, and
without a card nobody would find out."""

_SAME_EVIDENCE = sqlalchemy.select(
    col(CardRow.fingerprint),
    col(CardRow.kind),
    col(CardRow.status),
    col(CardRow.outcome),
    col(CardRow.closed_at),
    col(CardRow.shown_at),
    col(CardRow.undo_requested_at),
).where(
    col(CardRow.fingerprint).in_(select_each("fingerprints")),
    or_(col(CardRow.closed_at).is_(None), col(CardRow.closed_at) >= bindparam("since", type_=UtcDateTime())),
)
"""Selects the fields of an `EarlierCard`, of the cards that may cool down."""


@frozen
class Findings:
    """What a round found in one workspace."""

    context: WorkspaceContext
    proposals: tuple[Proposal, ...]
    complete: bool
    """False if something could not be read. Then no card is withdrawn."""
    unchecked: frozenset[str] = frozenset()
    """The kinds of cards whose check failed. Their cards are not withdrawn."""
    can_replace: bool = True
    """False if the round makes one next step at most. Then no card makes way for another about the same evidence."""

    def find_proposal_for(self, card: Card) -> Proposal | None:
        """The proposal that has the evidence and the subject of a pending card."""
        evidence = (card.fingerprint, card.about)
        return next((new for new in self.proposals if (new.fingerprint, new.about) == evidence), None)

    def has_lost(self, session: Session, card: Card, now: datetime) -> bool:
        """Whether a pending card must go: its evidence is gone, or asks for other work by now.

        What a card would run is never replaced under its id, because an approval must run what the operator read.
        Another card takes its place. An edited card runs what the operator wrote, so it stays. A snoozed card stays
        while its subject exists, since a new card would show it before its time.
        """
        if not self.complete or card.source not in BOUND_TO_EVIDENCE or card.kind in self.unchecked:
            return False
        proposal = self.find_proposal_for(card)
        if proposal is not None and (
            not self.can_replace
            or _is_same_work(proposal, card.assignment)
            or load_card(session, card.id).original_prompt
        ):
            return False
        return not (card.snoozed(now) and any(proposal.about == card.about for proposal in self.proposals))


def _is_same_work(proposal: Proposal, assignment: Assignment) -> bool:
    """Whether a card for the proposal would run this."""
    parameters = json.loads(json.dumps(dict(proposal.parameters)))  # as they are stored
    work = (sanitise(proposal.prompt), proposal.flow, parameters)
    return work == (assignment.prompt, assignment.flow, dict(assignment.parameters))


def find_leaving_cards(
    session: Session, cards: Sequence[Card], findings: Mapping[str, Findings], now: datetime
) -> set[str]:
    """The ids of the pending cards that must go; see `Findings.has_lost`. `findings` are those of each workspace."""
    return {
        card.id
        for card in cards
        if card.workspace in findings and findings[card.workspace].has_lost(session, card, now)
    }


def renew_reasons(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings]) -> None:
    """Give the pending cards the reasons that their proposals have now, unless these are the reasons for other work.

    Their confidence stays as it was stated, because it is compared with the decision (SPEC 8.6). How relevant a signal
    is changes with every minute, and is no reason to write to the disk.
    """
    for card in cards:
        proposal = findings[card.workspace].find_proposal_for(card) if card.workspace in findings else None
        if proposal is None or _collect_reasons(card) == _collect_reasons(proposal):
            continue
        row = load_card(session, card.id)
        if row.original_prompt or _is_same_work(proposal, card.assignment):
            row.reasoning, row.evidence_at = sanitise(proposal.reasoning), proposal.evidence_at
            row.signals = proposal.signals


def _collect_reasons(reasoned: Card | Proposal) -> tuple[str, datetime | None, list[tuple[str, ...]]]:
    """The reasons that a card gives, or would give."""
    return (
        sanitise(reasoned.reasoning),
        reasoned.evidence_at,
        [signal.evidence for signal in reasoned.signals if signal.relevance],
    )


def is_done_by_operator(card: CardRow, context: WorkspaceContext, own_session_ids: Collection[str] = ()) -> bool:
    """Whether the workspace shows by now that the operator did the work of `card` (SPEC 8.1): the tests ran by a prompt
    of the operator (`own_session_ids`), the branch was merged, or one of the branches is gone.

    Work of another card does not count. Neither does a change that only removes the evidence: a commit of a file is no
    check of HEAD, and a test that passes again was not bisected."""
    git = context.git
    if git is None:
        return False
    match card.kind:
        case "run_tests":
            return any(run.ran_at > card.created_at and run.session_id in own_session_ids for run in context.runs)
        case "rehearse_merge":
            on_target = git.branch == card.parameters.get("target") and git.behind_base == 0
            return on_target and any(commit.at > card.created_at for commit in git.recent[:1])
        case "report_branches":
            names = {branch.name for branch in git.branches}
            return any(name not in names for name, _ in card.facts.get("branches", ()))
    return False


@frozen
class _Cycle:
    """The state that all proposals of one cycle share. `decided`: by workspace and kind, how many cards the operator
    approved, and how many were decided on; `routed`: how many proposals went to each channel so far."""

    now: datetime
    phase: Phase
    triggered: Mapping[str, datetime]
    decided: Mapping[tuple[str, str], tuple[int, int]]
    routed: Counter[str] = field(default_factory=Counter)

    @property
    def is_learning(self) -> bool:
        """Whether the Twin has begun (SPEC 2.6)."""
        return self.phase.number > 0


def select_rows(
    rows: Sequence[CardRow], decisions: Mapping[str, int], *, learning: bool, randomness: Randomness
) -> list[CardRow]:
    """The cards that may be shown (SPEC 2.5). `decisions` is how many cards of each kind were decided lately;
    `learning` says that it is phase 1 or later.

    In phase 0 all may be shown. Later, cards below the lowest band are left out. Exceptions are cards of tier 1, cards
    that the operator ordered, and next steps. Besides, one cycle in `EXPLORED_IN` shows a card of a kind with few
    recent decisions, and the card says so."""
    if not learning:
        return list(rows)
    selected = [row for row in rows if _is_certain(row) or find_band(row.confidence) is not Band.DISCARDED]
    unknown = [row for row in rows if row not in selected and decisions.get(row.kind, 0) < EXPLORED_BELOW]
    if unknown and randomness.uniform() * EXPLORED_IN < 1:
        kind = randomness.pick(dict.fromkeys(sorted({row.kind for row in unknown}), 1.0))
        drawn = max((row for row in unknown if row.kind == kind), key=lambda row: row.confidence)
        why = f"shown to learn whether you want it, as in one of {EXPLORED_IN} rounds"
        assert drawn.parts is not None, "what a cycle found is estimated"
        drawn.parts = replace(drawn.parts, words=(*drawn.parts.words, why))
        selected.append(drawn)
    return selected


def _is_certain(row: CardRow) -> bool:
    """Whether a card is shown at any confidence."""
    return row.tier == Tier.AT_RISK or is_ordered(row.kind) or row.source == Source.FOLLOW_UP


def find_content_block(row: CardRow) -> RailVerdict | None:
    """The verdict of the content filter, if that blocks the card."""
    return next((verdict for verdict in row.verdicts if verdict.rail == "content" and verdict.blocks), None)


@frozen
class Selection:
    """The proposals that may become cards."""

    rows: Sequence[CardRow] = ()
    """By rank, each with the verdicts of the rails. A row that the content filter blocks is among them."""
    is_full: bool = False
    """Whether a row found no place in the stack."""


class CardSelector:
    """Makes rows of proposals, and asks the rails about those that get a place."""

    def __init__(
        self, store: CardStore, approvals: Approvals, router: Router, twin: EmbeddedTwin, randomness: Randomness
    ) -> None:
        self._store = store
        self._approvals = approvals
        self._router = router
        self._twin = twin
        self._randomness = randomness

    def find_unavailable(
        self,
        session: Session,
        candidates: Sequence[Proposal] | Sequence[CardRow],
        now: datetime,
        pending_cards: Sequence[Card],
    ) -> set[str]:
        """The fingerprints of the candidates that cannot become cards now (SPEC 2.9). Their subject or kind is muted,
        one of `pending_cards` is about the subject, or work on the same evidence is running or cools down."""
        mutes = MuteIndex(read_mutes(session, now))
        pending = {card.about for card in pending_cards}
        fingerprints = {candidate.fingerprint for candidate in candidates}
        values = {"fingerprints": json.dumps(sorted(fingerprints)), "since": now - MAX_COOL_DOWN}
        earlier_cards = [EarlierCard(*row) for row in ask(session, _SAME_EVIDENCE, values)]
        cooling_down = {card.fingerprint for card in earlier_cards if is_cooling_down(card, now)}
        return cooling_down | {
            candidate.fingerprint
            for candidate in candidates
            if candidate.about in pending or mutes.covers(*candidate.about, tier=int(candidate.tier))
        }

    def select_muted(self, session: Session, proposals: Sequence[Proposal], now: datetime) -> list[Proposal]:
        """The proposals whose subject or kind is muted."""
        mutes = MuteIndex(read_mutes(session, now)) if proposals else MuteIndex(())
        return [proposal for proposal in proposals if mutes.covers(*proposal.about, tier=int(proposal.tier))]

    def select(
        self,
        session: Session,
        proposals: Sequence[Proposal],
        contexts: Mapping[str, WorkspaceContext],
        errors: list[str],
        room: Room,
    ) -> Selection:
        """The proposals that may become cards and have a place in `room`. `contexts` are the contexts of the
        workspaces. Errors are added to `errors`."""
        if not proposals:
            return Selection()
        now, decisions = self._store.clock.now(), self._store.decisions
        cycle = _Cycle(
            now, self._twin.phase(session), load_last_trigger_times(session), _count_decisions(decisions, session)
        )
        drafts = []
        for proposal in proposals:
            try:
                drafts.append(self._make_row(proposal, cycle, contexts[proposal.workspace].text))
            except Refusal as refusal:
                errors.append(f"{proposal.workspace}: {proposal.kind}: {refusal.message}")
        recent = decisions.count_by_kind(session, since=now - EXPLORED_AFTER)
        rows = {}
        for row in select_rows(drafts, recent, learning=cycle.is_learning, randomness=self._randomness):
            row.id = self._randomness.new_id("pred")
            rows[row.id] = row
        selected, is_full = [], False
        for card in rank_cards(map(make_card_of_row, rows.values()), now):
            if not room.take(card).has_place:
                is_full = is_full or not find_exclusive_group(card)
                continue
            row, info = rows[card.id], self._approvals.launcher.check(card.assignment)
            row.set_verdicts(self._approvals.preview_work(session, row, card.assignment, info))
            if find_content_block(row):
                room.leave(card)
            selected.append(row)
        return Selection(selected, is_full)

    def _make_row(self, proposal: Proposal, cycle: _Cycle, context: str) -> CardRow:
        """The row of one proposal, without an id and not stored yet. `context` is the situation in words. Raises
        `Refusal` `unknown_channel`."""
        store, launcher = self._store, self._approvals.launcher
        assignment, other_runner = launcher.choose(self._assign(proposal, cycle))
        estimate = self._twin.estimate(
            proposal, assignment, context=context, phase=cycle.phase, now=cycle.now, local=store.clock.local()
        )
        if cycle.is_learning and proposal.source is Source.TEMPLATE:
            proposal = replace(proposal, source=Source.EMBEDDED_TWIN)
        tier, why = adjust_tier(proposal.tier, *cycle.decided.get((proposal.workspace, proposal.kind), (0, 0)))
        everywhere = sum(number for (_, kind), (_, number) in cycle.decided.items() if kind == proposal.kind)
        words = (*estimate.parts.words, why) if why else estimate.parts.words
        row = make_row(
            "",
            proposal,
            assignment,
            launcher.check(assignment),
            now=cycle.now,
            expires_at=store.expiry(cycle.now),
            context=context,
            estimate=replace(estimate, parts=replace(estimate.parts, words=words, decided=everywhere)),
        )
        row.tier, row.note = tier, other_runner or why or row.note
        return row

    def _assign(self, proposal: Proposal, cycle: _Cycle) -> Assignment:
        """The work of a proposal, on the channel and for the agent that the router chooses."""
        channels = self._store.settings.current.channels
        named = self._twin.find_usual_channel(proposal.kind, list(channels)) if cycle.is_learning else None
        if proposal.confidence is not None and proposal.channel:
            named = proposal.channel  # a source that states a confidence names the channel, too
        route = self._router.route(
            "" if proposal.flow else proposal.prompt,
            named=named,
            affinity=proposal.channel,
            triggered=cycle.triggered,
            routed=cycle.routed,
        )
        cycle.routed[route.channel] += 1
        return Assignment(
            prompt=sanitise(proposal.prompt),
            channel=route.channel,
            workspace=proposal.workspace,
            runner=FLOW if proposal.flow is not None else channels[route.channel].runner,
            flow=proposal.flow,
            parameters=dict(proposal.parameters),
            agent=route.agent,
        )


def _count_decisions(decisions: Decisions, session: Session) -> dict[tuple[str, str], tuple[int, int]]:
    """By workspace and kind: how many cards the operator approved, and how many were decided."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, _, workspace, approved, decided in decisions.count_by_group(session):
        before = counts.get((workspace, kind), (0, 0))
        counts[workspace, kind] = (before[0] + approved, before[1] + decided)
    return counts
