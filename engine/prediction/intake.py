"""What one cycle does to the cards, in one transaction: withdraw what is over, seat what is new (SPEC 2.7, 2.9)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

from engine.config import SettingsSource
from engine.events import CycleFinished, TriggerBlocked
from engine.prediction import limits
from engine.prediction.cards_store import Prediction, Seated, all_seated, card_of, created, find
from engine.prediction.context import WorkspaceContext
from engine.prediction.handled import Made, did_himself
from engine.prediction.ports import ActiveTime
from engine.prediction.transitions import Transitions
from engine.storage.database import Database, Transaction
from engine.storage.kept import Kept
from engine.storage.quick import Rows, ask, each_of
from engine.storage.types import UtcDateTime, flat
from engine.values import (
    Assignment,
    Card,
    ConfidenceParts,
    Outcome,
    Proposal,
    Randomness,
    RunnerInfo,
    Source,
    Status,
    sanitise,
)

LONGEST_COOL_DOWN = timedelta(days=7)

BOUND_TO_EVIDENCE = tuple(
    source.value for source in (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
)
"""Cards of these sources stand and fall with what the collectors see."""

_REJECTED = sqlalchemy.select(
    col(Prediction.id),
    col(Prediction.workspace),
    col(Prediction.fingerprint),
    col(Prediction.evidence_gone),
    col(Prediction.closed_at),
).where(
    col(Prediction.status) == Status.REJECTED.value,
    col(Prediction.source).in_(BOUND_TO_EVIDENCE),
    col(Prediction.closed_at) >= bindparam("since", type_=UtcDateTime()),
)

_SAME_EVIDENCE = sqlalchemy.select(
    col(Prediction.fingerprint),
    col(Prediction.status),
    col(Prediction.outcome),
    col(Prediction.closed_at),
    col(Prediction.shown_at),
    col(Prediction.undo_requested_at),
).where(
    col(Prediction.fingerprint).in_(each_of("fingerprints")),
    or_(col(Prediction.closed_at).is_(None), col(Prediction.closed_at) >= bindparam("since", type_=UtcDateTime())),
)


@dataclass(frozen=True, slots=True)
class Sensed:
    """What the cycle found in one workspace. `complete` is False when a collector failed: then nothing is withdrawn,
    since what was not seen is not gone."""

    context: WorkspaceContext
    fingerprints: frozenset[str]
    complete: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal that is ready to be a card."""

    proposal: Proposal
    assignment: Assignment
    agent: str
    parts: ConfidenceParts
    source: Source
    info: RunnerInfo
    context: str
    note: str = ""
    seen: bytes = b""

    @property
    def rank(self) -> tuple[float, float]:
        """Sum of the signals' shares, then urgency."""
        return sum(signal.share for signal in self.proposal.signals), self.parts.urgency

    def row(self, card_id: str, now: datetime, expires_at: datetime) -> Prediction:
        """The card as it would be stored; the rails have not spoken yet."""
        proposal, assignment = self.proposal, self.assignment
        rank, urgency = self.rank
        return Prediction(
            id=card_id,
            prompt=assignment.prompt,
            target_agent=self.agent,
            target_channel=assignment.channel,
            confidence=self.parts.total,
            reasoning=sanitise(proposal.reasoning),
            source=self.source.value,
            created_at=now,
            task_id=proposal.task_id,
            kind=proposal.kind,
            workspace=proposal.workspace,
            runner=assignment.runner,
            flow=assignment.flow,
            parameters=dict(assignment.parameters),
            fingerprint=proposal.fingerprint,
            facts=dict(proposal.facts),
            signals=[flat(signal) for signal in proposal.signals],
            parts=flat(self.parts),
            context=self.context,
            estimate_microusd=self.info.estimate,
            check_only=self.info.check_only,
            undo_note=self.info.undo_note,
            served=self.info.served,
            note=self.note or ("" if self.info.takes else self.info.reason),
            rank=rank,
            urgency=urgency,
            evidence_at=proposal.evidence_at,
            expires_at=expires_at,
            seen=self.seen,
        )


