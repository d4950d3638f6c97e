"""The simulated runner, which does nothing for a price, and the simulated sandbox, in which nothing is executed."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.clock import Clock
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.flow_registry import edit_parameters
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox import Confinement, Sandbox
from engine.model import MICRO, Assignment, CheckResult, Refusal, RunnerInfo, SessionView
from engine.simulation.world import SimulatedProject

HANG_TIMEOUT_S = 30.0
"""Real seconds until a simulation that hangs is aborted."""

NEXT_STEPS: Mapping[str, str] = {"run_tests": "lint", "lint": "run_tests"}
"""The next step that each flow names on chatty days (SPEC 2.10)."""

STEPS_ELSEWHERE: Mapping[str, str] = {"run_tests": "draft_changelog", "lint": "draft_changelog"}
"""The next step that each flow names on days when work leads to another channel."""

STATEMENT = "Decision: we keep totals in whole cents"
"""A line in the transcript of every session that runs a text prompt."""


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
    chatty: bool = False
    """Whether sessions leave files behind and name a next step."""
    next_steps: Mapping[str, str] = field(default_factory=lambda: NEXT_STEPS)
    """The next step by flow, for chatty days."""
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
        chance = random.Random(f"{self.seed}/{view.id}")  # the same in any thread
        price = round(chance.uniform(0.02, 0.10) * self.price_factor * MICRO)
        live.say("made up, nothing is executed")
        if live.assignment.flow is None:
            live.say(STATEMENT)
        live.on_stop(self.gate.set)
        self.gate.wait(HANG_TIMEOUT_S)
        live.check_running()
        live.reserve_cost(price)  # real runners, too, reserve the highest cost of a call before they make it
        live.charge(price, tokens=chance.randint(500, 20_000))
        return self._result(live, chance)

    def _result(self, live: LiveSession, chance: random.Random) -> RunnerResult:
        assignment, now = live.assignment, self.clock.now()
        project = self.projects[assignment.workspace]
        if self.chatty and assignment.flow in NEXT_STEPS:
            project.leave_file(now, ".py" if assignment.flow == "run_tests" else ".json")
        flow = assignment.flow or ""
        following = {"next": self.next_steps[flow]} if self.chatty and flow in self.next_steps else {}
        if assignment.flow == "run_tests":
            failing = ("tests/test_cart.py::test_total",) if chance.random() < 0.15 else ()
            check = CheckResult("pytest", 40 - len(failing), len(failing), failing=failing)
            project.record_run(live.id, now, check, full=self.chatty or not assignment.parameters.get("paths"))
            return RunnerResult("made up", check=check, facts=following)
        if assignment.flow == "lint":
            findings = chance.choice((0, 0, 3))
            return RunnerResult(
                f"ruff: {findings} findings in 2 files", facts={"rules": {"F401": findings}, **following}
            )
        return RunnerResult("made up", facts=following)
