"""Selects after each check which proposals become cards, and which pending cards stay (SPEC 2.4, 2.5, 2.9).

Proposals are selected by confidence, places and rails. A card whose evidence is gone must be withdrawn, one whose
evidence stays gives the reasons of the last check, and work that the operator did without a card is recognised.
`checks` asks this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

from sqlmodel import Session

from engine.config import FLOW
from engine.frozen import frozen
from engine.inference import compute_wilson_lower_bound
from engine.learning.decisions.decisions import Decisions
from engine.model import Assignment, Band, Card, Outcome, Phase, Proposal, RailVerdict, Refusal, Source, Status, Tier
from engine.prediction import get_kind, is_ordered
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import (
    CardRow,
    load_card,
    load_last_trigger_times,
    make_card_of_row,
    make_row,
)
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import read_mute_index
from engine.prediction.routing import Router
from engine.prediction.stack import Room, find_exclusive_group, rank_cards
from engine.prediction.twin import EmbeddedTwin, find_band
from engine.randomness import Randomness
from engine.safety.content import RAIL as CONTENT
from engine.safety.gate import MIN_APPROVAL_BOUND
from engine.storage import read_all
from engine.text import sanitise

# -- pending cards

BOUND_TO_EVIDENCE = (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
"""Sources of cards that are withdrawn when their evidence is gone."""


@frozen
class Findings:
    """What a check found in one workspace."""

    context: WorkspaceContext
    proposals: Sequence[Proposal]
    errors: tuple[str, ...]
    """What could not be read or proposed, in words."""
    is_complete: bool
    """False if something could not be read. Then no card is withdrawn."""
    can_replace: bool
    """False if one next step is made at most. Then no card makes way for another about the same evidence."""

    def find_proposal_for(self, card: Card) -> Proposal | None:
        """The proposal that has the evidence and the subject of a pending card."""
        evidence = (card.fingerprint, card.about)
        return next((new for new in self.proposals if (new.fingerprint, new.about) == evidence), None)

    def has_lost(self, session: Session, card: Card, now: datetime) -> bool:
        """Whether a pending card must go: its evidence is gone, or asks for other work by now.

        What a card would run is never replaced under its id, because an approval must run what the operator read.
        Another card takes its place. An edited card runs what the operator wrote, so it stays. A snoozed card stays
        while its subject exists, since a new card would show it before its time. A card also stays if a git inspection
        that its kind depends on failed.
        """
        is_unchecked = not self.context.inspection.unknown.keys().isdisjoint(get_kind(card.kind).inspections)
        if not self.is_complete or card.source not in BOUND_TO_EVIDENCE or is_unchecked:
            return False
        proposal = self.find_proposal_for(card)
        if proposal is not None and (not self.can_replace or _fits(session, card, proposal)):
            return False
        return not (card.is_snoozed(now) and self.has_subject(card.about))

    def has_subject(self, about: tuple[str, str, str]) -> bool:
        """Whether a proposal is about this (see `Card.about`)."""
        return any(proposal.about == about for proposal in self.proposals)


def _fits(session: Session, card: Card, proposal: Proposal) -> bool:
    """Whether a pending card may stand for a proposal: it would run the same work, or the operator edited it."""
    parameters = json.loads(json.dumps(dict(proposal.parameters)))  # as they are stored
    work, assignment = (sanitise(proposal.prompt), proposal.flow, parameters), card.assignment
    is_same = work == (assignment.prompt, assignment.flow, dict(assignment.parameters))
    return is_same or bool(load_card(session, card.id).original_prompt)


def find_leaving_cards(
    session: Session, cards: Sequence[Card], findings: Mapping[str, Findings], now: datetime
) -> set[str]:
    """The ids of the pending cards that must go; see `Findings.has_lost`. `findings` are those of each workspace."""
    return {
        card.id
        for card in cards
        if card.workspace in findings and findings[card.workspace].has_lost(session, card, now)
    }


def is_done_by_operator(card: CardRow, context: WorkspaceContext, own_session_ids: Collection[str]) -> bool:
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


def renew_reasons(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings]) -> None:
    """Give the pending cards the reasons that their proposals have now, unless these are the reasons for other work.

    Their confidence stays as it was stated, because it is compared with the decision (SPEC 8.6). How relevant a signal
    is changes with every minute, and is no reason to write to the disk.
    """
    for card in cards:
        proposal = findings[card.workspace].find_proposal_for(card) if card.workspace in findings else None
        if proposal is None or _collect_reasons(card) == _collect_reasons(proposal):
            continue
        if _fits(session, card, proposal):
            row = load_card(session, card.id)
            row.reasoning, row.evidence_at = sanitise(proposal.reasoning), proposal.evidence_at
            row.signals = proposal.signals


def _collect_reasons(reasoned: Card | Proposal) -> tuple[str, datetime | None, list[tuple[str, ...]]]:
    """The reasons that a card gives, or would give."""
    return (
        sanitise(reasoned.reasoning),
        reasoned.evidence_at,
        [signal.evidence for signal in reasoned.signals if signal.relevance],
    )


# -- proposals

MAX_COOL_DOWN = timedelta(days=7)
"""Maximum time of `is_cooling_down`."""


def is_cooling_down(card: CardRow, now: datetime) -> bool:
    """Whether it is too early to make another card with the same evidence as this card.

    That is so for 7 days after work that succeeded or was undone, since the same evidence would propose it again; for a
    day after work that ended in any other way; and for a day after a card that was shown and expired. A card that was
    never shown has no cool-down, and neither has a kind that comes back until its reason is gone. Pending cards are
    compared by subject elsewhere, and mutes (`dismissals`) follow from dismissed ones.
    """
    if card.closed_at is None:
        return card.status is not Status.PENDING
    days = 0
    if card.status is Status.EXECUTED:
        days = 7 if card.undo_requested_at or card.outcome is Outcome.SUCCEEDED else 1
    elif card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN and card.shown_at:
        days = 1
    return now < card.closed_at + timedelta(days=days) and not get_kind(card.kind).comes_back


_WHERE_SAME_EVIDENCE = """
    WHERE fingerprint IN (SELECT value FROM json_each(:fingerprints)) AND (closed_at IS NULL OR closed_at >= :since)
