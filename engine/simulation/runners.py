"""The runner and the sandbox of a simulation. The runner accepts everything and does nothing, for a price and a while.

A session ends only when the simulation loop says so, so that the fake clock, not a thread, decides the order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from engine.clock import Clock
from engine.events import SessionQueued, Subscription
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.parameters import edit_parameters
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox import Confinement, Sandbox
from engine.model import MICRO, Assignment, CheckResult, Refusal, RunnerInfo, SessionView
from engine.simulation.world import SimulatedProject
from engine.storage.database import Transaction

HANG_TIMEOUT_S = 30.0
"""Real seconds until a simulation that hangs is aborted."""

LONGEST = timedelta(seconds=100)
"""No session takes longer: less than any limit, so that none is ended by a real second's chance."""

NEXT: Mapping[str, str] = {"run_tests": "lint", "lint": "run_tests"}
"""On chatty days a flow names the other as its next step (SPEC 2.10)."""

ELSEWHERE: Mapping[str, str] = {"run_tests": "draft_changelog", "lint": "draft_changelog"}
"""The same on days when work leads to another channel."""


STATED = "Decision: we keep totals in whole cents"
"""The text in the transcript of every session of prose."""


class SimulatedSandbox(Sandbox):
    """Claims to confine; nothing is executed."""

    name = "made up"
    can_filter_hosts = True
    problem = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return "made up"

    def can_overlay(self, confinement: Confinement) -> bool:
        return True

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        raise AssertionError("nothing is executed in a simulation")


class RunningSessions:
    """The sessions that run, waiting for their end on the fake clock. It learns of queued sessions by `facts`, before
    the approval returns, and of ended ones as an observer."""

    def __init__(self, clock: Clock) -> None:
        self.facts: Subscription | None = None
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[str, datetime] = {}
        self._open: set[str] = set()
        self._over: set[str] = set()
        self._ended: list[str] = []
        self.changes = 0
        """Grows with each session that begins or ends."""

    def work(self, live: LiveSession, span: timedelta) -> None:
        """In the session's thread: wait until the simulation lets it end. Raises `Stopped` when it is ended."""
        live.on_stop(lambda: self.release(live.id))
        with self._changed:
            if not live.cancelled:
                self._waiting[live.id] = self._clock.now() + span
                self._changed.notify_all()
            self._changed.wait_for(lambda: live.id not in self._waiting)
        live.check_running()

    def next_end(self) -> tuple[datetime, str] | None:
        """The session that ends first, and when."""
        with self._changed:
            return min(((at, name) for name, at in self._waiting.items()), default=None)

    def release(self, session_id: str) -> None:
        """Let a session end."""
        with self._changed:
            self._waiting.pop(session_id, None)
            self._changed.notify_all()

    def settle(self, max_running: int, wait: Callable[[str], object]) -> None:
        """Wait until every open session has ended or waits here, at most `max_running` of them. `wait(id)` returns when
        the end of a session is stored."""
        queued = [fact.subject for fact in self.facts.drain() if isinstance(fact, SessionQueued)] if self.facts else []
        with self._changed:
            # A queued session counts before its thread has begun, or the clock would go on without it.
            self._open.update(item for item in queued if item not in self._over)
            if not self._changed.wait_for(
                lambda: len(self._waiting) == min(len(self._open), max_running), HANG_TIMEOUT_S
            ):
                raise RuntimeError(f"the simulation hangs: {len(self._open)} open, {len(self._waiting)} waiting")
            ended, self._ended = self._ended, []
        for session_id in ended:
            wait(session_id)

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions."""
        with self._changed:
            self.changes += 1

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions."""
        with self._changed:
            self._open.discard(view.id)
            self._over.add(view.id)
            self._ended.append(view.id)
            self.changes += 1
            self._changed.notify_all()


@dataclass
class SimulatedRunner:
    """Takes every flow and every prose. `dear`: what prices are multiplied with today; `chatty`: sessions leave files
    behind and name the next step that `leads` tells."""

    bench: RunningSessions
    clock: Clock
    projects: Mapping[str, SimulatedProject]
    seed: int
    dear: float = 1.0
    chatty: bool = False
    leads: Mapping[str, str] = field(default_factory=lambda: NEXT)
    instant: bool = False

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
        price = round(chance.uniform(0.02, 0.10) * self.dear * MICRO)
        live.say("made up, nothing is executed")
        if live.assignment.flow is None:
            live.say(STATED)
        if not self.instant:
            self.bench.work(live, min(LONGEST, timedelta(seconds=chance.randint(5, 100))))
        live.reserve_cost(price)  # as the real ones: what a call may cost is reserved before it is made, or not made
        live.charge(price, tokens=chance.randint(500, 20_000))
        return self._result(live, chance)

    def _result(self, live: LiveSession, chance: random.Random) -> RunnerResult:
        assignment, now = live.assignment, self.clock.now()
        project = self.projects[assignment.workspace]
        if self.chatty and assignment.flow in NEXT:
            project.left_behind(now, ".py" if assignment.flow == "run_tests" else ".json")
        following = {"next": self.leads[flow]} if self.chatty and (flow := assignment.flow or "") in self.leads else {}
        if assignment.flow == "run_tests":
            failing = ("tests/test_cart.py::test_total",) if chance.random() < 0.15 else ()
            check = CheckResult("pytest", 40 - len(failing), len(failing), failing=failing)
            project.ran(live.id, now, check, full=self.chatty or not assignment.parameters.get("paths"))
            return RunnerResult("made up", check=check, facts=following)
        if assignment.flow == "lint":
            findings = chance.choice((0, 0, 3))
            return RunnerResult(
                f"ruff: {findings} findings in 2 files", facts={"rules": {"F401": findings}, **following}
            )
        return RunnerResult("made up", facts=following)
