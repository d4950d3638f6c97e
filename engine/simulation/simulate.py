"""`clawpy simulate`: opens the real engine in a throw-away home, lives the days, and tells what happened."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import git
from engine.clock import FakeClock
from engine.config import Settings
from engine.engine import Engine, open_engine
from engine.home import Home
from engine.model import Randomness, Refusal
from engine.overrides import Overrides
from engine.simulation.month import Month, Seen
from engine.simulation.operator import Operator
from engine.simulation.report import document
from engine.simulation.runners import Bench, MadeRunner, MadeSandbox
from engine.simulation.world import MadeContexts, Project

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday, midnight. Local time is UTC, so that no machine's zone matters."""

NAMES = ("shop",)
MOST_DAYS = 366

CONFIG = """\
autonomousModeEnabled = true
crossPollCostCapPerDay = 5.0
crossPollCostCapPerMonth = 40.0
maxRunningSessions = 2

[production]
paths = ["deploy/*"]
"""
"""Caps are lower than the defaults, so that a month reaches them; and there is something that is production."""


@dataclass(frozen=True, slots=True)
class MadeWorld:
    """An engine with everything around it made up."""

    engine: Engine
    clock: FakeClock
    projects: list[Project]
    runner: MadeRunner
    bench: Bench


def simulate(days: int = 30, seed: int = 1) -> dict[str, Any]:
    """Live `days` days (1 to 366) with `seed`; the same two give the same document. Raises `Refusal` `bad_days`."""
    if not 1 <= days <= MOST_DAYS:
        raise Refusal("bad_days", f"{days} days cannot be simulated", f"choose 1 to {MOST_DAYS}, for example --days 30")
    with tempfile.TemporaryDirectory(prefix="clawpy-simulate-") as folder, made_world(Path(folder), seed) as world:
        operator = Operator(world.engine, world.projects, random.Random(f"{seed}/operator"))
        month = Month(world.engine, world.clock, operator, world.runner, world.bench, seed)
        seen = _apart(month, days)
        return document(world.engine, seen, days=days, seed=seed, begin=BEGIN)


def _apart(month: Month, days: int) -> Seen:
    """What is seen of `days` days that are lived in a thread of their own, as an engine's work is: the main thread is
    there for Ctrl-C, and leaves once the month has stood still."""
    with ThreadPoolExecutor(1, "clawpy-month") as lives:
        try:
            return lives.submit(month.run, days).result()
        except BaseException:
            month.leave()
            raise


@contextmanager
def made_world(folder: Path, seed: int, *, config: str = CONFIG, instant: bool = False) -> Iterator[MadeWorld]:
    """A real engine in `folder` around a made-up world. `instant`: sessions end by themselves, at once."""
    home, clock = Home.locate(folder / "home"), FakeClock(BEGIN)
    bench = Bench(clock)
    workspaces = [os.path.realpath(folder / name) for name in NAMES]
    for workspace in workspaces:
        Path(workspace).mkdir(exist_ok=True)
        git.create(Path(workspace))
    home.config.mkdir(parents=True, exist_ok=True)
    acting = "".join(f'\n[workspaces.{_quoted(workspace)}]\nautonomy = "act"\n' for workspace in workspaces)
    # The made-up runner of flows takes prose as well: no model, no key, no network.
    acting += "".join(f'\n[channels.{name}]\nrunner = "flow"\n' for name in Settings().channels)
    home.config_file.write_text(config + acting, encoding="utf-8")
    projects = {workspace: Project.begin(workspace, clock.now()) for workspace in workspaces}
    runner = MadeRunner(bench, clock, projects, seed, instant=instant)
    contexts = MadeContexts(projects, clock)
    engine = open_engine(
        home,
        workspaces=workspaces,
        clock=clock,
        randomness=Randomness(seed),
        start_schedule=False,
        overrides=Overrides(
            runners=(runner,), contexts=contexts, sandbox=MadeSandbox(), throw_away=True,
            deaf=True,
        ),
    )  # fmt: skip
    engine.sessions.observe(contexts)
    engine.sessions.observe(bench)
    bench.facts = engine.bus.subscribe(lambda: None)
    try:
        yield MadeWorld(engine, clock, list(projects.values()), runner, bench)
    finally:
        engine.close()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
