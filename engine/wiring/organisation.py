"""Builds the foundation (settings, database, memory), the organisation, the rails, and memory's knowledge."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from engine.config.sections import url_problem
from engine.events import EventBus
from engine.execution.runners.flow_registry import FlowRegistry, LearnedFlow, learned_flow
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.model.single_questions import MemoryModel
from engine.git.history import ProjectIds
from engine.git.repository import top_folder
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade
from engine.hierarchy.outcomes import GuidedSessions
from engine.hierarchy.profiles import Profiles, ProfileTexts
from engine.hierarchy.sharing import ProfileSharing
from engine.hierarchy.teaching import Teaching
from engine.learning.candidates.candidates import CandidateTexts
from engine.learning.candidates.effects import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.exporting import Exporter
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import WorkReader
from engine.memory.embedding import Endpoint
from engine.memory.index import KEY, URL_VARIABLE, ChromaServer
from engine.memory.knowledge import Knowledge
from engine.memory.memory import MemoryService
from engine.memory.summaries import SummarySharing
from engine.memory.transcript_import import Importer, reply_pairs
from engine.model import Card, Doing, LeaderDecision, Refusal
from engine.model.adaptation import FlowOffload, Overlay
from engine.model.base import may_guide
from engine.model.lessons import Correction
from engine.prediction.approvals import link_session
from engine.prediction.templates.work import LearnedWork
from engine.safety.safety import Hooks, Safety
from engine.services import Overrides
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.shared import SHARED_URL, SharedDatabase
from engine.storage.validation_runs import ValidationRuns

if TYPE_CHECKING:
    from engine.services import Services


T = TypeVar("T")

MAX_DECISIONS = 200
"""Number of the newest decisions that are searched."""


def build_storage(services: Services, overrides: Overrides) -> None:
    """Build the settings, the database, the ledger and the store of memories."""
    home, clock = services.home, services.clock
    services.bus = EventBus()
    services.settings = SettingsStore(home.config_file, clock=clock, lenient=overrides.lenient)
    services.database = Database(home.database, clock=clock, bus=services.bus, durable=not overrides.throw_away)
    services.settings.attach(services.database)
    services.ledger = Ledger(services.database)
    services.validation_runs = ValidationRuns(services.database)
    services.memory = MemoryService(
        services.database,
        settings=services.settings,
        clock=clock,
        folder=home.data / "chroma",
        endpoint=partial(_endpoint, services),
        running=lambda: frozenset(session.id for session in services.sessions.running()),
        server=(lambda: None) if overrides.throw_away else partial(_chroma_server, services),
    )
    if overrides.throw_away:  # nobody waits for a model there: no vectors are made, and words alone find
        services.memory.close()


def _chroma_server(services: Services) -> ChromaServer | None:
    """The server of the index, None when the index is in a folder."""
    url = os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or services.settings.current.memory.chroma_url
    if not url or url_problem(url):  # `doctor` tells of it
        return None

    def token() -> str:
        key = services.keys.get(KEY)
        return key.value if key else ""

    return ChromaServer(url, chroma_database(services.profiles.origin), token)


def chroma_database(origin: str) -> str:
    """The name of a home's database, as Chroma takes names: letters, digits, dots and dashes."""
    return "clawpy-" + re.sub(r"[^a-zA-Z0-9]+", "-", origin).strip("-")


def _endpoint(services: Services, provider: str) -> Endpoint | None:
    """The address at which a provider makes embeddings, None when it cannot be used."""
    if services.settings.current.provider(provider) is None:
        return None
    state = services.model_router.provider(provider)
    key = services.keys.get(provider)
    return Endpoint(state.settings.base_url, key.value if key else "") if state.usable else None


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
            agent_budget=services.agents.budget,
            quiet=lambda: services.autonomy.quiet(),
            confined=lambda: services.sessions.sandbox.confines,
            on_change=lambda: services.autonomy.poke(),
        ),
    )


def _stop_all(services: Services, reason: str) -> None:
    """Stop all sessions with their processes, and the process that talks to models."""
    services.sessions.stop_all(reason)
    if not services.is_model_host_lent:
        services.model_host.end()


def build_effects(services: Services) -> None:
    """Build the store of active candidates, before anything that they may change."""
    services.overlays = Overlays(services.database)
    services.trials = Trials(services.database, services.overlays, services.settings, ledger=services.ledger)
    services.learned_guidance = LearnedGuidance(services.overlays, services.trials, services.settings)
    services.flows = FlowRegistry(FLOWS, lambda: [flow for _, flow in _learned_flows(services)])


def _learned_flows(services: Services) -> Iterator[tuple[Overlay, type[LearnedFlow]]]:
    """The flows of active candidates."""
    for overlay in services.overlays.flows():
        if isinstance(effect := overlay.effect, FlowOffload):
            commands = tuple(tuple(split_command(command)) for command in effect.commands)
            yield overlay, learned_flow(effect.name, effect.title, commands, overlay.workspace)


def learned_work(services: Services) -> list[LearnedWork]:
    """Learned flows, as prediction offers them."""
    return [
        LearnedWork(flow.name, f"Run {flow.describe_commands()}", overlay.since, overlay.workspace)
        for overlay, flow in _learned_flows(services)
    ]


