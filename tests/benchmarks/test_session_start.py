"""The time to start a command and a session in the sandbox.

pytest tests/benchmarks/test_session_start.py -m benchmark -s

A command is `true`: bare, in bubblewrap with everything readable (a fixed command line, for comparison), and as a check
and a session in a worktree run it. A session is a whole one of the engine whose flow runs `true` once. The ways are
called in turns, `TIMES` times each.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import link_tools, make_session_environment
from engine.execution.sandbox.programs import Bubblewrap
from engine.storage.database import Database
from tests.benchmarks.measuring import print_table, time_in_turns
from tests.conftest import Repository
from tests.execution.test_flow_runner import FlowWorld

TIMES = 20


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
        environment = make_session_environment(confinement, bubblewrap, "sess_1")
        subprocess.run(argv, check=True, env=environment, cwd=confinement.folder, stdin=subprocess.DEVNULL)

    baseline = "bubblewrap, everything readable"
    ways = {
        baseline: lambda: run(everything, check),
        "a check": lambda: run(bubblewrap.wrap(["true"], check, cwd=check.folder), check),
        "in a worktree": lambda: run(bubblewrap.wrap(["true"], worktree, cwd=worktree.folder), worktree),
        "bare": lambda: run(["true"], check),
    }
    print_table("starting a command", time_in_turns(ways, TIMES), baseline=baseline)


def test_starting_a_session(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository
) -> None:
    world = FlowWorld(tmp_path, database, clock, bus, repository)

    def work(job: Job) -> FlowResult:
        job.run(["true"])
        return FlowResult("fine")

    session = {"a session that checks": lambda: world.script(Place.CHECK, work)}
    print_table("starting a session", time_in_turns(session, TIMES))
    world.sessions.close()
