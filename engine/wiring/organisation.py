"""The foundation of all other services, the organisation, memory's knowledge, and who observes sessions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
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
from engine.memory.captures import Work
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


def build_storage(core: Services, overrides: Overrides) -> None:
    """Build the settings, the database, the ledger and the store of memories."""
    home, clock = core.home, core.clock
    core.bus = EventBus()
    core.settings = SettingsStore(home.config_file, clock=clock, lenient=overrides.lenient)
    core.database = Database(home.database, clock=clock, bus=core.bus, durable=not overrides.throw_away)
    core.settings.attach(core.database)
    core.ledger = Ledger(core.database)
    core.validation_runs = ValidationRuns(core.database)
    core.memory = MemoryService(
        core.database,
        settings=core.settings,
        clock=clock,
        folder=home.data / "chroma",
        endpoint=partial(_endpoint, core),
        running=lambda: frozenset(session.id for session in core.sessions.running()),
        meaning=not overrides.throw_away,  # in a simulated month nobody waits for a model
        server=(lambda: None) if overrides.throw_away else partial(_chroma_server, core),
    )


def _chroma_server(core: Services) -> ChromaServer | None:
    """The server of the index, None when the index is in a folder."""
    url = os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or core.settings.current.memory.chroma_url
    if not url or url_problem(url):  # `doctor` tells of it
        return None

    def token() -> str:
        key = core.keys.get(KEY)
        return key.value if key else ""

    return ChromaServer(url, chroma_database(core.profiles.origin), token)


def chroma_database(origin: str) -> str:
    """The name of a home's database, as Chroma takes names: letters, digits, dots and dashes."""
    return "clawpy-" + re.sub(r"[^a-zA-Z0-9]+", "-", origin).strip("-")


def _endpoint(core: Services, provider: str) -> Endpoint | None:
    """The address at which a provider makes embeddings, None when it cannot be used."""
    if core.settings.current.provider(provider) is None:
        return None
    state = core.model_router.provider(provider)
    key = core.keys.get(provider)
    return Endpoint(state.settings.base_url, key.value if key else "") if state.usable else None


def build_rails(core: Services) -> None:
    """Build the rails and the kill switch."""
    home, clock, randomness = core.home, core.clock, core.randomness
    core.safety = Safety(
        core.database,
        core.settings,
        clock,
        randomness,
        data=home.data,
        decisions=core.decisions,
        hooks=Hooks(
            stop_sessions=partial(_stop_all, core),
            agent_budget=core.agents.budget,
            quiet=lambda: core.autonomy.quiet(),
            confined=lambda: core.sessions.sandbox.confines,
            on_change=lambda: core.autonomy.poke(),
        ),
    )


def _stop_all(core: Services, reason: str) -> None:
    """Stop all sessions with their processes, and the process that talks to models."""
    core.sessions.stop_all(reason)
    if not core.is_model_host_lent:
        core.model_host.end()


def build_effects(core: Services) -> None:
    """Build the store of active candidates, before anything that they may change."""
    core.overlays = Overlays(core.database)
    core.trials = Trials(core.database, core.overlays, core.settings, ledger=core.ledger)
    core.learned_guidance = LearnedGuidance(core.overlays, core.trials, core.settings)
    core.flows = FlowRegistry(FLOWS, partial(_learned_flows, core))


def _learned_flows(core: Services) -> list[type[LearnedFlow]]:
    return [
        _flow(overlay, overlay.effect) for overlay in core.overlays.flows() if isinstance(overlay.effect, FlowOffload)
    ]


def _flow(overlay: Overlay, effect: FlowOffload) -> type[LearnedFlow]:
    commands = tuple(tuple(split_command(command)) for command in effect.commands)
    return learned_flow(effect.name, effect.title, commands, overlay.workspace)


def learned_work(core: Services) -> list[LearnedWork]:
    """Learned flows, as prediction offers them."""
    return [
        LearnedWork(effect.name, f"Run {_flow(overlay, effect).describe_commands()}", overlay.since, overlay.workspace)
        for overlay in core.overlays.flows()
        if isinstance(effect := overlay.effect, FlowOffload)
    ]


T = TypeVar("T")

MAX_DECISIONS = 200
"""The latest decisions that are searched."""


