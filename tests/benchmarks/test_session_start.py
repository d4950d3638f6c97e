"""The time to start a command and a session in the sandbox.

pytest tests/benchmarks/test_session_start.py -m benchmark -s

A command is `true`: bare, in bubblewrap with everything readable (a fixed command line, for comparison), and as a check
and a session in a worktree run it. A session is a whole one of the engine whose flow runs `true` once. The ways are
taken in turns, so that what else the machine does falls on all of them; medians and the fastest of `TIMES`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.host_paths import link_tools, session_environment
from engine.storage.database import Database
from tests.benchmarks.measuring import time_call
from tests.conftest import Repository
from tests.execution.test_flow_runner import World

pytestmark = pytest.mark.benchmark

TIMES = 20


def measure(ways: dict[str, Callable[[], object]]) -> None:
    """Print how long each way takes, and against the first one."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TIMES):
        for name, way in ways.items():
            seconds[name].append(time_call(way))
    first = next(iter(seconds.values()))
    print(f"\n{'':<34}  median    fastest")
    for name, times in seconds.items():
        ratio = f"x {median(times) / median(first):.2f}, x {min(times) / min(first):.2f}"
        print(f"{name:<34}  {median(times) * 1e3:6.1f} ms {min(times) * 1e3:6.1f} ms  {ratio}")


def test_starting_a_command(tmp_path: Path, repository: Repository) -> None:
    bubblewrap = Bubblewrap()
    if bubblewrap.problem:
        pytest.skip("bubblewrap does not work on this machine")
    scratch = tmp_path / "scratch"
    check = Confinement(repository.path, scratch, scratch / "caches", tree=repository.path)
    check.make()
    link_tools(check.home)
    worktree = replace(check, folder=tmp_path / "worktree")
    shutil.copytree(repository.path, worktree.folder)
    everything = [
        "/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", "bwrap", "--unshare-all", "--die-with-parent", "--new-session",
        "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm",
        "--bind", str(check.tmp), "/tmp", "--bind", str(check.tmp), "/var/tmp", "--tmpfs", "/run",
        "--bind", str(repository.path), str(repository.path), "--bind", str(scratch), str(scratch),
        "--ro-bind", str(repository.path / ".git"), str(repository.path / ".git"),
        "--chdir", str(repository.path), "--", "true",
    ]  # fmt: skip

    def run(argv: list[str], confinement: Confinement) -> None:
        environment = session_environment(confinement, bubblewrap, "sess_1")
        subprocess.run(argv, check=True, env=environment, cwd=confinement.folder, stdin=subprocess.DEVNULL)

    measure(
        {
            "bubblewrap, everything readable": lambda: run(everything, check),
            "a check": lambda: run(bubblewrap.wrap(["true"], check, cwd=check.folder), check),
            "in a worktree": lambda: run(bubblewrap.wrap(["true"], worktree, cwd=worktree.folder), worktree),
            "bare": lambda: run(["true"], check),
        }
    )


def test_starting_a_session(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository
) -> None:
    world = World(tmp_path, database, clock, bus, repository)

    def work(job: Job) -> FlowResult:
        job.run(["true"])
        return FlowResult("fine")

    measure({"a session that checks": lambda: world.script(Place.CHECK, work)})
    world.sessions.close()
