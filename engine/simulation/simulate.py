"""Opens the real engine in a temporary home, and simulates days in it for `clawpy simulate`."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import git
from engine.clock import FakeClock
from engine.config import Settings
from engine.engine import Engine, open_engine
from engine.frozen import frozen
from engine.home import Home
from engine.model import Randomness, Refusal
from engine.services import Overrides
from engine.simulation.month import Observations, SimulatedMonth
from engine.simulation.operator import SimulatedOperator
from engine.simulation.report import make_document
from engine.simulation.runner import SimulatedRunner, SimulatedSandbox
from engine.simulation.world import SimulatedContexts, SimulatedProject

FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)
"""Midnight of a Monday. Local time is UTC, so that the zone of the machine does not matter."""

PROJECTS = ("shop",)
MAX_DAYS = 366

CONFIG = """\
autonomousModeEnabled = true
crossPollCostCapPerDay = 5.0
crossPollCostCapPerMonth = 40.0
maxRunningSessions = 1

[production]
paths = ["deploy/*"]
"""
"""The cost caps are lower than the defaults, so that a month reaches them, and one folder is production."""


def simulate(days: int = 30, seed: int = 1) -> dict[str, Any]:
    """Simulate `days` days (1 to 366) with `seed`. The same arguments give the same document. Raises `Refusal`
    `bad_days`."""
    if not 1 <= days <= MAX_DAYS:
        raise Refusal("bad_days", f"{days} days cannot be simulated", f"choose 1 to {MAX_DAYS}, for example --days 30")
    with tempfile.TemporaryDirectory(prefix="clawpy-simulate-") as folder, open_world(Path(folder), seed) as world:
        operator = SimulatedOperator(world.engine, world.projects, random.Random(f"{seed}/operator"))
        month = SimulatedMonth(world.engine, world.clock, operator, world.runner, seed)
        observed = _run_in_thread(month, days)
        return make_document(world.engine, observed, days=days, seed=seed, begin=FIRST_DAY)


def _run_in_thread(month: SimulatedMonth, days: int) -> Observations:
    """Simulate `days` days in another thread, because the main thread handles Ctrl-C. On Ctrl-C the simulation is
    cancelled, and its thread ends before this function returns."""
    with ThreadPoolExecutor(1, "clawpy-month") as executor:
        try:
            return executor.submit(month.run, days).result()
        except BaseException:
            month.cancel()
            raise


@frozen
class SimulatedWorld:
    """A real engine, and the simulated parts around it."""

    engine: Engine
    clock: FakeClock
    projects: list[SimulatedProject]
    runner: SimulatedRunner


@contextmanager
def open_world(folder: Path, seed: int, *, config: str = CONFIG) -> Iterator[SimulatedWorld]:
    """Open a real engine in `folder` with a simulated world."""
    home, clock = Home.locate(folder / "home"), FakeClock(FIRST_DAY)
    workspaces = [os.path.realpath(folder / name) for name in PROJECTS]
    for workspace in workspaces:
        Path(workspace).mkdir(exist_ok=True)
        git.create(Path(workspace))
    home.config.mkdir(parents=True, exist_ok=True)
    acting = "".join(f'\n[workspaces.{_quote_toml(workspace)}]\nautonomy = "act"\n' for workspace in workspaces)
    # The simulated runner also runs text prompts, so that no model, key or network is needed.
    acting += "".join(f'\n[channels.{name}]\nrunner = "flow"\n' for name in Settings().channels)
    home.config_file.write_text(config + acting, encoding="utf-8")
    projects = {workspace: SimulatedProject.begin(workspace, clock.now()) for workspace in workspaces}
    runner = SimulatedRunner(clock, projects, seed)
    contexts = SimulatedContexts(projects, clock)
    engine = open_engine(
        home,
        workspaces=workspaces,
        clock=clock,
        randomness=Randomness(seed),
        start_schedule=False,
        overrides=Overrides(
            runners=(runner,), contexts=contexts, sandbox=SimulatedSandbox(), throw_away=True,
            unreachable=True,
        ),
    )  # fmt: skip
    engine.sessions.observe_end(contexts.session_ended)
    try:
        yield SimulatedWorld(engine, clock, list(projects.values()), runner)
    finally:
        engine.close()


def _quote_toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
