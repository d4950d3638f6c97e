"""Reads candidates for screens, verbs and cards (SPEC 5.3, 9.5): details, fixes that cards offer, open questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.config import SettingsSource
from engine.learning.candidates.candidates import CandidateReader, CandidateRow, step_time
from engine.learning.candidates.effects import effect_texts, preview_lines
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE, PROPOSED
from engine.learning.candidates.overlays import Trials
from engine.learning.candidates.records import Records, Sources
from engine.model import Waiting, microusd
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    CandidateView,
    Effect,
    EffectPreview,
    FixTemplate,
    KnownFix,
    LearningRecord,
    Lift,
    Station,
)
from engine.model.text import count

# The stages of a candidate's life cycle in words for a screen (SPEC 5.3, 9.5). Pure.


_END_WORDS = {
    CandidateStatus.PROMOTED: "it is active",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.ROLLED_BACK: "rolled back",
}


def stations_of(row: CandidateRow, drafted_from: Sequence[LearningRecord]) -> tuple[Station, ...]:
    """All stages of a candidate; `drafted_from` are the records that it was drafted from."""
    drafted_at = step_time(row.history[0])
    detected_at = max((record.at for record in drafted_from), default=None)
    score = max((record.score for record in drafted_from), default=0.0)
    first = next(iter(drafted_from), None)
    origin = f"{first.kind}: {first.reason}" if first else "its record is no longer stored"
    return (
        Station("detect", detected_at, origin, "done"),
        Station("draft", drafted_at, f"from {count(len(row.drafted_from), 'record')}", "done"),
        Station("score", drafted_at, f"{score:.0f} of 100, from its own record", "done"),
        _corroboration_station(row),
        _review_station(row),
        _end_station(row),
    )


def _corroboration_station(row: CandidateRow) -> Station:
    if row.status == CandidateStatus.DRAFTED:
        words = f"{row.reason}; it comes up for review from a score of {MIN_REVIEW_SCORE:.0f}"
        return Station("corroborate", None, words, "now")
    if corroboration := row.corroboration:
        return Station("corroborate", step_time(corroboration), str(corroboration["reason"]), "done")
    return Station("corroborate", None, "it was rejected before", "ahead")


def _review_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if status is CandidateStatus.REVIEW:
        undone = f"; {last['reason']}" if row.is_undone else ""
        since = step_time(row.corroboration) if row.corroboration else None
        return Station("review", since, f"needs your decision{undone}", "now")
    if status.is_decided:
        return Station("review", step_time(last), f"by {last['by']}", "done")
    return Station("review", None, "", "ahead")


def _end_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if not status.is_decided:
        return Station("promote", None, "", "ahead")
    reason = f": {last['reason']}" if last["reason"] else ""
    name = "reject" if status is CandidateStatus.REJECTED else "promote"
    state = "done" if status is CandidateStatus.PROMOTED else "failed"
    return Station(name, step_time(last), f"{_END_WORDS[status]}{reason}", state)


class CandidateViews:
    """Reads candidates with what they rest on and what they change. Callable from any thread."""

    def __init__(
        self, reader: CandidateReader, records: Records, *, settings: SettingsSource, sources: Sources, trials: Trials
    ) -> None:
        self._reader = reader
        self._records = records
        self._settings = settings
        self._sources = sources
        self._trials = trials

    def view(self, row: CandidateRow) -> CandidateView:
        """A candidate with its details."""
        candidate = row.value
        records = self._records.by_id([*candidate.drafted_from, *candidate.corroborated_by, *candidate.against])
        overlays = row.overlays
        return CandidateView(
            candidate,
            records=tuple(records),
            preview=self._preview(candidate),
            lift=self._trials.lifts().get(overlays[0].id) if overlays else None,
            overlays=overlays,
            stations=stations_of(row, [record for record in records if record.id in candidate.drafted_from]),
        )

    def _preview(self, candidate: Candidate) -> EffectPreview:
        """The present behaviour without a candidate's effect, and with it."""
        healing = self._settings.current.validation
        models = self._sources.models(candidate.agent_id) if candidate.type is CandidateType.ROUTING_HINT else None
        others = [
            other.effect
            for other in self._trials.overlays.of(
                candidate.type, candidate.agent_id, candidate.run_kind, candidate.workspace
            )
            if other.candidate_id != candidate.id
        ]

        def preview(effects: Sequence[Effect]) -> tuple[str, ...]:
            return tuple(
                preview_lines(
                    candidate.type,
                    effects,
                    model=models.current.model if models else "as configured",
                    tries=healing.tries,
                    cost=microusd(healing.cost_cap),
                    flows=self._sources.flows(),
                )
            )

        return EffectPreview(preview(others), preview([*others, candidate.effect]))

    def fixes(self, workspace: str) -> list[KnownFix]:
        """Landed diffs that fixed tests of a workspace, highest score first, then newest; not those that were rejected
        or rolled back."""
        scored = []
        for row in self._reader.readable_rows(*PROPOSED):
            candidate = row.value
            if candidate.workspace != workspace:
                continue
            if not isinstance(candidate.effect, FixTemplate) or not candidate.effect.patch:
                continue
            for record in self._records.by_id(candidate.drafted_from):
                title = self._sources.title(record.session_id)
                if title and "landed" in record.details:
                    scored.append((candidate.score, KnownFix(candidate.id, title, record.at, candidate.effect)))
        return [fix for _, fix in sorted(scored, key=lambda pair: (pair[0], pair[1].at), reverse=True)]

    def waiting(self) -> list[Waiting]:
        """The decisions that wait for the operator (SPEC 9.3): candidates in review, and harmful ones."""
        in_review = self._reader.readable_rows(CandidateStatus.REVIEW)
        harmful = [(self._reader.get(overlay.candidate_id), lift) for overlay, lift in self._trials.harmful()]
        return [
            *(
                Waiting("candidate", row.id, f"promote? {row.title}", row.changed_at, text=_text(row.value.effect))
                for row in in_review
            ),
            *(
                Waiting("candidate", row.id, f"roll back? {row.title}: {describe_lift(lift)}", row.changed_at)
                for row, lift in harmful
            ),
        ]


def describe_lift(lift: Lift) -> str:
    """The counts of a trial in words."""
    return (
        f"{lift.with_good} of {lift.with_runs} went well with it, {lift.without_good} of {lift.without_runs} without it"
    )


def _text(effect: Effect) -> str:
    """The texts of an effect that agents would read, without a diff."""
    return "\n".join(effect_texts(replace(effect, patch="") if isinstance(effect, FixTemplate) else effect))
