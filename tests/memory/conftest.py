"""A memory service for each test."""

import pytest

from engine.memory.memory import MemoryService
from tests.memory.memory_services import MakeMemory, WordVectors
from tests.memory.memory_services import make_memory as make_memory


@pytest.fixture
def memory(make_memory: MakeMemory) -> MemoryService:
    """A started service, which makes vectors quickly."""
    return make_memory(embedder=WordVectors())
