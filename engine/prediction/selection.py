"""Selects which proposals of a cycle become cards: by channel, confidence, place in the stack, and the rails (SPEC 2.4,
2.5, 2.9)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

from engine.frozen import frozen
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
    Verdict,
    sanitise,
)
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import Prediction, card_of, last_trigger_times, make_row
from engine.prediction.card_rules import MAX_COOL_DOWN, Room, adjusted_tier, is_cooling_down, sort_cards
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import MuteIndex, read_mutes
from engine.prediction.kinds import is_ordered
from engine.prediction.routing import Router
from engine.prediction.twin import EmbeddedTwin, band_of
from engine.storage.rows import UtcDateTime, ask, each_of

EXPLORED_IN = 10
"""One cycle in this many shows a card to learn something."""

EXPLORED_BELOW = 3
"""A kind with this many recent decisions, in all workspaces together, is not explored."""

EXPLORED_AFTER = timedelta(days=30)
"""Decisions older than this do not count for `EXPLORED_BELOW`: what was dismissed for good last month may be welcome
now, and without a card nobody would find out."""

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
class _Round:
    """The state that all proposals of one cycle share. `decided`: by workspace and kind, how many cards the
    operator approved, and how many were decided on; `routed`: how many proposals went to each channel so far."""

    now: datetime
    phase: Phase
    triggered: dict[str, datetime]
    decided: Mapping[tuple[str, str], tuple[int, int]]
    routed: dict[str, int]


def select_rows(
    rows: Sequence[Prediction], decisions: Mapping[str, int], *, learning: bool, randomness: Randomness
) -> list[Prediction]:
    """The cards that may be shown (SPEC 2.5). `decisions`: by kind, how many cards were decided on lately. `learning`:
    phase 1 or later; before, all are.

    What is below the lowest band is left out, unless something is broken, the operator ordered it, or it is the next
    step after work that ended. In one cycle of `EXPLORED_IN` a card of a kind with few recent decisions is shown
    all the same, and says so."""
    if not learning:
        return list(rows)
    selected = [row for row in rows if _is_certain(row) or band_of(row.confidence) is not Band.DISCARDED]
    unknown = [row for row in rows if row not in selected and decisions.get(row.kind, 0) < EXPLORED_BELOW]
    if unknown and randomness.uniform() * EXPLORED_IN < 1:
        kind = randomness.pick(dict.fromkeys(sorted({row.kind for row in unknown}), 1.0))
        drawn = max((row for row in unknown if row.kind == kind), key=lambda row: row.confidence)
        why = f"shown to learn whether you want it, as in one of {EXPLORED_IN} rounds"
        assert drawn.parts is not None, "what a cycle found is estimated"
        drawn.parts = replace(drawn.parts, words=(*drawn.parts.words, why))
        selected.append(drawn)
    return selected


def _is_certain(row: Prediction) -> bool:
    """Whether a card is shown at any confidence."""
    return row.tier == Tier.BROKEN or is_ordered(row.kind) or row.source == Source.FOLLOW_UP


def content_block(row: Prediction) -> RailVerdict | None:
    """The verdict of the content filter, if that blocks the card."""
    blocking = (verdict for verdict in row.verdicts if verdict.verdict is Verdict.BLOCK)
    return next((verdict for verdict in blocking if verdict.rail == "content"), None)


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

    def unavailable(
        self,
        session: Session,
        candidates: Sequence[Proposal] | Sequence[Prediction],
        now: datetime,
        pending_cards: Sequence[Card],
    ) -> set[str]:
        """Fingerprints of the candidates that cannot become cards now (SPEC 2.9): their subject or kind is muted, one
        of `pending_cards` is about the subject, or the same evidence is worked on or cools down."""
        muted = MuteIndex(read_mutes(session, now))
        pending = {card.about for card in pending_cards}
        fingerprints = {new.fingerprint for new in candidates}
        values = {"fingerprints": json.dumps(sorted(fingerprints)), "since": now - MAX_COOL_DOWN}
        return {
            new.fingerprint
            for new in candidates
            if new.about in pending or muted.covers(*new.about, tier=int(new.tier))
        } | {fingerprint for fingerprint, *row in ask(session, _SAME_EVIDENCE, values) if is_cooling_down(now, *row)}

    def select(
        self,
        session: Session,
        proposals: Sequence[Proposal],
        contexts: Mapping[str, WorkspaceContext],
        errors: list[str],
        room: Room,
    ) -> tuple[list[Prediction], bool]:
        """The rows that may become cards, from the top of the stack, with the rails' verdicts, and whether any found no
        place in `room`; also those that the content filter blocks. `contexts` are those of their workspaces."""
        if not proposals:
            return [], False
        now, history = self._store.clock.now(), self._store.history
        decided: dict[tuple[str, str], tuple[int, int]] = {}
        for kind, _, workspace, approved, number in history.count_by_group(session):
            before = decided.get((workspace, kind), (0, 0))
            decided[workspace, kind] = (before[0] + approved, before[1] + number)
        state = _Round(now, self._twin.phase(session), last_trigger_times(session), decided, {})
        rows = []
        for proposal in proposals:
            try:
                rows.append(self._make_row(proposal, state, contexts[proposal.workspace].text))
            except Refusal as refusal:
                errors.append(f"{proposal.workspace}: {proposal.kind}: {refusal.message}")
        recent = history.count_by_kind(session, since=now - EXPLORED_AFTER)
        learning = state.phase.number > 0
        waiting = {}
        for row in select_rows(rows, recent, learning=learning, randomness=self._randomness):
            row.id = self._randomness.new_id("pred")
            waiting[row.id] = row
        selected, is_full = [], False
        for card in sort_cards([card_of(row) for row in waiting.values()], now):
            row = waiting[card.id]
            if room.take(card) is None:
                is_full = is_full or card.tier is not Tier.UPKEEP
                continue
            info = self._approvals.launcher.check(card.assignment)
            row.set_verdicts(self._approvals.preview_work(session, row, card.assignment, info))
            if content_block(row):
                room.leave(card)
            selected.append(row)
        return selected, is_full

    def _make_row(self, proposal: Proposal, state: _Round, context: str) -> Prediction:
        """The card of one proposal, not stored yet and without an id; `context` is its situation in words. Raises
        `Refusal` `unknown_channel`."""
        store, launcher, learning = self._store, self._approvals.launcher, state.phase.number > 0
        assignment, otherwise = launcher.choose(self._assign(proposal, state, learning=learning))
        estimate = self._twin.estimate(
            proposal, assignment, context=context, phase=state.phase, now=state.now, local=store.clock.local()
        )
        if learning and proposal.source is Source.TEMPLATE:
            proposal = replace(proposal, source=Source.EMBEDDED_TWIN)
        approved, decided = state.decided.get((proposal.workspace, proposal.kind), (0, 0))
        tier, why = adjusted_tier(proposal.tier, approved, decided)
        everywhere = sum(number for (_, kind), (_, number) in state.decided.items() if kind == proposal.kind)
        words = (*estimate.parts.words, why) if why else estimate.parts.words
        row = make_row(
            "",
            proposal,
            assignment,
            launcher.check(assignment),
            now=state.now,
            expires_at=store.expiry(state.now),
            context=context,
            estimate=replace(estimate, parts=replace(estimate.parts, words=words, decided=everywhere)),
        )
        row.tier, row.note = tier, otherwise or why or row.note
        return row

    def _assign(self, proposal: Proposal, state: _Round, *, learning: bool) -> Assignment:
        """The work of a proposal, on the channel and for the agent that the router gives it."""
        channels = self._store.settings.current.channels
        named = self._twin.usual_channel(proposal.kind, list(channels)) if learning else None
        if proposal.confidence is not None and proposal.channel:
            named = proposal.channel  # who says how sure he is also says where
        route = self._router.route(
            "" if proposal.flow else proposal.prompt,
            named=named,
            affinity=proposal.channel,
            triggered=state.triggered,
            routed=state.routed,
        )
        state.routed[route.channel] = state.routed.get(route.channel, 0) + 1
        return Assignment(
            prompt=sanitise(proposal.prompt),
            channel=route.channel,
            workspace=proposal.workspace,
            runner="flow" if proposal.flow is not None else channels[route.channel].runner,
            flow=proposal.flow,
            parameters=dict(proposal.parameters),
            agent=route.agent,
        )
