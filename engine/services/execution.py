"""Builds the rails, and what carries out approved work: model routing, prompts, tools, runners and sessions.

The order in which parts stand in a prompt is decided here, in `_build_prompts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.api_keys import Keys
from engine.events.learning import CloudMemoryRecalled
from engine.execution.changesets import ChangeSets
from engine.execution.channel_setup import ChannelSetup
from engine.execution.housekeeping import Caches, Housekeeping
from engine.execution.model_calls import CallerWithoutSession, ModelCalls
from engine.execution.model_router import ModelRouter
from engine.execution.permissions import Permissions
from engine.execution.prompts import IdentityPart, ProjectPart, PromptAssembly, RulesPart, TaskPart
from engine.execution.runners.acp.runner import AcpRunner
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.model import ConversationStore
from engine.execution.runners.model.agent_loop import LoopServices
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.runners.model.runner import ModelRunner
from engine.execution.runners.model.single_questions import SingleQuestions
from engine.execution.runners.runner import AgentServices, Runner
from engine.execution.runners.validation import Validation
from engine.execution.sandbox import Sandbox
from engine.execution.session_folders import SessionFolders
from engine.execution.session_limits import SessionRails
from engine.execution.sessions import Sessions
from engine.execution.tools.toolbelt import ToolbeltFactory
from engine.learning.learnings.prompt_part import LearningsPart, record_uses
from engine.memory.recall_in_prompts import RecallPromptPart
from engine.memory.summaries import list_shared_sources
from engine.model import SessionView
from engine.model.refusal import find_or_none
from engine.safety.pipeline import Hooks
from engine.safety.safety import Safety
from engine.services import Overrides
from engine.services.prediction import find_last_workspace_activity
from engine.storage.database import Transaction

if TYPE_CHECKING:
    from engine.services import Services

RECALL_TIMEOUT_S = 2.0
"""Seconds that a prompt waits for recall (the first one loads a model) and for learnings."""


def build_rails(services: Services) -> None:
    """Build the rails and the kill switch."""
    home, clock, randomness = services.home, services.clock, services.randomness
    services.safety = Safety(
        services.database,
        services.settings,
        clock,
        randomness,
        data=home.data,
        decisions=services.decisions,
        hooks=Hooks(
            stop_sessions=partial(_stop_all, services),
            find_agent_budget=services.agents.read_budget,
            find_quiet_reason=lambda: services.autonomy.find_quiet_reason(),
            is_confined=lambda: services.sessions.sandbox.confines,
            data_parameters=lambda flow: services.flows.find_data_parameters(flow),
            on_change=lambda: services.autonomy.poke(),
        ),
    )


def _stop_all(services: Services, reason: str) -> None:
    """Stop all sessions with their processes, and the process that talks to models."""
    services.sessions.stop_all(reason)
    if not services.is_model_host_lent:
        services.model_host.end()


def build_execution(services: Services, overrides: Overrides) -> Sessions:
    """Build what carries work out; returns the sessions that start it."""
    _build_model_routing(services)
    _build_prompts(services)
    services.changes = ChangeSets(
        home=services.home, database=services.database, clock=services.clock, randomness=services.randomness
    )
    _build_tools(services)
    caches = Caches(services.home.cache / "build")
    services.housekeeping = Housekeeping(
        services.home,
        services.clock,
        changes=services.changes,
        caches=caches,
        list_running=lambda: [session.id for session in services.sessions.list_running()],
    )
    _build_model_host(services, overrides)
    runners = _build_runners(services, caches) if overrides.runners is None else overrides.runners
    _build_sessions(services, runners, overrides.sandbox)
    return services.sessions


def _build_model_routing(services: Services) -> None:
    """Build the keys, what chooses a model or an agent for a prompt, and the record of calls."""
    services.keys = Keys(services.home, clock=services.clock)
    services.model_router = ModelRouter(
        services.settings,
        services.keys,
        models=lambda agent: services.agents.read_tools(agent).models,
        hints=services.overlays.choose_model,
    )
    services.channel_setup = ChannelSetup(
        services.settings,
        data=services.home.data,
        choose_model=services.model_router.choose,
        find_missing_steps=services.model_router.find_missing_steps,
    )
    services.calls = ModelCalls(
        services.database,
        services.randomness,
        secrets=services.keys.secrets,
        on_prompt=partial(_record_prompt, services),
    )


def _build_tools(services: Services) -> None:
    """Build the tools of agents, and the permissions that they ask for."""
    services.permissions = Permissions(services.database, randomness=services.randomness, secrets=services.keys.secrets)
    services.toolbelts = ToolbeltFactory(
        services.database,
        settings=services.settings,
        permissions=services.permissions,
        read_tools=services.agents.read_tools,
    )


def _build_model_host(services: Services, overrides: Overrides) -> None:
    """Build the process that talks to models, and the single questions to models that use it."""
    services.model_host = ModelHost() if overrides.model_host is None else overrides.model_host
    services.is_model_host_lent = overrides.model_host is not None
    services.single_questions = SingleQuestions(
        services.database,
        host=services.model_host,
        access=services.model_router,
        calls=services.calls,
        costs=services.safety.costs,
        clock=services.clock,
        hold_reason=services.safety.kill_switch.find_autonomous_obstacle,
        secrets=services.keys.secrets,
    )


def _build_runners(services: Services, caches: Caches) -> list[Runner]:
    """Build the runners of flows, models and coding agents."""
    folders = SessionFolders(services.database, services.settings, services.changes, caches)
    flows = FlowRunner(services.flows, folders=folders, clock=services.clock, housekeeping=services.housekeeping)
    validation = Validation(
        services.database,
        settings=services.settings,
        find_repairs=lambda **about: services.adaptation.find_repairs(**about),
        find_tweaks=services.overlays.find_tweaks,
    )
    agent_services = AgentServices(
        folders=folders,
        prompts=services.prompts,
        calls=services.calls,
        belts=services.toolbelts,
        settings=services.settings,
        validation=validation,
    )
    conversations = ConversationStore(services.home.transcripts, services.keys.secrets)
    loop_services = LoopServices(
        host=services.model_host,
        router=services.model_router,
        conversations=conversations,
        clock=services.clock,
        randomness=services.randomness,
    )
    models = ModelRunner(agent_services, loop_services)
    agents = AcpRunner(agent_services, data=services.home.data, version=services.version)
    return [flows, models, agents]


def _build_prompts(services: Services) -> None:
    """Build the parts of a prompt and their assembly."""
    # A lesson stands in a prompt once (SPEC 6.8), in the block nearest to the agent: what it learnt itself, then the
    # soul, the leaders from the direct one upward, the project and all projects, memory.
    services.learnings_part = LearningsPart(
        services.learnings.files, services.settings, nearer_lessons=services.cascade.find_lessons
    )
    services.recall_part = RecallPromptPart(
        services.memory,
        services.settings,
        excluded_lessons=lambda request: (
            services.learnings_part.find_lessons(request) | services.learnings.read_retracted()
        ),
    )
    services.prompts = PromptAssembly(
        [
            IdentityPart(
                services.agents,
                folder=services.home.agents,
                find_other_lessons=lambda request: services.learned_guidance.find_lessons(request),
            ),
            RulesPart(),
            services.cascade,
            services.learned_guidance,
            ProjectPart(),
            services.learnings_part,
            services.recall_part,
            TaskPart(
                lambda card_id: find_or_none(services.cards.get, card_id),
                lambda workspace: services.validation_runs.find_last_check(workspace, services.sessions.get),
            ),
        ],
        deadlines={services.recall_part.name: RECALL_TIMEOUT_S, services.learnings_part.name: RECALL_TIMEOUT_S},
        secrets=services.keys.secrets,
    )


def _build_sessions(services: Services, runners: Sequence[Runner], sandbox: Sandbox | None) -> None:
    """Build the sessions with what they need of the rails."""
    services.sessions = Sessions(
        services.database,
        home=services.home,
        clock=services.clock,
        bus=services.bus,
        randomness=services.randomness,
        settings=services.settings,
        rails=SessionRails(
            consume=services.safety.permits.consume,
            stop_signal=services.safety.kill_switch.find_obstacle,
            check=services.safety.check_command,
            is_allowed_once=services.safety.pipeline.is_allowed_once,
            reserve=services.safety.costs.raise_reservation,
            last_write=lambda workspace: find_last_workspace_activity(services, [workspace]),
            unattended=lambda workspace: services.autonomy.find_reason_not_to_start(workspace),
            secrets=services.keys.secrets,
            sandbox=sandbox,
        ),
        runners=runners,
    )


def _record_prompt(
    services: Services,
    tx: Transaction,
    caller: SessionView | CallerWithoutSession,
    call_id: str,
    provenance: Mapping[str, Any],
) -> None:
    """Record that a model call was made with a prompt of this provenance (SPEC 1.10)."""
    services.guided_sessions.record_applied(
        tx, provenance, agent=caller.agent, call=call_id, session_id=caller.id, workspace=caller.workspace
    )
    services.trials.record_applied(tx, provenance, session_id=caller.id, agent=caller.agent, workspace=caller.workspace)
    record_uses(tx, provenance, call=call_id, session_id=caller.id, agent=caller.agent)
    memories, origins = list_shared_sources(provenance.get("memory_sources", ()))
    if memories:
        about = {"subject": caller.agent, "workspace": caller.workspace, "session_id": caller.id}
        tx.record(CloudMemoryRecalled(**about, call=call_id, memories=memories, origins=origins))
