"""The table of candidates and their life cycle: proposed, active, rolled back (SPEC 5.3).

Each transition is checked against the legal ones and runs in the caller's transaction, together with its event and its
entry in the history. A candidate's effect is active exactly while its status says so, so a crash leaves the old
behaviour or the new one. `list_stages` tells the life of a candidate in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from sqlmodel import Field, Session

from engine.events.learning import (
    CandidateDecisionUndone,
    CandidateDrafted,
    CandidatePromoted,
    CandidateRejected,
    CandidateRolledBack,
    CandidateWeighed,
)
from engine.learning.candidates.effects import list_texts, make_unused_flow_name, replace_texts, validate_effect
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE, Evaluation
from engine.model import Refusal, Trust
from engine.model.adaptation import (
    DECIDING_MOVES,
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    Effect,
    FlowOffload,
    LearningRecord,
    Overlay,
    Stage,
    compute_candidate_status,
    effect_from_json,
)
from engine.storage import Row, find_by_prefix, load_all, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from engine.wording import count

HistoryEntry = TypedDict(
    "HistoryEntry",
    {"at": str, "move": str, "status": str, "score": float, "for": int, "against": int, "by": str, "reason": str},
)
"""An entry of a candidate's history, as it is stored: the time and the move, the status and the score after it, the
number of records for and against the candidate, and who made the move, with the reason."""


def get_entry_time(entry: HistoryEntry) -> datetime:
    """The time of an entry of a candidate's history."""
    return datetime.fromisoformat(entry["at"])


class CandidateRow(Row, table=True):
    """One candidate. `history` has an entry for each transition."""

    __tablename__ = "candidates"

    id: str = Field(primary_key=True)
    type: CandidateType
    scope_type: str
    scope_id: str
    source_label: str
    dedupe_key: str
    title: str
    status: CandidateStatus
    score: float
    effect: dict[str, Any]
    agent_id: str
    run_kind: str
    workspace: str
    drafted_from: tuple[str, ...]
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]
    history: list[HistoryEntry]
    created_at: datetime
    changed_at: datetime
    decided_by: str = ""
    reason: str = ""
    trust: Trust = Trust.QUOTED
    term: int = 0
    """How often it became active. A *term* is one time in which it was active."""
    since: datetime | None = None
    """When it last became active."""
    harm_reported_at: datetime | None = None
    """When it was reported in this term that sessions go worse with it."""

    @property
    def candidate(self) -> Candidate:
        """The candidate of this row."""
        return value_of(self, Candidate, effect=effect_from_json(self.effect))

    @property
    def overlays(self) -> list[Overlay]:
        """Its effect in each of its terms, newest first."""
        overlays: list[Overlay] = []
        effect = effect_from_json(self.effect)
        for entry in self.history:
            if entry["status"] == CandidateStatus.ACTIVE:
                id, since = f"{self.id}.{len(overlays) + 1}", get_entry_time(entry)
                overlays.append(value_of(self, Overlay, id=id, candidate_id=self.id, effect=effect, since=since))
            elif overlays and overlays[-1].until is None:
                overlays[-1] = replace(overlays[-1], until=get_entry_time(entry))
        return overlays[::-1]

    @property
    def is_undone(self) -> bool:
        """Whether its last transition is the undo of a decision."""
        return self.history[-1]["move"] == CandidateMove.UNDO


_OF_STATUSES = "WHERE status IN (SELECT value FROM json_each(:statuses)) ORDER BY changed_at DESC, id"


def load_candidates(database: Database, *statuses: CandidateStatus) -> list[CandidateRow]:
    """The candidates of these statuses, or all, latest change first."""
    with database.read() as session:
        return read_all(session, CandidateRow, _OF_STATUSES, {"statuses": statuses or [*CandidateStatus]})


