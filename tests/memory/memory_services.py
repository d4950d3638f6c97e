"""Memory services over a real database, an embedder that counts words, turns to remember, and matches of a recall."""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.memory.embedding import Embedding, make_unit_vector
from engine.memory.memory import MemoryService
from engine.model import Layer, NewMemory, RecallMatch, ScorePart
from engine.storage.database import Database

NOW = datetime(2025, 6, 15, tzinfo=UTC)
"""The time of questions, and of what they find."""


class WordVectors:
    """An embedder for which texts with the same words are near: the sum of a fixed random direction for each word."""

    def __init__(self, dimensions: int = 32, name: str = "words"):
        self.dimensions = dimensions
        self.name = name

    def embed(self, texts: Sequence[str], *, starts: Sequence[int] = (), is_question: bool = False) -> list[Embedding]:
        return [Embedding(make_unit_vector(self._sum(text))) for text in texts]

    def _sum(self, text: str) -> list[float]:
        total = [1e-6] * self.dimensions
        for word in text.lower().split():
            chance = random.Random(hashlib.sha256(word.encode(errors="replace")).digest())
            total = [value + chance.gauss(0, 1) for value in total]
        return total


MakeMemory = Callable[..., MemoryService]
"""Makes a memory service; see the fixture `make_memory`."""


@pytest.fixture
def make_memory(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[MakeMemory]:
    """Makes services over the test's database; with an `embedder` the service is started."""
    with ExitStack() as stack:

        def make(*, embedder: WordVectors | None = None, running: frozenset[str] = frozenset()) -> MemoryService:
            memory = MemoryService(
                database,
                settings=FixedSettings(),
                clock=clock,
                folder=tmp_path / "chroma",
                running=lambda: running,
                embedder=embedder,
            )
            stack.enter_context(closing(memory))
            if embedder is not None:
                memory.start()
            return memory

        yield make


def make_turns(*texts: str, session: str = "s1", speaker: str = "Ada") -> list[NewMemory]:
    """Turns of a conversation."""
    return [NewMemory(text, session=session, speaker=speaker) for text in texts]


def make_match(id: str, layer: Layer = Layer.VECTORS, score: float = 0.5, text: str = "", **fields: Any) -> RecallMatch:
    """A match of a layer, with these other fields."""
    parts = (ScorePart("words", score, 1.0),)
    text = text or f"text of {id}"
    return RecallMatch(
        id, layer, text, score, parts, "says so", **{"source": f"source of {id}", "speaker": "", "at": NOW} | fields
    )
