"""What commands and sessions cost here and in a former checkout, in turns.

    python tests/benchmarks/session_costs.py FORMER [TIMES]

`FORMER` is a checkout of a former commit that runs in this environment. Each checkout has a process of its own, and the
two are asked one after the other, so that what else the machine does falls on both. Printed are milliseconds of wall
time, and of processor time including the processes that were started: the fastest and the median.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

WAYS = {
    "check": "a command over the operator's tree",
    "worktree": "a command in a worktree",
    "idle": "a session that runs no command",
    "true": "a session that runs `true`",
    "tests": "a session that runs `make test`",
}


def serve() -> None:
    """Do what each line of stdin asks for, one of `WAYS`, and print the seconds of wall and of processor time."""
    from engine.clock import FakeClock
    from engine.events import EventBus
    from engine.execution.runners.flow import FlowResult, Job, Place
    from engine.model import Assignment
    from engine.storage.database import Database
    from engine.storage.ledger import append
    from tests.conftest import MONDAY_MORNING, Repository
    from tests.execution.test_flow_runner import World

    logging.disable()
    took: list[float] = []
    kept: list[Assignment] = []

    def measure(way: Callable[[], object]) -> None:
        began, used = time.perf_counter(), _processor_seconds()
        way()
        took[:] = [time.perf_counter() - began, _processor_seconds() - used]

    def second_command(job: Job) -> FlowResult:
        job.run(["true"])
        measure(lambda: job.run(["true"]))
        return FlowResult("fine")

    def one_command(job: Job) -> FlowResult:
        job.run(["true"])
        return FlowResult("fine")

    def no_command(job: Job) -> FlowResult:
        return FlowResult("fine")

    class KeepingWorld(World):
        """Keeps its assignments: their permits are named after their addresses, which must not come again."""

        def assignment(self, flow: str | None, **parameters: Any) -> Assignment:
            kept.append(super().assignment(flow, **parameters))
            return kept[-1]

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        clock, bus = FakeClock(MONDAY_MORNING), EventBus()
        database = Database(root / "clawpy.db", clock=clock, bus=bus, recorder=append)
        repository = Repository(root / "repository")
        repository.commit("begin", {"Makefile": "test:\n\t@echo ok\n", "cart.py": "total = 1\n"})
        world = KeepingWorld(root, database, clock, bus, repository)
        check = getattr(Place, "CHECK", Place.OPERATOR_TREE)  # a former checkout has no place of its own for checks
        ways: dict[str, Callable[[], object]] = {
            "check": lambda: world.script(check, second_command),
            "worktree": lambda: world.script(Place.WORKTREE, second_command),
            "idle": lambda: measure(lambda: world.script(check, no_command)),
            "true": lambda: measure(lambda: world.script(check, one_command)),
            "tests": lambda: measure(lambda: world.run("run_tests", paths=[])),
        }
        for line in sys.stdin:
            took.clear()
            ways[line.strip()]()
            print(json.dumps(took), flush=True)
        world.sessions.close()
        database.close()


def compare(former: Path, times: int) -> None:
    """Print what `WAYS` cost in `former` and here."""
    trees = {"former": former, "here": Path(__file__).parents[2]}
    workers = {
        name: subprocess.Popen(
            [sys.executable, __file__, "serve"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, tree in trees.items()
    }
    print(f"{'ms: fastest, median':<38}{'former':>16}{'here':>18}{'ratio':>17}")
    for way, title in WAYS.items():
        found: dict[str, list[list[float]]] = {name: [] for name in trees}
        for number in range(times + 2):
            for name in trees if number % 2 else reversed(trees):
                worker = workers[name]
                assert worker.stdin is not None
                assert worker.stdout is not None
                print(way, file=worker.stdin, flush=True)
                took = json.loads(worker.stdout.readline())
                if number > 1:
                    found[name].append(took)
        for kind, clock in enumerate(("wall", "processor")):
            cells, least, middle = "", [], []
            for name in trees:
                seconds = [took[kind] * 1e3 for took in found[name]]
                least.append(min(seconds))
                middle.append(median(seconds))
                cells += f"{least[-1]:9.1f} {middle[-1]:7.1f} "
            ratio = f"x {least[1] / least[0]:.2f}, x {middle[1] / middle[0]:.2f}"
            print(f"{title if kind == 0 else '':<28.28}{clock:>10}{cells} {ratio:>16}", flush=True)
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        compare(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 40)