"""
"""Selects the cards that may cool down."""


def adjust_tier(tier: Tier, approved: int, decided: int) -> tuple[Tier, str]:
    """(tier, reason) of a kind in a workspace after the operator's decisions (SPEC 2.11). The reason is "" if the tier
    stays.

    A kind moves up by one if the one-sided 95 % Wilson bound of the share approved is at least 0.8, which takes 11 of
    11. It moves down by one if that holds for the share dismissed. No kind moves into tier 1 or out of it.
    """
    reason = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and compute_wilson_lower_bound(approved, decided) >= MIN_APPROVAL_BOUND:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {reason}"
    if (
        tier in (Tier.BLOCKS, Tier.CHECK)
        and compute_wilson_lower_bound(decided - approved, decided) >= MIN_APPROVAL_BOUND
    ):
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {reason}"
    return tier, ""


CHECKS_PER_EXPLORATION = 10
"""One check in this many shows a card of low confidence, to learn whether the operator wants it."""

MIN_KIND_HISTORY = 3
"""A kind with this many recent decisions, in all workspaces together, is not shown to learn."""

DECISION_MEMORY = timedelta(days=30)
"""Decisions older than this do not count for `MIN_KIND_HISTORY`. What was dismissed last month may be welcome now,
and without a card nobody would find out."""


def select_rows(
    rows: Sequence[CardRow], decisions: Mapping[str, int], *, is_learning: bool, randomness: Randomness
) -> list[CardRow]:
    """The cards that may be shown (SPEC 2.5). `decisions` is how many cards of each kind were decided lately;
    `is_learning` says that it is phase 1 or later.

    In phase 0 all may be shown. Later, cards below the lowest band are left out. Exceptions are cards of tier 1, cards
    that the operator ordered, and next steps. Besides, one check in `CHECKS_PER_EXPLORATION` shows a card of a kind
    with few recent decisions, and the card says so."""
    if not is_learning:
        return list(rows)
    selected = [
        row
        for row in rows
        if row.tier == Tier.AT_RISK
        or row.source == Source.FOLLOW_UP
        or is_ordered(row.kind)
        or find_band(row.confidence) is not Band.DISCARDED
    ]
    little_known = [row for row in rows if row not in selected and decisions.get(row.kind, 0) < MIN_KIND_HISTORY]
    if little_known and randomness.uniform() * CHECKS_PER_EXPLORATION < 1:
        kind = randomness.pick(dict.fromkeys(sorted({row.kind for row in little_known}), 1.0))
        explored = max((row for row in little_known if row.kind == kind), key=lambda row: row.confidence)
        why = f"shown to learn whether you want it, as in one of {CHECKS_PER_EXPLORATION} rounds"
        assert explored.parts is not None, "what a check found is estimated"
        explored.parts = replace(explored.parts, words=(*explored.parts.words, why))
        selected.append(explored)
    return selected


def find_content_block(row: CardRow) -> RailVerdict | None:
    """The verdict of the content filter, if that blocks the card."""
    return next((verdict for verdict in row.verdicts if verdict.rail == CONTENT and verdict.blocks), None)


@frozen
class CardSelection:
    """The proposals that may become cards."""

    rows: Sequence[CardRow] = ()
    """By rank, each with the verdicts of the rails. A row that the content filter blocks is among them."""
    is_full: bool = False
    """Whether a row found no place in the stack."""
    errors: tuple[str, ...] = ()
    """Why proposals cannot become rows."""


@frozen
class _CheckState:
    """The state that all proposals of one check share. `decided`: by workspace and kind, how many cards the operator
    approved, and how many were decided on; `routed`: how many proposals went to each channel so far."""

    now: datetime
    local: datetime
    """`now` in the operator's zone. The same for all, or equal cards would differ by the time that the check took."""
    phase: Phase
    triggered: Mapping[str, datetime]
    decided: Mapping[tuple[str, str], tuple[int, int]]
    routed: Counter[str] = field(default_factory=Counter)

    @property
    def is_learning(self) -> bool:
        """Whether the Twin has begun (SPEC 2.6)."""
        return self.phase.number > 0

    def count_decided(self, kind: str) -> int:
        """How many cards of a kind were decided on, in all workspaces."""
        return sum(decided for (_, other), (_, decided) in self.decided.items() if other == kind)


