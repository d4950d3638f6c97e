"""The table of candidates and their life cycle: proposed, active, rolled back (SPEC 5.3).

Every transition is checked against the legal ones and runs in the caller's transaction, together with its event and
its line of history. A candidate's effect is active exactly while its status says so, so a crash leaves the old
behaviour or the new one. `CandidateTexts` removes forgotten words (SPEC 4.10): whole lines go, never part of a command
or a diff.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index
from sqlmodel import Field, Session, SQLModel, col, select

from engine.events import (
    CandidateDecisionUndone,
    CandidateDrafted,
    CandidatePromoted,
    CandidateRejected,
    CandidateRolledBack,
    CandidateWeighed,
)
from engine.learning.candidates.effects import checked, effect_texts, free_name, map_texts
from engine.learning.candidates.evaluation import Evaluation
from engine.model import Refusal, Trust
from engine.model.adaptation import (
    DECISIONS,
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    Effect,
    FlowOffload,
    Overlay,
    PromptFragment,
    candidate_after,
    effect_from_json,
)
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.storage.rows import ids_with_prefix, load, load_all, select_all
from engine.storage.table_cache import TableCache
from engine.storage.types import utc_column

log = logging.getLogger(__name__)

STATUSES = ", ".join(f"'{status.value}'" for status in CandidateStatus)
TYPES = ", ".join(f"'{type.value}'" for type in CandidateType)


class CandidateRow(SQLModel, table=True):
    """One candidate as stored. `history` has a line for each step that it took. `term`: how often it came in force,
    `since` when it last did; `told_at`: when it was told of that it does harm, in this term."""

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
    created_at: datetime = Field(sa_column=utc_column())
    changed_at: datetime = Field(sa_column=utc_column())
    decided_by: str = ""
    reason: str = ""
    trust: str = Field(default=Trust.QUOTED.value, sa_column_kwargs={"server_default": Trust.QUOTED.value})
    term: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    since: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))
    told_at: datetime | None = Field(default=None, sa_column=utc_column(nullable=True))

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
        values = {field.name: getattr(self, field.name) for field in fields(Candidate)}
        values |= {name: tuple(values[name]) for name in _IDS}
        values |= {"type": CandidateType(self.type), "status": CandidateStatus(self.status), "trust": Trust(self.trust)}
        return Candidate(**values | {"effect": effect})

    @property
    def overlay(self) -> Overlay:
        """What it puts in force, in its present or last term. Raises `Refusal` `bad_effect`."""
        return Overlay(
            id=f"{self.id}.{self.term}",
            candidate_id=self.id,
            type=CandidateType(self.type),
            agent_id=self.agent_id,
            run_kind=self.run_kind,
            workspace=self.workspace,
            effect=checked(effect_from_json(self.effect)),
            since=self.since or self.changed_at,
            trust=Trust(self.trust),
        )

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """One for each of its terms, the newest first; () for one that cannot be read."""
        begun: list[tuple[datetime, datetime | None]] = []
        was = ""
        for step in self.history:
            at, status = datetime.fromisoformat(step["at"]), step["status"]
            if status == CandidateStatus.PROMOTED != was:
                begun.append((at, None))
            elif was == CandidateStatus.PROMOTED != status:
                begun[-1] = (begun[-1][0], at)
            was = status
        try:
            last = self.overlay
        except Refusal:
            return ()
        terms = [
            replace(last, id=f"{self.id}.{number}", since=since, until=until)
            for number, (since, until) in enumerate(begun, 1)
        ]
        return tuple(reversed(terms))

    @property
    def taken_back(self) -> bool:
        """Whether nothing has happened to it since the operator took a decision on it back."""
        return bool(self.history) and self.history[-1]["move"] == CandidateMove.UNDO

    def last(self, status: CandidateStatus) -> datetime | None:
        """When it last came into this status, None when never."""
        return next((step_time(step) for step in reversed(self.history) if step["status"] == status), None)

    @property
    def corroboration(self) -> dict[str, Any] | None:
        """The last step of its history by which other records bore it out, None without one."""
        return next((step for step in reversed(self.history) if step["move"] == CandidateMove.CORROBORATE), None)


_IDS = ("drafted_from", "corroborated_by", "against")
_FACTS = {
    CandidateMove.APPROVE: CandidatePromoted,
    CandidateMove.REJECT: CandidateRejected,
    CandidateMove.ROLL_BACK: CandidateRolledBack,
}
_ROWS = select_all(CandidateRow).order_by(col(CandidateRow.changed_at).desc(), col(CandidateRow.id))


def step_time(step: dict[str, Any]) -> datetime:
    """When a step of a candidate's history was taken."""
    return datetime.fromisoformat(step["at"])


