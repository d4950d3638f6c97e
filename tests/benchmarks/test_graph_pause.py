"""A task graph of 100,000 tasks: nothing else in the process stands still for 50 ms while it is read, asked, written to
and compacted. A thread that wants to run every 5 ms tells.

pytest tests/benchmarks/test_graph_pause.py -m benchmark -s
"""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.memory.graph import TaskGraph
from engine.model import GraphNode, Relation
from engine.storage.erasing import SearchTerms

pytestmark = pytest.mark.benchmark

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
TASKS = 100_000
BEAT, BAR = 0.005, 0.05


class Ticker:
    """A thread that sleeps `BEAT` seconds again and again, and keeps how much later it came back at worst."""

    def __init__(self) -> None:
        self.worst, self.beats = 0.0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.is_set():
            time.sleep(BEAT)
            now = time.monotonic()
            self.worst, self.beats, last = max(self.worst, now - last - BEAT), self.beats + 1, now


def name(number: int) -> str:
    return f"session_{number:012x}"


def snapshot(folder: Path) -> None:
    lines = []
    for number in range(TASKS):
        edges = [["derived_from", name(number - 1 if number % 10 else number // 2), 1.0]] if number else []
        edges += [["similar_to", name(number - 5), 0.91]] if number > 5 else []
        edges += [["blocks", name(number - 7), 1.0]] if number > 7 else []
        task = {
            "task_id": name(number), "title": f"Fix the parser of module {number}", "success": bool(number % 3),
            "timestamp": (NOW - timedelta(minutes=TASKS - number)).timestamp(), "workspace": "/home/me/shop",
            "description": "It reads dates again. " * 8, "agent": "backend_builder",
        }  # fmt: skip
        lines.append(json.dumps({"task": task, "edges": edges}))
    text = '{"version": 1, "tasks": [\n' + ",\n".join(lines) + "\n]}\n"
    (folder / "task_graph.json").write_text(text)


def ask(graph: TaskGraph) -> None:
    for number in range(50):
        graph.neighbourhood(name(number * 1_999))
        graph.neighbours([name(number * 1_999 + more) for more in range(20)])
    assert len(graph.newest(words="module 999", limit=50)) == 50
    assert list(graph.find(SearchTerms(["module 99999"])))


def write(graph: TaskGraph) -> None:
    for number in range(1_500):
        graph.put(GraphNode(f"new_{number}", f"new {number}", NOW))
        graph.relate(f"new_{number}", Relation.DERIVED_FROM, name(number * 60))


def test_nothing_stands_still(tmp_path: Path) -> None:
    snapshot(tmp_path)
    graph = TaskGraph(tmp_path, FakeClock(NOW))
    steps: list[tuple[str, Callable[[], object]]] = [
        ("read", graph.load),
        ("asked", lambda: ask(graph)),
        ("1,500 tasks and arrows written", lambda: write(graph)),
        ("compacted", graph.compact),
        ("garbage collected", gc.collect),
        ("closed", graph.close),
    ]
    worst = 0.0
    print()
    for what, step in steps:
        began = time.monotonic()
        with Ticker() as ticker:
            step()
        took = time.monotonic() - began
        print(f"{what:32} {took:6.2f} s, longest stall {ticker.worst * 1000:6.1f} ms in {ticker.beats} beats")
        worst = max(worst, ticker.worst)
    assert len(graph) == TASKS + 1_500
    assert graph.faults == ()
    gc.unfreeze()
    assert worst < BAR
