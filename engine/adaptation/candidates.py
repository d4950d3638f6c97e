"""The table of candidates and the few ways to change it (SPEC 5.3): legal steps only, each with its fact and its line
of history, in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, bindparam
from sqlmodel import Field, SQLModel, col

from engine.adaptation.evaluation import Evaluation
from engine.events import (
    CandidateDecisionUndone,
    CandidateDrafted,
    CandidatePromoted,
    CandidateRejected,
    CandidateRolledBack,
    CandidateWeighed,
)
from engine.storage.database import Database, Transaction
from engine.storage.ids import beginning
from engine.storage.quick import ask, found, load, whole
from engine.storage.types import utc
from engine.values import Refusal, Trust
from engine.values.adaptation import (
    DECISIONS,
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    PromptFragment,
    candidate_after,
    effect_from_json,
)

log = logging.getLogger(__name__)

STATUSES = ", ".join(f"'{one.value}'" for one in CandidateStatus)
TYPES = ", ".join(f"'{one.value}'" for one in CandidateType)

LIVING = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.PROMOTED, CandidateStatus.REJECTED)
"""Those that new records can say something about."""


class CandidateRow(SQLModel, table=True):
    """One candidate as stored. `history` has a line for each step that it took."""

    __tablename__ = "candidates"
    __table_args__ = (
        CheckConstraint("score >= 0 AND score <= 100", name="ck_candidates_score"),
        CheckConstraint(f"status IN ({STATUSES})", name="ck_candidates_status"),
        CheckConstraint(f"type IN ({TYPES})", name="ck_candidates_type"),
        Index("ix_candidates_dedupe_key", "dedupe_key", unique=True),
        Index("ix_candidates_status", "status", "changed_at"),
    )

    id: str = Field(primary_key=True)
    type: str
    scope_type: str
    scope_id: str
    source_label: str
    dedupe_key: str
    title: str
    status: str
    score: float
    effect: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    agent_id: str
    run_kind: str
    workspace: str
    drafted_from: list[str] = Field(sa_column=Column(JSON, nullable=False))
    corroborated_by: list[str] = Field(sa_column=Column(JSON, nullable=False))
    against: list[str] = Field(sa_column=Column(JSON, nullable=False))
    history: list[dict[str, Any]] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(sa_column=utc())
    changed_at: datetime = Field(sa_column=utc())
    decided_by: str = ""
    reason: str = ""
    trust: str = Field(default=Trust.QUOTED.value, sa_column_kwargs={"server_default": Trust.QUOTED.value})

    @property
    def value(self) -> Candidate:
        """The row as others see it. Raises `Refusal` `bad_effect` when its effect is damaged, but for one that is
        rejected or rolled back: so that it can be."""
        try:
            effect = effect_from_json(self.effect)
        except Refusal as refusal:
            if self.status not in (CandidateStatus.REJECTED, CandidateStatus.ROLLED_BACK):
                raise
            effect = PromptFragment((refusal.message,))
        return Candidate(
            id=self.id,
            type=CandidateType(self.type),
            scope_type=self.scope_type,
            scope_id=self.scope_id,
            source_label=self.source_label,
            title=self.title,
            status=CandidateStatus(self.status),
            score=self.score,
            effect=effect,
            created_at=self.created_at,
            changed_at=self.changed_at,
            agent_id=self.agent_id,
            run_kind=self.run_kind,
            workspace=self.workspace,
            drafted_from=tuple(self.drafted_from),
            corroborated_by=tuple(self.corroborated_by),
            against=tuple(self.against),
            decided_by=self.decided_by,
            reason=self.reason,
            trust=Trust(self.trust),
        )

    @property
    def taken_back(self) -> bool:
        """Whether nothing has happened to it since the operator took a decision on it back."""
        return bool(self.history) and self.history[-1]["move"] == CandidateMove.UNDO

    def last(self, *statuses: CandidateStatus) -> datetime | None:
        """When it last came into one of these, None when never."""
        wanted = {one.value for one in statuses}
        return next(
            (datetime.fromisoformat(step["at"]) for step in reversed(self.history) if step["status"] in wanted), None
        )


_ROWS = whole(CandidateRow)
_NEWEST = _ROWS.order_by(col(CandidateRow.changed_at).desc(), col(CandidateRow.id)).limit(bindparam("most"))
_IN = col(CandidateRow.status).in_(bindparam("statuses", expanding=True))
_NEWEST_IN = _NEWEST.where(_IN)
_IN_ORDER = _ROWS.where(_IN).order_by(col(CandidateRow.created_at), col(CandidateRow.id))
_KEYS = sqlalchemy.select(col(CandidateRow.dedupe_key))
_COUNTS = sqlalchemy.select(col(CandidateRow.status), sqlalchemy.func.count()).group_by(col(CandidateRow.status))
_OF_SCOPE = _ROWS.where(
    col(CandidateRow.type) == bindparam("type"),
    col(CandidateRow.scope_type) == bindparam("scope_type"),
    col(CandidateRow.scope_id) == bindparam("scope_id"),
)


def sound(rows: Iterable[CandidateRow]) -> list[CandidateRow]:
    """Those whose effect can be read: a damaged one takes no other with it. It can still be shown and rejected."""
    found = []
    for row in rows:
        try:
            row.value  # noqa: B018 (reads it)
        except Refusal as refusal:
            log.warning("candidate %s is left out: %s", row.id, refusal)
        else:
            found.append(row)
    return found


class Candidates:
    """Reads candidates; writes go through the functions below, in a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, statuses: Sequence[CandidateStatus] = (), *, limit: int = 10_000) -> list[CandidateRow]:
        """Those of some statuses, or all, the latest change first."""
        with self._database.read() as session:
            if statuses:
                values = {"statuses": [one.value for one in statuses], "most": limit}
                return found(session, CandidateRow, _NEWEST_IN, values)
            return found(session, CandidateRow, _NEWEST, {"most": limit})

    def keys(self) -> set[str]:
        """What there are candidates of, whatever became of them."""
        with self._database.read() as session:
            return {str(key) for (key,) in ask(session, _KEYS)}

    def of_scope(self, type: CandidateType, scope_type: str, scope_id: str) -> list[CandidateRow]:
        """Those of a type and scope."""
        with self._database.read() as session:
            return found(
                session, CandidateRow, _OF_SCOPE,
                {"type": type.value, "scope_type": scope_type, "scope_id": scope_id},
            )  # fmt: skip

    def counts(self) -> dict[CandidateStatus, int]:
        """How many there are of each status."""
        with self._database.read() as session:
            told = {str(status): int(number) for status, number in ask(session, _COUNTS)}
        return {status: told.get(status.value, 0) for status in CandidateStatus}

    def get(self, wanted: str) -> CandidateRow:
        """One, by the beginning of its id. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        with self._database.read() as session:
            row = load(session, CandidateRow, wanted)
            if row is not None:
                return row
            ids = beginning(session, col(CandidateRow.id), wanted)
            if len(ids) == 1 and (row := load(session, CandidateRow, ids[0])) is not None:
                return row
        if ids:
            raise Refusal("ambiguous_id", f"{wanted} begins {len(ids)} candidates", "give more letters of the one")
        raise Refusal("unknown_candidate", f"there is no candidate {wanted[:60]}", "clawpy candidates lists them")


def row_of(tx: Transaction, candidate_id: str) -> CandidateRow:
    """One, to be changed. Raises `Refusal` `unknown_candidate`."""
    row = load(tx.session, CandidateRow, candidate_id)
    if row is None:
        raise Refusal("unknown_candidate", f"there is no candidate {candidate_id[:60]}", "clawpy candidates lists them")
    return row


def add(tx: Transaction, candidate: Candidate, reason: str) -> CandidateRow | None:
    """Store one that was drafted, for this `reason`; None when there is one of its key already."""
    keys = {str(key) for (key,) in tx.ask(_KEYS)}
    if candidate.dedupe_key in keys:
        return None
    row = CandidateRow(
        id=candidate.id, type=candidate.type.value, scope_type=candidate.scope_type, scope_id=candidate.scope_id,
        source_label=candidate.source_label, dedupe_key=candidate.dedupe_key, title=candidate.title,
        status=CandidateStatus.DRAFTED.value, score=candidate.score, effect=candidate.effect.to_json(),
        agent_id=candidate.agent_id, run_kind=candidate.run_kind, workspace=candidate.workspace,
        drafted_from=list(candidate.drafted_from), corroborated_by=[], against=[], history=[],
        created_at=tx.now, changed_at=tx.now, reason=reason, trust=candidate.trust.value,
    )  # fmt: skip
    _step(tx, row, "draft", reason=reason)
    tx.session.add(row)
    tx.record(
        CandidateDrafted(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, score=row.score,
            records=tuple(row.drafted_from),
        )
    )  # fmt: skip
    return row


def weigh(tx: Transaction, row: CandidateRow, found: Evaluation, move: CandidateMove | None) -> None:
    """Keep what other records say of it; `move` is the step that follows of it, None for none."""
    if move is not None:
        row.status = candidate_after(row.id, CandidateStatus(row.status), move).value
        row.changed_at = tx.now
    row.corroborated_by, row.against = list(found.corroborated_by), list(found.against)
    if not CandidateStatus(row.status).decided:
        row.score, row.reason, row.decided_by = found.score, found.reason, ""
    if move is not None:
        _step(tx, row, move.value, reason=found.reason)
        tx.record(
            CandidateWeighed(
                subject=row.id, workspace=row.workspace, status=row.status, score=found.score,
                corroborated_by=found.corroborated_by, against=found.against,
            )
        )  # fmt: skip
    tx.session.add(row)


def decide(tx: Transaction, row: CandidateRow, move: CandidateMove, by: str, reason: str) -> None:
    """Promote, reject or roll back. Raises what `candidate_after` raises, before anything is changed."""
    row.status = candidate_after(row.id, CandidateStatus(row.status), move).value
    row.changed_at, row.decided_by, row.reason = tx.now, by, reason
    _step(tx, row, move.value, by=by, reason=reason)
    tx.session.add(row)
    fact = {
        CandidateMove.APPROVE: CandidatePromoted,
        CandidateMove.REJECT: CandidateRejected,
        CandidateMove.ROLL_BACK: CandidateRolledBack,
    }[move]
    tx.record(fact(subject=row.id, workspace=row.workspace, type=row.type, title=row.title, by=by, reason=reason))


def undo(tx: Transaction, row: CandidateRow) -> None:
    """Take the operator's decision back, if it was the last that happened to it: it stands as before. Raises `Refusal`
    `nothing_to_undo`."""
    *earlier, last = row.history
    if last["move"] not in DECISIONS or last["by"] != "operator":
        raise Refusal(
            "nothing_to_undo",
            f"the last that happened to candidate {row.id} was no decision of yours ({last['move']})",
            f"see clawpy candidates show {row.id}",
        )
    before = earlier[-1]
    row.status, row.decided_by, row.reason = before["status"], before["by"], before["reason"]
    row.changed_at = tx.now
    why = f" ({last['reason']})" if last["reason"] else ""
    _step(tx, row, CandidateMove.UNDO, by="operator", reason=f"taken back: {last['move']}{why}")
    tx.session.add(row)
    tx.record(
        CandidateDecisionUndone(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, status=row.status
        )
    )  # fmt: skip


def _step(tx: Transaction, row: CandidateRow, move: str, *, by: str = "", reason: str = "") -> None:
    row.history = [
        *row.history,
        {
            "at": tx.now.isoformat(),
            "move": move,
            "status": row.status,
            "score": row.score,
            "for": len(row.corroborated_by),
            "against": len(row.against),
            "by": by,
            "reason": reason,
        },
    ]