class Candidates:
    """Reads candidates; writes go through the functions below, in a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows: TableCache[list[CandidateRow]] = TableCache(database, CandidateRow)

    def rows(self, *statuses: CandidateStatus) -> list[CandidateRow]:
        """The rows of some statuses, or all, the latest change first. The list is shared: do not change it."""
        return [row for row in self._rows.get("", self._read) if not statuses or row.status in statuses]

    def readable(self, *statuses: CandidateStatus) -> list[CandidateRow]:
        """The rows whose effect can be read. A damaged one is left out; it can still be shown and rejected."""
        readable = []
        for row in self.rows(*statuses):
            try:
                row.value  # noqa: B018 (reads it)
            except Refusal as refusal:
                log.warning("candidate %s is left out: %s", row.id, refusal)
            else:
                readable.append(row)
        return readable

    def get(self, candidate_id: str) -> CandidateRow:
        """One, by the beginning of its id. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        with self._database.read() as session:
            row = load(session, CandidateRow, candidate_id)
            ids = [] if row is not None else ids_with_prefix(session, col(CandidateRow.id), candidate_id)
            row = load(session, CandidateRow, ids[0]) if len(ids) == 1 else row
        if row is not None:
            return row
        if ids:
            raise Refusal("ambiguous_id", f"{candidate_id} begins {len(ids)} candidates", "give more of its id")
        raise _unknown(candidate_id)

    def _read(self) -> list[CandidateRow]:
        with self._database.read() as session:
            return load_all(session, CandidateRow, _ROWS)


def row_of(tx: Transaction, candidate_id: str) -> CandidateRow:
    """One, to be changed. Raises `Refusal` `unknown_candidate`."""
    row = load(tx.session, CandidateRow, candidate_id)
    if row is None:
        raise _unknown(candidate_id)
    return row


def _unknown(candidate_id: str) -> Refusal:
    return Refusal("unknown_candidate", f"there is no candidate {candidate_id[:60]}", "clawpy candidates lists them")


def add(tx: Transaction, candidate: Candidate, reason: str) -> CandidateRow | None:
    """Store one that was drafted, for this `reason`; None when there is one of its key already."""
    key = candidate.dedupe_key
    if tx.session.exec(select(CandidateRow.id).where(col(CandidateRow.dedupe_key) == key)).first():
        return None
    values = {field.name: getattr(candidate, field.name) for field in fields(candidate)}
    values |= {"effect": candidate.effect.to_json(), "created_at": tx.now, "reason": reason, "dedupe_key": key}
    values |= {"type": candidate.type.value, "trust": candidate.trust.value, "history": []}
    row = CandidateRow(**values | {name: list(values[name]) for name in _IDS})
    _step(tx, row, "draft", CandidateStatus.DRAFTED, reason=reason)
    tx.record(
        CandidateDrafted(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, score=row.score,
            records=tuple(row.drafted_from),
        )
    )  # fmt: skip
    return row


def weigh(tx: Transaction, row: CandidateRow, evaluation: Evaluation, move: CandidateMove | None) -> None:
    """Keep what other records say of it; `move` is the step that follows of it, None for none."""
    following = CandidateStatus(row.status)
    if move is not None:
        following = candidate_after(row.id, following, move)
    row.corroborated_by, row.against = list(evaluation.corroborated_by), list(evaluation.against)
    if not following.decided:
        row.score, row.reason, row.decided_by = evaluation.score, evaluation.reason, ""
    tx.session.add(row)
    if move is not None:
        _step(tx, row, move.value, following, reason=evaluation.reason)
        tx.record(
            CandidateWeighed(
                subject=row.id, workspace=row.workspace, status=row.status, score=evaluation.score,
                corroborated_by=evaluation.corroborated_by, against=evaluation.against,
            )
        )  # fmt: skip


def decide(
    tx: Transaction, row: CandidateRow, move: CandidateMove, by: str, reason: str, flow_names: Collection[str] = ()
) -> None:
    """Promote, reject or roll back; `flow_names` are taken, so a new flow gets another name.

    Raises what `candidate_after` raises, and `Refusal` `bad_effect`, `already_in_force` (another flow does the same),
    before anything is changed.
    """
    following = candidate_after(row.id, CandidateStatus(row.status), move)
    _step(tx, row, move.value, following, by=by, reason=reason, flow_names=flow_names)
    row.decided_by, row.reason = by, reason
    tx.record(
        _FACTS[move](subject=row.id, workspace=row.workspace, type=row.type, title=row.title, by=by, reason=reason)
    )


