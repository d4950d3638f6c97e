"""Sessions in a real home with real processes; the rails are stubs: permits, kill switch, content filter."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.config import ChannelSettings, Settings
from engine.events import EventBus
from engine.execution.changesets import ChangeSets
from engine.execution.housekeeping import Caches
from engine.execution.live_session import LiveSession
from engine.execution.runners.runner import RunnerResult
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import NoSandbox
from engine.execution.session_terms import SessionRails
from engine.execution.session_workspace import SessionWorkspaces
from engine.execution.sessions import Sessions
from engine.home import Home
from engine.model import (
    Assignment,
    Permit,
    RailVerdict,
    Randomness,
    Refusal,
    RunnerInfo,
    SessionState,
    SessionView,
    TriggerType,
    Verdict,
)
from engine.storage.database import Database, Transaction
from tests.conftest import Repository
from tests.support.helpers import wait_until

PYTHON = sys.executable
SLEEP = "import os,time; print(os.getpid(), flush=True); time.sleep(60)"


class Permits:
    """Every permit is good once."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def consume(self, tx: Transaction, permit: Permit, digest: str, /) -> None:
        if permit.id in self.used:
            raise Refusal("permit_used", f"permit {permit.id} was used already")
        if permit.digest != digest:
            raise Refusal("permit_mismatch", "for something else")
        self.used.add(permit.id)


def permit_for(assignment: Assignment, number: int, clock: Clock) -> Permit:
    until = clock.now() + timedelta(minutes=15)
    card_id = f"pred_{number}"
    return Permit(f"permit_{number}", card_id, assignment.digest, TriggerType.MANUAL, clock.now(), until)


@dataclass
class ChangingSettings:
    """Settings that a test may change."""

    current: Settings


@dataclass
class KillSwitchStub:
    reason: str = ""

    def stop_reason(self) -> str:
        return self.reason


def rails(verdict: Callable[[str], Verdict] = lambda command: Verdict.ALLOW, **others: Any) -> SessionRails:
    """Rails on which every permit is good once and `verdict` is the content filter's; `others` instead of these."""
    arguments: dict[str, Any] = {
        "consume": Permits().consume,
        "stop_signal": str,
        "check": lambda command: RailVerdict("content", verdict(command), "a rule says so"),
    }
    return SessionRails(**arguments | others)


@dataclass
class SessionRecorder:
    """Observes sessions and keeps their views."""

    started: list[SessionView] = field(default_factory=list)
    ended: list[SessionView] = field(default_factory=list)

    def observe(self, sessions: Sessions) -> None:
        sessions.observe_start(lambda tx, view: self.started.append(view))
        sessions.observe_end(lambda tx, view: self.ended.append(view))


class ScriptRunner:
    """Runs what a test gives it, by the name in the assignment's `flow`."""

    name = "flow"

    def __init__(self) -> None:
        self.works: dict[str, Callable[[LiveSession], str]] = {}
        self.started_ids: list[str] = []
        self.gate = threading.Event()

    def check(self, assignment: Assignment) -> RunnerInfo:
        return RunnerInfo(
            available=assignment.flow is not None, reason="" if assignment.flow else "no runner for prose"
        )

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        return assignment

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        self.started_ids.append(view.id)
        assert live.assignment.flow is not None
        if not live.sandbox.can_overlay(live.confinement):
            live.confinement = replace(live.confinement, tree=None)  # as where a session works in a copy
        if live.assignment.flow == "gate":
            wait_until(lambda: self.gate.is_set() or live.stop_requested)
            return RunnerResult("through the gate")
        return RunnerResult(self.works[live.assignment.flow](live))

    def recover(self) -> list[str]:
        return []


def run_python(live: LiveSession, script: str, **options: object) -> str:
    """Run Python code as a command of the session; its output."""
    return live.execute([PYTHON, "-c", script], cwd=live.folder, **options).output  # type: ignore[arg-type]


