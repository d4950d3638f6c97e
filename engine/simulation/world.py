"""A real engine in a simulated world. The sandbox and the runner of its sessions carry out nothing.

`open_world` opens it. A session ends when the simulation says so, and charges a made-up price.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.clock import Clock, FakeClock
from engine.config.settings import Settings
from engine.engine import Engine, open_engine
from engine.execution.live_session import LiveSession
from engine.execution.runners import Place
from engine.execution.runners.flows import FLOWS, edit_parameters
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox import Confinement, Sandbox
from engine.frozen import frozen
from engine.git import create_repository
from engine.home import Home
from engine.model import Assignment, CheckResult, Refusal, RunnerInfo, SessionView
from engine.randomness import Randomness
from engine.services import Overrides
from engine.simulation.projects import SimulatedContexts, SimulatedProject
from engine.wording import MICRO

FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)
"""Midnight of a Monday. Local time is UTC, so that the zone of the machine does not matter."""

PROJECTS = ("shop",)
"""The names of the repositories."""

CONFIG = """\
autonomousModeEnabled = true
crossPollCostCapPerDay = 5.0
crossPollCostCapPerMonth = 40.0
maxRunningSessions = 1

[production]
paths = ["deploy/*"]
"""
"""The cost caps are lower than the defaults, so that a month reaches them, and one folder is production."""

HANG_TIMEOUT_S = 30.0
"""Real seconds until a simulation that hangs is aborted."""

NEXT_STEPS: Mapping[str, str] = {"run_tests": "lint", "lint": "run_tests"}
"""The next step that each flow names on chatty days (SPEC 2.10)."""

MIN_PRICE_DOLLARS, MAX_PRICE_DOLLARS = 0.02, 0.10
"""Limits of the price of a session on an ordinary day."""

TEST_FAILURE_RATE = 0.15
"""The share of test runs in which a test fails."""


class SimulatedSandbox(Sandbox):
    """A sandbox that claims to work. Nothing is executed in it."""

    name = "made up"
    can_filter_hosts = True
    problem = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return "made up"

    def can_overlay(self, confinement: Confinement) -> bool:
        return True

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        raise AssertionError("nothing is executed in a simulation")


@dataclass
class SimulatedRunner:
    """Accepts every flow and every text prompt. It does nothing, and charges a price for it.

    A session takes no time of the fake clock. It ends when the simulation opens the `gate`, so that the loop of the
    simulation decides the order, and not the threads of the sessions.
    """

    clock: Clock
    projects: Mapping[str, SimulatedProject]
    seed: int
    price_factor: float = 1.0
    """The factor for all prices of the day."""
    is_chatty: bool = False
    """Whether sessions leave files behind and name a next step."""
    gate: threading.Event = field(default_factory=threading.Event)

    name = "flow"

    def check(self, assignment: Assignment) -> RunnerInfo:
        flow = FLOWS.get(assignment.flow or "")
        return RunnerInfo(
            available=True,
            check_only=flow is not None and flow.place not in (Place.CHANGE_SET, Place.BRANCH, Place.ENGINE),
        )

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        flow = FLOWS.get(assignment.flow or "")
        if flow is None:
            raise Refusal("no_runner", f"there is no flow {assignment.flow!r}")
        parameters = edit_parameters(flow, assignment.parameters, edit)
        return replace(assignment, prompt=parameters.describe(), parameters=parameters.model_dump(mode="json"))

    def recover(self) -> list[str]:
        return []

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        random_source = random.Random(f"{self.seed}/{view.id}")  # the same in any thread
        price = round(random_source.uniform(MIN_PRICE_DOLLARS, MAX_PRICE_DOLLARS) * self.price_factor * MICRO)
        live.say("made up, nothing is executed")
        live.on_stop(self.gate.set)
        self.gate.wait(HANG_TIMEOUT_S)
        live.check_running()
        live.reserve_cost(price)  # real runners, too, reserve the highest cost of a call before they make it
        live.charge(price, tokens=random_source.randint(500, 20_000))
        return self._make_result(live, random_source)

    def _make_result(self, live: LiveSession, random_source: random.Random) -> RunnerResult:
        """The result of a flow or of a text prompt. On chatty days, a flow with a next step leaves a file behind."""
        assignment, now = live.assignment, self.clock.now()
        project, flow = self.projects[assignment.workspace], assignment.flow or ""
        facts: dict[str, Any] = {}
        if self.is_chatty and flow in NEXT_STEPS:
            project.leave_file(now, ".py" if flow == "run_tests" else ".json")
            facts = {"next": NEXT_STEPS[flow]}
        if flow == "run_tests":
            failing = ("tests/test_cart.py::test_total",) if random_source.random() < TEST_FAILURE_RATE else ()
            check = CheckResult("pytest", 40 - len(failing), len(failing), failing=failing)
            project.record_run(live.id, now, check, full=self.is_chatty or not assignment.parameters.get("paths"))
            return RunnerResult("made up", check=check, facts=facts)
        if flow == "lint":
            findings = random_source.choice((0, 0, 3))
            return RunnerResult(f"ruff: {findings} findings in 2 files", facts={"rules": {"F401": findings}, **facts})
        return RunnerResult("made up", facts=facts)


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
        create_repository(Path(workspace))
    home.config.mkdir(parents=True, exist_ok=True)
    home.config_file.write_text(config + _make_sections(workspaces), encoding="utf-8")
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
            runners=(runner,), contexts=contexts, sandbox=SimulatedSandbox(), throw_away=True, unreachable=True
        ),
    )
    engine.sessions.store.observe_end(contexts.session_ended)
    try:
        yield SimulatedWorld(engine, clock, list(projects.values()), runner)
    finally:
        engine.close()


def _make_sections(workspaces: Sequence[str]) -> str:
    """The sections of the settings that let cards run by themselves in these workspaces, and let the simulated runner
    run text prompts too, so that no model, key or network is needed."""
    quoted_workspaces = (json.dumps(workspace, ensure_ascii=False) for workspace in workspaces)  # TOML quotes as JSON
    acting = (f'\n[workspaces.{workspace}]\nautonomy = "act"\n' for workspace in quoted_workspaces)
    running = (f'\n[channels.{name}]\nrunner = "flow"\n' for name in Settings().channels)
    return "".join((*acting, *running))
