"""The port `engine.adaptation`: records, candidates, and the operator's word on them (SPEC 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.adaptation.candidates import Candidates, sound
from engine.adaptation.deciding import Deciding, Overlays
from engine.adaptation.material import Material
from engine.adaptation.readers import Known
from engine.adaptation.records import Records
from engine.adaptation.reflection import Ledger, Reflection
from engine.adaptation.rounds import Rounds, Trials, shares
from engine.adaptation.stations import stations
from engine.clock import Clock
from engine.config import SettingsSource
from engine.storage.database import Database
from engine.values import Randomness, Refusal, Waiting
from engine.values.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    CandidateView,
    Effect,
    FixTemplate,
    FlowOffload,
    KnownFix,
    LearningRecord,
    PromptFragment,
    RecordKind,
)

PROPOSED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.PROMOTED)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many candidates there are of each status, and how many learning records there were."""

    statuses: dict[CandidateStatus, int]
    records: int


class Adaptation:
    """Callable from any thread."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        ledger: Ledger,
        known: Known,
        material: Material,
        overlays: Overlays,
        trials: Trials,
        phase: Callable[[], int] = lambda: 0,
        held: Callable[[], str] = lambda: "",
        objects: Callable[[Candidate], str] = lambda candidate: "",
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`known` and `material` tell what facts are about, and what sessions said; `phase` is that of SPEC 2.6; `held`
        says why nothing may be done by itself now, "" when it may; `objects` what a candidate says that only the
        operator may let into prompts and commands, "" for nothing; `secrets` are values that no candidate may hold."""
        self._records = Records(database)
        self._candidates = Candidates(database)
        self._overlays = overlays
        self._trials = trials
        self._material = material
        self._deciding = Deciding(database, self._candidates, overlays)
        self._rounds = Rounds(
            database,
            self._candidates,
            self._deciding,
            clock=clock,
            settings=settings,
            randomness=randomness,
            records=self._records,
            reflection=Reflection(database, self._records, ledger=ledger, known=known),
            material=material,
            trials=trials,
            phase=phase,
            held=held,
            objects=objects,
            secrets=secrets,
        )

    # -- looking

    def candidates(
        self, status: CandidateStatus | None = None, type: CandidateType | None = None, limit: int = 200
    ) -> list[Candidate]:
        """The latest change first; of one status, of one type."""
        rows = sound(self._candidates.rows(() if status is None else (status,)))
        found = (one for one in rows if type is None or one.type == type)
        return [one.value for one in found][:limit]

    def view(self, candidate_id: str) -> CandidateView:
        """All about one, by its id or the beginning of it. Raises `Refusal` `unknown_candidate`, `ambiguous_id`."""
        row = self._candidates.get(candidate_id)
        one = row.value
        records = self._records.by_id([*one.drafted_from, *one.corroborated_by, *one.against])
        overlays = tuple(self._overlays.of(one.id))
        return CandidateView(
            one,
            tuple(records),
            self._overlays.preview(one),
            self._trials.lift_of(overlays[0].id) if overlays else None,
            overlays,
            stations(row.history, records, one.drafted_from, one.status, one.reason),
        )

    def fixes(self, workspace: str) -> list[KnownFix]:
        """Diffs that turned red tests of a workspace green, those borne out most first, then the newest. Not those that
        were turned down or rolled back: as long as nobody did, a card may ask. What happened until now is digested."""
        self._rounds.reflect()
        if self._rounds.wanted():
            self._rounds.round()
        found = []
        for row in sound(self._candidates.rows(tuple(PROPOSED))):
            one = row.value
            if one.workspace == workspace and isinstance(one.effect, FixTemplate) and one.effect.patch:
                for record in self._records.by_id(one.drafted_from):
                    if title := self._material.title(record.session_id):
                        found.append((one.score, KnownFix(one.id, title, record.at, one.effect)))
        return [fix for _, fix in sorted(found, key=lambda pair: (pair[0], pair[1].at), reverse=True)]

    def records(self, kind: str = "", limit: int = 200) -> list[LearningRecord]:
        """What was reflected on, the newest first; of one of the 15 kinds. Raises `Refusal` `unknown_kind`."""
        if kind and kind not in tuple(RecordKind):
            raise Refusal("unknown_kind", f"there is no kind {kind[:40]!r}", f"one of {', '.join(RecordKind)}")
        return self._records.newest(kind=kind, limit=limit)

    def counts(self) -> Counts:
        """How many candidates and records there are."""
        return Counts(self._candidates.counts(), self._records.last())

    def not_drafted(self) -> dict[str, str]:
        """Opportunities of the last round from which nothing could be drafted, by key, and why."""
        return dict(self._rounds.not_drafted)

    def waiting(self) -> list[Waiting]:
        """What waits for the operator (SPEC 9.3): candidates in review, and overlays that do harm."""
        queue = [
            Waiting("candidate", row.id, f"promote? {row.title}", row.changed_at, text=_words(row.value.effect))
            for row in sound(self._candidates.rows((CandidateStatus.REVIEW,)))
        ]
        harmful = self._trials.harmful()
        rows = {row.id: row for row in self._candidates.rows((CandidateStatus.PROMOTED,))} if harmful else {}
        for overlay, lift in harmful:
            if row := rows.get(overlay.candidate_id):
                queue.append(Waiting("candidate", row.id, f"roll back? {row.title}: {shares(lift)}", row.changed_at))
        return queue

    # -- the operator's word

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Put its effect in force; again, if it was rolled back. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `not_corroborated`, `already_decided`, and what the effect's owner raises."""
        return self._deciding.approve(candidate_id, by)

    def reject(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Turn it down. Raises as `approve`."""
        return self._deciding.reject(candidate_id, reason, by)

    def roll_back(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Take its effect back: what was done before is done again. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `nothing_to_roll_back`."""
        return self._deciding.roll_back(candidate_id, reason, by)

    def undo(self, candidate_id: str) -> Candidate:
        """Take the operator's last decision on it back: one that was promoted waits for review again, and was never
        judged by what it did. Raises `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_undo`."""
        return self._deciding.undo(candidate_id)

    # -- rounds

    def reflect(self) -> int:
        """Make records of what happened since the last time; how many. Housekeeping calls it: quick, and nothing where
        nothing happened."""
        return self._rounds.reflect()

    def wanted(self) -> bool:
        """Whether `digest` has anything to do. Cheap."""
        return self._rounds.wanted()

    def digest(self) -> list[Candidate]:
        """One round now: reflect, draft, weigh, and in autonomous mode promote (SPEC 5.6). The candidates that were
        drafted."""
        return self._rounds.round()

    def autonomous(self) -> str:
        """Why nothing is promoted by itself, in words; "" when it is."""
        return self._rounds.autonomous()


def _words(effect: Effect) -> str:
    """What an effect would put into prompts or run, "" for nothing."""
    match effect:
        case PromptFragment():
            return "\n".join(effect.guidance)
        case FixTemplate():
            return "\n".join(effect.repairs)
        case FlowOffload():
            return "\n".join(effect.commands)
    return ""
