"""Removes forgotten texts from the effects of candidates (SPEC 4.10).

Whole lines are removed, never part of a command or a diff.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlmodel import Field, Session, col, select

from engine.events import (
    CandidateDecisionUndone,
    CandidateDrafted,
    CandidatePromoted,
    CandidateRejected,
    CandidateRolledBack,
    CandidateWeighed,
)
from engine.learning.candidates.effects import effect_texts, free_name, map_texts, validate_effect
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
from engine.storage.rows import (
    Row,
    ids_with_prefix,
    json_field,
    load,
    load_all,
    select_all,
    shallow_dict,
    utc_field,
    value_of,
)

# The table of candidates and their life cycle: proposed, active, rolled back (SPEC 5.3).
#
# Each transition is checked against the legal ones and runs in the caller's transaction, together with its event and
# its line of history. A candidate's effect is active exactly while its status says so, so a crash leaves the old
# behaviour or the new one.


log = logging.getLogger(__name__)


class CandidateRow(Row, table=True):
    """One candidate. `history` has an entry for each transition."""

    __tablename__ = "candidates"

    id: str = Field(primary_key=True)
    type: str
    scope_type: str
    scope_id: str
    source_label: str
    dedupe_key: str
    title: str
    status: str
    score: float
    effect: dict[str, Any] = json_field()
    agent_id: str
    run_kind: str
    workspace: str
    drafted_from: list[str] = json_field()
    corroborated_by: list[str] = json_field()
    against: list[str] = json_field()
    history: list[dict[str, Any]] = json_field()
    created_at: datetime = utc_field()
    changed_at: datetime = utc_field()
    decided_by: str = ""
    reason: str = ""
    trust: str = Trust.QUOTED.value
    term: int = 0
    """How often it became active."""
    since: datetime | None = utc_field(nullable=True)
    """When it last became active."""
    told_at: datetime | None = utc_field(nullable=True)
    """When its harm was reported, in this term."""

    @property
    def value(self) -> Candidate:
        """The candidate of this row. Raises `Refusal` `bad_effect` if its effect is damaged, unless it is rejected or
        rolled back."""
        try:
            effect = effect_from_json(self.effect)
        except Refusal as refusal:
            if self.status not in (CandidateStatus.REJECTED, CandidateStatus.ROLLED_BACK):
                raise
            effect = PromptFragment((refusal.message,))
        return value_of(
            self,
            Candidate,
            type=CandidateType(self.type),
            status=CandidateStatus(self.status),
            effect=effect,
            drafted_from=tuple(self.drafted_from),
            corroborated_by=tuple(self.corroborated_by),
            against=tuple(self.against),
            trust=Trust(self.trust),
        )

    @property
    def overlay(self) -> Overlay:
        """Its effect in the present or last term. Raises `Refusal` `bad_effect`."""
        return value_of(
            self,
            Overlay,
            id=f"{self.id}.{self.term}",
            candidate_id=self.id,
            type=CandidateType(self.type),
            effect=validate_effect(effect_from_json(self.effect)),
            since=self.since or self.changed_at,
            trust=Trust(self.trust),
        )

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """An overlay for each of its terms, newest first; () if its effect cannot be read."""
        try:
            newest = self.overlay
        except Refusal:
            return ()
        overlays: list[Overlay] = []
        was_active = False
        for step in self.history:
            is_active = step["status"] == CandidateStatus.PROMOTED
            if is_active and not was_active:
                overlay_id = f"{self.id}.{len(overlays) + 1}"
                overlays.append(replace(newest, id=overlay_id, since=step_time(step), until=None))
            elif was_active and not is_active:
                overlays[-1] = replace(overlays[-1], until=step_time(step))
            was_active = is_active
        return tuple(reversed(overlays))

    @property
    def is_undone(self) -> bool:
        """Whether its last transition is the undo of a decision."""
        return bool(self.history[-1]["move"] == CandidateMove.UNDO)

    def last_time(self, status: CandidateStatus) -> datetime:
        """When it last got this status, which it has had."""
        return next(step_time(step) for step in reversed(self.history) if step["status"] == status)

    @property
    def corroboration(self) -> dict[str, Any] | None:
        """The last transition because other records supported it, None without one."""
        return next((step for step in reversed(self.history) if step["move"] == CandidateMove.CORROBORATE), None)


_EVENTS = {
    CandidateMove.APPROVE: CandidatePromoted,
    CandidateMove.REJECT: CandidateRejected,
    CandidateMove.ROLL_BACK: CandidateRolledBack,
}
_ROWS = select_all(CandidateRow).order_by(col(CandidateRow.changed_at).desc(), col(CandidateRow.id))


def step_time(step: dict[str, Any]) -> datetime:
    """The time of an entry of a candidate's history."""
    return datetime.fromisoformat(step["at"])


