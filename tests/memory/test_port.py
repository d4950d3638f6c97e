"""The memory port without vectors, as simulations have it."""

from __future__ import annotations

from pathlib import Path

from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.memory.memory import MemoryPort
from engine.model import Layer
from engine.storage.database import Database
from tests.memory.conftest import turns


def test_without_meaning_nothing_is_started_and_words_find(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    memory = MemoryPort(database, settings=FixedSettings(), clock=clock, folder=tmp_path / "chroma", meaning=False)
    memory.remember(turns("found by words"))
    memory.start()
    assert memory.vectors.read("words") is None
    assert len(memory.entries(Layer.VECTORS, words="words")) == 1
    assert not (tmp_path / "chroma").exists()
    memory.close()
