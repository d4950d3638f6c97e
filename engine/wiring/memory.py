"""Builds the storage, the memory on top of it, and what memory learns from sessions."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING

from engine.config.section import url_problem
from engine.events import EventBus
from engine.execution.runners.model.single_questions import MemoryModel
from engine.git.history import ProjectIds
from engine.git.repository import top_folder
from engine.hierarchy.profiles import ProfileTexts
from engine.learning.candidates.candidates import CandidateTexts
from engine.memory.captures import WorkReader
from engine.memory.embedding import Endpoint
from engine.memory.index import KEY, URL_VARIABLE, ChromaServer
from engine.memory.knowledge import Knowledge
from engine.memory.memory import MemoryService
from engine.memory.summary_sharing import SummarySharing
from engine.memory.transcript_import import Importer
from engine.prediction.approvals import link_session
from engine.services import Overrides
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.storage.shared import SHARED_URL, SharedDatabase
from engine.storage.validation_runs import ValidationRuns

if TYPE_CHECKING:
    from engine.services import Services


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
        model=MemoryModel(services.settings, services.single_questions),
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