class CandidateReader:
    """Reads candidates. The functions below write them, in a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, *statuses: CandidateStatus) -> list[CandidateRow]:
        """The rows of these statuses, or all, latest change first."""
        with self._database.read() as session:
            rows = load_all(session, CandidateRow, _ROWS)
        return [row for row in rows if not statuses or row.status in statuses]

    def readable_rows(self, *statuses: CandidateStatus) -> list[CandidateRow]:
        """The rows without a damaged effect. One that has it can still be shown and rejected."""
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
        """The candidate with this id or prefix of it. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        with self._database.read() as session:
            row = load(session, CandidateRow, candidate_id)
            ids = [] if row is not None else ids_with_prefix(session, col(CandidateRow.id), candidate_id)
            row = load(session, CandidateRow, ids[0]) if len(ids) == 1 else row
        if row is not None:
            return row
        if ids:
            raise Refusal("ambiguous_id", f"{candidate_id} begins {len(ids)} candidates", "give more of its id")
        raise _unknown(candidate_id)


def load_candidate(tx: Transaction, candidate_id: str) -> CandidateRow:
    """The row of a candidate, to be changed. Raises `Refusal` `unknown_candidate`."""
    row = load(tx.session, CandidateRow, candidate_id)
    if row is None:
        raise _unknown(candidate_id)
    return row


def _unknown(candidate_id: str) -> Refusal:
    return Refusal("unknown_candidate", f"there is no candidate {candidate_id[:60]}", "clawpy candidates lists them")


def add_candidate(tx: Transaction, candidate: Candidate, reason: str) -> CandidateRow:
    """Store a new candidate with the `reason` of its draft; returns its row, or that of the one with its key."""
    key = candidate.dedupe_key
    existing = tx.session.exec(select(CandidateRow).where(col(CandidateRow.dedupe_key) == key)).first()
    if existing is not None:
        return existing
    values = shallow_dict(candidate) | {
        "type": candidate.type.value,
        "effect": candidate.effect.to_json(),
        "drafted_from": list(candidate.drafted_from),
        "corroborated_by": [],
        "against": [],
        "trust": candidate.trust.value,
        "created_at": tx.now,
        "reason": reason,
    }
    row = CandidateRow(**values, dedupe_key=key, history=[])
    _add_step(tx, row, "draft", CandidateStatus.DRAFTED, reason=reason)
    tx.record(
        CandidateDrafted(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, score=row.score,
            records=tuple(row.drafted_from),
        )
    )  # fmt: skip
    return row


def store_evaluation(tx: Transaction, row: CandidateRow, evaluation: Evaluation, move: CandidateMove | None) -> None:
    """Store an evaluation, with the transition `move` that follows from it, if any."""
    status = CandidateStatus(row.status)
    new_status = status if move is None else candidate_after(row.id, status, move)
    row.corroborated_by, row.against = list(evaluation.corroborated_by), list(evaluation.against)
    if not new_status.is_decided:
        row.score, row.reason, row.decided_by = evaluation.score, evaluation.reason, ""
    tx.session.add(row)
    if move is not None:
        _add_step(tx, row, move, new_status, reason=evaluation.reason)
        tx.record(
            CandidateWeighed(
                subject=row.id, workspace=row.workspace, status=row.status, score=evaluation.score,
                corroborated_by=evaluation.corroborated_by, against=evaluation.against,
            )
        )  # fmt: skip


def decide_candidate(
    tx: Transaction, row: CandidateRow, move: CandidateMove, by: str, reason: str, flow_names: Collection[str] = ()
) -> None:
    """Activate, reject or roll back a candidate. `flow_names` are in use, so a new flow gets another name.

    Raises what `candidate_after` raises, and `Refusal` `bad_effect`, `already_in_force` (another flow does the same),
    before any change.
    """
    new_status = candidate_after(row.id, CandidateStatus(row.status), move)
    _add_step(tx, row, move, new_status, by=by, reason=reason, flow_names=flow_names)
    row.decided_by, row.reason = by, reason
    tx.record(
        _EVENTS[move](subject=row.id, workspace=row.workspace, type=row.type, title=row.title, by=by, reason=reason)
    )


