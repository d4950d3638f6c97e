"""How fast texts are remembered, with their vectors, while a screen is drawn (SPEC 4.3, 11.4).

    pytest tests/benchmarks/test_remembering_speed.py -m benchmark -s

`CLAWPY_TURNS` (600) is the number of turns of a conversation.
"""

import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from engine.clock import FakeClock
from engine.memory.embedding import MiniLM
from engine.memory.vectors import cut_into_chunks
from engine.model import NewMemory
from engine.storage.database import Database
from tests.benchmarks.made_up_talk import WORDS, make_conversation, open_memory
from tests.benchmarks.measuring import compute_p95, measure_stalls, time_call

TURNS = int(os.environ.get("CLAWPY_TURNS", "600"))

TURNS_BAR = 80.0
"""Minimum number of turns that are remembered a second, vectors included."""

BATCH = 50
"""Turns that are remembered at once."""

LONG_MESSAGE, LONG_MESSAGES = 2_000, 20
"""The characters of a long message, and the number of such messages."""

LONG_BAR = 0.060
"""Maximum seconds for a long message, on an idle machine."""

LAG_BAR = 0.050
"""Maximum seconds by which a thread wakes up late at p95, as a screen would."""


def time_embedding_alone(texts: Sequence[str]) -> list[float]:
    """Seconds of each text, whose passages are embedded in this process and not stored."""
    model = MiniLM()
    model.embed_question("warm")
    embedded = []
    for text in texts:
        parts = [text[start:stop] for start, stop in cut_into_chunks(model.find_token_offsets(text), len(text))]
        embedded.append(time_call(lambda parts=parts: [model.embed_question(part) for part in parts]))
    return embedded


def test_turns_are_remembered_beside_a_live_screen(database: Database, clock: FakeClock, tmp_path: Path):
    memory = open_memory(database, clock, tmp_path / "chroma")
    try:
        memory.remember([NewMemory("warm")])
        assert memory.settle(120, indexed=True)
        # Words that people say: made-up ones are three times as many tokens.
        turns = make_conversation(TURNS, words=WORDS, shares=None)
        with measure_stalls() as idle:
            time.sleep(1)
        with measure_stalls() as busy:
            began = time.perf_counter()
            batches = [turns[start : start + BATCH] for start in range(0, TURNS, BATCH)]
            acknowledged = [time_call(lambda batch=batch: memory.remember(batch)) for batch in batches]
            assert memory.settle(1200)
            seconds = time.perf_counter() - began
        assert memory.index.wait(600)
        indexed = time.perf_counter() - began
    finally:
        memory.close()
    print(f"\nremembering {TURNS} turns, vectors included   {TURNS / seconds:8.1f} turns/s   (bar {TURNS_BAR:.0f})")
    print(f"  the index included                      {TURNS / indexed:8.1f} turns/s")
    print(f"  acknowledging {BATCH} turns, p95             {compute_p95(acknowledged) * 1e3:8.1f} ms")
    print(f"  a thread's wake-up is late, p95         {compute_p95(busy) * 1e3:8.1f} ms (bar {LAG_BAR * 1e3:.0f})")
    print(f"  the same, idle, and at worst            {compute_p95(idle) * 1e3:.1f}, {max(busy) * 1e3:.1f} ms")
    assert compute_p95(busy) < LAG_BAR
    assert TURNS / seconds >= TURNS_BAR


def test_a_long_message_is_remembered_at_once(database: Database, clock: FakeClock, tmp_path: Path):
    """It is compared with embedding the passages one after the other in this process, without storing them.

    That is done afterwards, because numpy's threads keep a core busy for a while, which the helper needs.
    """
    memory = open_memory(database, clock, tmp_path / "chroma")
    chance = random.Random(2)
    texts = [f"{number} {' '.join(chance.choices(WORDS, k=500))}"[:LONG_MESSAGE] for number in range(LONG_MESSAGES)]

    def remember(text: str):
        memory.remember([NewMemory(text, speaker="user")])
        assert memory.settle(60)

    try:
        remember("warm")
        remembered = [time_call(lambda text=text: remember(text)) for text in texts]
    finally:
        memory.close()
    median, alone = statistics.median(remembered), statistics.median(time_embedding_alone(texts))
    bar = f"(bar {LONG_BAR * 1e3:.0f})"
    print(f"\na message of {LONG_MESSAGE:,} characters, vectors included {median * 1e3:8.1f} ms {bar}")
    print(f"  reading its passages alone                    {alone * 1e3:8.1f} ms")
    assert median <= LONG_BAR
