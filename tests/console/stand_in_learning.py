"""Candidates and learnings of the stand-in engine: one candidate of each type and status, learnings of every scope."""

from __future__ import annotations

import dataclasses

from engine.model import (
    LearningEntry,
    LearningKind,
    LearningReach,
    LearningScope,
    LearningStatus,
    LearningType,
    LearningView,
    Waiting,
)
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    CandidateType,
    CandidateView,
    Effect,
    EffectPreview,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    Lift,
    LiftVerdict,
    Overlay,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
    Station,
    candidate_after,
)
from engine.model.learnings import ChainReport, EntrySource, RetractReport, ScopeState
from tests.console.stand_in_data import SHOP, ago
from tests.console.stand_in_service import StandInService

TEST = "tests/test_discount.py::test_a_discount_is_rounded"


def record(
    number: int, kind: RecordKind, score: float, reason: str, label: str = "", hours: float = 5.0
) -> LearningRecord:
    return LearningRecord(
        f"rec_{number:012}", ago(hours=hours), kind, f"{kind.value}/{label}" if label else kind.value, "agent",
        "backend_builder", score, reason, SHOP, "backend_builder", "sess_000000000002" if number % 2 else "",
    )  # fmt: skip


RECORDS = (
    record(1, RecordKind.FAILED_TDD, 82, "3 attempts still failed: 60 + 3 · 8, less 2 for a test that is new",
           TEST, 30),
    record(2, RecordKind.FAILED_TDD, 74, "2 attempts still failed: 60 + 2 · 8, less 2", TEST, 26),
    record(3, RecordKind.FAILED_TDD, 78, "2 attempts still failed: 60 + 2 · 8, plus 2 for a second file", TEST, 6),
    record(4, RecordKind.FAILED_TDD, 71, "1 attempt still failed: 60 + 8, plus 3", TEST, 4),
    record(5, RecordKind.SUCCESSFUL_HEAL, 66, "green at the second try without it: 60 + 6", TEST, 3),
)  # fmt: skip


def candidate(
    number: int, type: CandidateType, title: str, status: CandidateStatus, score: float, effect: Effect,
    scope: tuple[str, str] = ("agent", "backend_builder"), label: str = "failed_tdd", **more: object,
) -> Candidate:  # fmt: skip
    return Candidate(
        f"cand_{number:012}", type, *scope, label, title, status, score, effect, ago(hours=20),
        ago(hours=4 - number / 10), **more,  # type: ignore[arg-type]
    )  # fmt: skip


ROUNDING = candidate(
    1, CandidateType.FIX_TEMPLATE, "Round a discount once, at the end, when test_a_discount_is_rounded is red",
    CandidateStatus.REVIEW, 74.9,
    FixTemplate((TEST,), ("Look for // on cents: a discount is rounded once, with round(), at the end.",)),
    label=f"failed_tdd/{TEST}", agent_id="backend_builder", run_kind="coding", workspace=SHOP,
    drafted_from=("rec_000000000001", "rec_000000000002"), corroborated_by=("rec_000000000003", "rec_000000000004"),
    against=("rec_000000000005",), reason="2 other records support it: 0.85 · 74.5 + 10 = 73",
)  # fmt: skip

STOCK = candidate(
    2, CandidateType.PROMPT_FRAGMENT, "Reserve stock before the payment", CandidateStatus.ACTIVE, 81.0,
    PromptFragment(("Reserve stock before the payment, or two carts sell the last one.",)), agent_id="backend_builder",
    run_kind="coding", drafted_from=("rec_000000000001",), corroborated_by=("rec_000000000003",), decided_by="operator",
    label="guidance_applied",
)  # fmt: skip

CHEAP = candidate(
    3, CandidateType.ROUTING_HINT, "Short questions of chronicle-hub to the small model", CandidateStatus.REVIEW, 66.0,
    RoutingHint("small", "chronicle-hub", 4000, "its budget broke 3 times this week"), ("agent", "chronicler"),
    "budget_incident", agent_id="chronicler", drafted_from=("rec_000000000002",), corroborated_by=("rec_000000000004",),
)  # fmt: skip

TRIES = candidate(
    4, CandidateType.POLICY_TWEAK, "Two tries instead of four in shop", CandidateStatus.DRAFTED, 45.0,
    PolicyTweak(tries=2),
    ("workspace", SHOP), "repeated_retry", drafted_from=("rec_000000000002",),
    reason="nothing else of the like happened yet: at most 45",
)  # fmt: skip

LINT = candidate(
    5, CandidateType.FLOW_OFFLOAD, "make lint, make test without a model", CandidateStatus.ROLLED_BACK, 70.0,
    FlowOffload("lint_and_test", "Lint and test", ("make lint", "make test")), ("workspace", SHOP), "tool_sequence",
    decided_by="operator", reason="it hid a warning", drafted_from=("rec_000000000004",),
    corroborated_by=("rec_000000000003",),
)  # fmt: skip

