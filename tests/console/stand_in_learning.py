"""Candidates and learnings of the stand-in engine: one candidate of each type and status, learnings of every scope."""

import dataclasses

from engine.model import LearningEntry, LearningReach, LearningScope, LearningStatus, LearningView, Waiting
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateView,
    EffectPreview,
    LearningRecord,
    Lift,
    Overlay,
    Stage,
    compute_candidate_status,
)
from engine.model.learnings import ChainReport, EntrySource, RetractReport, ScopeState
from tests.console.stand_in_data import SHOP, StandInService, ago, read_values

TEST = "tests/test_discount.py::test_a_discount_is_rounded"


RECORDS = read_values(LearningRecord, "records")
ROUNDING, STOCK, CHEAP, TRIES, LINT, EMOJI = read_values(Candidate, "candidates")
[LIFT] = read_values(Lift, "lifts")
GLOBAL, PROJECT, TASK, OLD, *FOUND, PROXY, TEAM = read_values(LearningEntry, "learnings")
SESSIONS = [entry.session_id for entry in FOUND]

NAMES = ("detect", "draft", "score", "corroborate", "review")


def make_stages(candidate: Candidate) -> tuple[Stage, ...]:
    """The stages of a candidate, as the engine shows them."""
    words_by_station = (
        "failed_tdd 4 times in backend_builder", "a fix template from 2 records",
        f"{candidate.score:.0f}: the record's own",
        "73: 2 other records support it, 60 passes", "waits for you",
    )  # fmt: skip
    reached = {CandidateStatus.DRAFTED: 3, CandidateStatus.REVIEW: 4}.get(candidate.status, 5)
    stages = [
        Stage(
            name, ago(hours=20 - 4 * number) if number <= reached else None, words if number <= reached else "",
            "done" if number < reached else "now" if number == reached else "ahead",
        )
        for number, (name, words) in enumerate(zip(NAMES, words_by_station, strict=True))
    ]  # fmt: skip
    rejected = candidate.status is CandidateStatus.REJECTED
    last = Stage("reject" if rejected else "promote", None, "", "ahead")
    if candidate.status.is_decided:
        last = Stage(
            last.name, candidate.changed_at, f"by the operator: {candidate.reason}", "failed" if rejected else "done"
        )
    return (*stages, last)


HEAD = ("playbook of backend_builder in shop", "1. Run the failing test alone, and read its first error.")
LOOK = "Look at what changed since it was green."
ROUND = "When test_a_discount_is_rounded is red: look for // on cents: a discount is rounded once, with round()."
PREVIEW = EffectPreview((*HEAD, f"2. {LOOK}"), (*HEAD, f"2. {ROUND}", f"3. {LOOK}"))


