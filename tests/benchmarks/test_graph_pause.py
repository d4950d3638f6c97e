"""Stalls beside a task graph of 100,000 tasks (SPEC 4.6): no other thread waits for 50 ms while it is read, queried,
written and compacted. A thread that wakes up every 5 ms measures them.

pytest tests/benchmarks/test_graph_pause.py -m benchmark -s
"""

import gc
import json
from datetime import timedelta
from pathlib import Path

from engine.clock import FakeClock
from engine.memory.graph import TaskGraph
from engine.model import GraphNode, Relation
from engine.storage.erasing import SearchTerms
from tests.benchmarks.measuring import measure_stalls, time_call
from tests.conftest import MONDAY_MORNING as NOW

TASKS = 100_000
STALL_BAR = 0.05
"""Maximum seconds for which another thread may stand still."""


def format_task_id(number: int) -> str:
    return f"session_{number:012x}"


def write_snapshot(folder: Path):
    lines = []
    for number in range(TASKS):
        edges = [["derived_from", format_task_id(number - 1 if number % 10 else number // 2), 1.0]] if number else []
        edges += [["similar_to", format_task_id(number - 5), 0.91]] if number > 5 else []
        edges += [["blocks", format_task_id(number - 7), 1.0]] if number > 7 else []
        task = {
            "task_id": format_task_id(number), "title": f"Fix the parser of module {number}",
            "success": bool(number % 3),
            "timestamp": (NOW - timedelta(minutes=TASKS - number)).timestamp(), "workspace": "/home/me/shop",
            "description": "It reads dates again. " * 8, "agent": "backend_builder",
        }  # fmt: skip
        lines.append(json.dumps({"task": task, "edges": edges}))
    text = '{"version": 1, "tasks": [\n' + ",\n".join(lines) + "\n]}\n"
    (folder / "task_graph.json").write_text(text)


def query_graph(graph: TaskGraph):
    for number in range(50):
        graph.get_neighbourhood(format_task_id(number * 1_999))
        graph.find_neighbours([format_task_id(number * 1_999 + offset) for offset in range(20)])
    assert len(graph.find_newest(words="module 999", limit=50)) == 50
    assert list(graph.find(SearchTerms(["module 99999"])))


def write_graph(graph: TaskGraph):
    for number in range(1_500):
        graph.put(GraphNode(f"new_{number}", f"new {number}", NOW))
        graph.relate(f"new_{number}", Relation.DERIVED_FROM, format_task_id(number * 60))


def test_no_thread_stalls_while_the_graph_works(tmp_path: Path):
    write_snapshot(tmp_path)
    graph = TaskGraph(tmp_path, FakeClock(NOW))
    steps = [
        ("read", graph.load),
        ("queried", lambda: query_graph(graph)),
        ("1,500 tasks and edges written", lambda: write_graph(graph)),
        ("compacted", graph.compact),
        ("garbage collected", gc.collect),
        ("closed", graph.close),
    ]
    worst = 0.0
    print()
    try:
        for label, step in steps:
            with measure_stalls() as delays:
                seconds = time_call(step)
            longest = max(delays)
            print(f"{label:32} {seconds:6.2f} s, longest stall {longest * 1000:6.1f} ms in {len(delays)} beats")
            worst = max(worst, longest)
    finally:
        gc.unfreeze()  # `load` freezes what it reads
    assert len(graph) == TASKS + 1_500
    assert graph.faults == ()
    assert worst < STALL_BAR
