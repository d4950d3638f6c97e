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
from engine.prediction.cards_store import Prediction, Seated, all_seated, card_of, created, find, own_sessions
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import Dismissals
from engine.prediction.handled import Made, did_himself
from engine.prediction.limits import ActiveTime
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
    Tier,
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
    col(Prediction.kind),
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
    """What the cycle found in one workspace: the evidence, and what it is about as (kind, subject). `complete` is False
    when a collector failed: then nothing is withdrawn, since what was not seen is not gone. `unseen`: kinds that one
    failed look tells of, of which the same holds."""

    context: WorkspaceContext
    fingerprints: frozenset[str]
    subjects: frozenset[tuple[str, str]]
    complete: bool
    unseen: frozenset[str] = frozenset()


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
    tier: Tier
    note: str = ""
    seen: bytes = b""

    def row(self, card_id: str, now: datetime, expires_at: datetime) -> Prediction:
        """The card as it would be stored; the rails have not spoken yet."""
        proposal, assignment = self.proposal, self.assignment
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
            subject=proposal.subject,
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
            tier=self.tier.value,
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
        dismissals: Dismissals,
        settings: SettingsSource,
        randomness: Randomness,
        active_time: ActiveTime,
    ) -> None:
        self._seated: Kept[list[Seated]] = Kept(database, Prediction)
        self._same_evidence: Kept[Rows] = Kept(database, Prediction)
        self._rejected: Kept[Rows] = Kept(database, Prediction)
        self._transitions = transitions
        self._dismissals = dismissals
        self._settings = settings
        self._randomness = randomness
        self._active_time = active_time

    def prepare(self, draft: Draft, now: datetime) -> Prediction:
        """The row of a draft, not stored yet."""
        return draft.row(self._randomness.new_id("pred"), now, self._active_time(now, limits.LIFE))

    def seated(self, session: Session) -> list[Seated]:
        """Every pending card, oldest first."""
        return self._seated.seen(session, "", all_seated)

    def unavailable(
        self,
        session: Session,
        wanted: Sequence[Proposal] | Sequence[Prediction],
        now: datetime,
        leaving: Collection[str] = (),
    ) -> set[str]:
        """Fingerprints of those for which there is no card now (SPEC 2.9): the operator dismissed their subject or
        their kind, a card about the subject is pending, or the same evidence is under way or cools down. `leaving` are
        ids of pending cards that are about to go."""
        muted = self._dismissals.muted(session, now)
        pending = {
            (one.seat.workspace, one.seat.kind, one.subject)
            for one in self.seated(session)
            if one.seat.id not in leaving
        }
        subjects = {one.fingerprint: (one.workspace, one.kind, one.subject) for one in wanted}
        tiers = {one.fingerprint: Tier(one.tier) for one in wanted}
        away = {mark for mark, one in subjects.items() if one in pending or muted.covers(*one, tier=tiers[mark])}
        asked = tuple(sorted(subjects))
        values = {"fingerprints": json.dumps(asked), "since": now - LONGEST_COOL_DOWN}
        # What is kept may be from before: then it has more rows, whose time is over by now.
        rows = self._same_evidence.seen(session, asked, lambda seen: ask(seen, _SAME_EVIDENCE, values))
        return away | {fingerprint for fingerprint, *row in rows if _holds(*row, now=now)}

    def other_evidence(self, session: Session, wanted: Proposal | Prediction) -> set[str]:
        """Ids of pending cards about the same subject that are for other evidence."""
        subject = (wanted.workspace, wanted.kind, wanted.subject)
        return {
            one.seat.id
            for one in self.seated(session)
            if (one.seat.workspace, one.seat.kind, one.subject) == subject and one.fingerprint != wanted.fingerprint
        }

    def leaving(self, session: Session, sensed: Sequence[Sensed], now: datetime) -> set[str]:
        """Ids of the pending cards that `apply` will withdraw, since what they are about is no longer so."""
        return {one.seat.id for one in _over(self.seated(session), sensed, now)}

    def room(self, session: Session, leaving: Collection[str], now: datetime) -> limits.Room:
        """The places of the stack once `leaving` are gone; woken cards that wait for a seat come first."""
        staying = [one.seat for one in self.seated(session) if one.seat.id not in leaving]
        return limits.Room(limits.Caps.of(self._settings.current), [one for one in staying if limits.counts(one, now)])

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
        taken = self.unavailable(tx.session, rows, tx.now) if rows else set()
        room = self.room(tx.session, (), tx.now)
        cards, subjects = [], set[tuple[str, str, str]]()
        for row in rows:
            subject = (row.workspace, row.kind, row.subject)
            if row.fingerprint in taken or subject in subjects:
                continue
            displaced = room.take(row.seat, tx.now)
            if displaced is None:
                continue
            for card_id in displaced:
                self._transitions.withdraw(tx, find(tx.session, card_id), "made room for something more urgent")
                withdrawn.append(card_id)
            subjects.add(subject)
            tx.session.add(row)
            tx.record(created(row))
            cards.append(card_of(row))
        for fact in blocked:
            tx.record(fact)
        tx.record(CycleFinished(created=len(cards), withdrawn=len(withdrawn), seconds=seconds, errors=errors))
        return cards, withdrawn

    def seat_follow_up(
        self,
        tx: Transaction,
        sensed: Sequence[Sensed],
        rows: Sequence[Prediction],
        blocked: Sequence[TriggerBlocked],
    ) -> Card | None:
        """Withdraw what is no longer so, and store a follow-up, which needs no seat (SPEC 2.9), in the place of a card
        about the same that knows less; None when a card for the same evidence is there, or when it cools down or was
        dismissed."""
        self._withdraw(tx, self.seated(tx.session), sensed)
        for fact in blocked:
            tx.record(fact)
        for row in rows:
            older = self.other_evidence(tx.session, row)
            if row.fingerprint not in self.unavailable(tx.session, [row], tx.now, older):
                for card_id in older:
                    self._transitions.withdraw(
                        tx, find(tx.session, card_id), "made room for a newer card about the same"
                    )
                tx.session.flush()
                tx.session.add(row)
                tx.record(created(row))
                return card_of(row)
        return None

    def _withdraw(self, tx: Transaction, pending: Sequence[Seated], sensed: Sequence[Sensed]) -> list[str]:
        contexts = {one.context.workspace: one.context for one in sensed}
        withdrawn = []
        for one in _over(pending, sensed, tx.now):
            row = find(tx.session, one.seat.id)
            made = Made(row.kind, row.facts, row.parameters, row.created_at)
            own = own_sessions(tx.session, row.workspace, row.created_at)
            himself = did_himself(made, contexts[row.workspace], own)
            reason = "you did it yourself" if himself else "what it was about is no longer so"
            self._transitions.withdraw(tx, row, reason, did_himself=himself)
            withdrawn.append(row.id)
        return withdrawn

    def _note_evidence(self, tx: Transaction, sensed: Sequence[Sensed]) -> None:
        """Remember of dismissed cards whether undoing them still makes sense."""
        by_workspace = {one.context.workspace: one for one in sensed if one.complete}
        since = tx.now - LONGEST_COOL_DOWN
        rejected = self._rejected.seen(tx.session, "", lambda seen: ask(seen, _REJECTED, {"since": since}))
        for card_id, workspace, kind, fingerprint, was_gone, closed_at in rejected:
            one = by_workspace.get(workspace)
            if one is None or kind in one.unseen or closed_at < since:
                continue
            if was_gone is (fingerprint in one.fingerprints):
                find(tx.session, card_id).evidence_gone = not was_gone


def _over(pending: Sequence[Seated], sensed: Sequence[Sensed], now: datetime) -> list[Seated]:
    """Those whose evidence is gone. Where a collector failed nothing is: what was not seen is not gone. A card that the
    operator put off sleeps on while its subject is still there: new facts would bring it back before its time."""
    seen = {one.context.workspace: one for one in sensed if one.complete}
    return [
        one
        for one in pending
        if one.seat.source in BOUND_TO_EVIDENCE
        and (found := seen.get(one.seat.workspace)) is not None
        and one.fingerprint not in found.fingerprints
        and one.seat.kind not in found.unseen
        and not (limits.is_snoozed(one.seat, now) and (one.seat.kind, one.subject) in found.subjects)
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
