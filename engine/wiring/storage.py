"""Settings, the database, the ledger and memory's store."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from engine.config.agents import url_fault
from engine.events import EventBus
from engine.memory.embedding import Endpoint
from engine.memory.index import KEY, VARIABLE, ChromaServer, database_of
from engine.memory.memory import MemoryPort
from engine.memory.validation_runs import ValidationRuns
from engine.overrides import Overrides
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger, append

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine, overrides: Overrides) -> None:
    """The ground that everything else stands on."""
    home, clock = core.home, core.clock
    core.bus = EventBus()
    core.settings = SettingsStore(home.config_file, clock=clock)
    core.database = Database(
        home.database, clock=clock, bus=core.bus, recorder=append, durable=not overrides.throw_away
    )
    core.settings.attach(core.database)
    core.ledger = Ledger(core.database)
    core.runs = ValidationRuns(core.database)
    core.memory = MemoryPort(
        core.database,
        settings=core.settings,
        clock=clock,
        folder=home.data / "chroma",
        endpoint=partial(_endpoint, core),
        running=lambda: frozenset(session.id for session in core.sessions.running()),
        meaning=not overrides.throw_away,  # in a simulated month nobody waits for a model
        server=(lambda: None) if overrides.throw_away else partial(_chroma_server, core),
    )


def _chroma_server(core: Engine) -> ChromaServer | None:
    """The server that holds the index, None where it is in a folder."""
    url = os.environ.get(VARIABLE, "").strip().rstrip("/") or core.settings.current.memory.chroma_url
    if not url or url_fault(url):  # `doctor` tells of it
        return None

    def token() -> str:
        key = core.keys.get(KEY)
        return key.value if key else ""

    return ChromaServer(url, database_of(core.wisdom.origin()), token)


def _endpoint(core: Engine, provider: str) -> Endpoint | None:
    """Where a provider makes embeddings, None when it cannot be used."""
    if core.settings.current.provider(provider) is None:
        return None
    state = core.models.provider(provider)
    key = core.keys.get(provider)
    return Endpoint(state.settings.base_url, key.value if key else "") if state.usable else None
