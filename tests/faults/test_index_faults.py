"""The index over the vectors is deleted, damaged or opened twice: words find meanwhile, and it is built again (SPEC
4.10).

pytest tests/faults/test_index_faults.py -m faults -s          (CLAWPY_MEMORIES=2000)
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.memory import vectors
from engine.memory.memory import MemoryService
from engine.model import NewMemory, RecallQuery
from tests.memory.memory_services import MakeMemory, WordVectors
from tests.support.programs import run_python

MEMORIES = int(os.environ.get("CLAWPY_MEMORIES", "2000"))
LONG = 300.0
"""Seconds until all memories are indexed, on a busy machine."""

OPEN_TWICE = """
import sys, chromadb
one = chromadb.PersistentClient(sys.argv[1]).get_collection("clawpy_memory")
ids = one.get()["ids"]
one.delete(ids=ids[:100])
one.upsert(ids=ids[100:] + ["900001"], embeddings=[[float(n % 5)] * 32 for n in range(len(ids) - 99)])
"""


def delete(folder: Path):
    shutil.rmtree(folder)


def overwrite(folder: Path):
    for file in folder.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xa5" * max(4096, file.stat().st_size))


def truncate(folder: Path):
    for file in folder.rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)


def flip_bits(folder: Path):
    chance = random.Random(3)
    for file in folder.rglob("*"):
        if file.is_file() and file.stat().st_size:
            data = bytearray(file.read_bytes())
            for _ in range(1 + len(data) // 1000):
                data[chance.randrange(len(data))] ^= 0xFF
            file.write_bytes(bytes(data))


def open_twice(folder: Path):
    run_python(OPEN_TWICE, folder)


def measure_share_found(memory: MemoryService, numbers: list[int]) -> float:
    """The share of memories that are first for their own word."""
    hits = [memory.recall(RecallQuery(f"word{number}", k=1), deadline=30.0).items for number in numbers]
    is_first = [bool(hit) and hit[0].ref == f"r{number}" for hit, number in zip(hits, numbers, strict=True)]
    return sum(is_first) / len(is_first)


def index_answers(memory: MemoryService) -> bool:
    """Whether the index answers. There are too many vectors for exact search."""
    query = memory.vectors.embed("word1 thing1")
    return bool(memory.vectors.search(query.array, 3))


@pytest.fixture
def open_many(make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], MemoryService]:
    """Opens a service over the same `MEMORIES` memories, which are too many for exact search."""
    monkeypatch.setattr(vectors, "MAX_EXACT_CHUNKS", 10)
    monkeypatch.setattr("engine.memory.helper.RESTART_DELAY_S", 0.0)

    def open_memory() -> MemoryService:
        return make_memory(embedder=WordVectors())

    first = open_memory()
    for start in range(0, MEMORIES, 200):
        first.remember([NewMemory(f"word{n} thing{n % 7}", ref=f"r{n}") for n in range(start, start + 200)])
    assert first.settle(LONG)
    assert first.index.wait(LONG)
    first.close()
    return open_memory


@pytest.mark.faults
@pytest.mark.parametrize("running", [False, True], ids=["before it starts", "while it runs"])
@pytest.mark.parametrize("damage", [delete, overwrite, truncate, flip_bits, open_twice])
def test_a_damaged_index_is_rebuilt_while_recall_answers(
    open_many: Callable[[], MemoryService], damage: Callable[[Path], None], running: bool
):
    memory = open_many()
    assert memory.index.wait(LONG)
    if running:
        damage(memory.index.folder)
        memory.index.reopen()
    else:
        memory.close()
        damage(memory.index.folder)
        memory = open_many()
    numbers = random.Random(9).choices(range(MEMORIES), k=20)
    began = time.monotonic()
    recalled = memory.recall(RecallQuery(f"word{numbers[0]}"), deadline=30.0)
    first_answer = time.monotonic() - began
    assert measure_share_found(memory, numbers) == 1.0, "words find meanwhile"
    assert memory.index.wait(LONG), memory.index.state
    print(f"first answer by {'words' if recalled.left_out else 'all'} in {first_answer:.2f} s, "
          f"the index back after {time.monotonic() - began:.2f} s")  # fmt: skip
    assert measure_share_found(memory, numbers) == 1.0
    assert index_answers(memory)