EMOJI = candidate(
    6, CandidateType.PROMPT_FRAGMENT, "Write 🎉 in every change log entry", CandidateStatus.REJECTED, 61.0,
    PromptFragment(("Write 🎉 in every entry.",)), ("agent", "chronicler"), "human_approval", decided_by="operator",
    reason="not here", drafted_from=("rec_000000000005",),
)  # fmt: skip

LIFT = Lift("over_000000000001", 38, 31, 12, 6, 0.316, 0.02, 0.58, LiftVerdict.HELPS)
YOUNG = Lift("over_000000000001", 4, 3, 1, 1, -0.25, -0.71, 0.44, LiftVerdict.NOT_ENOUGH)

NAMES = ("detect", "draft", "score", "corroborate", "review")


def stations(candidate: Candidate) -> tuple[Station, ...]:
    """The stations of a candidate, as the engine shows them."""
    words_by_station = (
        "failed_tdd 4 times in backend_builder", "a fix template from 2 records",
        f"{candidate.score:.0f}: the record's own",
        "73: 2 other records support it, 60 passes", "waits for you",
    )  # fmt: skip
    reached = {CandidateStatus.DRAFTED: 3, CandidateStatus.REVIEW: 4}.get(candidate.status, 5)
    stations = [
        Station(
            name, ago(hours=20 - 4 * number) if number <= reached else None, words if number <= reached else "",
            "done" if number < reached else "now" if number == reached else "ahead",
        )
        for number, (name, words) in enumerate(zip(NAMES, words_by_station, strict=True))
    ]  # fmt: skip
    rejected = candidate.status is CandidateStatus.REJECTED
    last = Station("reject" if rejected else "promote", None, "", "ahead")
    if candidate.status.is_decided:
        last = Station(
            last.name, candidate.changed_at, f"by the operator: {candidate.reason}", "failed" if rejected else "done"
        )
    return (*stations, last)


HEAD = ("playbook of backend_builder in shop", "1. Run the failing test alone, and read its first error.")
LOOK = "Look at what changed since it was green."
ROUND = "When test_a_discount_is_rounded is red: look for // on cents: a discount is rounded once, with round()."
PREVIEW = EffectPreview((*HEAD, f"2. {LOOK}"), (*HEAD, f"2. {ROUND}", f"3. {LOOK}"))


class Adaptation(StandInService):
    """The candidates. `lift` is that of each active one."""

    def fill(self) -> None:
        self.all = {item.id: item for item in (ROUNDING, STOCK, CHEAP, TRIES, LINT, EMOJI)}
        self.before: dict[str, Candidate] = {}
        self.lift: Lift | None = LIFT

    def candidates(self, **_: object) -> list[Candidate]:
        return list(self.all.values())

    def view(self, id: str) -> CandidateView:
        item = self.all[id]
        named = {*item.drafted_from, *item.corroborated_by, *item.against}
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
            tuple(record for record in RECORDS if record.id in named),
            PREVIEW,
            self.lift if item.status is CandidateStatus.ACTIVE else None,
            (in_force,) if item.status is CandidateStatus.ACTIVE else (),
            stations(item),
        )

    def _move(self, id: str, move: CandidateMove, by: str, reason: str) -> Candidate:
        item = self.before[id] = self.all[id]
        status = candidate_after(id, item.status, move)
        self.all[id] = dataclasses.replace(
            item, status=status, decided_by=by, reason=reason, changed_at=self._engine.now
        )
        return self.all[id]

    def approve(self, id: str, by: str = "operator") -> Candidate:
        self.note("approve_candidate", id)
        return self._move(id, CandidateMove.APPROVE, by, "")

    def reject(self, id: str, reason: str = "") -> Candidate:
        self.note("reject_candidate", id, reason)
        return self._move(id, CandidateMove.REJECT, "operator", reason)

    def roll_back(self, id: str, reason: str = "") -> Candidate:
        self.note("roll_back", id, reason)
        return self._move(id, CandidateMove.ROLL_BACK, "operator", reason)

    def undo(self, id: str) -> Candidate:
        self.note("undo_candidate", id)
        self.all[id] = self.before.pop(id)
        return self.all[id]

    def waiting(self) -> list[Waiting]:
        return [
            Waiting("candidate", item.id, item.title, item.changed_at)
            for item in self.all.values()
            if item.status is CandidateStatus.REVIEW
        ]


SESSIONS = ("sess_000000000002", "sess_000000000003", "sess_000000000004")


