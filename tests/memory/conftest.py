"""A memory port over a real database, with the real helper process; and one whose embedder is a stand-in."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.memory.embedding import Embedding, unit
from engine.memory.memory import MemoryService
from engine.model import NewMemory
from engine.storage.database import Database


class WordVectors:
    """Texts with the same words are near: a fixed random direction for each word, added up."""

    name = "words"

    def __init__(self, dimensions: int = 32) -> None:
        self.dimensions = dimensions
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False) -> list[Embedding]:
        self.texts += texts
        return [Embedding(unit(self._sum(text))) for text in texts]

    def _sum(self, text: str) -> list[float]:
        total = [1e-6] * self.dimensions
        for word in text.lower().split():
            chance = random.Random(hashlib.sha256(word.encode(errors="replace")).digest())
            total = [one + chance.gauss(0, 1) for one in total]
        return total


Making = Callable[..., MemoryService]


@pytest.fixture
def make_memory(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[Making]:
    """A port over the test's database; with `embedder` that one makes its vectors."""
    made: list[MemoryService] = []

    def make(*, embedder: WordVectors | None = None, running: frozenset[str] = frozenset()) -> MemoryService:
        port = MemoryService(
            database,
            settings=FixedSettings(),
            clock=clock,
            folder=tmp_path / "chroma",
            running=lambda: running,
        )
        if embedder is not None:
            port.use(embedder)
        made.append(port)
        return port

    yield make
    for port in made:
        port.close()


@pytest.fixture
def memory(make_memory: Making) -> MemoryService:
    """A port whose vectors are quickly made."""
    return make_memory(embedder=WordVectors())


def turns(*texts: str, session: str = "s1", speaker: str = "Ada") -> list[NewMemory]:
    """Turns of a conversation."""
    return [NewMemory(text, session=session, speaker=speaker) for text in texts]
