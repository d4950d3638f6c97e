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

from engine.api_keys import Keys
from engine.config.sections import AUTO
from engine.events import TwinAnswered
from engine.execution.runners.model.single_questions import SingleQuestions
from engine.execution.runners.toolchains.projects import ProjectCache, find_projects
from engine.execution.sessions import Sessions
from engine.frozen import frozen
from engine.git.github import GitHub
from engine.git.repository import find_top_folder
from engine.learning.decisions.decisions import SIDE_SEPARATOR
from engine.learning.decisions.insights import InsightsReader
from engine.learning.decisions.training import Training
from engine.learning.decisions.training_provider import Account, Provider, TrainingError
from engine.learning.decisions.training_runs import TrainingPlan, TwinModel
from engine.model import Assignment, NoAnswer, Refusal, microusd
from engine.prediction import templates
from engine.prediction.approvals import Approvals
from engine.prediction.card_store import CardStore
from engine.prediction.cards import Cards
from engine.prediction.checks import CardChecks, CheckSources
from engine.prediction.context import WorkspaceContext
from engine.prediction.context_reader import ContextReader, Sources
from engine.prediction.kinds import FIX_BY_AGENT, get_kind
from engine.prediction.predictors import ModelTwin, PredictorHook, TwinAccess, UnusableReply
from engine.prediction.routing import PromptPlacer, Router
from engine.prediction.signals import OurWrite
from engine.prediction.tasks import TaskBoard, name_workspaces
from engine.prediction.templates.tasks import propose_learned_flows
from engine.prediction.threads import Threads
from engine.prediction.twin import EmbeddedTwin, EmbeddingCache
from engine.services import Overrides
from engine.settings_store import SettingsStore
from engine.wiring.candidates import list_learned_flows

if TYPE_CHECKING:
    from engine.services import Services

EMBED_TIMEOUT_S = 10.0
"""Seconds that a prompt waits for its vector; the embedder takes one or two to load."""


def build_twin(services: Services) -> None:
    """Build the Twin model, its training, and the figures of the decisions: `model_twin`, `training`, `insights`."""
    home, clock, randomness = services.home, services.clock, services.randomness
    twin = TwinAccess(services.settings, services.model_router, services.keys)
    services.model_twin = ModelTwin(
        services.settings,
        SingleQuestions(
            services.database,
            host=services.model_host,
            access=twin,
            calls=services.calls,
            costs=services.safety.costs,
            clock=clock,
            hold_reason=services.safety.kill_switch.block_reason,
            secrets=services.keys.secrets,
        ).ask,
        flows=services.flows,
        phase=lambda: services.embedded_twin.read_phase().number,
        on_answer=lambda model, error: services.database.record(
            TwinAnswered(subject=model, usable=not error, reason=error)
        ),
    )
    twin_training = _TwinTraining(services.settings, services.keys, twin, services.model_twin)
    services.training = Training(
        services.database,
        home.data / "training",
        exporter=services.exporter,
        twin=TwinModel(twin_training.plan, twin_training.open_provider, twin_training.answer, twin_training.adopt),
        budget=services.safety.costs,
        randomness=randomness,
        hold_reason=services.safety.kill_switch.stop_reason,
        stop_reason=services.safety.kill_switch.kill_reason,
    )
    services.insights = InsightsReader(
        services.database,
        clock,
        read_phase=lambda: services.embedded_twin.read_phase(),
        read_calibration=lambda: services.embedded_twin.calibrator.check(),
        read_threshold=lambda: services.settings.current.cross_poll_auto_execute_threshold,
        missing_for=partial(_describe_missing_requirements, services),
        read_training=lambda: services.training.view(clock.now()),
    )


@frozen
class _TwinTraining:
    """Gives the training of the Twin model its settings, its provider and the model itself (SPEC 8.4)."""

    settings: SettingsStore
    keys: Keys
    access: TwinAccess
    twin: ModelTwin

    def plan(self) -> TrainingPlan:
        """The plan, from the present settings."""
        settings = self.settings.current
        training = settings.training
        provider_settings = settings.provider(training.provider)
        return TrainingPlan(
            training.provider,
            training.base_model,
            microusd(training.cost_cap),
            self.twin.model_id,
            automatic=training.automatic,
            enabled=settings.twin_model_enabled,
            base_url="" if provider_settings is None else provider_settings.base_url,
        )

    def open_provider(self) -> Provider:
        """Open the provider of trainings. Raises `Refusal`: `unknown_provider`, `no_key`."""
        training = self.settings.current.training
        provider_settings = self.settings.current.provider(training.provider)
        if provider_settings is None:
            raise Refusal(
                "unknown_provider",
                f"there is no provider {training.provider}",
                "clawpy config set training.provider NAME",
            )
        key = self.keys.get(training.provider) or self.access.key(training.provider)
        if key is None and not provider_settings.keyless:
            raise Refusal("no_key", f"{training.provider} has no key", f"clawpy key set {training.provider}")
        # The libraries want a word even where the provider wants none.
        return Provider(Account(training.api, provider_settings.base_url, key.value if key else "keyless"))

    def answer(self, model: str, situation: str) -> str | None:
        """The proposal of a model as `prompt → channel`; None when its answer is unusable. Raises `TrainingError`."""
        try:
            reply = self.twin.predict(model, situation)
        except UnusableReply:
            return None
        except NoAnswer as fault:
            raise TrainingError(f"{model} cannot be reached: {fault}", transient=True) from fault
        return f"{reply.prompt}{SIDE_SEPARATOR}{reply.channel}"

    def adopt(self, model: str) -> None:
        """Make the model the Twin at once."""
        self.settings.set("twinModelId", model)


