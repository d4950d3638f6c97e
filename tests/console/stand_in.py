"""A stand-in for the engine with fixed data, for the tests of the console.

It never changes by itself, so screens can be compared with pictures. Its services are in the modules `stand_in_…`.
Calls are in `call_log`; `refuse` makes the next call of a name raise.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.activity import ActivitySince, LearnedCounts
from engine.autonomy.autonomous_runs import ApprovalRecord, find_requirements
from engine.config.settings import WorkspaceAutonomy
from engine.events import EventBus
from engine.execution.runners.flows import FlowRegistry
from engine.model import AutonomyState, CheckReport, ModelCall, Phase, PromptPart, Refusal, SessionView, Task, Waiting
from tests.console.stand_in_cards import StandInApprovals, StandInCards
from tests.console.stand_in_data import (
    AGENT,
    BLOG,
    NOW,
    SHOP,
    ago,
    make_ledger,
    read_agents,
    read_permissions,
    read_transcript,
    read_values,
)
from tests.console.stand_in_insights import StandInInsights, StandInTraining
from tests.console.stand_in_learning import StandInAdaptation, StandInLearnings
from tests.console.stand_in_memory import StandInAgentFiles, StandInMemory, StandInRecallPart
from tests.console.stand_in_sessions import StandInCalls, StandInChanges, StandInPermissions, StandInSessions
from tests.console.stand_in_system import StandInChannelSetup, StandInGateway, StandInSafety, StandInSettings


class StandIn:
    """The attributes of an `Engine` that the console uses."""

    def __init__(self):
        self.call_log: list[tuple[Any, ...]] = []
        self.refuse: dict[str, Refusal] = {}
        self.delayed = threading.Event()  # set once calls that a test holds back are answered
        self.now = NOW
        self.dnd: datetime | None = None
        self.bus = EventBus()
        self.workspaces = [SHOP, BLOG]
        self.configured_workspaces: list[str] = []
        self.phase = Phase(1, 34, "34 decisions, calibration not proven yet", 30)
        self.cards = StandInCards(self)
        self.approvals = StandInApprovals(self)
        self.sessions = StandInSessions(self)
        self.changes = StandInChanges(self)
        self.permissions = StandInPermissions(self)
        self.calls = StandInCalls(self)
        self.channel_setup = StandInChannelSetup(self)
        self.flows = FlowRegistry(list)
        self.home = SimpleNamespace(database=Path(__file__))  # a file that is there
        self.agent_files = StandInAgentFiles(self)
        self.memory: Any = StandInMemory(self)
        self.knowledge = self.memory
        self.read_layers = self.memory.describe_layers
        self.recall_part = StandInRecallPart(self)
        self.adaptation = StandInAdaptation(self)
        self.learnings = StandInLearnings(self)
        self.learnings_wait = False  # whether candidates and learnings are in the queue
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.ledger = SimpleNamespace(read_newest=make_ledger)
        self.safety = StandInSafety(self)
        self.insights = StandInInsights(self)
        self.training = StandInTraining(self)
        self.settings = StandInSettings(self)
        self.gateway = StandInGateway(self)
        self.tasks = SimpleNamespace(list=lambda **_: read_values(Task, "tasks"))
        self.agents = SimpleNamespace(list_agents=read_agents, list_retired=list)
        self.autonomy = SimpleNamespace(
            update_state=lambda: SimpleNamespace(
                state=AutonomyState.WATCHING,
                cause="the console opened",
                since=ago(minutes=40),
                next_change=ago(minutes=-18),
            ),
            find_next_cycle=lambda: ago(minutes=-17.5),
            describe_requirements=lambda workspaces: find_requirements(
                autonomous=False,
                autonomies={SHOP: WorkspaceAutonomy.CARDS, BLOG: WorkspaceAutonomy.ACT},
                quiet="",
                decisions=30,
                phase=1,
                records=[ApprovalRecord("run_tests", "koji-core", 8, 8)],
                threshold=0.8,
            ),
            measure_silence=lambda: timedelta(minutes=12),
            note_activity=lambda: self.call_log.append(("note_activity",)),
            find_quiet_reason=lambda: self.dnd is not None,
            find_dnd_end=lambda: self.dnd,
            set_dnd=self._dnd,
        )
        self.embedded_twin = SimpleNamespace(read_phase=lambda: self.phase)
        self.checks = SimpleNamespace(
            run=self._run_check,
            is_checking=False,
            read_remarks=dict,
            read_last_checked=lambda: {SHOP: ago(minutes=3), BLOG: ago(minutes=3)},
        )

    def _run_check(self, *, requested: bool) -> CheckReport:
        self.call_log.append(("check", requested))
        return CheckReport(seconds=0.2)

    def _dnd(self, span: timedelta | None) -> datetime | None:
        self.call_log.append(("dnd", span))
        self.dnd = None if span is None else self.now + span
        return self.dnd

    def read_activity(self, instant: datetime) -> ActivitySince:
        ran = tuple(
            session
            for session in self.sessions.list_newest()
            if session.ended_at is not None and session.ended_at > instant
        )
        return ActivitySince(instant, ran, (), 3, 1, 1, 20_000, tuple(self.list_waiting()), LearnedCounts(2, 0, 1), 3)

    def with_agent(self) -> StandIn:
        """With a running session of an agent that has made two calls and asks for two permissions."""
        self.sessions.all.insert(0, read_values(SessionView, "sessions")[-1])
        self.sessions.transcripts[AGENT] = read_transcript(AGENT)
        self.calls.all[AGENT] = read_values(ModelCall, "model_calls")
        self.permissions.all = read_permissions()
        return self

    def find_objections(self, parts: Sequence[PromptPart]) -> list[list[str]]:
        return [[""] * len(part.lines) for part in parts]

    def list_waiting(self) -> list[Waiting]:
        requests = [
            Waiting("permission", item.id, f"{item.agent} asks: {item.title}", item.asked_at, item.session_id)
            for item in self.permissions.all
        ]
        changes = [
            Waiting("change_set", item.id, f"land {len(item.files)} files?", item.created_at, item.session_id)
            for item in self.changes.all
            if item.state.is_undecided
        ]
        learned = [*self.adaptation.waiting(), *self.learnings.waiting()] if self.learnings_wait else []
        return [*requests, *changes, *learned]

    def make_workspace_label(self, workspace: str) -> str:
        return f"{workspace.rpartition('/')[2]}  main*"

    def close(self):
        """Nothing is open."""