@frozen
class CardSelector:
    """Makes rows of proposals, and asks the rails about those that get a place."""

    store: CardStore
    approvals: Approvals
    router: Router
    twin: EmbeddedTwin
    randomness: Randomness

    def find_unavailable(
        self, session: Session, candidates: Collection[Proposal | CardRow], now: datetime, pending_cards: Sequence[Card]
    ) -> set[str]:
        """The fingerprints of the candidates that cannot become cards now (SPEC 2.9). Their subject or kind is muted,
        one of `pending_cards` is about the subject, or work on the same evidence is running or cools down."""
        pending, mutes = {card.about for card in pending_cards}, read_mute_index(session, now)
        values = {"fingerprints": {candidate.fingerprint for candidate in candidates}, "since": now - MAX_COOL_DOWN}
        earlier_cards = read_all(session, CardRow, _WHERE_SAME_EVIDENCE, values)
        return {card.fingerprint for card in earlier_cards if is_cooling_down(card, now)} | {
            candidate.fingerprint
            for candidate in candidates
            if candidate.about in pending or mutes.covers(*candidate.about, tier=candidate.tier)
        }

    def select(
        self,
        session: Session,
        findings: Mapping[str, Findings],
        staying: Sequence[Card],
        kinds: Sequence[str] | None = None,
    ) -> CardSelection:
        """The proposals that may become cards and have a place beside the cards that stay. With `kinds`, only the
        proposal of the first of these kinds, as a next step; none if its card is shown already."""
        now = self.store.clock.now()
        proposals = [proposal for found in findings.values() for proposal in found.proposals]
        unavailable = self.find_unavailable(session, proposals, now, staying)
        if kinds is not None:
            shown = {card.fingerprint for card in staying if not card.is_snoozed(now)}
            possible = [proposal for proposal in proposals if proposal.fingerprint not in unavailable - shown]
            first = next((proposal for kind in kinds for proposal in possible if proposal.kind == kind), None)
            proposals = [] if first is None else [replace(first, source=Source.FOLLOW_UP)]
        available = [proposal for proposal in proposals if proposal.fingerprint not in unavailable]
        return self._fill_places(session, available, findings, staying)

    def _fill_places(
        self,
        session: Session,
        proposals: Sequence[Proposal],
        findings: Mapping[str, Findings],
        staying: Sequence[Card],
    ) -> CardSelection:
        """The selection of these proposals, which are available."""
        if not proposals:
            return CardSelection()
        now, local, decisions = self.store.clock.now(), self.store.clock.local(), self.store.decisions
        phase, decided = self.twin.read_phase_within(session), _count_decisions(decisions, session)
        common = _CheckState(now, local, phase, load_last_trigger_times(session), decided)
        drafts, errors = [], []
        for proposal in proposals:
            try:
                drafts.append(self._make_row(proposal, common, findings[proposal.workspace].context.text))
            except Refusal as refusal:
                errors.append(f"{proposal.workspace}: {proposal.kind}: {refusal.message}")
        recent = decisions.count_by_kind(session, since=now - DECISION_MEMORY)
        rows = select_rows(drafts, recent, is_learning=common.is_learning, randomness=self.randomness)
        for row in rows:
            row.id = self.randomness.new_id("pred")
        return self._give_places(rows, Room(self.store.settings.current, staying, now), now, tuple(errors))

    def _give_places(
        self, rows: Sequence[CardRow], room: Room, now: datetime, errors: tuple[str, ...]
    ) -> CardSelection:
        """The rows that get a place, by rank, with the verdicts of the rails."""
        by_id, selected, is_full = {row.id: row for row in rows}, [], False
        for card in rank_cards(map(make_card_of_row, rows), now):
            if not room.take(card).has_place:
                is_full = is_full or not find_exclusive_group(card)
                continue
            row, info = by_id[card.id], self.approvals.launcher.check(card.assignment)
            row.set_verdicts(self.approvals.preview_work(row, card.assignment, info))
            if find_content_block(row):
                room.leave(card)
            selected.append(row)
        return CardSelection(selected, is_full, errors)

    def _make_row(self, proposal: Proposal, common: _CheckState, context: str) -> CardRow:
        """The row of one proposal, without an id and not stored yet. `context` is the situation in words. Raises
        `Refusal` `unknown_channel`."""
        store, launcher = self.store, self.approvals.launcher
        assignment, other_runner = launcher.choose(self._assign(proposal, common))
        estimate = self.twin.estimate(proposal, assignment, context=context, phase=common.phase, local=common.local)
        if common.is_learning and proposal.source is Source.TEMPLATE:
            proposal = replace(proposal, source=Source.EMBEDDED_TWIN)
        tier, why = adjust_tier(proposal.tier, *common.decided.get((proposal.workspace, proposal.kind), (0, 0)))
        words = (*estimate.parts.words, why) if why else estimate.parts.words
        parts = replace(estimate.parts, words=words, decided=common.count_decided(proposal.kind))
        row = make_row(
            "",
            proposal,
            assignment,
            launcher.check(assignment),
            now=common.now,
            expires_at=store.compute_expiry(common.now),
            context=context,
            estimate=replace(estimate, parts=parts),
        )
        row.tier, row.note = tier, other_runner or why or row.note
        return row

    def _assign(self, proposal: Proposal, common: _CheckState) -> Assignment:
        """The work of a proposal, on the channel and for the agent that the router chooses."""
        settings = self.store.settings.current
        named = self.twin.find_usual_channel(proposal.kind, list(settings.channels)) if common.is_learning else None
        if proposal.confidence is not None and proposal.channel:
            named = proposal.channel  # a source that states a confidence names the channel, too
        route = self.router.route(
            "" if proposal.flow else proposal.prompt,
            settings,
            named=named,
            affinity=proposal.channel,
            triggered=common.triggered,
            routed=common.routed,
        )
        common.routed[route.channel] += 1
        return Assignment(
            prompt=sanitise(proposal.prompt),
            channel=route.channel,
            workspace=proposal.workspace,
            runner=FLOW if proposal.flow is not None else settings.channels[route.channel].runner,
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
