"""Builds what proposes cards: the Twin model and its training, the task board, and the checks of workspaces.

A check reads and asks only by `CheckSources`, so tests and simulations run the same checks on other sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import AUTO
from engine.events.learning import TwinAnswered
from engine.execution.runners.model.single_questions import SingleQuestions
from engine.execution.runners.toolchains.projects import ProjectCache, find_projects
from engine.execution.sessions import Sessions
from engine.git.github import GitHub
from engine.git.repository import find_top_folder
from engine.learning.decisions.insights import InsightsReader
from engine.learning.decisions.training import Training
from engine.learning.decisions.training_runs import TwinModel
from engine.model import Assignment
from engine.prediction import FIX_BY_AGENT, get_kind, templates
from engine.prediction.approvals import Approvals
from engine.prediction.card_store import CardStore
from engine.prediction.cards import Cards
from engine.prediction.checks import CardChecks, CheckSources
from engine.prediction.context import WorkspaceContext
from engine.prediction.context_reader import ContextReader, ReaderSources
from engine.prediction.placing import PromptPlacer
from engine.prediction.predictors import ModelTwin, PredictorHook, TwinAccess, TwinTraining
from engine.prediction.routing import Router
from engine.prediction.signals import OurWrite
from engine.prediction.tasks import TaskBoard, name_workspaces
from engine.prediction.templates.agent_work import propose_learned_flows
from engine.prediction.threads import Threads
from engine.prediction.twin import EmbeddedTwin, EmbeddingCache
from engine.services import Overrides
from engine.services.learning import list_learned_flows

if TYPE_CHECKING:
    from engine.services import Services

EMBED_TIMEOUT_S = 10.0
"""Seconds that a prompt waits for its vector; the embedder takes one or two to load."""


def build_twin(services: Services) -> None:
    """Build the Twin model, its training, and the figures of the decisions: `model_twin`, `training`, `insights`."""
    access = TwinAccess(services.settings, services.model_router, services.keys)
    services.model_twin = _build_model_twin(services, access)
    services.training = _build_training(services, access)
    services.insights = InsightsReader(
        services.database,
        services.clock,
        read_phase=lambda: services.embedded_twin.read_phase(),
        read_calibration=lambda: services.embedded_twin.calibrator.check(),
        read_threshold=lambda: services.settings.current.cross_poll_auto_execute_threshold,
        missing_for=partial(_describe_missing_requirements, services),
        read_training=lambda: services.training.view(services.clock.now()),
    )


def _build_model_twin(services: Services, access: TwinAccess) -> ModelTwin:
    """Build the Twin model. Each question to it is charged and recorded."""
    questions = SingleQuestions(
        services.database,
        host=services.model_host,
        access=access,
        calls=services.calls,
        costs=services.safety.costs,
        clock=services.clock,
        hold_reason=services.safety.kill_switch.find_autonomous_obstacle,
        secrets=services.keys.secrets,
    )
    return ModelTwin(
        services.settings,
        questions.ask,
        flows=services.flows,
        phase=lambda: services.embedded_twin.read_phase().number,
        on_answer=lambda model, error: services.database.record(
            TwinAnswered(subject=model, usable=not error, reason=error)
        ),
    )


def _build_training(services: Services, access: TwinAccess) -> Training:
    """Build the training of the Twin model."""
    of_twin = TwinTraining(services.settings, services.keys, access, services.model_twin)
    return Training(
        services.database,
        services.home.data / "training",
        exporter=services.exporter,
        twin=TwinModel(of_twin.plan, of_twin.open_provider, of_twin.answer, of_twin.adopt),
        budget=services.safety.costs,
        randomness=services.randomness,
        hold_reason=services.safety.kill_switch.find_obstacle,
        stop_reason=services.safety.kill_switch.find_session_end_reason,
    )


def _describe_missing_requirements(services: Services, workspace: str) -> str:
    """The missing requirements for a workspace, or any for "", to act by itself."""
    return services.autonomy.describe_requirements([workspace] if workspace else services.workspaces).words


def build_prediction(services: Services, sessions: Sessions, overrides: Overrides) -> None:
    """Build the task board, the checks and the cards, and what they ask: the Twin, transcripts, contexts."""
    services.embedding_cache = EmbeddingCache(services.memory)
    services.embedded_twin = EmbeddedTwin(
        services.decisions, embed=services.embedding_cache, calibrator=overrides.calibrator
    )
    services.tasks = TaskBoard(services.database, randomness=services.randomness)
    services.threads = Threads(
        lambda: services.settings.current.memory.transcripts,
        services.clock,
        find_workspace=find_top_folder,
        is_own_folder=services.home.holds_worktree,
        secrets=services.keys.secrets,
    )
    services.contexts = overrides.contexts or _build_context_reader(services, sessions)
    _build_cards(services, sessions)


def _build_cards(services: Services, sessions: Sessions) -> None:
    """Build the store of cards, the checks that fill it, and the decisions on cards."""
    router = _build_router(services)
    services.card_store = CardStore(
        services.database,
        services.clock,
        services.settings,
        services.randomness,
        safety=services.safety,
        decisions=services.decisions,
        ledger=services.ledger,
    )
    services.approvals = Approvals(
        services.card_store, sessions, services.embedded_twin, flows=services.flows, secrets=services.keys.secrets
    )
    services.checks = CardChecks(
        services.card_store,
        services.approvals,
        router,
        services.embedded_twin,
        services.randomness,
        _build_check_sources(services),
    )
    services.cards = Cards(
        services.card_store,
        services.approvals,
        sessions,
        services.checks,
        router,
        services.embedded_twin,
        reverse=services.changes.undo_session,
    )


def _build_context_reader(services: Services, sessions: Sessions) -> ContextReader:
    """Build the reader of the contexts of workspaces."""
    sources = ReaderSources(
        services.validation_runs,
        services.tasks,
        services.sessions,
        ProjectCache(services.clock, find_projects),
        github=GitHub(services.clock),
        threads=services.threads,
        learned_flows=lambda workspace: [
            flow.name for flow in list_learned_flows(services) if flow.workspace in ("", workspace)
        ],
        fixes=lambda workspace: services.adaptation.find_fixes(workspace),
        prompt_runner=partial(_find_prompt_runner, sessions),
        landings=services.changes.find_undoable_landings,
        changes=services.changes.find_of_session,
        # One disk, one card: in the first workspace.
        disk=lambda workspace: services.housekeeping.find_full_disk() if workspace in services.workspaces[:1] else None,
    )
    return ContextReader(services.clock, services.settings, sources)


def _build_router(services: Services) -> Router:
    """Build what chooses the channel of a prompt."""
    placer = PromptPlacer(
        services.database,
        embed=partial(services.memory.embed_texts, timeout_s=EMBED_TIMEOUT_S),
        agents=services.agents.list_agents,
    )
    return Router(services.clock, services.randomness, placer.place)


def _build_check_sources(services: Services) -> CheckSources:
    """Build the functions by which a check reads the workspaces, and gets proposals."""
    hook = PredictorHook(
        partial(_locate_predictions, services),
        flows=services.flows,
        home_workspace=lambda: next(iter(services.workspaces), ""),
        report=services.report,
    )
    other_sources = (
        services.model_twin.propose,
        hook.propose,
        lambda context: propose_learned_flows(context, list_learned_flows(services)),
    )
    return CheckSources(
        prepare=partial(_prepare_check, services),
        read_contexts=partial(_read_contexts, services),
        note_activity=lambda at: services.autonomy.presence.note(at),
        read_test_runs=services.validation_runs.read_newest,
        list_workspaces=lambda: services.workspaces,
        propose=partial(templates.propose, sources=other_sources),
    )


def _prepare_check(services: Services) -> None:
    """Update what a check reads: the tasks, and the learned candidates. What fails is reported, and the check goes on.
    While the engine is stopped, no heartbeat is due."""
    if not services.safety.kill_switch.find_obstacle():
        try:
            services.heartbeat.make_due_tasks()  # each is a card of this very check, also of one that a verb asks for
        except Exception as error:
            services.report("heartbeat", f"what is due has no card: {error}")
    if folder := services.settings.current.tasks_dir:
        try:
            services.tasks.update_from_files(Path(folder).expanduser(), name_known_workspaces(services))
        except (OSError, ValueError) as error:
            fix = "fix it, or: clawpy config set tasksDir ''"
            services.report("tasksDir", f"{folder} cannot be read: {error}; {fix}")
    try:
        services.adaptation.run_round()
    except Exception as error:  # cards that do not come of what was learned come all the same
        services.report("adaptation", f"what happened was not weighed: {error}")


def name_known_workspaces(services: Services) -> dict[str, str]:
    """The workspaces that this engine watches, or that an engine of this home checked before, by name."""
    checked = services.checks.read_last_checked()
    before = sorted(checked, key=checked.__getitem__)
    return name_workspaces(services.workspaces, [workspace for workspace in before if Path(workspace).is_dir()])


def _locate_predictions(services: Services) -> Path:
    """The file into which another program may write predictions."""
    return Path(services.settings.current.predictions_dir or services.home.data).expanduser() / "predictions.jsonl"


def _find_prompt_runner(sessions: Sessions, workspace: str) -> str:
    """The agent or model that would take a text prompt of a workspace, "" for none."""
    any_prompt = Assignment("?", get_kind(FIX_BY_AGENT).channel, workspace, AUTO)
    info = sessions.check(any_prompt)
    return info.executor if info.available else ""


def _read_contexts(services: Services, workspaces: Sequence[str]) -> list[WorkspaceContext]:
    """The contexts of these workspaces."""
    last_input = services.autonomy.presence.read_last_activity()
    contexts = services.contexts.read_all(
        workspaces, last_input=last_input, ours={path: _collect_own_writes(services, path) for path in workspaces}
    )
    return [replace(context, is_first=context.workspace in services.workspaces[:1]) for context in contexts]


def find_last_workspace_activity(services: Services, workspaces: Sequence[str]) -> datetime | None:
    """The time when anybody but us last wrote in these workspaces, None when that is unknown. Runs git."""
    return services.contexts.find_last_activity(
        workspaces, {path: _collect_own_writes(services, path) for path in workspaces}
    )


def _collect_own_writes(services: Services, workspace: str) -> list[OurWrite]:
    """Files that our landings wrote, which are no sign of the operator."""
    return [OurWrite.of_landing(path, at) for path, at in services.changes.read_own_write_times(workspace).items()]
