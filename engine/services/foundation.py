"""Builds the services that all others read: storage, memory, and the organisation of agents.

Lambdas stand for services that are built later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.config import find_url_problem
from engine.events import EventBus
from engine.git.history import ProjectIds
from engine.git.repository import find_top_folder
from engine.hierarchy.agents import Agents
from engine.hierarchy.bubbles import Bubbles
from engine.hierarchy.guidance import Cascade
from engine.hierarchy.guided_sessions import GuidedSessions
from engine.hierarchy.profile_rows import ProfileSharing
from engine.hierarchy.profile_text import find_lessons_in_soul
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.teaching import Teaching
from engine.learning.candidates.life_cycle import CandidateEraser
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.exporting import Exporter
from engine.memory import WorkReader
from engine.memory.agent_files import AgentFiles
from engine.memory.embedding import Endpoint
from engine.memory.forget import OtherTexts
from engine.memory.importing import Importer, load_reply_pairs
from engine.memory.index import CHROMA_KEY, URL_VARIABLE, ChromaServer
from engine.memory.knowledge import Knowledge
from engine.memory.memory import MemoryService
from engine.memory.summaries import SummarySharing
from engine.model import AgentActivity, ModelAnswer, ModelQuestion, ProfileItem, PromptRequest
from engine.model.prompts import may_guide
from engine.prediction.approvals import link_session
from engine.services import Overrides
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.shared import SHARED_URL, SharedDatabase
from engine.storage.validation_runs import ValidationRuns

if TYPE_CHECKING:
    from engine.services import Services

MAX_DECISIONS = 200
"""Number of the newest decisions that are searched."""


def build_storage(services: Services, overrides: Overrides) -> None:
    """Build the settings, the database, the ledger and the store of memories."""
    home, clock = services.home, services.clock
    services.bus = EventBus()
    services.settings = SettingsStore(home.config_file, clock=clock, lenient=overrides.lenient)
    services.database = Database(home.database, clock=clock, bus=services.bus, durable=not overrides.throw_away)
    services.settings.attach_database(services.database)
    services.ledger = Ledger(services.database)
    services.validation_runs = ValidationRuns(services.database)
    services.memory = MemoryService(
        services.database,
        settings=services.settings,
        clock=clock,
        folder=home.data / "chroma",
        endpoint=partial(_find_endpoint, services),
        running=lambda: frozenset(session.id for session in services.sessions.list_running()),
        server=(lambda: None) if overrides.throw_away else partial(_make_chroma_server, services),
    )
    if overrides.throw_away:  # nobody waits for a model there: no vectors are made, and words alone find
        services.memory.close()


def _make_chroma_server(services: Services) -> ChromaServer | None:
    """The server of the index, None when the index is in a folder."""
    url = os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or services.settings.current.memory.chroma_url
    if not url or find_url_problem(url):  # `doctor` tells of it
        return None

    def token() -> str:
        key = services.keys.get(CHROMA_KEY)
        return key.value if key else ""

    return ChromaServer(url, make_chroma_database_name(services.profiles.origin), token)


def make_chroma_database_name(origin: str) -> str:
    """The name of a home's database, as Chroma takes names: letters, digits, dots and dashes."""
    return "clawpy-" + re.sub(r"[^a-zA-Z0-9]+", "-", origin).strip("-")


def _find_endpoint(services: Services, provider: str) -> Endpoint | None:
    """The address at which a provider makes embeddings, None when it cannot be used."""
    if services.settings.current.get_provider(provider) is None:
        return None
    state = services.model_router.read_provider(provider)
    key = services.keys.get(provider)
    return Endpoint(state.settings.base_url, key.value if key else "") if state.usable else None


def make_shared_database(overrides: Overrides) -> SharedDatabase | None:
    """The database that machines share, None for none. A simulation shares nothing."""
    url = os.environ.get(SHARED_URL, "")
    return SharedDatabase(url) if url and not overrides.throw_away else None


def build_knowledge(services: Services, overrides: Overrides) -> None:
    """Build memory's knowledge and its sources, and register all observers of sessions."""
    learnt = services.learnings.texts
    services.knowledge = Knowledge(
        services.home,
        services.memory,
        services.ledger,
        work=WorkReader(
            session=services.sessions.get,
            transcript=services.sessions.read_transcript,
            continued_session=services.sessions.find_continued,
            running_sessions=services.sessions.list_running,
            task=services.tasks.get,
            dependent_tasks=services.tasks.list_needing,
            change_set=services.changes.find_of_session,
            secrets=services.keys.secrets,
        ),
        files=services.agent_files,
        model=MemoryModel(services),
        other_texts=OtherTexts(
            (services.profiles, learnt, CandidateEraser(services.database)),
            find_by_prefix={
                "lrn": learnt.find_text,
                "pred": lambda card_id: services.cards.get(card_id).assignment.prompt,
                "change": lambda change_set_id: services.changes.get(change_set_id).title,
            },
        ),
        report=services.report,
    )
    _build_memory_sources(services, overrides)
    _observe_sessions(services)