def _describe_missing_requirements(services: Services, workspace: str) -> str:
    """The missing requirements for a workspace, or any for "", to act by itself."""
    return services.autonomy.describe_requirements([workspace] if workspace else services.workspaces).words


def build_prediction(services: Services, launcher: Sessions, overrides: Overrides) -> None:
    """Build the task board, the checks and the cards, and what they ask: the Twin, transcripts, contexts."""
    clock, randomness = services.clock, services.randomness
    services.embedding_cache = EmbeddingCache(services.memory)
    services.embedded_twin = EmbeddedTwin(
        services.decisions, embed=services.embedding_cache, calibrator=overrides.calibrator
    )
    services.tasks = TaskBoard(services.database, randomness=randomness)
    services.threads = Threads(
        lambda: services.settings.current.memory.transcripts,
        clock,
        workspace_of=find_top_folder,
        is_ours=services.home.holds_worktree,
        secrets=services.keys.secrets,
    )
    services.contexts = overrides.contexts or _make_context_reader(services, launcher)
    router = _make_router(services)
    services.card_store = store = CardStore(
        services.database,
        clock,
        services.settings,
        randomness,
        safety=services.safety,
        decisions=services.decisions,
        ledger=services.ledger,
    )
    services.approvals = approvals = Approvals(
        store, launcher, services.embedded_twin, flows=services.flows, secrets=services.keys.secrets
    )
    services.checks = CardChecks(
        store, approvals, router, services.embedded_twin, randomness, _make_check_sources(services)
    )
    services.cards = Cards(
        store,
        approvals,
        launcher,
        services.checks,
        router,
        services.embedded_twin,
        reverse=services.changes.undo_session,
    )


def _make_context_reader(services: Services, launcher: Sessions) -> ContextReader:
    """What reads the contexts of workspaces, with all that it reads from."""
    clock = services.clock
    sources = Sources(
        services.validation_runs,
        services.tasks,
        services.sessions,
        ProjectCache(clock, find_projects),
        github=GitHub(clock),
        threads=services.threads,
        learned_flows=lambda workspace: [
            flow.name for flow in list_learned_flows(services) if flow.workspace in ("", workspace)
        ],
        fixes=lambda workspace: services.adaptation.find_fixes(workspace),
        prompt_runner=partial(_find_prompt_runner, launcher),
        landings=services.changes.find_undoable_landings,
        changes=services.changes.for_session,
        # One disk, one card: in the first workspace.
        disk=lambda workspace: services.housekeeping.find_full_disk() if workspace in services.workspaces[:1] else None,
    )
    return ContextReader(clock, services.settings, sources)


def _make_router(services: Services) -> Router:
    """What chooses the channel of a prompt."""
    placer = PromptPlacer(
        services.database,
        services.settings,
        embed=partial(services.memory.embed_texts, timeout_s=EMBED_TIMEOUT_S),
        agents=services.agents.list,
    )
    return Router(services.settings, services.clock, services.randomness, placer.place)


def _make_check_sources(services: Services) -> CheckSources:
    """What a check does before it, and what it reads and asks for proposals."""
    hook = PredictorHook(
        services.database,
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
        contexts=partial(_read_contexts, services),
        note_activity=lambda at: services.autonomy.presence.note(at),
        test_runs=services.validation_runs.read_newest,
        workspaces=lambda: services.workspaces,
        propose=partial(templates.propose, sources=other_sources),
    )


def _prepare_check(services: Services) -> None:
    """Bring up to date what a check is about to read: the tasks of heartbeats, none of which is due while the engine is
    stopped, those of files, and what was learned. What fails is reported, and the check goes on without it."""
    if not services.safety.kill_switch.stop_reason():
        services.heartbeat.pulse()  # what is due is a card of this very check, also of one that a verb asks for
    if folder := services.settings.current.tasks_dir:
        try:
            services.tasks.update_from_files(Path(folder).expanduser(), name_known_workspaces(services))
        except (OSError, ValueError) as error:
            way_out = "fix it, or: clawpy config set tasksDir ''"
            services.report("tasksDir", f"{folder} cannot be read: {error}; {way_out}")
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


def _find_prompt_runner(launcher: Sessions, workspace: str) -> str:
    """The agent or model that would take a text prompt of a workspace, "" for none."""
    any_prompt = Assignment("?", get_kind(FIX_BY_AGENT).channel, workspace, AUTO)
    info = launcher.check(any_prompt)
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
