"""Selects which proposals of a cycle become cards: by channel, confidence, place in the stack, and the rails (SPEC 2.4,
2.5, 2.9)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlmodel import Session

from engine.events import TriggerBlocked
from engine.frozen import frozen
from engine.model import (
    Assignment,
    Band,
    Phase,
    Proposal,
    Randomness,
    Refusal,
    RunnerInfo,
    Source,
    Tier,
    Verdict,
    sanitise,
)
from engine.prediction import stack
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import Prediction, card_of, last_trigger_times, make_row
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.intake import Intake, Selection
from engine.prediction.kinds import is_ordered
from engine.prediction.routing import Router
from engine.prediction.twin import EmbeddedTwin, band_of

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
        room: stack.Room,
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

    def _ask_rails(self, session: Session, drafts: Sequence[Draft], now: datetime, room: stack.Room) -> Selection:
        """Ask the rails about those that get a place, from the top of the stack."""
        rows: list[Prediction] = []
        blocked: list[TriggerBlocked] = []
        is_full = False
        for draft in drafts:
            draft.row.id = self._randomness.new_id("pred")
        waiting = {draft.row.id: draft for draft in drafts}
        for card in stack.sort_cards([card_of(draft.row) for draft in drafts], now):
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
        tier, why = stack.adjusted_tier(proposal.tier, *decided)
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