class MemoryModel:
    """Asks the questions of memory and of the promotion chain, which are built before the services that it needs. The
    operator names the model for them in the settings (`memory.model`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, question: ModelQuestion, /) -> ModelAnswer | None:
        """Ask the named model; None if none is named. Raises as `SingleQuestions.ask`."""
        model_id = self._services.settings.current.memory.model
        return self._services.single_questions.ask(model_id, question) if model_id else None


def _build_memory_sources(services: Services, overrides: Overrides) -> None:
    """Build the import of other agents' transcripts, and the exchange of summaries with other machines."""
    services.importer = Importer(
        services.database,
        services.memory.remember,
        lambda: services.settings.current.memory.transcripts,
        find_workspace=find_top_folder,
        is_own_folder=services.home.holds_worktree,
        secrets=services.keys.secrets,
        report=services.report,
    )
    projects = ProjectIds()
    services.summary_sharing = SummarySharing(
        services.database,
        services.memory.store,
        make_shared_database(overrides),
        origin=services.profiles.origin,
        projects=lambda: {workspace: projects.of(workspace) for workspace in services.workspaces},
        remember=services.memory.remember,
    )


def _observe_sessions(services: Services) -> None:
    services.sessions.store.observe_start(
        link_session,
        services.safety.costs.session_started,
        services.tasks.session_started,
        services.knowledge.session_changed,
        services.learnings.session_changed,
    )
    services.sessions.store.observe_end(
        services.card_store.session_ended,
        services.safety.session_ended,
        services.tasks.session_ended,
        services.calls.session_ended,
        services.permissions.session_ended,
        services.knowledge.session_changed,
        services.learnings.session_changed,
        lambda tx, view: tx.after_commit(services.autonomy.poke),  # its follow-up is made at once
    )


def build_organisation(services: Services, overrides: Overrides) -> None:
    """Build the agents, their files and guidance, and the decisions with their export."""
    home, clock, randomness = services.home, services.clock, services.randomness
    services.agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=services.settings,
        record=services.database.record,
        read_activity=partial(_read_activity, services),
    )
    services.agent_files = AgentFiles(
        home.agents, services.database, services.agents.find_file_problem, services.report
    )
    services.decisions = Decisions(services.database, clock)
    services.exporter = Exporter(
        services.database,
        home.data,
        conversations=lambda: load_reply_pairs(services.memory.store),
        secrets=lambda: services.keys.secrets(),
    )
    profiles = services.profiles = Profiles(
        services.database,
        services.agents,
        randomness=randomness,
        load_decisions=partial(_read_leader_decisions, services),
    )
    services.cascade = Cascade(
        services.agents, profiles, clock=clock, nearer_lessons=partial(_collect_nearer_lessons, services)
    )
    sharing = ProfileSharing(
        services.database, services.agents, make_shared_database(overrides), merge_rows=profiles.merge_rows
    )
    services.bubbles = Bubbles(
        services.database, services.agents, profiles, randomness=randomness, exchange=sharing.exchange
    )
    services.teaching = Teaching(services.database, services.agents, services.cascade, clock=clock)
    services.guided_sessions = GuidedSessions(services.database, profiles, ledger=services.ledger)


def _read_activity(services: Services) -> Mapping[str, AgentActivity]:
    """The activity of each agent that worked at least once."""
    running = {view.agent: view for view in services.sessions.list_running()}
    waiting = {request.agent for request in services.permissions.list_waiting()}
    activity_by_agent = {}
    for agent, activity in services.sessions.store.read_totals().items():
        if agent in running:
            activity = replace(activity, state=running[agent].state.value, current_tokens=running[agent].tokens)
        activity_by_agent[agent] = replace(activity, state="waiting") if agent in waiting else activity
    return activity_by_agent


def _read_leader_decisions(services: Services, leaders: Sequence[str]) -> Mapping[str, Sequence[ProfileItem]]:
    """Decisions that were made in sessions of leaders by the operator, or approved by the operator; newest first."""
    decisions: dict[str, list[ProfileItem]] = {}
    for captured in services.knowledge.captures.read_entries(limit=MAX_DECISIONS):
        if captured.kind != "decision" or captured.agent not in leaders or captured.forgotten:
            continue
        if may_guide(captured.trust, approved=captured.approved_at is not None):
            decisions.setdefault(captured.agent, []).append(
                ProfileItem(captured.id, captured.text, at=captured.at, trust=captured.trust)
            )
    return decisions


def _collect_nearer_lessons(services: Services, request: PromptRequest) -> frozenset[str]:
    """The lessons in an agent's learned guidance and soul, which are nearer to it than the guidance of its leaders."""
    learned = services.learned_guidance.find_lessons(request)
    soul = services.agents.make_soul_for_prompt(request.agent) if request.agent else ""
    return learned | find_lessons_in_soul(soul)
