"""A stand-in for the engine with fixed data: the services that the console calls.

It never changes by itself, so screens can be compared with pictures. Calls are in `call_log`; `refuse` makes the next
call of a name raise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.activity import ActivitySince, LearnedCounts
from engine.api.gateway.gateway import GatewayState
from engine.autonomy.autonomous_runs import ApprovalRecord, find_requirements
from engine.config import WorkspaceAutonomy
from engine.events import EventBus
from engine.execution.model_router import FIRST_KEY
from engine.execution.runners.flows import FLOWS, FlowRegistry
from engine.model import (
    Card,
    ChangeSet,
    ChangeState,
    CycleReport,
    DecidedBy,
    DiffComment,
    DismissReason,
    FileDiff,
    LandPreview,
    LocalModels,
    ModelCall,
    Mute,
    PermissionAnswer,
    PermissionRequest,
    Phase,
    PromptPart,
    RailVerdict,
    Refusal,
    SessionView,
    SetupStep,
    Source,
    Status,
    Task,
    TranscriptLine,
    Waiting,
)
from tests.console.stand_in_data import (
    AGENT,
    BLOG,
    HUNKS,
    NOW,
    SHOP,
    agents,
    ago,
    card,
    ledger,
    permissions,
    read_values,
    sessions,
    transcript,
)
from tests.console.stand_in_figures import StandInFigures, StandInSafety, StandInTraining
from tests.console.stand_in_learning import StandInAdaptation, StandInLearnings
from tests.console.stand_in_memory import StandInAgentFiles, StandInMemory, StandInRecallPart
from tests.console.stand_in_service import StandInService


class StandInCards(StandInService):
    """The service `cards`."""

    def fill(self) -> None:
        self.all = {card.id: card for card in read_values(Card, "cards")}
        self.mutes: list[Mute] = []

    def pending(self, **_: object) -> list[Card]:
        return [item for item in self.all.values() if item.status is Status.PENDING and item.snoozed_until is None]

    def get(self, id: str) -> Card:
        return self.all[id]

    def refresh_runners(self) -> int:
        self.note("refresh_runners")
        return 0

    def recent(self, **_: object) -> list[Card]:
        return [item for item in self.all.values() if item.status is not Status.PENDING]

    def _decide(self, id: str, status: Status) -> Card:
        self.all[id] = dataclasses.replace(
            self.all[id], status=status, decided_by=DecidedBy.OPERATOR, decided_at=self._engine.now
        )
        return self.all[id]

    def approve(
        self, id: str, *, edit: str | None = None, parameters: Mapping[str, Any] | None = None, **_: object
    ) -> Card:
        self.note("approve", id, edit if edit is not None else parameters)
        return self._decide(id, Status.APPROVED)

    def allow_once(self, id: str) -> None:
        self.note("allow_once", id)
        self._engine.safety.allowed_once.add(id)

    def dismiss(self, id: str) -> Card:
        self.note("dismiss", id)
        return self._decide(id, Status.DISMISSED)

    def explain(self, id: str, reason: DismissReason) -> Card:
        self.note("explain", id, reason.value)
        return self.all[id]

    def snooze(self, id: str, *, span: timedelta = timedelta(hours=2)) -> Card:
        self.note("snooze", id)
        self.all[id] = dataclasses.replace(self.all[id], snoozed_until=self._engine.now + span)
        return self.all[id]

    def undo(self, id: str) -> tuple[Card, int]:
        self.note("undo", id)
        self.all[id] = dataclasses.replace(self.all[id], status=Status.PENDING, snoozed_until=None, decided_by=None)
        return self.all[id], 0

    def propose(self, text: str, *, workspace: str, continues: str = "", may_wait: bool = True) -> Card:
        if not may_wait and not self._engine.channel_setup.serves:
            raise Refusal("no_model", "No model or agent can run this text", "clawpy key set openai")
        self.note("propose", text, workspace, *([continues] if continues else []))
        own_prompt = card(90, text, flow=None, source=Source.OPERATOR, workspace=workspace, confidence=1.0)
        self.all[own_prompt.id] = own_prompt
        return own_prompt

    def mark_shown(self, ids: list[str]) -> None:
        self.note("mark_shown", *ids)

    def muted(self) -> list[Mute]:
        return self.mutes

    def unmute(self, id: str) -> Mute:
        self.note("unmute", id)
        return next(mute for mute in self.mutes if mute.id == id)

    def rails(self, id: str) -> tuple[RailVerdict, ...]:
        return self.all[id].verdicts

    def similar(self, id: str) -> tuple[int, int]:
        return 6, 7

    def describe_sandbox(self, id: str) -> str:
        return "bubblewrap: read-only system, no network"


class StandInSessions(StandInService):
    """The service `sessions`."""

    def fill(self) -> None:
        self.all = sessions()
        self.sandbox = SimpleNamespace(
            confines=True, describe=lambda network: "bubblewrap: read-only system, no network"
        )
        self.transcripts = {session.id: transcript(session.id) for session in self.all}
        self.unfinished: dict[str, TranscriptLine] = {}

    def list(self, *, agent: str | None = None, limit: int = 50) -> list[SessionView]:
        return [item for item in self.all if agent in (None, item.agent)][:limit]

    def transcript(self, id: str, *, after: int = 0, limit: int = 2000) -> list[TranscriptLine]:
        return self.transcripts.get(id, [])[after : after + limit]

    def unfinished_line(self, id: str) -> TranscriptLine | None:
        return self.unfinished.get(id)

    def stop(self, id: str, reason: str) -> None:
        self.note("stop_session", id)

    def reply(self, id: str, text: str) -> None:
        self.note("reply", id, text)


class StandInPermissions(StandInService):
    """The service `permissions`: requests of agents that wait."""

    def fill(self) -> None:
        self.all: list[PermissionRequest] = []

    def waiting(self) -> list[PermissionRequest]:
        return list(self.all)

    def answer(self, id: str, answer: PermissionAnswer) -> None:
        self.note("answer", id, str(answer))
        self.all = [item for item in self.all if item.id != id]


class StandInChannelSetup(StandInService):
    """The service `channel_setup`: what serves a channel, and what could."""

    def fill(self) -> None:
        self.serves = "openai:gpt-6.1-terra"
        self.here: list[Any] = []
        self.local = LocalModels()
        self.missing = FIRST_KEY
        self.supported_agents: list[str] = []

    def served_by(self, channel: str = "koji-core") -> str:
        return self.serves

    def find_agents(self) -> list[Any]:
        return self.here

    list_agents = find_agents

    def find_next_step(self) -> SetupStep:
        return self.missing

    def find_local_models(self) -> LocalModels:
        return self.local

    def assign_model(self, model_id: str) -> None:
        self.note("assign_model", model_id)

    def assign_agent(self, name: str, channel: str = "koji-core") -> Any:
        self.note("assign_agent", name)
        return next(item for item in self.here if item.name == name)


class StandInCalls(StandInService):
    """The service `calls`: calls of models with their prompts."""

    def fill(self) -> None:
        self.all: dict[str, list[ModelCall]] = {}

    def for_session(self, id: str) -> list[ModelCall]:
        return self.all.get(id, [])

    def read_prompt(self, id: str) -> tuple[PromptPart, ...]:
        parts = read_values(PromptPart, "prompt_parts")
        return tuple(parts[:3] if id.endswith("1") else parts)

    def find_calls_with_memory(self, id: str) -> list[ModelCall]:
        return read_values(ModelCall, "model_calls")[:1] if id.endswith(("1", "3")) else []

    def reply(self, id: str) -> str:
        return "I look at the cart first." if id.endswith("1") else ""


class StandInChangeComments:
    """The comments of the first change set, of which each new one replaces the others."""

    def __init__(self, changes: StandInChanges) -> None:
        self._changes = changes

    def add(self, id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        comment = DiffComment(1, path, line, "quoted", text, "2026-01-05T09:30:00+00:00", old)
        return self._changes._set(id, ChangeState.WAITING, comments=(comment,))

    def remove(self, id: str, number: int) -> ChangeSet:
        return self._changes._set(id, ChangeState.WAITING, comments=())

    def make_unsent_message(self, id: str) -> tuple[str, tuple[int, ...]]:
        comments = self._changes.all[0].comments
        return "\n".join(comment.text for comment in comments), tuple(comment.number for comment in comments)

    def mark_sent(self, id: str, numbers: Any) -> ChangeSet:
        comments = (
            dataclasses.replace(comment, sent="2026-01-05T09:31:00+00:00") if comment.number in numbers else comment
            for comment in self._changes.all[0].comments
        )
        return self._changes._set(id, ChangeState.WAITING, comments=tuple(comments))


class StandInChanges(StandInService):
    """The service `changes`. Only the first change set changes."""

    def fill(self) -> None:
        self.all = read_values(ChangeSet, "change_sets")
        self.comments = StandInChangeComments(self)

    def list(self, *, limit: int = 50) -> list[ChangeSet]:
        return self.all[:limit]

    def undecided(self, limit: int) -> list[ChangeSet]:
        return [change for change in self.all if change.state.is_undecided][:limit]

    def diff(self, id: str) -> list[Any]:
        return [FileDiff(file.path, file.status, "", False, HUNKS) for file in self.all[0].files]

    def _set(self, id: str, state: ChangeState, **fields: Any) -> ChangeSet:
        """Give a change set this state and these fields, and note its id under the name of the state."""
        self.note(state.value, id)
        self.all = [dataclasses.replace(item, state=state, **fields) if item.id == id else item for item in self.all]
        return self.all[0]

    def preview_land(self, id: str, only: Any = ()) -> Any:
        return LandPreview(True, files=len(only) or 3)

    def land(self, id: str, only: Any = ()) -> ChangeSet:
        if only:
            self.note("landed part", *((item.path, item.hunks) for item in only))
            return self._set(id, ChangeState.WAITING, landed=len(only), landings=1)
        return self._set(id, ChangeState.LANDED, landed=3, landings=1)

    def branch(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.BRANCHED, branch="clawpy/sess_000000000002")

    def discard(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.DISCARDED)

    def undo(self, id: str) -> ChangeSet:
        return self._set(id, ChangeState.UNDONE, landed=0, landings=0)


class StandInSettings(StandInService):
    """The service `settings`; what is set is only noted."""

    fault = ""

    def fill(self) -> None:
        self.current: Any = SimpleNamespace(
            keys={},
            channels=("koji-core",),
            console=SimpleNamespace(theme="clawpy-dark", mouse=True, bell=True),
            silence_threshold_ms=1_800_000,
            cross_poll_enabled=True,
            autonomous_mode_enabled=False,
            twin_model_enabled=False,
            dpo_export_enabled=False,
            quiet_hours_start=23,
            quiet_hours_end=8,
            workspaces={BLOG: SimpleNamespace(autonomy="act")},
            workspace=lambda path: self.current.workspaces.get(path, SimpleNamespace(autonomy="cards")),
        )

    def set(self, key: str, value: Any) -> None:
        self.note("set", key, value)


class StandInGateway(StandInService):
    """The service `gateway`."""

    url = ""
    """The address, "" while it is closed."""

    def state(self) -> GatewayState:
        return GatewayState(self.url, "this machine only", "keyring") if self.url else GatewayState()

    def take_new_token(self) -> str:
        return ""

    def set_enabled(self, on: bool) -> str:
        self.note("gateway", on)
        self.url = "http://127.0.0.1:8477" if on else ""
        return "clawpy_secret" if on else ""


class StandIn:
    """The attributes of an `Engine` that the console uses."""

    def __init__(self) -> None:
        self.call_log: list[tuple[Any, ...]] = []
        self.refuse: dict[str, Refusal] = {}
        self.now = NOW
        self.dnd: datetime | None = None
        self.bus = EventBus()
        self.workspaces = [SHOP, BLOG]
        self.configured_workspaces: list[str] = []
        self.phase = Phase(1, 34, "34 decisions, calibration not proven yet", 30)
        self.cards = StandInCards(self)
        self.sessions = StandInSessions(self)
        self.changes = StandInChanges(self)
        self.permissions = StandInPermissions(self)
        self.calls = StandInCalls(self)
        self.channel_setup = StandInChannelSetup(self)
        self.flows = FlowRegistry(FLOWS, list)
        self.agent_files = StandInAgentFiles(self)
        self.memory: Any = StandInMemory(self)
        self.knowledge = self.memory
        self.layers = self.memory.layers
        self.recall_part = StandInRecallPart(self)
        self.adaptation = StandInAdaptation(self)
        self.learnings = StandInLearnings(self)
        self.learnings_wait = False  # whether candidates and learnings are in the queue
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.ledger = SimpleNamespace(latest=ledger)
        self.safety = StandInSafety(self)
        self.insights = StandInFigures(self)
        self.training = StandInTraining(self)
        self.settings = StandInSettings(self)
        self.gateway = StandInGateway(self)
        self.tasks = SimpleNamespace(list=lambda **_: read_values(Task, "tasks"))
        self.agents = SimpleNamespace(list=agents, retired=list)
        self.autonomy = SimpleNamespace(
            state=lambda: SimpleNamespace(
                state="WATCHING", cause="the console opened", since=ago(minutes=40), next_change=ago(minutes=-18)
            ),
            next_cycle=lambda: ago(minutes=-17.5),
            requirements=lambda workspaces: find_requirements(
                autonomous=False,
                autonomies={SHOP: WorkspaceAutonomy.CARDS, BLOG: WorkspaceAutonomy.ACT},
                quiet="",
                phase=1,
                records=[ApprovalRecord("run_tests", "koji-core", 8, 8)],
                threshold=0.8,
            ),
            silence=lambda: timedelta(minutes=12),
            note_activity=lambda source: self.call_log.append(("note_activity", source)),
            quiet=lambda: self.dnd is not None,
            dnd_until=lambda: self.dnd,
            dnd=self._dnd,
        )
        self.card_cycle = SimpleNamespace(
            run_cycle=self._run_cycle,
            is_checking=False,
            remarks=dict,
            last_checked=lambda: {SHOP: ago(minutes=3), BLOG: ago(minutes=3)},
            phase=lambda: self.phase,
        )

    def _run_cycle(self, *, requested: bool) -> CycleReport:
        self.call_log.append(("run_cycle", requested))
        return CycleReport(seconds=0.2)

    def _dnd(self, span: timedelta | None) -> datetime | None:
        self.call_log.append(("dnd", span))
        self.dnd = None if span is None else self.now + span
        return self.dnd

    def since(self, instant: datetime) -> ActivitySince:
        ran = tuple(
            session for session in self.sessions.list() if session.ended_at is not None and session.ended_at > instant
        )
        return ActivitySince(instant, ran, (), 3, 1, 1, 20_000, tuple(self.queue()), LearnedCounts(2, 0, 1))

    def with_agent(self) -> StandIn:
        """With a running session of an agent that has made two calls and asks for two permissions."""
        self.sessions.all.insert(0, read_values(SessionView, "sessions")[-1])
        self.sessions.transcripts[AGENT] = transcript(AGENT)
        self.calls.all[AGENT] = read_values(ModelCall, "model_calls")
        self.permissions.all = permissions()
        return self

    def objections(self, parts: Sequence[PromptPart]) -> list[list[str]]:
        return [[""] * len(part.lines) for part in parts]

    def queue(self) -> list[Waiting]:
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

    def close(self) -> None:
        """Nothing is open."""
