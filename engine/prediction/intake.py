"""What one cycle does to the cards, in one transaction: withdraw what is over, seat what is new (SPEC 2.7, 2.9).

Where a card's evidence is gone: did the operator do the proposed work? (SPEC 8.1: chosen 0.7.) A rule says yes
only when what is there now can hardly come from anything but the proposed work having been done; where that cannot be
told there is no rule, and the card goes without a signal:

| kind | done when |
|---|---|
| run_tests | the tests ran after the card was made, at a prompt of his own |
| rehearse_merge | the branch is on the target and no commit of the source is missing: he merged |
| report_branches | one of the branches is gone: he tidied up |

What another card did is no work of his own: its approval says what it says by itself. Nor is what only takes the
evidence away: committing a file is not checking HEAD without it, a tag is not a change log, a test that passes again
was not bisected, and a branch that was merged was not compared with the others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy
from sqlalchemy import bindparam, or_
from sqlmodel import Session, col

from engine.events import CycleFinished, TriggerBlocked
from engine.frozen import frozen
from engine.model import Card, Proposal, Source, Status
from engine.prediction import stack
from engine.prediction.card_rows import Prediction, card_of, find_card, own_sessions
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.lifecycle import MAX_COOL_DOWN, keeps_away
from engine.storage import state as stored
from engine.storage.database import Transaction
from engine.storage.rows import Rows, ask, each_of
from engine.storage.table_cache import TableCache
from engine.storage.types import UtcDateTime


def done_by_operator(card: Prediction, now: WorkspaceContext, own_session_ids: Collection[str] = ()) -> bool:
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
    """What the cycle found in one workspace: the evidence, and what it is about as (kind, subject). `complete` is False
    when a collector failed: then nothing is withdrawn, since what was not seen is not gone. `unseen`: kinds that one
    failed look tells of, of which the same holds."""

    context: WorkspaceContext
    fingerprints: frozenset[str]
    subjects: frozenset[tuple[str, str]]
    complete: bool
    unseen: frozenset[str] = frozenset()


class Intake:
    """Seats and withdraws cards for the cycle."""

    def __init__(self, store: CardStore) -> None:
        self._store = store
        self._same_evidence: TableCache[Rows] = TableCache(store.database, Prediction)
        self._rejected: TableCache[Rows] = TableCache(store.database, Prediction)

    def unavailable(
        self,
        session: Session,
        candidates: Sequence[Proposal] | Sequence[Prediction],
        now: datetime,
        leaving: Collection[str] = (),
    ) -> set[str]:
        """Fingerprints of those for which there is no card now (SPEC 2.9): the operator dismissed their subject or
        their kind, a card about the subject is pending, or the same evidence is under way or cools down. `leaving` are
        ids of pending cards that are about to go."""
        muted = self._store.dismissals.muted(session, now)
        pending = {card.about for card in self._store.pending(session) if card.id not in leaving}
        unavailable = {
            new.fingerprint
            for new in candidates
            if new.about in pending or muted.covers(*new.about, tier=int(new.tier))
        }
        fingerprints = tuple(sorted({new.fingerprint for new in candidates}))
        values = {"fingerprints": json.dumps(fingerprints), "since": now - MAX_COOL_DOWN}
        # What is kept may be from before: then it has more rows, whose time is over by now.
        rows = self._same_evidence.seen(session, fingerprints, lambda seen: ask(seen, _SAME_EVIDENCE, values))
        return unavailable | {fingerprint for fingerprint, *row in rows if keeps_away(now, *row)}

    def other_evidence(self, session: Session, candidate: Proposal | Prediction) -> set[str]:
        """Ids of pending cards about the same subject that are for other evidence."""
        cards = self._store.pending(session)
        return {
            card.id for card in cards if card.about == candidate.about and card.fingerprint != candidate.fingerprint
        }

    def may_follow(self, session: Session, proposals: Sequence[Proposal], now: datetime) -> list[Proposal]:
        """Those that can be the next step: there may be a card now, or one for this very evidence is shown already.
        Cards about the same for other evidence make room."""
        older = {card_id for proposal in proposals for card_id in self.other_evidence(session, proposal)}
        pending = {card.fingerprint for card in self._store.pending(session) if not card.snoozed(now)}
        unavailable = self.unavailable(session, proposals, now, older) - pending
        return [proposal for proposal in proposals if proposal.fingerprint not in unavailable]

    def leaving(self, session: Session, findings: Sequence[WorkspaceFindings], now: datetime) -> set[str]:
        """Ids of the pending cards that `apply` will withdraw, since what they are about is no longer so.

        Where a collector failed nothing is over: what was not seen is not gone. A card that the operator put off sleeps
        on while its subject is still there: new facts would bring it back before its time."""
        by_workspace = {finding.context.workspace: finding for finding in findings if finding.complete}
        return {
            card.id
            for card in self._store.pending(session)
            if card.source in BOUND_TO_EVIDENCE
            and (finding := by_workspace.get(card.workspace)) is not None
            and card.fingerprint not in finding.fingerprints
            and card.kind not in finding.unseen
            and not (card.snoozed(now) and (card.kind, card.subject) in finding.subjects)
        }

    def room(self, session: Session, leaving: Collection[str], now: datetime) -> stack.Room:
        """The places of the stack once `leaving` are gone; woken cards that wait for a place come first."""
        cards = self._store.pending(session)
        awake = [card for card in cards if card.id not in leaving and not card.snoozed(now)]
        return stack.Room(self._store.settings.current, awake)

    def apply(
        self,
        tx: Transaction,
        findings: Sequence[WorkspaceFindings],
        rows: Sequence[Prediction],
        blocked: Sequence[TriggerBlocked],
        errors: tuple[str, ...],
        seconds: float,
    ) -> tuple[list[Card], list[str]]:
        """Carry the cycle out: (cards created, ids withdrawn). `rows` best first; those without a place are dropped."""
        withdrawn = self._withdraw(tx, findings)
        self._note_evidence(tx, findings)
        looked = {finding.context.workspace: finding.context.now.isoformat() for finding in findings}
        stored.put(tx, LOOKED, stored.get(tx.session, LOOKED, {}) | looked)
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
                self._store.withdraw(tx, find_card(tx.session, card_id), "made room for something more urgent")
            withdrawn += displaced
            subjects.add(row.about)
            cards.append(self._store.add(tx, row))
        for fact in blocked:
            tx.record(fact)
        tx.record(CycleFinished(created=len(cards), withdrawn=len(withdrawn), seconds=seconds, errors=errors))
        return cards, withdrawn

    def seat_follow_up(
        self,
        tx: Transaction,
        findings: Sequence[WorkspaceFindings],
        rows: Sequence[Prediction],
        blocked: Sequence[TriggerBlocked],
    ) -> Card | None:
        """Withdraw what is no longer so, and store a follow-up, which needs no place (SPEC 2.9), in the place of a card
        about the same that knows less; None when a card for the same evidence is there, or when it cools down or was
        dismissed."""
        self._withdraw(tx, findings)
        for fact in blocked:
            tx.record(fact)
        for row in rows:
            older = self.other_evidence(tx.session, row)
            if row.fingerprint in self.unavailable(tx.session, [row], tx.now, older):
                continue
            for card_id in older:
                self._store.withdraw(tx, find_card(tx.session, card_id), "made room for a newer card about the same")
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
            row = find_card(tx.session, card_id)
            own_session_ids = own_sessions(tx.session, row.workspace, row.created_at)
            by_operator = done_by_operator(row, contexts[row.workspace], own_session_ids)
            reason = "you did it yourself" if by_operator else "its reason no longer applies"
            self._store.withdraw(tx, row, reason, by_operator=by_operator)
        return withdrawn

    def _note_evidence(self, tx: Transaction, findings: Sequence[WorkspaceFindings]) -> None:
        """Remember of dismissed cards whether undoing them still makes sense."""
        complete = {finding.context.workspace: finding for finding in findings if finding.complete}
        since = tx.now - MAX_COOL_DOWN
        rejected = self._rejected.seen(tx.session, "", lambda seen: ask(seen, _REJECTED, {"since": since}))
        for card_id, workspace, kind, fingerprint, was_gone, closed_at in rejected:
            finding = complete.get(workspace)
            if finding is None or kind in finding.unseen or closed_at < since:
                continue
            if was_gone is (fingerprint in finding.fingerprints):
                find_card(tx.session, card_id).evidence_gone = not was_gone