class Intake:
    """Seats and withdraws cards for the cycle."""

    def __init__(
        self,
        database: Database,
        transitions: Transitions,
        settings: SettingsSource,
        randomness: Randomness,
        active_time: ActiveTime,
    ) -> None:
        self._seated: Kept[list[Seated]] = Kept(database, Prediction)
        self._same_evidence: Kept[Rows] = Kept(database, Prediction)
        self._rejected: Kept[Rows] = Kept(database, Prediction)
        self._transitions = transitions
        self._settings = settings
        self._randomness = randomness
        self._active_time = active_time

    def prepare(self, draft: Draft, now: datetime) -> Prediction:
        """The row of a draft, not stored yet."""
        return draft.row(self._randomness.new_id("pred"), now, self._active_time(now, limits.LIFE))

    def seated(self, session: Session) -> list[Seated]:
        """Every pending card, oldest first."""
        return self._seated.seen(session, "", all_seated)

    def unavailable(self, session: Session, fingerprints: Collection[str], now: datetime) -> set[str]:
        """Which of these have a card that is pending or under way, or cool down (SPEC 2.9)."""
        asked = tuple(sorted(set(fingerprints)))
        values = {"fingerprints": json.dumps(asked), "since": now - LONGEST_COOL_DOWN}
        # What is kept may be from before: then it has more rows, whose time is over by now.
        rows = self._same_evidence.seen(session, asked, lambda seen: ask(seen, _SAME_EVIDENCE, values))
        return {fingerprint for fingerprint, *row in rows if _holds(*row, now=now)}

    def seats_after(self, session: Session, sensed: Sequence[Sensed], now: datetime) -> int:
        """How many new cards the stack will take once what is over was withdrawn."""
        pending = self.seated(session)
        return self._free(pending, {one.seat.id for one in _over(pending, sensed)}, now)

    def apply(
        self,
        tx: Transaction,
        sensed: Sequence[Sensed],
        rows: Sequence[Prediction],
        blocked: Sequence[TriggerBlocked],
        errors: tuple[str, ...],
        seconds: float,
    ) -> tuple[list[Card], list[str]]:
        """Carry the cycle out: (cards created, ids withdrawn). `rows` best first; those without a seat are dropped."""
        pending = self.seated(tx.session)
        withdrawn = self._withdraw(tx, pending, sensed)
        self._note_evidence(tx, sensed)
        tx.session.flush()
        taken = self.unavailable(tx.session, [row.fingerprint for row in rows], tx.now) if rows else set()
        seats = self._free(pending, withdrawn, tx.now)
        cards = []
        for row in rows:
            if seats == 0:
                break
            if row.fingerprint in taken:
                continue
            taken.add(row.fingerprint)
            seats -= 1
            tx.session.add(row)
            tx.record(created(row))
            cards.append(card_of(row))
        for fact in blocked:
            tx.record(fact)
        tx.record(CycleFinished(created=len(cards), withdrawn=len(withdrawn), seconds=seconds, errors=errors))
        return cards, withdrawn

    def seat_follow_up(
        self, tx: Transaction, rows: Sequence[Prediction], blocked: Sequence[TriggerBlocked]
    ) -> Card | None:
        """Store a follow-up, which needs no seat (SPEC 2.9); None when a card for the same is there or cools down."""
        for fact in blocked:
            tx.record(fact)
        for row in rows:
            if row.fingerprint not in self.unavailable(tx.session, [row.fingerprint], tx.now):
                tx.session.add(row)
                tx.record(created(row))
                return card_of(row)
        return None

    def _free(self, pending: Sequence[Seated], gone: Collection[str], now: datetime) -> int:
        """How many more cards the stack takes; woken cards that wait for a seat come before new ones."""
        taken = sum(one.seat.id not in gone and limits.counts(one.seat, now) for one in pending)
        return max(0, self._settings.current.max_pending_cards - taken)

    def _withdraw(self, tx: Transaction, pending: Sequence[Seated], sensed: Sequence[Sensed]) -> list[str]:
        contexts = {one.context.workspace: one.context for one in sensed}
        withdrawn = []
        for one in _over(pending, sensed):
            row = find(tx.session, one.seat.id)
            himself = did_himself(Made(row.kind, row.facts, row.parameters, row.created_at), contexts[row.workspace])
            reason = "you did it yourself" if himself else "what it was about is no longer so"
            self._transitions.withdraw(tx, row, reason, did_himself=himself)
            withdrawn.append(row.id)
        return withdrawn

    def _note_evidence(self, tx: Transaction, sensed: Sequence[Sensed]) -> None:
        """Remember of dismissed cards whether undoing them still makes sense."""
        by_workspace = {one.context.workspace: one for one in sensed if one.complete}
        since = tx.now - LONGEST_COOL_DOWN
        rejected = self._rejected.seen(tx.session, "", lambda seen: ask(seen, _REJECTED, {"since": since}))
        for card_id, workspace, fingerprint, was_gone, closed_at in rejected:
            one = by_workspace.get(workspace)
            if one is not None and was_gone is (fingerprint in one.fingerprints) and closed_at >= since:
                find(tx.session, card_id).evidence_gone = not was_gone


def _over(pending: Sequence[Seated], sensed: Sequence[Sensed]) -> list[Seated]:
    """Those whose evidence is gone. Where a collector failed nothing is: what was not seen is not gone."""
    seen = {one.context.workspace: one.fingerprints for one in sensed if one.complete}
    return [
        one
        for one in pending
        if one.seat.source in BOUND_TO_EVIDENCE and one.workspace in seen and one.fingerprint not in seen[one.workspace]
    ]


def _holds(
    status: str,
    outcome: str | None,
    closed_at: datetime | None,
    shown_at: datetime | None,
    undone_at: datetime | None,
    *,
    now: datetime,
) -> bool:
    """Whether a card keeps another for the same evidence away."""
    span = limits.cool_down(
        Status(status),
        None if outcome is None else Outcome(outcome),
        shown=shown_at is not None,
        undone=undone_at is not None,
    )
    return closed_at is None or now < closed_at + span
