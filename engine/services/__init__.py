"""The services of one engine by name, what needs several of them, and what simulations and tests put in their place.

`engine.engine.Engine` is a `Services`, and makes itself whole when it opens a home: it sets some attributes, and the
modules of this package set the others, one module for each group. They give each service what it needs of the others,
and decide nothing. Above each group of attributes stands who sets it. The API uses `Services` as a type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from engine import activity
from engine.activity import DECISION_KINDS, LEARNING_KINDS, ActivitySince, select_activity_since
from engine.clock import Clock, find_midnight
from engine.config.settings import WorkspaceAutonomy
from engine.events.engine import FaultReported, WorkspaceAdded
from engine.frozen import frozen
from engine.git import find_repository_root
from engine.git.state import read_workspace_label
from engine.home import Home
from engine.model import LayerState, PromptPart, Refusal, SessionState, Waiting
from engine.randomness import Randomness
from engine.safety.content.prompts import find_line_objections

if TYPE_CHECKING:
    from engine.api_keys import Keys
    from engine.autonomy.autonomy import Autonomy
    from engine.autonomy.heartbeat import Heartbeat
    from engine.events import EventBus
    from engine.execution.changesets import ChangeSets
    from engine.execution.channel_setup import ChannelSetup
    from engine.execution.housekeeping import Housekeeping
    from engine.execution.model_calls import ModelCalls
    from engine.execution.model_router import ModelRouter
    from engine.execution.permissions import Permissions
    from engine.execution.prompts import PromptAssembly
    from engine.execution.runners.flows import FlowRegistry
    from engine.execution.runners.model.host_client import ModelHost
    from engine.execution.runners.model.single_questions import SingleQuestions
    from engine.execution.runners.runner import Runner
    from engine.execution.sandbox import Sandbox
    from engine.execution.sessions import Sessions
    from engine.execution.tools.toolbelt import ToolbeltFactory
    from engine.hierarchy.agents import Agents
    from engine.hierarchy.bubbles import Bubbles
    from engine.hierarchy.guidance import Cascade
    from engine.hierarchy.guided_sessions import GuidedSessions
    from engine.hierarchy.profiles import Profiles
    from engine.hierarchy.teaching import Teaching
    from engine.learning.candidates.adaptation import Adaptation
    from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
    from engine.learning.decisions.decisions import Decisions
    from engine.learning.decisions.exporting import Exporter
    from engine.learning.decisions.insights import InsightsReader
    from engine.learning.decisions.training import Training
    from engine.learning.learnings.learnings import Learnings
    from engine.learning.learnings.prompt_part import LearningsPart
    from engine.memory.agent_files import AgentFiles
    from engine.memory.importing import Importer
    from engine.memory.knowledge import Knowledge
    from engine.memory.memory import MemoryService
    from engine.memory.recall_in_prompts import RecallPromptPart
    from engine.memory.summaries import SummarySharing
    from engine.prediction.approvals import Approvals
    from engine.prediction.card_store import CardStore
    from engine.prediction.cards import Cards
    from engine.prediction.checks import CardChecks
    from engine.prediction.context import ContextSource
    from engine.prediction.predictors import ModelTwin
    from engine.prediction.tasks import TaskBoard
    from engine.prediction.threads import Threads
    from engine.prediction.twin import Calibrator, EmbeddedTwin, EmbeddingCache
    from engine.prediction.workspace_watch import WorkspaceWatch
    from engine.retention import RowRetention
    from engine.safety.safety import Safety
    from engine.settings_store import SettingsStore
    from engine.storage.database import Database
    from engine.storage.ledger import Ledger
    from engine.storage.validation_runs import ValidationRuns


log = logging.getLogger(__name__)

MAX_ROWS = 1000
"""Maximum number of sessions, blocked works and ledger entries of each kind that `Services.read_activity` reads, the
newest."""


class Services:
    """The services of one engine, callable from any thread."""

    # what the engine is opened with (`engine.engine`)
    home: Home
    clock: Clock
    randomness: Randomness
    version: str
    named_workspaces: list[str]
    """The top folders of the repositories that were named at the start or by a console."""

    # storage, settings and what is remembered (`foundation`)
    bus: EventBus
    settings: SettingsStore
    database: Database
    ledger: Ledger
    validation_runs: ValidationRuns
    memory: MemoryService
    knowledge: Knowledge
    importer: Importer
    summary_sharing: SummarySharing

    # agents, their guidance, and records of decisions (`foundation`)
    agents: Agents
    agent_files: AgentFiles
    profiles: Profiles
    cascade: Cascade
    bubbles: Bubbles
    teaching: Teaching
    guided_sessions: GuidedSessions
    decisions: Decisions
    exporter: Exporter

    # candidates of changed behaviour, and those that are active; learnings (`learning`)
    adaptation: Adaptation
    overlays: Overlays
    trials: Trials
    learned_guidance: LearnedGuidance
    flows: FlowRegistry
    learnings: Learnings

    # rails, sessions and what sessions use (`execution`)
    safety: Safety
    keys: Keys
    model_router: ModelRouter
    model_host: ModelHost
    is_model_host_lent: bool
    single_questions: SingleQuestions
    channel_setup: ChannelSetup
    calls: ModelCalls
    learnings_part: LearningsPart
    recall_part: RecallPromptPart
    prompts: PromptAssembly
    changes: ChangeSets
    housekeeping: Housekeeping
    permissions: Permissions
    toolbelts: ToolbeltFactory
    sessions: Sessions

    # cards, and the Twin that proposes and judges them (`prediction`)
    cards: Cards
    card_store: CardStore
    approvals: Approvals
    checks: CardChecks
    contexts: ContextSource
    tasks: TaskBoard
    threads: Threads
    embedding_cache: EmbeddingCache
    embedded_twin: EmbeddedTwin
    model_twin: ModelTwin
    training: Training
    insights: InsightsReader

    # work without the operator (`autonomy`)
    autonomy: Autonomy
    heartbeat: Heartbeat
    workspace_watch: WorkspaceWatch

    # deletion of old rows, and the sources of the queue besides changes, sessions and permissions (`engine.engine`)
    retention: RowRetention
    waiting_sources: Sequence[Callable[[], Sequence[Waiting]]]

    @property
    def workspaces(self) -> list[str]:
        """The watched repositories: those named at the start or by a console, then those of the settings. None of them
        is off."""
        settings = self.settings.current
        named = [
            root for root in self.named_workspaces if settings.get_workspace(root).autonomy is not WorkspaceAutonomy.OFF
        ]
        return list(dict.fromkeys([*named, *self.configured_workspaces]))

    @property
    def configured_workspaces(self) -> list[str]:
        """The repositories of the settings that are not off. A folder that is no longer a repository is left out;
        `doctor` names it."""
        roots = []
        for path, section in self.settings.current.workspaces.items():
            if section.autonomy is not WorkspaceAutonomy.OFF:
                try:
                    is_root = path in self.named_workspaces
                    roots.append(path if is_root else str(find_repository_root(Path(path).expanduser())))
                except Refusal as refusal:
                    log.warning("workspace %s is left out: %s", path, refusal)
        return roots

    def watch_workspace(self, folder: str) -> None:
        """Watch the repository of `folder` too. If it is watched already, nothing changes.

        Raises `Refusal`: `workspace_off` if the settings switch it off, and as `find_repository_root`.
        """
        root = str(find_repository_root(Path(folder)))
        if root in self.workspaces:
            return
        if self.settings.current.get_workspace(root).autonomy is WorkspaceAutonomy.OFF:
            on = f"clawpy config set 'workspaces.\"{root}\".autonomy' cards"
            raise Refusal("workspace_off", f"{root} is switched off in the settings, so it gets no cards", on)
        self.named_workspaces = [*self.named_workspaces, root]
        self.database.record(WorkspaceAdded(subject=root))
        self.autonomy.poke()  # a workspace that was never checked is checked at once

    def list_waiting(self) -> list[Waiting]:
        """The entries that wait for you (SPEC 9.3): those that block an agent first, then the oldest."""
        sessions = self.sessions.list_newest(limit=20)
        has_interrupted = any(session.state is SessionState.INTERRUPTED for session in sessions)
        entries = activity.make_waiting_entries(
            self.changes.list_undecided(limit=100),
            sessions,
            self.permissions.list_waiting(),
            self.clock.now(),
            activity.read_acknowledged_sessions(self.database),
            self.cards.list_pending() if has_interrupted else (),
        )
        check = self.safety.check_prompt
        entries += [activity.mark_hostile(entry, check) for source in self.waiting_sources for entry in source()]
        return activity.sort_queue(entries)

    def find_objections(self, parts: Sequence[PromptPart]) -> list[list[str]]:
        """The content filter's objection to each line of a prompt, "" for none. The engine's own text and the answers
        of models are not checked. Takes up to a second for a long prompt."""
        return [find_line_objections(part, self.safety.check_prompt) for part in parts]

    def acknowledge(self, session_id: str) -> None:
        """Remove an interrupted session from the queue."""
        activity.acknowledge_session(self.database, session_id)

    def read_layers(self) -> list[LayerState]:
        """The state of the seven layers of memory (SPEC 9.5)."""
        states = [
            self.agent_files.describe_layer(),
            self.ledger.describe_layer(),
            *self.memory.describe_layers(),
            *self.knowledge.describe_layers(),
        ]
        return sorted(states, key=lambda state: state.layer)

    def read_activity(self, instant: datetime | None = None) -> ActivitySince:
        """The activity since `instant`, and the entries that wait for you. Without `instant`, it is the time since you
        were last away, or since midnight if you were not away."""
        local = self.clock.local()
        instant = instant or self.autonomy.presence.find_absence_start() or find_midnight(local.date(), local.tzinfo)
        with self.database.read() as session:
            decisions = self.decisions.count_decided_cards(session, instant)
        return select_activity_since(
            instant,
            sessions=self.sessions.list_newest(limit=MAX_ROWS),
            blocked_entries=self.safety.read_log(limit=MAX_ROWS, blocked_only=True),
            decision_entries=self.ledger.read_newest(MAX_ROWS, kinds=DECISION_KINDS),
            spent=self.safety.costs.sum_settled_since(instant),
            waiting=self.list_waiting(),
            learning_entries=self.ledger.read_newest(MAX_ROWS, kinds=LEARNING_KINDS),
            decisions=decisions,
        )

    def make_workspace_label(self, workspace: str) -> str:
        """The name and the branch of a workspace, for the status line."""
        return read_workspace_label(workspace)

    def report(self, where: str, message: str) -> None:
        """Record a fault that does not stop work."""
        self.database.record(FaultReported(where=where, message=message))


@frozen
class Overrides:
    """Replacements for the outside world in one engine, in simulations and in tests; None means the real
    implementation. Nothing else can be replaced: rails, permits, cards, the Twin, states, schedule, quiet hours and
    costs are always real."""

    runners: Sequence[Runner] | None = None
    contexts: ContextSource | None = None
    calibrator: Calibrator | None = None
    sandbox: Sandbox | None = None
    model_host: ModelHost | None = None
    """A host that outlives the engine, because it takes seconds to start."""
    throw_away: bool = False
    """The home is temporary, so commits do not wait for the disk (SQLite's `synchronous=OFF`)."""
    unreachable: bool = False
    """No control socket, no watcher of the stop file, no notifications."""
    lenient: bool = False
    """With invalid settings, the engine runs with the defaults."""