def build_organisation(core: Services, overrides: Overrides) -> None:
    """Build agents, their files, decisions and guidance."""
    home, clock, randomness = core.home, core.clock, core.randomness
    core.agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=core.settings,
        database=core.database,
        activity=partial(_activity, core),
    )
    core.agent_files = AgentFiles(home.agents, core.database, core.agents.file_fault, core.report)
    core.decisions = Decisions(core.database, clock)
    core.exporter = Exporter(
        core.database,
        home.data,
        conversations=lambda: reply_pairs(core.memory.store),
        secrets=lambda: core.keys.secrets(),
    )
    profiles = core.profiles = Profiles(
        core.database, core.agents, randomness=randomness, load_decisions=partial(_leader_decisions, core)
    )
    core.cascade = Cascade(core.agents, profiles, clock=clock)
    sharing = ProfileSharing(core.database, profiles, core.agents, shared_database(overrides))
    core.bubbles = Bubbles(core.database, core.agents, profiles, randomness=randomness, exchange=sharing.exchange)
    core.teaching = Teaching(core.database, core.agents, core.cascade, clock=clock)
    core.guided_sessions = GuidedSessions(core.database, profiles, clock=clock, ledger=core.ledger)


def _activity(core: Services) -> Mapping[str, Doing]:
    """The current work of each agent, and its totals."""
    states = {view.agent: (view.state.value, view.tokens) for view in core.sessions.running()}
    states |= {
        request.agent: ("waiting", states.get(request.agent, ("", 0))[1]) for request in core.permissions.waiting()
    }
    return {agent: Doing(*states.get(agent, ("idle", 0)), *totals) for agent, totals in core.sessions.totals().items()}


def _leader_decisions(core: Services, leaders: Sequence[str]) -> Mapping[str, Sequence[LeaderDecision]]:
    """Decisions that were made in sessions of leaders by the operator, or approved by the operator; newest first."""
    decisions: dict[str, list[LeaderDecision]] = {}
    for captured in core.knowledge.captures.entries(limit=MAX_DECISIONS):
        if captured.kind != "decision" or captured.agent not in leaders or captured.forgotten:
            continue
        if may_guide(captured.trust, approved=captured.approved_at is not None):
            decisions.setdefault(captured.agent, []).append(
                LeaderDecision(captured.id, captured.text, captured.at, captured.trust)
            )
    return decisions


def correction(core: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    about = card(core, card_id)
    correction_texts = None if about is None else core.cards.correction(card_id)
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
        reach(core, channel),
    )


def reach(core: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in core.decisions.load_newest(MAX_DECISIONS)))


def card(core: Services, card_id: str) -> Card | None:
    """A card, None for work without one."""
    return found(core.cards.get, card_id)


def found(get: Callable[[str], T], id: str) -> T | None:
    """What has this id, None where there is no such thing any more."""
    try:
        return get(id)
    except Refusal:
        return None


def shared_database(overrides: Overrides) -> SharedDatabase | None:
    """The database that machines share, None for none. A simulation shares nothing."""
    url = os.environ.get(SHARED_URL, "")
    return SharedDatabase(url) if url and not overrides.throw_away else None


def build_knowledge(core: Services, overrides: Overrides) -> None:
    """Build memory's knowledge and its sources, and register all observers of sessions."""
    core.knowledge = Knowledge(
        core.home,
        core.memory,
        core.ledger,
        work=Work(
            get=core.sessions.get,
            transcript=core.sessions.transcript,
            continues=core.sessions.continues,
            running=core.sessions.running,
            task=core.tasks.get,
            needing=core.tasks.needing,
            change=core.changes.for_session,
        ),
        files=core.agent_files,
        model=MemoryModel(core.settings, core.completions),
        report=core.report,
        secrets=core.keys.secrets,
    )
    learnt = core.learnings.texts
    texts = (ProfileTexts(core.database, core.profiles), learnt, CandidateTexts(core.database))
    core.knowledge.build_forgetting(texts, {"lrn": learnt.text_of})
    _build_memory_sources(core, overrides)
    _observe_sessions(core)


def _build_memory_sources(core: Services, overrides: Overrides) -> None:
    """Build the import of other agents' transcripts, and the exchange of summaries with other machines."""
    core.importer = Importer(
        core.database,
        core.memory.remember,
        lambda: core.settings.current.memory.transcripts,
        workspace_of=top_folder,
        ours=core.home.holds_worktree,
        secrets=core.keys.secrets,
        report=core.report,
    )
    projects = ProjectIds()
    core.summary_sharing = SummarySharing(
        core.database,
        core.memory.store,
        shared_database(overrides),
        origin=core.profiles.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in core.workspaces},
        remember=core.memory.remember,
    )


def _observe_sessions(core: Services) -> None:
    core.sessions.observe_start(
        link_session,
        core.safety.session_started,
        core.tasks.session_started,
        core.knowledge.session_changed,
        core.learnings.session_changed,
    )
    core.sessions.observe_end(
        core.cards.session_ended,
        core.safety.session_ended,
        core.tasks.session_ended,
        core.calls.session_ended,
        core.permissions.session_ended,
        core.knowledge.session_changed,
        core.learnings.session_changed,
        lambda tx, view: tx.after_commit(core.autonomy.poke),  # its follow-up is made at once
    )
