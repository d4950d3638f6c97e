"""Model routing, prompts, tools, runners and sessions: where approved work is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.config import Autonomy as WorkspaceAutonomy
from engine.events import CloudMemoryRecalled
from engine.execution.changesets import ChangeSets
from engine.execution.channel_setup import ChannelSetup
from engine.execution.housekeeping import Housekeeping
from engine.execution.live_session import SessionRails
from engine.execution.model_calls import Caller, ModelCalls
from engine.execution.model_router import ModelRouter
from engine.execution.permissions import Permissions
from engine.execution.prompts import IdentityPart, ProjectPart, PromptAssembly, RulesPart, TaskPart
from engine.execution.runners.acp.runner import AcpRunner
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.model.agent_loop import Providers
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.runners.model.host_protocol import ConversationStore
from engine.execution.runners.model.runner import ModelRunner
from engine.execution.runners.model.single_questions import Completions
from engine.execution.runners.runner import AgentServices, Runner
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.mounts import Caches
from engine.execution.session_workspace import SessionWorkspaces
from engine.execution.sessions import Sessions
from engine.execution.tools.toolbelt import Toolbelts
from engine.execution.validation import Validation
from engine.hierarchy.guidance import LeadershipGuidance
from engine.hierarchy.profile_items import lessons_in
from engine.keys import Keys
from engine.learning.learnings.prompt_part import LearningsPart
from engine.memory.memory import RecallPromptPart
from engine.memory.summaries import from_others
from engine.model import CheckResult, PromptRequest, SessionView
from engine.services import Overrides
from engine.storage.database import Transaction
from engine.wiring.organisation import card
from engine.wiring.prediction import last_sign

if TYPE_CHECKING:
    from engine.services import Services

RECALL_TIMEOUT_S = 2.0
"""Seconds that a prompt waits for recall (the first one loads a model) and for learnings."""


def build(core: Services, overrides: Overrides) -> Sessions:
    """Build what carries work out; returns the launcher that starts it."""
    home, clock, randomness = core.home, core.clock, core.randomness
    core.keys = Keys(home, clock=clock)
    core.model_router = ModelRouter(
        core.settings,
        core.keys,
        models=lambda agent: core.agents.tools(agent).models,
        hints=core.overlays.model,
    )
    core.channel_setup = ChannelSetup(core.settings, data=home.data, model_for=core.model_router.choose)
    core.calls = ModelCalls(
        core.database, randomness, secrets=core.keys.secrets, on_prompt=partial(_record_prompt, core)
    )
    _build_prompts(core)
    core.changes = ChangeSets(home=home, database=core.database, clock=clock, randomness=randomness)
    core.permissions = Permissions(core.database, randomness=randomness, secrets=core.keys.secrets)
    core.toolbelts = Toolbelts(
        core.database,
        settings=core.settings,
        permissions=core.permissions,
        lists=core.agents.tools,
        programs=core.safety.programs,
    )
    caches = Caches(home.cache / "build")
    core.housekeeping = Housekeeping(
        home,
        clock,
        changes=core.changes,
        caches=caches,
        busy=lambda: [session.id for session in core.sessions.running()],
    )
    core.model_host = ModelHost() if overrides.model_host is None else overrides.model_host
    core.is_model_host_lent = overrides.model_host is not None
    core.completions = Completions(
        core.database,
        host=core.model_host,
        access=core.model_router,
        calls=core.calls,
        costs=core.safety.costs,
        clock=clock,
        hold_reason=core.safety.kill_switch.block_reason,
        secrets=core.keys.secrets,
    )
    runners = _build_runners(core, caches) if overrides.runners is None else overrides.runners
    _build_sessions(core, runners, overrides.sandbox)
    return core.sessions


def _build_runners(core: Services, caches: Caches) -> list[Runner]:
    """Build the runners of flows, models and coding agents."""
    workspaces = SessionWorkspaces(core.database, core.settings, core.changes, caches)
    flows = FlowRunner(core.flows, workspaces=workspaces, upkeep=core.housekeeping)
    judging = Validation(
        core.database,
        settings=core.settings,
        repairs=core.trials.repairs,
        tweaks=core.overlays.tweaks,
    )
    services = AgentServices(workspaces, core.prompts, core.calls, core.toolbelts, core.settings, judging)
    histories = ConversationStore(core.home.transcripts, core.keys.secrets)
    providers = Providers(core.model_host, core.model_router, histories, core.clock, core.randomness)
    models = ModelRunner(services, providers)
    agents = AcpRunner(services, data=core.home.data, version=core.version)
    return [flows, models, agents]


def _build_prompts(core: Services) -> None:
    """Build the parts of a prompt and their assembly."""
    # A lesson stands in a prompt once (SPEC 6.8), in the block nearest to the agent: what it learnt itself, then the
    # soul, the leaders from the direct one upward, the project and all projects, memory.
    guidance = LeadershipGuidance(core.cascade, partial(_own_lessons, core))
    core.learnings_part = LearningsPart(core.learnings.files, core.settings, nearer_lessons=guidance.lessons)
    core.recall_part = RecallPromptPart(
        core.memory,
        core.settings,
        excluded_lessons=lambda request: core.learnings_part.lessons(request) | core.learnings.retracted(),
    )
    core.prompts = PromptAssembly(
        [
            IdentityPart(
                core.agents, folder=core.home.agents, without=lambda request: core.learned_guidance.lessons(request)
            ),
            RulesPart(),
            guidance,
            core.learned_guidance,
            ProjectPart(),
            core.learnings_part,
            core.recall_part,
            TaskPart(partial(card, core), partial(_last_check, core)),
        ],
        deadlines={core.recall_part.name: RECALL_TIMEOUT_S, core.learnings_part.name: RECALL_TIMEOUT_S},
        secrets=core.keys.secrets,
    )


def _build_sessions(core: Services, runners: Sequence[Runner], sandbox: Sandbox | None) -> None:
    """Build the sessions with what they need of the rails."""
    core.sessions = Sessions(
        core.database,
        home=core.home,
        clock=core.clock,
        bus=core.bus,
        randomness=core.randomness,
        settings=core.settings,
        rails=SessionRails(
            core.safety.permits.consume,
            core.safety.kill_switch.stop_reason,
            core.safety.check_command,
            core.safety.costs.raise_reservation,
            last_write=lambda workspace: last_sign(core, [workspace]),
            unattended=partial(_reason_not_to_act, core),
            secrets=core.keys.secrets,
            sandbox=sandbox,
        ),
        runners=runners,
    )


def _own_lessons(core: Services, request: PromptRequest) -> frozenset[str]:
    """The lessons in an agent's learned guidance and soul."""
    learned = core.learned_guidance.lessons(request)
    soul = core.agents.soul_in_prompt(request.agent) if request.agent else ""
    return learned | lessons_in(soul)