def undo(tx: Transaction, row: CandidateRow, flow_names: Collection[str] = ()) -> None:
    """Take the operator's decision back, if it was the last that happened to it: it stands as before. Raises `Refusal`
    `nothing_to_undo`, and what `decide` raises where it comes in force again."""
    *earlier, last = row.history
    if last["move"] not in DECISIONS or last["by"] != "operator":
        raise Refusal(
            "nothing_to_undo",
            f"the last change to candidate {row.id} was not one of your decisions ({last['move']})",
            f"see clawpy candidates show {row.id}",
        )
    before, why = earlier[-1], f" ({last['reason']})" if last["reason"] else ""
    reason = f"undone: {last['move']}{why}"
    _step(
        tx,
        row,
        CandidateMove.UNDO,
        CandidateStatus(before["status"]),
        by="operator",
        reason=reason,
        flow_names=flow_names,
    )
    row.decided_by, row.reason = before["by"], before["reason"]
    tx.record(
        CandidateDecisionUndone(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, status=row.status
        )
    )  # fmt: skip


def _step(
    tx: Transaction,
    row: CandidateRow,
    move: str,
    status: CandidateStatus,
    *,
    by: str = "",
    reason: str = "",
    flow_names: Collection[str] = (),
) -> None:
    if status is CandidateStatus.PROMOTED:
        row.effect = _ready(tx, row, flow_names).to_json()
        row.term, row.since, row.told_at = row.term + 1, tx.now, None
    row.status, row.changed_at = status.value, tx.now
    row.history = [
        *row.history,
        {
            "at": tx.now.isoformat(),
            "move": str(move),
            "status": row.status,
            "score": row.score,
            "for": len(row.corroborated_by),
            "against": len(row.against),
            "by": by,
            "reason": reason,
        },
    ]
    tx.session.add(row)


def _ready(tx: Transaction, row: CandidateRow, flow_names: Collection[str]) -> Effect:
    """The effect as it comes in force. A flow gets a name that never meant other commands: a permit for it stays one
    for just these."""
    effect = checked(effect_from_json(row.effect))
    if not isinstance(effect, FlowOffload):
        return effect
    names, commands = set(flow_names), list(effect.commands)
    for other in tx.session.exec(select(CandidateRow).where(col(CandidateRow.type) == effect.kind.value)):
        name, same = str(other.effect.get("name", "")), other.effect.get("commands") == commands
        in_force = other.status == CandidateStatus.PROMOTED
        if other.id == row.id or not other.term:
            continue
        if in_force and same and other.workspace in ("", row.workspace):
            raise Refusal(
                "already_in_force",
                f"the flow {name} already runs these commands",
                f"reject this candidate; the other is {other.id}",
            )
        if in_force or not same:
            names.add(name)
    return replace(effect, name=free_name(effect.name, names))


_UNDECIDED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ROLLED_BACK)


class CandidateTexts:
    """See `engine.memory.forget.Store`. What else a candidate says goes with the other records."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect holds it: id and the texts that would go."""
        with self._database.read() as session:
            for row, _, text in _matching_rows(session, query):
                yield row.id, text

    def erase(self, query: SearchTerms, /) -> int:
        """Take it out; how many candidates. Prompts are made without it from now on."""

        def work(tx: Transaction) -> int:
            holding = list(_matching_rows(tx.session, query))
            for row, less, _ in holding:
                row.effect = {} if less is None else less.to_json()
                tx.session.add(row)
                if row.status in _UNDECIDED and not _is_usable(less):
                    decide(tx, row, CandidateMove.REJECT, "operator", "its text was forgotten")
            return len(holding)

        return self._database.write(work)


def _is_usable(effect: Effect | None) -> bool:
    try:
        return effect is not None and bool(checked(effect))
    except Refusal:
        return False


def _matching_rows(session: Session, query: SearchTerms) -> Iterator[tuple[CandidateRow, Effect | None, str]]:
    """The candidates that hold it, each with its effect without it, None for one that nobody can read, and what would
    go."""
    for row in session.exec(select(CandidateRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:  # all of it goes
            text = str(list(row.effect.values()))
            if query.match(text):
                yield row, None, text
            continue
        less = map_texts(effect, lambda text: "" if query.match(text) else text)
        if less != effect:
            remaining = set(effect_texts(less))
            yield row, less, " · ".join(text for text in effect_texts(effect) if text not in remaining)
