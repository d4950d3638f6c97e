"""Selects which proposals of a cycle become cards: by channel, confidence, place in the stack, and the rails (SPEC 2.4,
2.5, 2.9).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

from engine.events import CycleFinished, TriggerBlocked
from engine.frozen import frozen
from engine.model import (
    Assignment,
    Band,
    Card,
    Phase,
    Proposal,
    Randomness,
    Refusal,
    RunnerInfo,
    Source,
    Status,
    Tier,
    Verdict,
    sanitise,
)
from engine.prediction import card_rules
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import Prediction, card_of, last_trigger_times, load_card, make_row, own_session_ids
from engine.prediction.card_rules import MAX_COOL_DOWN, is_cooling_down
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import is_ordered
from engine.prediction.routing import Router
from engine.prediction.twin import EmbeddedTwin, band_of
from engine.storage import state as stored
from engine.storage.database import Transaction
from engine.storage.rows import UtcDateTime, ask, each_of

# Withdraws cards whose evidence is gone, and adds new ones, in the one transaction of a cycle (SPEC 2.7, 2.9).
#
# When the evidence of a card is gone, `is_done_by_operator` decides whether the operator did the proposed work (SPEC
# 8.1), for the kinds where the workspace shows it:
#
# | kind | done when |
# |---|---|
# | run_tests | the tests ran after the card was made, by a prompt of the operator |
# | rehearse_merge | the branch is the target and no commit of the source is missing |
# | report_branches | one of the branches is gone |
#
# Work of another card does not count, nor does a change that only removes the evidence: a commit of a file is no check
# of HEAD, and a test that passes again was not bisected.


def is_done_by_operator(card: Prediction, now: WorkspaceContext, own_session_ids: Collection[str] = ()) -> bool:
    """Whether the state of the workspace shows that the operator did the work of `card`. `own_session_ids`: sessions
    from the operator's own prompts."""
    git = now.git
    if git is None:
        return False
    match card.kind:
        case "run_tests":
            return any(run.ran_at > card.created_at and run.session_id in own_session_ids for run in now.runs)
        case "rehearse_merge":
            on_target = git.branch == card.parameters.get("target") and git.behind_base == 0
            return on_target and any(commit.at > card.created_at for commit in git.recent[:1])
        case "report_branches":
            names = {branch.name for branch in git.branches}
            return any(name not in names for name, _ in card.facts.get("branches", ()))
    return False


LAST_CHECKED = "cards.looked"
"""Key in the state table: when each workspace was last checked."""