def _record_prompt(
    core: Services, tx: Transaction, session: SessionView | Caller, call_id: str, provenance: Mapping[str, Any]
) -> None:
    """Record that a model call was made with a prompt of this provenance (SPEC 1.10)."""
    core.cascade.record_applied(
        tx, provenance, agent=session.agent, call=call_id, session_id=session.id, workspace=session.workspace
    )
    core.trials.applied(tx, provenance, session_id=session.id, agent=session.agent, workspace=session.workspace)
    core.learnings.prompt_sent(tx, provenance, call=call_id, session_id=session.id, agent=session.agent)
    memories, origins = from_others(provenance.get("memory_sources", ()))
    if memories:
        about = {"subject": session.agent, "workspace": session.workspace, "session_id": session.id}
        tx.record(CloudMemoryRecalled(**about, call=call_id, memories=memories, origins=origins))


def _last_check(core: Services, workspace: str) -> CheckResult | None:
    """The result of the last tests in a workspace."""
    return next((run.check for run in core.validation_runs.latest(workspace, 1)), None)


def _reason_not_to_act(core: Services, workspace: str) -> str:
    """Why nothing may start by itself in a workspace now (SPEC 7.1, 7.3, 7.4); "" when it may."""
    if reason := core.safety.kill_switch.block_reason():
        return reason
    settings = core.settings.current
    if not settings.autonomous_mode_enabled:
        return "autonomous mode is off: clawpy config set autonomousModeEnabled true"
    if settings.workspace(workspace).autonomy is not WorkspaceAutonomy.ACT:
        return "the autonomy of this workspace is not set to `act`"
    return "quiet hours: nothing runs by itself" if core.autonomy.quiet() else ""
