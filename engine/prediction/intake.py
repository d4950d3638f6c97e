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
from engine.model import (
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
from engine.prediction import limits
from engine.prediction.cards_store import Prediction, all_seats, card_of, created, find, new_row, own_sessions
from engine.prediction.context import WorkspaceContext
from engine.prediction.dismissals import Dismissals
from engine.prediction.handled import Made, did_himself
from engine.prediction.limits import ActiveTime
from engine.prediction.transitions import Transitions
from engine.storage import state as stored
from engine.storage.database import Database, Transaction
from engine.storage.kept import Kept
from engine.storage.quick import Rows, ask, each_of
from engine.storage.types import UtcDateTime, flat

LONGEST_COOL_DOWN = timedelta(days=7)

LOOKED = "cards.looked"
"""Under this key stands when each workspace was looked at last."""

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
    parts: ConfidenceParts
    source: Source
    info: RunnerInfo
    context: str
    tier: Tier
    note: str = ""
    seen: bytes = b""


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
        self._seated: Kept[list[limits.Seat]] = Kept(database, Prediction)
        self._same_evidence: Kept[Rows] = Kept(database, Prediction)
        self._rejected: Kept[Rows] = Kept(database, Prediction)
        self._transitions = transitions
        self._dismissals = dismissals
        self._settings = settings
        self._randomness = randomness
        self._active_time = active_time

    def prepare(self, draft: Draft, now: datetime) -> Prediction:
        """The row of a draft, not stored yet; the rails have not spoken."""
        proposal = draft.proposal
        return new_row(
            self._randomness.new_id("pred"),
            draft.assignment,
            draft.info,
            now=now,
            expires_at=self._active_time(now, limits.LIFE),
            confidence=draft.parts.total,
            reasoning=sanitise(proposal.reasoning),
            source=draft.source.value,
            task_id=proposal.task_id,
            kind=proposal.kind,
            subject=proposal.subject,
            fingerprint=proposal.fingerprint,
            facts=dict(proposal.facts),
            signals=[flat(signal) for signal in proposal.signals],
            parts=flat(draft.parts),
            context=draft.context,
            tier=draft.tier.value,
            evidence_at=proposal.evidence_at,
            seen=draft.seen,
            **({"note": draft.note} if draft.note else {}),
        )

    def seated(self, session: Session) -> list[limits.Seat]:
        """Every pending card, oldest first."""
        return self._seated.seen(session, "", all_seats)

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
        pending = {(one.workspace, one.kind, one.subject) for one in self.seated(session) if one.id not in leaving}
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
            one.id
            for one in self.seated(session)
            if (one.workspace, one.kind, one.subject) == subject and one.fingerprint != wanted.fingerprint
        }

    def may_follow(self, session: Session, proposals: Sequence[Proposal], now: datetime) -> list[Proposal]:
        """Those that can be the next step: there may be a card now, or one for this very evidence is shown already.
        Cards about the same for other evidence make room."""
        older = {card_id for one in proposals for card_id in self.other_evidence(session, one)}
        there = {one.fingerprint for one in self.seated(session) if not limits.is_snoozed(one, now)}
        away = self.unavailable(session, proposals, now, older) - there
        return [one for one in proposals if one.fingerprint not in away]

    def leaving(self, session: Session, sensed: Sequence[Sensed], now: datetime) -> set[str]:
        """Ids of the pending cards that `apply` will withdraw, since what they are about is no longer so."""
        return {one.id for one in _over(self.seated(session), sensed, now)}

    def room(self, session: Session, leaving: Collection[str], now: datetime) -> limits.Room:
        """The places of the stack once `leaving` are gone; woken cards that wait for a seat come first."""
        seats = self.seated(session)
        awake = [one for one in seats if one.id not in leaving and not limits.is_snoozed(one, now)]
        return limits.Room(limits.Caps.of(self._settings.current), awake)

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
        looked = {one.context.workspace: one.context.now.isoformat() for one in sensed}
        stored.put(tx, LOOKED, stored.get(tx.session, LOOKED, {}) | looked)
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
                self._transitions.make_room(tx, row)
                return card_of(row)
        return None

    def _withdraw(self, tx: Transaction, pending: Sequence[limits.Seat], sensed: Sequence[Sensed]) -> list[str]:
        contexts = {one.context.workspace: one.context for one in sensed}
        withdrawn = []
        for one in _over(pending, sensed, tx.now):
            row = find(tx.session, one.id)
            made = Made(row.kind, row.facts, row.parameters, row.created_at)
            own = own_sessions(tx.session, row.workspace, row.created_at)
            himself = did_himself(made, contexts[row.workspace], own)
            reason = "you did it yourself" if himself else "its reason no longer applies"
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


def _over(pending: Sequence[limits.Seat], sensed: Sequence[Sensed], now: datetime) -> list[limits.Seat]:
    """Those whose evidence is gone. Where a collector failed nothing is: what was not seen is not gone. A card that the
    operator put off sleeps on while its subject is still there: new facts would bring it back before its time."""
    seen = {one.context.workspace: one for one in sensed if one.complete}
    return [
        one
        for one in pending
        if one.source in BOUND_TO_EVIDENCE
        and (found := seen.get(one.workspace)) is not None
        and one.fingerprint not in found.fingerprints
        and one.kind not in found.unseen
        and not (limits.is_snoozed(one, now) and (one.kind, one.subject) in found.subjects)
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
