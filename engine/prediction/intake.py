"""Withdraws cards whose evidence is gone, and adds new ones, in the one transaction of a cycle (SPEC 2.7, 2.9).

When the evidence of a card is gone, `is_done_by_operator` decides whether the operator did the proposed work (SPEC
8.1), for the kinds where the workspace shows it:

| kind | done when |
|---|---|
| run_tests | the tests ran after the card was made, by a prompt of the operator |
| rehearse_merge | the branch is the target and no commit of the source is missing |
| report_branches | one of the branches is gone |

Work of another card does not count, nor does a change that only removes the evidence: a commit of a file is no check of
HEAD, and a test that passes again was not bisected.
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
from engine.prediction.card_rows import Prediction, card_of, load_card, own_session_ids
from engine.prediction.card_store import CardStore
from engine.prediction.context import WorkspaceContext
from engine.prediction.lifecycle import MAX_COOL_DOWN, is_cooling_down
from engine.storage import state as stored
from engine.storage.database import Transaction
from engine.storage.rows import Rows, ask, each_of
from engine.storage.table_cache import TableCache
from engine.storage.types import UtcDateTime


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
    col(Prediction.closed_at),
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
        self._same_evidence: TableCache[Rows] = TableCache(store.database, Prediction)
        self._rejected: TableCache[Rows] = TableCache(store.database, Prediction)

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
        fingerprints = tuple(sorted({new.fingerprint for new in candidates}))
        values = {"fingerprints": json.dumps(fingerprints), "since": now - MAX_COOL_DOWN}
        # The cache may hold rows that are too old by now.
        rows = self._same_evidence.seen(session, fingerprints, lambda seen: ask(seen, _SAME_EVIDENCE, values))
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

    def room(self, session: Session, leaving: Collection[str], now: datetime) -> stack.Room:
        """The free places of the stack without the cards `leaving`; woken cards without a place come first."""
        cards = self._store.pending(session)
        awake = [card for card in cards if card.id not in leaving and not card.snoozed(now)]
        return stack.Room(self._store.settings.current, awake)

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
        since = tx.now - MAX_COOL_DOWN
        rejected = self._rejected.seen(tx.session, "", lambda seen: ask(seen, _REJECTED, {"since": since}))
        for card_id, workspace, kind, fingerprint, was_gone, closed_at in rejected:
            finding = complete.get(workspace)
            if finding is None or kind in finding.unseen or closed_at < since:
                continue
            if was_gone is finding.has_evidence(fingerprint):
                load_card(tx.session, card_id).evidence_gone = not was_gone
