"""kill -9 while remembering: every acknowledged memory is found by its words, and gets its vectors (SPEC 4.10, 11.3).

pytest tests/faults/test_remember_kill.py -m faults -s          (CLAWPY_KILLS=60 for a short sweep)
"""

import os
import random
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.config.settings import FixedSettings
from engine.events import EventBus
from engine.memory.memory import MemoryService
from engine.model import Layer
from engine.storage.database import Database
from tests.faults.kill import run_until_killed
from tests.memory.memory_services import WordVectors


def open_memory(folder: Path) -> tuple[MemoryService, Database]:
    """A memory service in `folder` that makes vectors quickly, and its database."""
    clock = SystemClock()
    database = Database(folder / "clawpy.db", clock=clock, bus=EventBus())
    memory = MemoryService(
        database, settings=FixedSettings(), clock=clock, folder=folder / "chroma", embedder=WordVectors()
    )
    memory.start()
    return memory, database


KILLS = int(os.environ.get("CLAWPY_KILLS", "200"))
MAX_SECONDS = 0.6
"""Seconds after the first acknowledgement within which the kill comes."""

WRITER = """
import sys
from pathlib import Path
from engine.model import NewMemory
from tests.faults.test_remember_kill import open_memory
run, folder = sys.argv[1], Path(sys.argv[2])
memory, _ = open_memory(folder)
start = 0
while True:
    numbers = range(start, start + 5)
    memories = [NewMemory(f"run{run} item{number} of things", ref=f"{run}:{number}", session=run) for number in numbers]
    memory.remember(memories)
    start += 5
    print(start, flush=True)
"""


@pytest.mark.faults
def test_no_acknowledged_memory_is_lost(tmp_path: Path):
    chance = random.Random(1)
    acknowledged = {}
    for run in range(KILLS):
        acknowledged[run] = max(map(int, run_until_killed(chance, MAX_SECONDS, WRITER, run, tmp_path)), default=0)
    memory, database = open_memory(tmp_path)
    try:
        for run, number in acknowledged.items():
            by_ref = {entry.ref for entry in memory.read_entries(Layer.VECTORS, words=f"run{run}", limit=100_000)}
            missing = [item for item in range(number) if f"{run}:{item}" not in by_ref]
            assert missing == [], f"run {run}: {len(missing)} of {number} are lost"
        assert memory.settle(900)
        assert memory.count_missing_vectors() == (0, "")
        with database.read() as session:
            assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            assert session.connection().exec_driver_sql("PRAGMA foreign_key_check").fetchall() == []
    finally:
        memory.close()
        database.close()
    print(f"\n{KILLS} kills, {sum(acknowledged.values())} acknowledged memories, none lost")