class World:
    """A home, a workspace, and sessions in it."""

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        bus: EventBus,
        *,
        sandbox: Sandbox | None = None,
        settings: Settings | None = None,
        channel: Mapping[str, object] | None = None,
        verdict: Callable[[str], Verdict] = lambda command: Verdict.ALLOW,
        secrets: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.home = Home.locate(root / "home")
        self.workspace = root / "work space ü"
        self.workspace.mkdir(exist_ok=True)
        self.clock = clock
        self.permits = Permits()
        self.kill_switch = KillSwitchStub()
        self.recorder = SessionRecorder()
        self.runner = ScriptRunner()
        channels = {"koji-core": ChannelSettings.model_validate({"agent": "builder", **(channel or {})})}
        self.settings = ChangingSettings((settings or Settings()).model_copy(update={"channels": channels}))
        self._numbers = itertools.count(1)
        self.sessions = Sessions(
            database,
            home=self.home,
            clock=clock,
            bus=bus,
            randomness=Randomness(),  # worlds of parallel tests must not end each other's processes
            settings=self.settings,
            rails=rails(
                verdict,
                consume=self.permits.consume,
                stop_signal=self.kill_switch.stop_reason,
                secrets=secrets,
                sandbox=sandbox or NoSandbox(),
            ),
            runners=[self.runner],
        )
        self.recorder.observe(self.sessions)

    def permit(self, assignment: Assignment) -> Permit:
        return permit_for(assignment, next(self._numbers), self.clock)

    def assignment(self, work: str | Callable[[LiveSession], str], prompt: str = "do it") -> Assignment:
        name = work if isinstance(work, str) else f"work_{len(self.runner.works)}"
        if not isinstance(work, str):
            self.runner.works[name] = work
        return Assignment(prompt, "koji-core", str(self.workspace), "flow", name)

    def start(self, work: str | Callable[[LiveSession], str], mode: str = "approved") -> SessionView:
        assignment = self.assignment(work)
        return self.sessions.start(
            self.permit(assignment),
            assignment,
            agent="builder",
            mode=mode,
            estimate=50_000,
            without_sandbox=not self.sessions.sandbox.confines,
        )

    def run(self, work: str | Callable[[LiveSession], str], mode: str = "approved") -> SessionView:
        return self.wait(self.start(work, mode))

    def wait(self, view: SessionView) -> SessionView:
        """The session when it has ended."""
        ended = self.sessions.wait(view.id, 10)
        assert ended.state.over, "did not end in time"
        return ended

    def texts(self, view: SessionView, kinds: Sequence[str] = ("output",)) -> list[str]:
        return [line.text for line in self.sessions.transcript(view.id, limit=10**6) if line.kind in kinds]

    def state(self, view: SessionView) -> SessionState:
        return self.sessions.get(view.id).state


MakeWorld = Callable[..., World]
"""Makes a world, with options as `World` takes them."""


class ProseRunner:
    """What takes prose here; a test says how it works."""

    name = "model"

    def __init__(self, workspaces: SessionWorkspaces) -> None:
        self.workspaces = workspaces

    def check(self, assignment: Assignment) -> RunnerInfo:
        return RunnerInfo(available=True, check_only=False)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        raise AssertionError("nothing is edited here")

    def recover(self) -> list[str]:
        return self.workspaces.recover()


class RepositoryWorld(World):
    """Sessions in worktrees of a real repository; a second world on the same database is the next engine."""

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        bus: EventBus,
        repository: Repository,
        sandbox: Sandbox | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, database, clock, bus, sandbox=sandbox, **options)
        self.repository, self.workspace, self.database = repository, repository.path, database
        self.changes = ChangeSets(home=self.home, database=database, clock=clock, randomness=Randomness())
        self.worktrees = self.changes.worktrees
        caches = Caches(self.home.cache / "build")
        self.workspaces = SessionWorkspaces(database, self.settings, self.changes, caches)

    def prose(self, runner: ProseRunner, prompt: str = "write it") -> SessionView:
        self.sessions._runners = {"model": runner}
        assignment = Assignment(prompt, "koji-core", str(self.workspace), "model")
        return self.sessions.start(self.permit(assignment), assignment, agent="builder", without_sandbox=True)