def find_candidate(session: Session, candidate_id: str) -> CandidateRow:
    """The candidate with this id or prefix of it. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
    return find_by_prefix(session, CandidateRow, candidate_id, noun="candidate", verb="clawpy candidates")


def add_candidate(tx: Transaction, candidate: Candidate, reason: str) -> CandidateRow:
    """Store a new candidate with the `reason` of its draft; returns its row."""
    values = shallow_dict(candidate) | {"effect": candidate.effect.to_json(), "created_at": tx.now, "reason": reason}
    row = CandidateRow(**values, dedupe_key=candidate.dedupe_key, history=[])
    _record_transition(tx, row, "draft", CandidateStatus.DRAFTED, reason=reason)
    tx.record(value_of(row, CandidateDrafted, subject=row.id, records=row.drafted_from))
    return row


def store_evaluation(tx: Transaction, row: CandidateRow, evaluation: Evaluation, move: CandidateMove | None) -> None:
    """Store an evaluation, with the transition `move` that follows from it, if any."""
    new_status = row.status if move is None else compute_candidate_status(row.id, row.status, move)
    row.corroborated_by, row.against = evaluation.corroborated_by, evaluation.against
    if not new_status.is_decided:
        row.score, row.reason, row.decided_by = evaluation.score, evaluation.reason, ""
    tx.session.add(row)
    if move is not None:
        _record_transition(tx, row, move, new_status, reason=evaluation.reason)
        tx.record(value_of(row, CandidateWeighed, subject=row.id, score=evaluation.score))


_EVENTS = {
    CandidateMove.APPROVE: CandidatePromoted,
    CandidateMove.REJECT: CandidateRejected,
    CandidateMove.ROLL_BACK: CandidateRolledBack,
}
"""The event of each decision."""


def decide_candidate(
    tx: Transaction, row: CandidateRow, move: CandidateMove, by: str, reason: str, flow_names: Collection[str] = ()
) -> None:
    """Activate, reject or roll back a candidate. `flow_names` are in use, so a new flow gets another name.

    Raises what `compute_candidate_status` raises, and `Refusal` `bad_effect`, before any change.
    """
    new_status = compute_candidate_status(row.id, row.status, move)
    _record_transition(tx, row, move, new_status, by=by, reason=reason, flow_names=flow_names)
    row.decided_by, row.reason = by, reason
    tx.record(value_of(row, _EVENTS[move], subject=row.id, by=by))


def undo_decision(tx: Transaction, row: CandidateRow, flow_names: Collection[str]) -> None:
    """Undo the operator's decision, if it was the last transition. Raises `Refusal` `nothing_to_undo`, and what
    `decide_candidate` raises if the candidate becomes active again."""
    last_entry = row.history[-1]
    if last_entry["move"] not in DECIDING_MOVES or last_entry["by"] != "operator":
        raise Refusal(
            "nothing_to_undo",
            f"the last change to candidate {row.id} was not one of your decisions ({last_entry['move']})",
            f"see clawpy candidates show {row.id}",
        )
    before = row.history[-2]
    undone_reason = f" ({last_entry['reason']})" if last_entry["reason"] else ""
    reason = f"undone: {last_entry['move']}{undone_reason}"
    status_before = CandidateStatus(before["status"])
    _record_transition(tx, row, CandidateMove.UNDO, status_before, by="operator", reason=reason, flow_names=flow_names)
    row.decided_by, row.reason = before["by"], before["reason"]
    tx.record(value_of(row, CandidateDecisionUndone, subject=row.id))


def _record_transition(
    tx: Transaction,
    row: CandidateRow,
    move: str,
    status: CandidateStatus,
    *,
    reason: str,
    by: str = "",
    flow_names: Collection[str] = (),
) -> None:
    """Change the status, with a new entry of the history. If the candidate becomes active, a new term begins. Raises
    what `_prepare_effect` raises, before any change."""
    if status is CandidateStatus.ACTIVE:
        row.effect = _prepare_effect(tx, row, flow_names).to_json()
        row.term, row.since, row.harm_reported_at = row.term + 1, tx.now, None
    row.status, row.changed_at = status, tx.now
    entry: HistoryEntry = {
        "at": tx.now.isoformat(),
        "move": str(move),
        "status": row.status,
        "score": row.score,
        "for": len(row.corroborated_by),
        "against": len(row.against),
        "by": by,
        "reason": reason,
    }
    row.history = [*row.history, entry]
    tx.session.add(row)


def _prepare_effect(tx: Transaction, row: CandidateRow, flow_names: Collection[str]) -> Effect:
    """The effect of a candidate that becomes active. A flow gets a name that no other active flow has, and no other
    commands ever had, because permits name flows. Raises `Refusal` `bad_effect`."""
    effect = validate_effect(effect_from_json(row.effect))
    if not isinstance(effect, FlowOffload):
        return effect
    once_active = "WHERE type = :type AND id <> :id AND term > 0"
    earlier_rows = read_all(tx.session, CandidateRow, once_active, {"type": effect.kind, "id": row.id})
    used_names = {
        other.effect["name"]
        for other in earlier_rows
        if other.status is CandidateStatus.ACTIVE or other.effect["commands"] != list(effect.commands)
    }
    return replace(effect, name=make_unused_flow_name(effect.name, used_names.union(flow_names)))


# -- its stages in words


def list_stages(row: CandidateRow, drafted_from: Sequence[LearningRecord]) -> tuple[Stage, ...]:
    """The stages of a candidate's life cycle in words; `drafted_from` are the records that it was drafted from."""
    origin = drafted_from[0].reason if drafted_from else "its record is no longer stored"
    detected_at = max((record.at for record in drafted_from), default=None)
    score = max((record.score for record in drafted_from), default=0.0)
    drafted_at, corroborated = get_entry_time(row.history[0]), _make_corroboration_stage(row)
    return (
        Stage("detect", detected_at, origin, "done"),
        Stage("draft", drafted_at, f"from {count(len(row.drafted_from), 'record')}", "done"),
        Stage("score", drafted_at, f"{score:.0f} of 100, from its own record", "done"),
        corroborated,
        *_make_decision_stages(row, corroborated.at),
    )