def entry(
    number: int, scope: LearningScope, scope_id: str, text: str, kind: LearningKind = LearningKind.INSTITUTIONAL,
    **more: object,
) -> LearningEntry:  # fmt: skip
    learning = LearningEntry(
        id=f"learn_{number:012}", scope=scope, scope_id=scope_id, kind=kind, type=LearningType.DIRECTIVE, domain="task",
        text=text, title=text.partition(":")[0], importance=0.62, confidence=0.9,
        reasons=("tests confirmed it: 0.90", "a failure was avoided: +0.50", "it concerns 4 files: +0.12"),
        phase="corrective", status=LearningStatus.ACTIVE, created_at=ago(hours=number * 3),
        workspace="" if scope is LearningScope.GLOBAL else SHOP, agent="backend_builder",
        path=f"learnings/{scope.value}/{scope_id}/institutional.md",
    )  # fmt: skip
    return dataclasses.replace(learning, **more)  # type: ignore[arg-type]


MONEY = "Money is whole cents: from the cart to the receipt, never a float; a discount is rounded once, at the end."
FOUND = tuple(
    entry(number, LearningScope.SESSION, session, MONEY, session_id=session, session_task="Round cart totals")
    for number, session in enumerate(SESSIONS, 1)
)
PROJECT = entry(
    4, LearningScope.PROJECT, "shop-1a2b3c", MONEY, promoted_at=ago(hours=10), reinforcement_count=2,
    last_reinforced=ago(hours=2), promoted_from=tuple(EntrySource(item.id, item.session_id) for item in FOUND),
)  # fmt: skip
GLOBAL = entry(
    5, LearningScope.GLOBAL, "", MONEY, promoted_at=ago(hours=1), promoted_from=(EntrySource(PROJECT.id),),
)  # fmt: skip
TASK = entry(
    6, LearningScope.PROJECT, "shop-1a2b3c", "make test takes four seconds less with one process: 4.1 s, not 8.3 s",
    LearningKind.TASK, type=LearningType.PROCEDURAL, confidence=0.5, importance=0.31,
    reasons=("it was observed once: 0.50", "9 minutes of work: +0.06"), phase="in-flight", agent="",
)  # fmt: skip
PROXY = entry(
    7, LearningScope.SESSION, SESSIONS[0], "He reads diffs before prose: lead with the change", LearningKind.PROXY,
    domain="team", type=LearningType.DECLARATIVE, session_id=SESSIONS[0], phase="observations",
)  # fmt: skip
TEAM = entry(
    8, LearningScope.TEAM, "backend_lead", "Say which test is red: before saying what is wrong with it", domain="team",
    session_id=SESSIONS[1],
)  # fmt: skip
OLD = entry(
    9, LearningScope.PROJECT, "shop-1a2b3c", "Stock is counted at night: it is reserved at once since 1.2",
    status=LearningStatus.RETIRED, retired_because="retracted: since 1.2 it is reserved at once",
)  # fmt: skip


class Learnings(StandInService):
    """The learnings."""

    def fill(self) -> None:
        self.all = {item.id: item for item in (GLOBAL, PROJECT, TASK, OLD, *FOUND, PROXY, TEAM)}

    def scopes(self) -> list[ScopeState]:
        fault = "learnings/session/institutional.md:14: no id in the front matter; the entry is left alone"
        return [ScopeState(LearningScope.SESSION, SESSIONS[2], SHOP, "learnings/session", 1, 0, 0, 0, None, (fault,))]

    def entries(self, *, words: str = "", limit: int = 200) -> list[LearningEntry]:
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
        self.note("retract", id, reason)
        queued = tuple(item.id for item in self.view(id).promoted_to)
        self.all[id] = dataclasses.replace(self.all[id], status=LearningStatus.RETIRED, retired_because=reason)
        for name in queued:
            self.all[name] = dataclasses.replace(self.all[name], review=f"{id} was retracted")
        return RetractReport((id,), queued)

    def keep(self, id: str) -> LearningEntry:
        self.note("keep", id)
        self.all[id] = dataclasses.replace(self.all[id], review="")
        return self.all[id]

    def promote(self, id: str) -> LearningEntry:
        self.note("promote", id)
        copy = dataclasses.replace(
            self.all[id], id="learn_000000000099", scope=LearningScope.GLOBAL, scope_id="", workspace="",
            promoted_from=(EntrySource(id),), promoted_at=self._engine.now,
        )  # fmt: skip
        self.all[copy.id] = copy
        return copy

    def chain(self) -> ChainReport:
        self.note("chain")
        return ChainReport(extracted={SESSIONS[0]: 2}, promoted=(PROJECT.id,))

    def waiting(self) -> list[Waiting]:
        return [
            Waiting("learning", item.id, f"is it still valid? {item.title}", self._engine.now)
            for item in self.all.values()
            if item.review
        ]
