"""A memory in a folder, opened by the process that is killed and by the test that looks at what is left."""

from pathlib import Path

from engine.clock import SystemClock
from engine.config import FixedSettings
from engine.events import EventBus
from engine.memory.memory import MemoryService
from engine.storage.database import Database
from tests.memory.conftest import WordVectors


def open_memory(folder: Path) -> tuple[MemoryService, Database]:
    """A memory service in `folder` that makes vectors quickly, and its database."""
    clock = SystemClock()
    database = Database(folder / "clawpy.db", clock=clock, bus=EventBus())
    memory = MemoryService(
        database, settings=FixedSettings(), clock=clock, folder=folder / "chroma", embedder=WordVectors()
    )
    memory.start()
    return memory, database
