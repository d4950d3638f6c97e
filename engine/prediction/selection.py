"""Selects the proposals of a cycle that become cards, by confidence, places and rails (SPEC 2.4, 2.5, 2.9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

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
    Verdict,
    sanitise,
)
from engine.prediction.approvals import Approvals
from engine.prediction.card_rows import CardRow, card_of, last_trigger_times, make_row
from engine.prediction.card_rules import MAX_COOL_DOWN, Room, adjusted_tier, is_cooling_down, is_ordered, rank_cards
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import MuteIndex, read_mutes
from engine.prediction.routing import Router
from engine.prediction.twin import EmbeddedTwin, band_of
from engine.storage.rows import UtcDateTime, ask, each_of

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
    col(CardRow.fingerprint).in_(each_of("fingerprints")),
    or_(col(CardRow.closed_at).is_(None), col(CardRow.closed_at) >= bindparam("since", type_=UtcDateTime())),
)


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


def _is_certain(row: CardRow) -> bool:
    """Whether a card is shown at any confidence."""
    return row.tier == Tier.BROKEN or is_ordered(row.kind) or row.source == Source.FOLLOW_UP


def content_block(row: CardRow) -> RailVerdict | None:
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
        candidates: Sequence[Proposal] | Sequence[CardRow],
        now: datetime,
        pending_cards: Sequence[Card],
    ) -> set[str]:
        """The fingerprints of the candidates that cannot become cards now (SPEC 2.9). Their subject or kind is muted,
        one of `pending_cards` is about the subject, or work on the same evidence is running or cools down."""
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
    ) -> tuple[list[CardRow], bool]:
        """Returns (rows, is_full): the rows that may become cards, by rank, and whether a row found
        no place in `room`. Each row has the verdicts of the rails. A row that the content filter blocks is among them.
        `contexts` are the contexts of the workspaces."""
        if not proposals:
            return [], False
        now, decisions = self._store.clock.now(), self._store.decisions
        cycle = _Cycle(
            now, self._twin.phase(session), last_trigger_times(session), _count_decisions(decisions, session)
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
        for card in rank_cards(map(card_of, rows.values()), now):
            if room.take(card) is None:
                is_full = is_full or card.tier is not Tier.UPKEEP
                continue
            row, info = rows[card.id], self._approvals.launcher.check(card.assignment)
            row.set_verdicts(self._approvals.preview_work(session, row, card.assignment, info))
            if content_block(row):
                room.leave(card)
            selected.append(row)
        return selected, is_full

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
        tier, why = adjusted_tier(proposal.tier, *cycle.decided.get((proposal.workspace, proposal.kind), (0, 0)))
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
        named = self._twin.usual_channel(proposal.kind, list(channels)) if cycle.is_learning else None
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
            runner="flow" if proposal.flow is not None else channels[route.channel].runner,
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