BOUND_TO_EVIDENCE = (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
"""Sources of cards that are withdrawn when their evidence is gone."""

_REJECTED = sqlalchemy.select(
    col(Prediction.id),
    col(Prediction.workspace),
    col(Prediction.kind),
    col(Prediction.fingerprint),
    col(Prediction.evidence_gone),
).where(
    col(Prediction.status) == Status.REJECTED,
    col(Prediction.source).in_(BOUND_TO_EVIDENCE),
    col(Prediction.closed_at) >= bindparam("since", type_=UtcDateTime()),
)

_SAME_EVIDENCE = sqlalchemy.select(
    col(Prediction.fingerprint),
    col(Prediction.kind),
    col(Prediction.status),
    col(Prediction.outcome),
    col(Prediction.closed_at),
    col(Prediction.shown_at),
    col(Prediction.undo_requested_at),
).where(
    col(Prediction.fingerprint).in_(each_of("fingerprints")),
    or_(col(Prediction.closed_at).is_(None), col(Prediction.closed_at) >= bindparam("since", type_=UtcDateTime())),
)


@frozen
class WorkspaceFindings:
    """The findings of a cycle in one workspace."""

    context: WorkspaceContext
    proposals: tuple[Proposal, ...]
    complete: bool
    """False when a collector failed: then nothing is withdrawn."""
    unseen: frozenset[str] = frozenset()
    """Kinds whose check failed: their cards are not withdrawn."""

    def has_evidence(self, fingerprint: str) -> bool:
        """Whether a proposal has this evidence."""
        return any(proposal.fingerprint == fingerprint for proposal in self.proposals)

    def has_subject(self, card: Card) -> bool:
        """Whether a proposal is about what a card is about."""
        return any(proposal.about == card.about for proposal in self.proposals)


@frozen
class Selection:
    """The result of a cycle, to be stored: the rows that may become cards, from the top of the stack, what the content
    rail blocked, and whether anything found no place."""

    rows: tuple[Prediction, ...] = ()
    blocked: tuple[TriggerBlocked, ...] = ()
    is_full: bool = False


class Intake:
    """Adds and withdraws cards for the cycle."""

    def __init__(self, store: CardStore) -> None:
        self._store = store

    def unavailable(
        self,
        session: Session,
        candidates: Sequence[Proposal] | Sequence[Prediction],
        now: datetime,
        leaving: Collection[str] = (),
    ) -> set[str]:
        """Fingerprints of the candidates that cannot become cards now (SPEC 2.9): their subject or kind is muted, a
        card about the subject is pending, or the same evidence is worked on or cools down. `leaving` are ids of pending
        cards that will be withdrawn."""
        muted = self._store.dismissals.mute_index(session, now)
        pending = {card.about for card in self._store.pending(session) if card.id not in leaving}
        unavailable = {
            new.fingerprint
            for new in candidates
            if new.about in pending or muted.covers(*new.about, tier=int(new.tier))
        }
        fingerprints = json.dumps(sorted({new.fingerprint for new in candidates}))
        values = {"fingerprints": fingerprints, "since": now - MAX_COOL_DOWN}
        rows = ask(session, _SAME_EVIDENCE, values)
        return unavailable | {fingerprint for fingerprint, *row in rows if is_cooling_down(now, *row)}

    def other_evidence(self, session: Session, candidate: Proposal | Prediction) -> set[str]:
        """Ids of pending cards about the same subject with other evidence."""
        cards = self._store.pending(session)
        return {
            card.id for card in cards if card.about == candidate.about and card.fingerprint != candidate.fingerprint
        }

    def may_follow(self, session: Session, proposals: Sequence[Proposal], now: datetime) -> list[Proposal]:
        """The proposals that can be the next step: a card is possible now, or one with the same evidence is shown."""
        older = {card_id for proposal in proposals for card_id in self.other_evidence(session, proposal)}
        pending = {card.fingerprint for card in self._store.pending(session) if not card.snoozed(now)}
        unavailable = self.unavailable(session, proposals, now, older) - pending
        return [proposal for proposal in proposals if proposal.fingerprint not in unavailable]

    def leaving(self, session: Session, findings: Sequence[WorkspaceFindings], now: datetime) -> set[str]:
        """Ids of the pending cards that `apply` will withdraw because their evidence is gone.

        Nothing is withdrawn in a workspace where a collector failed. A snoozed card stays while its subject exists,
        since new evidence would show it before its time."""
        by_workspace = {finding.context.workspace: finding for finding in findings if finding.complete}
        return {
            card.id
            for card in self._store.pending(session)
            if card.source in BOUND_TO_EVIDENCE
            and (finding := by_workspace.get(card.workspace)) is not None
            and not finding.has_evidence(card.fingerprint)
            and card.kind not in finding.unseen
            and not (card.snoozed(now) and finding.has_subject(card))
        }

    def room(self, session: Session, leaving: Collection[str], now: datetime) -> card_rules.Room:
        """The free places of the stack without the cards `leaving`; woken cards without a place come first."""
        cards = self._store.pending(session)
        awake = [card for card in cards if card.id not in leaving and not card.snoozed(now)]
        return card_rules.Room(self._store.settings.current, awake)

    def apply(
        self,
        tx: Transaction,
        findings: Sequence[WorkspaceFindings],
        selection: Selection,
        errors: tuple[str, ...],
        seconds: float,
    ) -> tuple[list[Card], list[str]]:
        """Store the result of a cycle; returns (cards created, ids withdrawn). Rows without a place are dropped."""
        rows = selection.rows
        withdrawn = self._withdraw(tx, findings)
        self._note_evidence(tx, findings)
        looked = {finding.context.workspace: finding.context.now.isoformat() for finding in findings}
        stored.put(tx, LAST_CHECKED, stored.get(tx.session, LAST_CHECKED, {}) | looked)
        tx.session.flush()
        unavailable = self.unavailable(tx.session, rows, tx.now) if rows else set()
        room = self.room(tx.session, (), tx.now)
        cards, subjects = [], set[tuple[str, str, str]]()
        for row in rows:
            if row.fingerprint in unavailable or row.about in subjects:
                continue
            displaced = room.take(card_of(row), tx.now)
            if displaced is None:
                continue
            for card_id in displaced:
                self._store.withdraw(tx, load_card(tx.session, card_id), "made room for something more urgent")
            withdrawn += displaced
            subjects.add(row.about)
            cards.append(self._store.add(tx, row))
        for fact in selection.blocked:
            tx.record(fact)
        tx.record(CycleFinished(created=len(cards), withdrawn=len(withdrawn), seconds=seconds, errors=errors))
        return cards, withdrawn

    def add_follow_up(
        self, tx: Transaction, findings: Sequence[WorkspaceFindings], selection: Selection
    ) -> Card | None:
        """Withdraw cards without evidence, and store a follow-up, which needs no place (SPEC 2.9). It replaces a card
        about the same subject with other evidence. None if the evidence has a card, cools down or is muted."""
        self._withdraw(tx, findings)
        for fact in selection.blocked:
            tx.record(fact)
        for row in selection.rows:
            older = self.other_evidence(tx.session, row)
            if row.fingerprint in self.unavailable(tx.session, [row], tx.now, older):
                continue
            for card_id in older:
                self._store.withdraw(tx, load_card(tx.session, card_id), "made room for a newer card about the same")
            tx.session.flush()
            card = self._store.add(tx, row)
            self._store.make_room(tx, row)
            return card
        return None

    def _withdraw(self, tx: Transaction, findings: Sequence[WorkspaceFindings]) -> list[str]:
        contexts = {finding.context.workspace: finding.context for finding in findings}
        leaving = self.leaving(tx.session, findings, tx.now)
        withdrawn = [card.id for card in self._store.pending(tx.session) if card.id in leaving]
        for card_id in withdrawn:
            row = load_card(tx.session, card_id)
            session_ids = own_session_ids(tx.session, row.workspace, row.created_at)
            by_operator = is_done_by_operator(row, contexts[row.workspace], session_ids)
            reason = "you did it yourself" if by_operator else "its reason no longer applies"
            self._store.withdraw(tx, row, reason, by_operator=by_operator)
        return withdrawn

    def _note_evidence(self, tx: Transaction, findings: Sequence[WorkspaceFindings]) -> None:
        """Store on dismissed cards whether their evidence is gone."""
        complete = {finding.context.workspace: finding for finding in findings if finding.complete}
        rejected = ask(tx.session, _REJECTED, {"since": tx.now - MAX_COOL_DOWN})
        for card_id, workspace, kind, fingerprint, was_gone in rejected:
            finding = complete.get(workspace)
            if finding is None or kind in finding.unseen:
                continue
            if was_gone is finding.has_evidence(fingerprint):
                load_card(tx.session, card_id).evidence_gone = not was_gone


log = logging.getLogger(__name__)

EXPLORED_IN = 10
"""One cycle in this many shows a card to learn something."""

EXPLORED_BELOW = 3
"""A kind with this many recent decisions, in all workspaces together, is not explored."""

EXPLORED_AFTER = timedelta(days=30)
"""Decisions older than this do not count for `EXPLORED_BELOW`: what was dismissed for good last month may be welcome
now, and without a card nobody would find out."""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A card that is not stored yet and has no id, and what would carry it out."""

    row: Prediction
    info: RunnerInfo


@frozen
class _Round:
    """The state that all proposals of one cycle share. `decided`: by workspace and kind, how many cards the
    operator approved, and how many were decided on; `routed`: how many proposals went to each channel so far."""

    now: datetime
    phase: Phase
    triggered: dict[str, datetime]
    decided: Mapping[tuple[str, str], tuple[int, int]]
    routed: dict[str, int]

    @property
    def learning(self) -> bool:
        """Whether the Twin has learned from enough decisions: phase 1 or later."""
        return self.phase.number > 0


def select_drafts(
    drafts: Sequence[Draft], decisions: Mapping[str, int], *, learning: bool, randomness: Randomness
) -> list[Draft]:
    """The drafts that may be shown (SPEC 2.5). `decisions`: by kind, how many cards were decided on lately. `learning`:
    phase 1 or later; before, all are.

    What is below the lowest band is left out, unless something is broken, the operator ordered it, or it is the next
    step after work that ended. In one cycle of `EXPLORED_IN` a card of a kind with few recent decisions is shown
    all the same, and says so."""
    if not learning:
        return list(drafts)
    selected = [draft for draft in drafts if _certain(draft.row) or band_of(draft.row.confidence) is not Band.DISCARDED]
    unknown = [draft for draft in drafts if draft not in selected and decisions.get(draft.row.kind, 0) < EXPLORED_BELOW]
    if unknown and randomness.uniform() * EXPLORED_IN < 1:
        kind = randomness.pick(dict.fromkeys(sorted({draft.row.kind for draft in unknown}), 1.0))
        drawn = max((draft for draft in unknown if draft.row.kind == kind), key=lambda draft: draft.row.confidence)
        why = f"shown to learn whether you want it, as in one of {EXPLORED_IN} rounds"
        assert drawn.row.parts is not None, "drafts are estimated"
        drawn.row.parts = replace(drawn.row.parts, words=(*drawn.row.parts.words, why))
        selected.append(drawn)
    return selected


def _certain(row: Prediction) -> bool:
    """Whether a card is shown at any confidence."""
    return row.tier == Tier.BROKEN or is_ordered(row.kind) or row.source == Source.FOLLOW_UP


class CardSelector:
    """Makes drafts of proposals, and asks the rails about those that get a place."""

    def __init__(
        self,
        store: CardStore,
        approvals: Approvals,
        router: Router,
        twin: EmbeddedTwin,
        intake: Intake,
        randomness: Randomness,
    ) -> None:
        self._store = store
        self._approvals = approvals
        self._router = router
        self._twin = twin
        self._intake = intake
        self._randomness = randomness
        self._reported: set[str] = set()

    def select(
        self,
        proposals: Sequence[Proposal],
        contexts: Mapping[str, WorkspaceContext],
        errors: list[str],
        *,
        room: card_rules.Room,
        leaving: Collection[str],
    ) -> Selection:
        """The rows that may become cards, with the rails' verdicts, as many as there is `room` for. `contexts` are
        those of their workspaces, `leaving` ids of the pending cards that will be withdrawn."""
        history = self._store.history
        with self._store.database.read() as session:
            now = self._store.clock.now()
            unavailable = self._intake.unavailable(session, proposals, now, leaving)
            proposals = [proposal for proposal in proposals if proposal.fingerprint not in unavailable]
            if not proposals:
                return Selection()
            decided: dict[tuple[str, str], tuple[int, int]] = {}
            for kind, _, workspace, approved, number in history.count_by_group(session):
                before = decided.get((workspace, kind), (0, 0))
                decided[workspace, kind] = (before[0] + approved, before[1] + number)
            round_state = _Round(now, self._twin.phase(session), last_trigger_times(session), decided, {})
            drafts = []
            for proposal in proposals:
                try:
                    drafts.append(self._draft(proposal, round_state, contexts[proposal.workspace].text))
                except Refusal as refusal:
                    errors.append(f"{proposal.workspace}: {proposal.kind}: {refusal.message}")
            recent_decisions = history.count_by_kind(session, since=now - EXPLORED_AFTER)
            selected = select_drafts(
                drafts, recent_decisions, learning=round_state.learning, randomness=self._randomness
            )
            return self._ask_rails(session, selected, now, room)

    def _ask_rails(self, session: Session, drafts: Sequence[Draft], now: datetime, room: card_rules.Room) -> Selection:
        """Ask the rails about those that get a place, from the top of the stack."""
        rows: list[Prediction] = []
        blocked: list[TriggerBlocked] = []
        is_full = False
        for draft in drafts:
            draft.row.id = self._randomness.new_id("pred")
        waiting = {draft.row.id: draft for draft in drafts}
        for card in card_rules.sort_cards([card_of(draft.row) for draft in drafts], now):
            row, info = waiting[card.id].row, waiting[card.id].info
            if room.take(card, now) is None:
                is_full = is_full or card.tier is not Tier.UPKEEP
                continue
            verdicts = self._approvals.preview_work(session, row, card.assignment, info)
            content = next(
                (verdict for verdict in verdicts if verdict.rail == "content" and verdict.verdict is Verdict.BLOCK),
                None,
            )
            if content is None:
                row.set_verdicts(verdicts)
                rows.append(row)
                continue
            room.leave(card)
            log.warning("not shown because the content filter blocks it: %s: %s", row.prompt, content.reason)
            if row.fingerprint not in self._reported:
                self._reported.add(row.fingerprint)
                blocked.append(
                    TriggerBlocked(
                        subject=row.id,
                        workspace=row.workspace,
                        rail=content.rail,
                        verdict=content.verdict.value,
                        reason=content.reason,
                    )
                )
        return Selection(tuple(rows), tuple(blocked), is_full)

    def _draft(self, proposal: Proposal, round_state: _Round, context: str) -> Draft:
        """A card of one proposal; `context` is its situation in words. Raises `Refusal` `unknown_channel`."""
        store, launcher = self._store, self._approvals.launcher
        assignment, otherwise = launcher.choose(self._assign(proposal, round_state))
        estimate = self._twin.estimate(
            proposal,
            assignment,
            context=context,
            phase=round_state.phase,
            now=round_state.now,
            local=store.clock.local(),
        )
        if round_state.learning and proposal.source is Source.TEMPLATE:
            proposal = replace(proposal, source=Source.EMBEDDED_TWIN)
        decided = round_state.decided.get((proposal.workspace, proposal.kind), (0, 0))
        tier, why = card_rules.adjusted_tier(proposal.tier, *decided)
        number = sum(decided for (_, kind), (_, decided) in round_state.decided.items() if kind == proposal.kind)
        words = (*estimate.parts.words, why) if why else estimate.parts.words
        info = launcher.check(assignment)
        row = make_row(
            "",
            proposal,
            assignment,
            info,
            now=round_state.now,
            expires_at=store.expiry(round_state.now),
            context=context,
            estimate=replace(estimate, parts=replace(estimate.parts, words=words, decided=number)),
        )
        row.tier, row.note = tier, otherwise or why or row.note
        return Draft(row, info)

    def _assign(self, proposal: Proposal, round_state: _Round) -> Assignment:
        """The work of a proposal, on the channel and for the agent that the router gives it."""
        channels = self._store.settings.current.channels
        named = self._twin.usual_channel(proposal.kind, list(channels)) if round_state.learning else None
        if proposal.confidence is not None and proposal.channel:
            named = proposal.channel  # who says how sure he is also says where
        route = self._router.route(
            "" if proposal.flow else proposal.prompt,
            named=named,
            affinity=proposal.channel,
            triggered=round_state.triggered,
            routed=round_state.routed,
        )
        round_state.routed[route.channel] = round_state.routed.get(route.channel, 0) + 1
        return Assignment(
            prompt=sanitise(proposal.prompt),
            channel=route.channel,
            workspace=proposal.workspace,
            runner="flow" if proposal.flow is not None else channels[route.channel].runner,
            flow=proposal.flow,
            parameters=dict(proposal.parameters),
            agent=route.agent,
        )