class StandInAdaptation(StandInService):
    """The candidates. `lift` is that of each active one."""

    def fill(self):
        self.all = {item.id: item for item in (ROUNDING, STOCK, CHEAP, TRIES, LINT, EMOJI)}
        self.before: dict[str, Candidate] = {}
        self.lift: Lift | None = LIFT

    def list_candidates(self, **_: object) -> list[Candidate]:
        return list(self.all.values())

    def view(self, id: str) -> CandidateView:
        item = self.all[id]
        record_ids = {*item.drafted_from, *item.corroborated_by, *item.against}
        in_force = Overlay(
            "over_000000000001",
            item.id,
            item.type,
            item.agent_id,
            item.run_kind,
            item.workspace,
            item.effect,
            item.changed_at,
        )
        return CandidateView(
            item,
            tuple(record for record in RECORDS if record.id in record_ids),
            PREVIEW,
            self.lift if item.status is CandidateStatus.ACTIVE else None,
            (in_force,) if item.status is CandidateStatus.ACTIVE else (),
            make_stages(item),
        )

    def _move(self, id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        item = self.before[id] = self.all[id]
        status = compute_candidate_status(id, item.status, move)
        self.all[id] = dataclasses.replace(
            item, status=status, decided_by=by, reason=reason, changed_at=self._engine.now
        )
        return self.all[id]

    def approve(self, id: str, by: str = "operator") -> Candidate:
        self.record_call("approve_candidate", id)
        return self._move(id, CandidateMove.APPROVE, by, "")

    def reject(self, id: str, reason: str = "") -> Candidate:
        self.record_call("reject_candidate", id, reason)
        return self._move(id, CandidateMove.REJECT, "operator", reason)

    def roll_back(self, id: str, reason: str = "") -> Candidate:
        self.record_call("roll_back", id, reason)
        return self._move(id, CandidateMove.ROLL_BACK, "operator", reason)

    def undo(self, id: str) -> Candidate:
        self.record_call("undo_candidate", id)
        self.all[id] = self.before.pop(id)
        return self.all[id]

    def waiting(self) -> list[Waiting]:
        return [
            Waiting("candidate", item.id, item.title, item.changed_at)
            for item in self.all.values()
            if item.status is CandidateStatus.REVIEW
        ]


class StandInLearnings(StandInService):
    """The learnings."""

    def fill(self):
        self.all = {item.id: item for item in (GLOBAL, PROJECT, TASK, OLD, *FOUND, PROXY, TEAM)}

    def list_scopes(self) -> list[ScopeState]:
        fault = "learnings/session/institutional.md:14: no id in the front matter; the entry is left alone"
        return [ScopeState(LearningScope.SESSION, SESSIONS[2], SHOP, "learnings/session", 1, 0, 0, 0, None, (fault,))]

    def list_entries(self, *, words: str = "", limit: int = 200) -> list[LearningEntry]:
        return [item for item in self.all.values() if all(word in item.text.lower() for word in words.lower().split())]

    def view(self, id: str) -> LearningView:
        item = self.all[id]
        sources = [self.all[source.entry] for source in item.promoted_from]
        copies = [copy for copy in self.all.values() if any(source.entry == id for source in copy.promoted_from)]
        sessions = dict.fromkeys([item.session_id, *(source.session for source in item.promoted_from)])
        reached = tuple(
            LearningReach(f"call_{number:012}", SESSIONS[0], "backend_builder", ago(minutes=20 * number))
            for number in range(1, 4)
        )
        return LearningView(
            item,
            tuple(sources),
            tuple(copies),
            reached if item in (PROJECT, GLOBAL) else (),
            12 if item is PROJECT else 0,
            tuple(name for name in sessions if name),
        )

    def retract(self, id: str, reason: str = "") -> RetractReport:
        self.record_call("retract", id, reason)
        queued = tuple(item.id for item in self.view(id).promoted_to)
        self.all[id] = dataclasses.replace(self.all[id], status=LearningStatus.RETIRED, retired_because=reason)
        for name in queued:
            self.all[name] = dataclasses.replace(self.all[name], review=f"{id} was retracted")
        return RetractReport((id,), queued)

    def keep(self, id: str) -> LearningEntry:
        self.record_call("keep", id)
        self.all[id] = dataclasses.replace(self.all[id], review="")
        return self.all[id]

    def promote(self, id: str) -> LearningEntry:
        self.record_call("promote", id)
        copy = dataclasses.replace(
            self.all[id], id="learn_000000000099", scope=LearningScope.GLOBAL, scope_id="", workspace="",
            promoted_from=(EntrySource(id),), promoted_at=self._engine.now,
        )  # fmt: skip
        self.all[copy.id] = copy
        return copy

    def run_chain(self) -> ChainReport:
        self.record_call("chain")
        return ChainReport(extracted={SESSIONS[0]: 2}, promoted=(PROJECT.id,))

    def waiting(self) -> list[Waiting]:
        return [
            Waiting("learning", item.id, f"is it still valid? {item.title}", self._engine.now)
            for item in self.all.values()
            if item.review
        ]
