"""How long recall takes beside a bare index of vectors (SPEC 4.3, 4.4).

    pytest tests/benchmarks/test_recall_speed.py -m benchmark -s

`CLAWPY_MEMORIES` (10000) is the number of memories.
"""

import os
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import chromadb
import numpy

from engine.clock import FakeClock
from engine.memory.embedding import Embedding, LocalEmbedder, MiniLM, make_unit_vector
from engine.memory.helper import Helper
from engine.memory.memory import MemoryService
from engine.model import RecallQuery
from engine.storage.database import Database
from tests.benchmarks.made_up_talk import SHARES, VOCABULARY, make_conversation, open_memory
from tests.benchmarks.measuring import print_table, time_in_turns

MEMORIES = int(os.environ.get("CLAWPY_MEMORIES", "10000"))
QUESTIONS = 100

DENSE_BAR, RECALL_BAR = (1.5, 2.5) if MEMORIES <= 10_000 else (3.0, 4.0)
"""How many times as long as a bare index a search of vectors, and a whole recall, may take."""


class StandInPassageEmbedder(LocalEmbedder):
    """Gives questions their real vectors, and texts to remember random ones, because those would take minutes."""

    def embed(self, texts: Sequence[str], *, starts: Sequence[int] = (), is_question: bool = False) -> list[Embedding]:
        if is_question:
            return super().embed(texts, starts=starts, is_question=True)
        chance = numpy.random.default_rng(len(texts[0]))
        tokens = numpy.random.default_rng(1).integers(-60, 60, (24, 32), dtype=numpy.int8).tobytes()
        return [Embedding(make_unit_vector(chance.normal(size=384).tolist()), tokens) for _ in texts]


def remember_turns(memory: MemoryService):
    """Remember `MEMORIES` turns, and wait until they are indexed."""
    turns = make_conversation(MEMORIES)
    for start in range(0, MEMORIES, 500):
        memory.remember(turns[start : start + 500])
    assert memory.settle(3600, indexed=True)


def make_bare_index(memory: MemoryService) -> chromadb.Collection:
    """An index of Chroma with the vectors of a memory, and nothing else."""
    page = memory.store.read_vector_page(memory.vectoriser.model, 0, MEMORIES)
    index = chromadb.EphemeralClient().create_collection(
        "bare", embedding_function=None, configuration={"hnsw": {"space": "l2"}}
    )
    for start in range(0, len(page), 1000):
        batch = page[start : start + 1000]
        matrix = numpy.frombuffer(b"".join(vector for *_, vector in batch), dtype="<f4").reshape(len(batch), -1)
        index.add(ids=[str(chunk_id) for chunk_id, *_ in batch], embeddings=matrix)
    return index


def test_recall_takes_little_longer_than_a_bare_index(database: Database, clock: FakeClock, tmp_path: Path):
    helper = Helper()
    memory = open_memory(database, clock, tmp_path / "chroma", StandInPassageEmbedder(helper))
    memory.start()
    try:
        remember_turns(memory)
        bare_index, model, chance = make_bare_index(memory), MiniLM(), random.Random(5)

        def make_question() -> str:
            return "when did " + " ".join(chance.choices(VOCABULARY, cum_weights=SHARES, k=9)) + "?"

        def ask_bare_index():
            vector = numpy.frombuffer(model.embed_question(make_question()).vector, dtype="<f4")
            bare_index.query(query_embeddings=[vector], n_results=10, include=["distances"])

        def search_vectors():
            memory.vectors.search(memory.vectors.embed(make_question()).array, 10)

        def recall():
            assert not memory.recall(RecallQuery(make_question()), deadline=60.0).left_out

        ways = {
            "embedding + bare Chroma query": ask_bare_index,
            "dense search of memory": search_vectors,
            "recall, all layers, re-ranked": recall,
        }
        time_in_turns(ways, 1)  # the first question of each way is slow
        measured = time_in_turns(ways, QUESTIONS)
    finally:
        memory.close()
        helper.close()
    print_table(f"recall at {MEMORIES:,} memories", measured)
    bare, dense, whole = map(statistics.median, measured.values())
    print(f"  at p50: dense {dense / bare:.2f} × (bar {DENSE_BAR}), recall {whole / bare:.2f} × (bar {RECALL_BAR})")
    assert dense / bare <= DENSE_BAR
    assert whole / bare <= RECALL_BAR
