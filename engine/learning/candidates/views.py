"""Reads candidates with their evidence, their changes and the stages of their life cycle (SPEC 5.3).

The class is the base of the service `adaptation.Adaptation`, through which screens, verbs and cards use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from engine.config import SettingsSource
from engine.learning.candidates.candidates import CandidateRow, find_candidate, load_candidates, step_time
from engine.learning.candidates.effects import format_preview, list_texts
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE, PROPOSED
from engine.learning.candidates.overlays import Trials
from engine.learning.candidates.reading import Sources
from engine.learning.candidates.records import Records
from engine.model import Refusal, Waiting, microusd
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    CandidateView,
    Effect,
    EffectPreview,
    FixTemplate,
    KnownFix,
    LearningRecord,
    Lift,
    RecordKind,
    Station,
)
from engine.model.text import count
from engine.storage.database import Database

_END_WORDS = {
    CandidateStatus.ACTIVE: "it is active",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.ROLLED_BACK: "rolled back",
}


class CandidateViews:
    """Reads candidates with their evidence and their changes. Callable from any thread."""

    def __init__(self, database: Database, *, settings: SettingsSource, sources: Sources, trials: Trials) -> None:
        self._database = database
        self._settings = settings
        self._sources = sources
        self._trials = trials
        self._records = Records(database)

    def candidates(
        self, status: CandidateStatus | None = None, type: CandidateType | None = None, limit: int = 200
    ) -> list[Candidate]:
        """The candidates, latest change first; of one status or type if given."""
        rows = load_candidates(self._database, *([] if status is None else [status]))
        return [row.value for row in rows if type in (None, row.type)][:limit]

    def view(self, candidate_id: str) -> CandidateView:
        """A candidate with its details, by its id or a prefix. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        with self._database.read() as session:
            row = find_candidate(session, candidate_id)
        candidate, overlays = row.value, row.overlays
        records = self._records.by_id([*row.drafted_from, *row.corroborated_by, *row.against])
        return CandidateView(
            candidate,
            records=tuple(records),
            preview=self._preview(candidate),
            lift=self._trials.measure_lifts().get(overlays[0].id) if overlays else None,
            overlays=tuple(overlays),
            stations=_stations(row, [record for record in records if record.id in row.drafted_from]),
        )

    def records(self, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """The learning records, newest first; of one of the 15 kinds if given. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.of_kind(*([RecordKind(kind)] if kind else RecordKind), limit=limit)

    def counts(self) -> tuple[dict[CandidateStatus, int], int]:
        """The number of candidates of each status, and of learning records."""
        statuses = Counter(row.status for row in load_candidates(self._database))
        return {status: statuses[status] for status in CandidateStatus}, self._records.last_seq()

    def fixes(self, workspace: str) -> list[KnownFix]:
        """The landed diffs that fixed tests of a workspace, highest score first, then newest. Diffs of candidates that
        were rejected or rolled back are left out."""
        scored = []
        for row in load_candidates(self._database, *PROPOSED):
            effect = row.value.effect
            if row.workspace != workspace or not isinstance(effect, FixTemplate) or not effect.patch:
                continue
            for record in self._records.by_id(row.drafted_from):
                title = self._sources.title(record.session_id)
                if title and "landed" in record.details:
                    scored.append((row.score, KnownFix(row.id, title, record.at, effect)))
        return [fix for _, fix in sorted(scored, key=lambda pair: (pair[0], pair[1].at), reverse=True)]

    def waiting(self) -> list[Waiting]:
        """The decisions that wait for the operator (SPEC 9.3), on candidates in review and on harmful candidates."""
        waiting = [
            Waiting("candidate", row.id, f"promote? {row.title}", row.changed_at, text=_text(row.value.effect))
            for row in load_candidates(self._database, CandidateStatus.REVIEW)
        ]
        harmful = {overlay.candidate_id: lift for overlay, lift in self._trials.find_harmful()}
        active = {row.id: row for row in load_candidates(self._database, CandidateStatus.ACTIVE)} if harmful else {}
        return waiting + [
            Waiting("candidate", id, f"roll back? {active[id].title}: {describe_lift(lift)}", active[id].changed_at)
            for id, lift in harmful.items()
            if id in active
        ]

    def _preview(self, candidate: Candidate) -> EffectPreview:
        """The present behaviour with and without a candidate's effect."""
        healing = self._settings.current.validation
        models = self._sources.models(candidate.agent_id) if candidate.type is CandidateType.ROUTING_HINT else None
        active = self._trials.overlays.find(candidate.type, candidate.agent_id, candidate.run_kind, candidate.workspace)
        others = [overlay.effect for overlay in active if overlay.candidate_id != candidate.id]

        def show(effects: Sequence[Effect]) -> tuple[str, ...]:
            lines = format_preview(
                candidate.type,
                effects,
                model=models.current.model if models else "as configured",
                tries=healing.tries,
                cost=microusd(healing.cost_cap),
                flows=self._sources.flows(),
            )
            return tuple(lines)

        return EffectPreview(show(others), show([*others, candidate.effect]))


def describe_lift(lift: Lift) -> str:
    """The counts of a trial in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )


def _text(effect: Effect) -> str:
    """The texts of an effect that agents read, without a diff."""
    return "\n".join(list_texts(replace(effect, patch="") if isinstance(effect, FixTemplate) else effect))


def _stations(row: CandidateRow, drafted_from: Sequence[LearningRecord]) -> tuple[Station, ...]:
    """The stages of a candidate's life cycle in words; `drafted_from` are the records that it was drafted from."""
    origin, detected_at, score = "its record is no longer stored", None, 0.0
    if drafted_from:
        origin = drafted_from[0].reason
        detected_at = max(record.at for record in drafted_from)
        score = max(record.score for record in drafted_from)
    drafted_at, corroborated = step_time(row.history[0]), _corroboration(row)
    return (
        Station("detect", detected_at, origin, "done"),
        Station("draft", drafted_at, f"from {count(len(row.drafted_from), 'record')}", "done"),
        Station("score", drafted_at, f"{score:.0f} of 100, from its own record", "done"),
        corroborated,
        *_decision(row, corroborated.at),
    )


def _corroboration(row: CandidateRow) -> Station:
    """The stage in which other records support a candidate."""
    if row.status is CandidateStatus.DRAFTED:
        words = f"{row.reason}; it comes up for review from a score of {MIN_REVIEW_SCORE:.0f}"
        return Station("corroborate", None, words, "now")
    step = row.last_step("move", CandidateMove.CORROBORATE)
    if step is None:
        return Station("corroborate", None, "it was rejected before", "ahead")
    return Station("corroborate", step_time(step), str(step["reason"]), "done")


def _decision(row: CandidateRow, corroborated_at: datetime | None) -> tuple[Station, Station]:
    """The stages of review and of its result."""
    last = row.history[-1]
    if row.status is CandidateStatus.REVIEW:
        undone = f"; {last['reason']}" if row.is_undone else ""
        review = Station("review", corroborated_at, f"needs your decision{undone}", "now")
        return review, Station("promote", None, "", "ahead")
    if not row.status.is_decided:
        return Station("review", None, "", "ahead"), Station("promote", None, "", "ahead")
    at, reason = step_time(last), f": {last['reason']}" if last["reason"] else ""
    name = "reject" if row.status is CandidateStatus.REJECTED else "promote"
    state = "done" if row.status is CandidateStatus.ACTIVE else "failed"
    review = Station("review", at, f"by {last['by']}", "done")
    return review, Station(name, at, f"{_END_WORDS[row.status]}{reason}", state)
