"""The foundation of all other services: settings, database, ledger, rails, and learned effects that are active."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING

from engine.config.agents import url_problem
from engine.events import EventBus
from engine.execution.runners.flow_registry import FlowRegistry, LearnedFlow, learned_flow
from engine.execution.runners.flows import FLOWS
from engine.learning.candidates.effects import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.memory.embedding import Endpoint
from engine.memory.index import KEY, URL_VARIABLE, ChromaServer
from engine.memory.memory import MemoryService
from engine.model.adaptation import FlowOffload, Overlay
from engine.prediction.templates.work import LearnedWork
from engine.safety.safety import Hooks, Safety
from engine.services import Overrides
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
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
    core.trials = Trials(core.database, core.overlays, core.settings, facts=core.ledger)
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