def undo_decision(tx: Transaction, row: CandidateRow, flow_names: Collection[str]) -> None:
    """Undo the operator's decision, if it was the last transition. Raises `Refusal` `nothing_to_undo`, and what
    `decide_candidate` raises if the candidate becomes active again."""
    last = row.history[-1]
    if last["move"] not in DECISIONS or last["by"] != "operator":
        raise Refusal(
            "nothing_to_undo",
            f"the last change to candidate {row.id} was not one of your decisions ({last['move']})",
            f"see clawpy candidates show {row.id}",
        )
    before, detail = row.history[-2], f" ({last['reason']})" if last["reason"] else ""
    new_status, reason = CandidateStatus(before["status"]), f"undone: {last['move']}{detail}"
    _add_step(tx, row, CandidateMove.UNDO, new_status, by="operator", reason=reason, flow_names=flow_names)
    row.decided_by, row.reason = before["by"], before["reason"]
    tx.record(
        CandidateDecisionUndone(
            subject=row.id, workspace=row.workspace, type=row.type, title=row.title, status=row.status
        )
    )  # fmt: skip


def _add_step(
    tx: Transaction,
    row: CandidateRow,
    move: str,
    status: CandidateStatus,
    *,
    reason: str,
    by: str = "",
    flow_names: Collection[str] = (),
) -> None:
    """Change the status, with a new line of history."""
    if status is CandidateStatus.PROMOTED:
        row.effect = _effect_to_activate(tx, row, flow_names).to_json()
        row.term, row.since, row.told_at = row.term + 1, tx.now, None
    row.status, row.changed_at = status.value, tx.now
    step = {
        "at": tx.now.isoformat(),
        "move": str(move),
        "status": row.status,
        "score": row.score,
        "for": len(row.corroborated_by),
        "against": len(row.against),
        "by": by,
        "reason": reason,
    }
    row.history = [*row.history, step]
    tx.session.add(row)


def _effect_to_activate(tx: Transaction, row: CandidateRow, flow_names: Collection[str]) -> Effect:
    """The effect of a candidate that becomes active. A flow gets a name that no other commands ever had, because
    permits name flows."""
    effect = validate_effect(effect_from_json(row.effect))
    if not isinstance(effect, FlowOffload):
        return effect
    names, commands = set(flow_names), list(effect.commands)
    once_active = select(CandidateRow).where(
        col(CandidateRow.type) == effect.kind.value, col(CandidateRow.id) != row.id, col(CandidateRow.term) > 0
    )
    for other in tx.session.exec(once_active):
        name, is_same = str(other.effect.get("name", "")), other.effect.get("commands") == commands
        is_active = other.status == CandidateStatus.PROMOTED
        if is_active and is_same and other.workspace in ("", row.workspace):
            raise Refusal(
                "already_in_force",
                f"the flow {name} already runs these commands",
                f"reject this candidate; the other is {other.id}",
            )
        if is_active or not is_same:
            names.add(name)
    return replace(effect, name=free_name(effect.name, names))


_UNDECIDED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ROLLED_BACK)


class CandidateTexts:
    """Erases texts of effects, see `engine.memory.forget.ErasableStore`. What else a candidate says is erased with the
    other rows of the database."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect matches: id and the texts that would be removed."""
        with self._database.read() as session:
            for row, _, text in _matching_rows(session, query):
                yield row.id, text

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the matching texts; returns from how many candidates."""

        def remove_texts(tx: Transaction) -> int:
            matches = list(_matching_rows(tx.session, query))
            for row, remaining, _ in matches:
                row.effect = {} if remaining is None else remaining.to_json()
                tx.session.add(row)
                if row.status in _UNDECIDED and not _is_usable(remaining):
                    decide_candidate(tx, row, CandidateMove.REJECT, "operator", "its text was forgotten")
            return len(matches)

        return self._database.write(remove_texts)


def _is_usable(effect: Effect | None) -> bool:
    try:
        return effect is not None and bool(validate_effect(effect))
    except Refusal:
        return False


def _matching_rows(session: Session, query: SearchTerms) -> Iterator[tuple[CandidateRow, Effect | None, str]]:
    """The candidates that match, each with its remaining effect (None for one that cannot be read) and the text that
    would be removed."""
    for row in session.exec(select(CandidateRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:  # all of it goes
            text = str(list(row.effect.values()))
            if query.match(text):
                yield row, None, text
            continue
        remaining = map_texts(effect, lambda text: "" if query.match(text) else text)
        if remaining != effect:
            texts = set(effect_texts(remaining))
            yield row, remaining, " · ".join(text for text in effect_texts(effect) if text not in texts)