def build_organisation(services: Services, overrides: Overrides) -> None:
    """Build agents, their files, decisions and guidance."""
    home, clock, randomness = services.home, services.clock, services.randomness
    services.agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=services.settings,
        database=services.database,
        activity=partial(_activity, services),
    )
    services.agent_files = AgentFiles(home.agents, services.database, services.agents.file_fault, services.report)
    services.decisions = Decisions(services.database, clock)
    services.exporter = Exporter(
        services.database,
        home.data,
        conversations=lambda: reply_pairs(services.memory.store),
        secrets=lambda: services.keys.secrets(),
    )
    profiles = services.profiles = Profiles(
        services.database, services.agents, randomness=randomness, load_decisions=partial(_leader_decisions, services)
    )
    services.cascade = Cascade(services.agents, profiles, clock=clock)
    sharing = ProfileSharing(services.database, profiles, services.agents, shared_database(overrides))
    services.bubbles = Bubbles(
        services.database, services.agents, profiles, randomness=randomness, exchange=sharing.exchange
    )
    services.teaching = Teaching(services.database, services.agents, services.cascade, clock=clock)
    services.guided_sessions = GuidedSessions(services.database, profiles, clock=clock, ledger=services.ledger)


def _activity(services: Services) -> Mapping[str, Doing]:
    """The current work of each agent, and its totals."""
    states = {view.agent: (view.state.value, view.tokens) for view in services.sessions.running()}
    states |= {
        request.agent: ("waiting", states.get(request.agent, ("", 0))[1]) for request in services.permissions.waiting()
    }
    return {
        agent: Doing(*states.get(agent, ("idle", 0)), *totals) for agent, totals in services.sessions.totals().items()
    }


def _leader_decisions(services: Services, leaders: Sequence[str]) -> Mapping[str, Sequence[LeaderDecision]]:
    """Decisions that were made in sessions of leaders by the operator, or approved by the operator; newest first."""
    decisions: dict[str, list[LeaderDecision]] = {}
    for captured in services.knowledge.captures.entries(limit=MAX_DECISIONS):
        if captured.kind != "decision" or captured.agent not in leaders or captured.forgotten:
            continue
        if may_guide(captured.trust, approved=captured.approved_at is not None):
            decisions.setdefault(captured.agent, []).append(
                LeaderDecision(captured.id, captured.text, captured.at, captured.trust)
            )
    return decisions


def correction(services: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    about = find_card(services, card_id)
    correction_texts = None if about is None else services.cards.correction(card_id)
    if about is None or correction_texts is None:
        return None
    channel = about.assignment.channel
    return Correction(
        *correction_texts,
        about.agent,
        about.kind,
        channel,
        about.session_id or "",
        about.estimate,
        channel_reach(services, channel),
    )


def channel_reach(services: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in services.decisions.load_newest(MAX_DECISIONS)))


def find_card(services: Services, card_id: str) -> Card | None:
    """A card, None for work without one."""
    return find_or_none(services.cards.get, card_id)


def find_or_none(get: Callable[[str], T], id: str) -> T | None:
    """The result of `get`, None when there is nothing with this id any more."""
    try:
        return get(id)
    except Refusal:
        return None


def shared_database(overrides: Overrides) -> SharedDatabase | None:
    """The database that machines share, None for none. A simulation shares nothing."""
    url = os.environ.get(SHARED_URL, "")
    return SharedDatabase(url) if url and not overrides.throw_away else None


def build_knowledge(services: Services, overrides: Overrides) -> None:
    """Build memory's knowledge and its sources, and register all observers of sessions."""
    services.knowledge = Knowledge(
        services.home,
        services.memory,
        services.ledger,
        work=WorkReader(
            session=services.sessions.get,
            transcript=services.sessions.transcript,
            continued_session=services.sessions.continues,
            running_sessions=services.sessions.running,
            task=services.tasks.get,
            dependent_tasks=services.tasks.needing,
            change_set=services.changes.for_session,
        ),
        files=services.agent_files,
        model=MemoryModel(services.settings, services.completions),
        report=services.report,
        secrets=services.keys.secrets,
    )
    learnt = services.learnings.texts
    texts = (ProfileTexts(services.database, services.profiles), learnt, CandidateTexts(services.database))
    services.knowledge.build_forgetting(texts, {"lrn": learnt.text_of})
    _build_memory_sources(services, overrides)
    _observe_sessions(services)


def _build_memory_sources(services: Services, overrides: Overrides) -> None:
    """Build the import of other agents' transcripts, and the exchange of summaries with other machines."""
    services.importer = Importer(
        services.database,
        services.memory.remember,
        lambda: services.settings.current.memory.transcripts,
        workspace_of=top_folder,
        ours=services.home.holds_worktree,
        secrets=services.keys.secrets,
        report=services.report,
    )
    projects = ProjectIds()
    services.summary_sharing = SummarySharing(
        services.database,
        services.memory.store,
        shared_database(overrides),
        origin=services.profiles.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in services.workspaces},
        remember=services.memory.remember,
    )


def _observe_sessions(services: Services) -> None:
    services.sessions.observe_start(
        link_session,
        services.safety.costs.session_started,
        services.tasks.session_started,
        services.knowledge.session_changed,
        services.learnings.session_changed,
    )
    services.sessions.observe_end(
        services.cards.session_ended,
        services.safety.session_ended,
        services.tasks.session_ended,
        services.calls.session_ended,
        services.permissions.session_ended,
        services.knowledge.session_changed,
        services.learnings.session_changed,
        lambda tx, view: tx.after_commit(services.autonomy.poke),  # its follow-up is made at once
    )