def _make_corroboration_stage(row: CandidateRow) -> Stage:
    """The stage in which other records support a candidate."""
    if row.status is CandidateStatus.DRAFTED:
        reason = f"{row.reason}; it comes up for review from a score of {MIN_REVIEW_SCORE:.0f}"
        return Stage("corroborate", None, reason, "now")
    for entry in reversed(row.history):
        if entry["move"] == CandidateMove.CORROBORATE:
            return Stage("corroborate", get_entry_time(entry), entry["reason"], "done")
    return Stage("corroborate", None, "it was rejected before", "ahead")


_END_WORDS = {
    CandidateStatus.ACTIVE: "it is active",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.ROLLED_BACK: "rolled back",
}
"""The words for a decision in the last stage of a candidate's life cycle."""


def _make_decision_stages(row: CandidateRow, corroborated_at: datetime | None) -> tuple[Stage, Stage]:
    """The stages of review and of its result."""
    last_entry = row.history[-1]
    if not row.status.is_decided:
        review = Stage("review", None, "", "ahead")
        if row.status is CandidateStatus.REVIEW:
            undone = f"; {last_entry['reason']}" if row.is_undone else ""
            review = Stage("review", corroborated_at, f"needs your decision{undone}", "now")
        return review, Stage("promote", None, "", "ahead")
    at, reason = get_entry_time(last_entry), f": {last_entry['reason']}" if last_entry["reason"] else ""
    name = "reject" if row.status is CandidateStatus.REJECTED else "promote"
    state = "done" if row.status is CandidateStatus.ACTIVE else "failed"
    review = Stage("review", at, f"by {last_entry['by']}", "done")
    return review, Stage(name, at, f"{_END_WORDS[row.status]}{reason}", state)


# -- forgotten words


class CandidateEraser:
    """Erases texts of effects (SPEC 4.10), see `engine.memory.forget.ErasableStore`: whole lines, never part of a
    command or a diff. What else a candidate says is erased with the other rows of the database."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect matches: id and the texts that would be removed."""
        with self._database.read() as session:
            for row, remaining in _find_matching(session, query):
                texts, remaining_texts = list_texts(row.candidate.effect), list_texts(remaining)
                yield row.id, " · ".join(text for text in texts if text not in remaining_texts)

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the matching texts; returns from how many candidates. One without a valid effect afterwards is
        rejected or rolled back."""

        def remove_texts(tx: Transaction) -> int:
            matches = list(_find_matching(tx.session, query))
            for row, remaining in matches:
                row.effect = remaining.to_json()
                tx.session.add(row)
                if not _is_valid(remaining) and row.status is not CandidateStatus.REJECTED:
                    move = CandidateMove.ROLL_BACK if row.status is CandidateStatus.ACTIVE else CandidateMove.REJECT
                    decide_candidate(tx, row, move, "operator", "its text was forgotten")
            return len(matches)

        return self._database.write(remove_texts)


def _find_matching(session: Session, query: SearchTerms) -> Iterator[tuple[CandidateRow, Effect]]:
    """The candidates that match, each with what remains of its effect."""
    for row in load_all(session, CandidateRow, ""):
        effect = effect_from_json(row.effect)
        remaining = replace_texts(effect, lambda text: "" if query.match(text) else text)
        if remaining != effect:
            yield row, remaining


def _is_valid(effect: Effect) -> bool:
    """Whether an effect can be active."""
    try:
        validate_effect(effect)
    except Refusal:
        return False
    return True
