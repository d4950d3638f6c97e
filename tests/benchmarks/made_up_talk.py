"""Turns of made-up conversations, and a memory for them, for the benchmarks of the speed of memory."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.memory.embedding import LocalEmbedder
from engine.memory.memory import MemoryService
from engine.model import NewMemory
from engine.storage.database import Database

SENTENCE = (
    "the cart rounds prices to cents and Mel said that her sister went to Lisbon last summer with a red bicycle while "
    "our tests of the parser failed again because somebody changed a setting nobody knew about so we moved the meeting "
    "to Friday and bought bread cheese tomatoes for the picnic near the lake where it rained until evening"
)
WORDS = SENTENCE.split(" ")
"""Words that people say."""

VOCABULARY = [*WORDS, *(f"{word[:4]}{other[-3:]}{number}" for number in range(3) for word in WORDS for other in WORDS)]
"""Those words, and some thousands that nobody says."""

SHARES = list(itertools.accumulate(1 / (10 + rank) for rank in range(len(VOCABULARY))))
"""The cumulated frequencies of the words, the most common first (Zipf)."""


def make_conversation(
    number: int, *, words: Sequence[str] = VOCABULARY, shares: Sequence[float] | None = SHARES
) -> list[NewMemory]:
    """Turns of 8 to 32 `words`, as common as their cumulated `shares` say; 30 to a session."""
    chance = random.Random(1)
    return [
        NewMemory(
            " ".join(chance.choices(words, cum_weights=shares, k=chance.randint(8, 32))) + f" {turn}",
            ref=f"t{turn}",
            speaker=chance.choice(("Mel", "Caroline")),
            session=f"s{turn // 30}",
        )
        for turn in range(number)
    ]


def open_memory(
    database: Database, clock: FakeClock, folder: Path, embedder: LocalEmbedder | None = None
) -> MemoryService:
    """A memory without settings of its own."""
    return MemoryService(database, settings=FixedSettings(), clock=clock, folder=folder, embedder=embedder)
