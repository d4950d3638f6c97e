"""Learnings behind the still engine: entries of every scope, one promoted twice, what each came from and went to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

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
from engine.model.learnings import ChainReport, EntrySource, RetractReport, ScopeState
from tests.console.stand_in_data import SHOP, ago
from tests.console.stand_in_port import Port

if TYPE_CHECKING:
    from tests.console.stand_in import StandIn

SESSIONS = ("sess_000000000002", "sess_000000000003", "sess_000000000004")


def entry(
    number: int, scope: LearningScope, scope_id: str, text: str, kind: LearningKind = LearningKind.INSTITUTIONAL,
    **more: object,
) -> LearningEntry:  # fmt: skip
    made = LearningEntry(
        id=f"learn_{number:012}", scope=scope, scope_id=scope_id, kind=kind, type=LearningType.DIRECTIVE, domain="task",
        text=text, title=text.partition(":")[0], importance=0.62, confidence=0.9,
        reasons=("tests confirmed it: 0.90", "a failure was avoided: +0.50", "it concerns 4 files: +0.12"),
        phase="corrective", status=LearningStatus.ACTIVE, created_at=ago(hours=number * 3),
        workspace="" if scope is LearningScope.GLOBAL else SHOP, agent="backend_builder",
        path=f"learnings/{scope.value}/{scope_id}/institutional.md",
    )  # fmt: skip
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


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


class Learnings(Port):
    """The port of the learnings."""

    def __init__(self, engine: StandIn) -> None:
        super().__init__(engine)
        self.all = {item.id: item for item in (GLOBAL, PROJECT, TASK, OLD, *FOUND, PROXY, TEAM)}

    def scopes(self) -> list[ScopeState]:
        def state(scope: LearningScope, scope_id: str, workspace: str, **more: object) -> ScopeState:
            members = [item for item in self.all.values() if (item.scope, item.scope_id) == (scope, scope_id)]
            kinds = [member.kind for member in members if member.active]
            return ScopeState(
                scope, scope_id, workspace, f"learnings/{scope.value}/{scope_id}",
                kinds.count(LearningKind.INSTITUTIONAL),
                kinds.count(LearningKind.TASK), kinds.count(LearningKind.PROXY),
                sum(not member.active for member in members),
                max((member.created_at for member in members if member.created_at), default=None), **more,  # type: ignore[arg-type]
            )  # fmt: skip

        fault = "learnings/session/institutional.md:14: no id in the front matter; the entry is left alone"
        return [
            state(LearningScope.GLOBAL, "", ""),
            state(LearningScope.PROJECT, "shop-1a2b3c", SHOP),
            *(
                state(LearningScope.SESSION, session, SHOP, faults=(fault,) if session == SESSIONS[2] else ())
                for session in SESSIONS
            ),
            state(LearningScope.TEAM, "backend_lead", SHOP),
        ]

    def entries(
        self, scope: str = "", workspace: str = "", session: str = "", kind: str = "", words: str = "", limit: int = 200
    ) -> list[LearningEntry]:  # fmt: skip
        self.note("entries", scope, workspace, session, kind, words)
        return [
            item
            for item in self.all.values()
            if scope in ("", item.scope)
            and kind in ("", item.kind)
            and session in ("", item.session_id)
            and (not workspace or item.workspace == workspace)
            and all(word in item.text.lower() for word in words.lower().split())
        ][:limit]

    def view(self, id: str) -> LearningView:
        item = self.all[id]
        sources = [self.all[source.entry] for source in item.promoted_from]
        to = [two for two in self.all.values() if any(source.entry == id for source in two.promoted_from)]
        sessions = dict.fromkeys([item.session_id, *(source.session for source in item.promoted_from)])
        reached = tuple(
            LearningReach(f"call_{number:012}", SESSIONS[0], "backend_builder", ago(minutes=20 * number))
            for number in range(1, 4)
        )
        return LearningView(
            item, tuple(sources), tuple(to), reached if item in (PROJECT, GLOBAL) else (), 12 if item is PROJECT else 0,
            tuple(name for name in sessions if name),
        )  # fmt: skip

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
        made = dataclasses.replace(
            self.all[id], id="learn_000000000099", scope=LearningScope.GLOBAL, scope_id="", workspace="",
            promoted_from=(EntrySource(id),), promoted_at=self._engine.now,
        )  # fmt: skip
        self.all[made.id] = made
        return made

    def chain(self) -> ChainReport:
        self.note("chain")
        return ChainReport(extracted={SESSIONS[0]: 2}, promoted=(PROJECT.id,))

    def waiting(self) -> list[Waiting]:
        return [
            Waiting("learning", item.id, f"is it still valid? {item.title}", self._engine.now)
            for item in self.all.values()
            if item.review
        ]
