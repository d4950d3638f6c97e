"""Sessions in a real home with real processes. The rails are stubs: permits, kill switch, content filter."""

import itertools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from engine.clock import Clock
from engine.config.settings import ChannelSettings, Settings
from engine.events import EventBus
from engine.execution.changesets import ChangeSets
from engine.execution.housekeeping import Caches
from engine.execution.live_session import LiveSession
from engine.execution.runners import Place
from engine.execution.runners.flow import Flow
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.sandbox.ladder import NoSandbox, find_best_sandbox
from engine.execution.session_folders import SessionFolders
from engine.execution.session_limits import SessionRails
from engine.execution.sessions import Sessions
from engine.home import Home
from engine.model import (
    Assignment,
    ChangeSet,
    Permit,
    RailVerdict,
    Refusal,
    RunnerInfo,
    SessionState,
    SessionView,
    TriggerType,
    Verdict,
)
from engine.randomness import Randomness
from engine.storage.database import Database, Transaction
from tests.support.checks import wait_until
from tests.support.repository import Repository
from tests.support.settings import MutableSettings

PYTHON = sys.executable
SLEEP = "import os,time; print(os.getpid(), flush=True); time.sleep(60)"
"""Python code that prints its process id and sleeps for a minute."""


class StandInPermits:
    """Every permit is good once."""

    def __init__(self):
        self.used: set[str] = set()

    def consume(self, tx: Transaction, permit: Permit, digest: str, /):
        if permit.id in self.used:
            raise Refusal("permit_used", f"permit {permit.id} was used already", "approve it again")
        if permit.digest != digest:
            raise Refusal("permit_mismatch", "for something else", "approve this")
        self.used.add(permit.id)


needs_sandbox = pytest.mark.skipif(not find_best_sandbox().confines, reason="no sandbox works here")
"""Skips a test where no sandbox works."""


class ClaimsToConfine(NoSandbox):
    """Confines nothing and claims to, so that a session may run by itself and only the content filter asks a person."""

    confines = True


def make_rails(verdict: Callable[[str], Verdict] = lambda command: Verdict.ALLOW, **replacements: Any) -> SessionRails:
    """Rails on which every permit is good once and `verdict` is the content filter's. `replacements` are used in
    place of the rest."""
    arguments = {
        "consume": StandInPermits().consume,
        "stop_signal": str,
        "check": lambda command: RailVerdict("content", verdict(command), "a rule says so"),
        "is_allowed_once": lambda permit_id: False,
        "reserve": lambda session_id, total: "",
        "last_write": lambda workspace: None,
        "unattended": lambda workspace: "",
        "secrets": tuple,
        "sandbox": None,
    }
    return SessionRails(**arguments | replacements)


class ScriptRunner:
    """Runs what a test gives it, by the name in the assignment's `flow`. "gate" runs until `gate` is set."""

    name = "flow"

    def __init__(self):
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
        if not live.sandbox.can_overlay(live.confinement):
            live.commands.confine(tree=None)  # as where a session works in a copy
        if live.assignment.flow == "gate":
            wait_until(lambda: self.gate.is_set() or live.stop_requested)
            return RunnerResult("through the gate")
        return RunnerResult(self.works[live.assignment.flow](live))

    def recover(self) -> list[str]:
        return []


class RerunTests(Flow):
    """A flow with parameters of each type."""

    name = "rerun_tests"
    label = "Rerun tests"
    place = Place.CHECK
    tests: list[str] = Field(description="test ids")
    times: int = Field(default=20, ge=1, le=500)
    note: str = ""

    def describe(self) -> str:
        return f"Rerun {len(self.tests)} tests {self.times} times"


class ProseRunner:
    """Takes every text prompt. A subclass adds `run`."""

    name = "model"

    def __init__(self, folders: SessionFolders):
        self.folders = folders

    def check(self, assignment: Assignment) -> RunnerInfo:
        return RunnerInfo(available=True, check_only=False)

    def recover(self) -> list[str]:
        return self.folders.recover()


def run_python(live: LiveSession, script: str, **options: object) -> str:
    """Run Python code as a command of the session. Returns its output."""
    return live.execute([PYTHON, "-c", script], cwd=live.folder, **options).output


class SessionWorld:
    """A home, a workspace and sessions in it. What runs them is up to `make_runners` of a subclass. A second world on
    the same database is the next engine of that home."""

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        bus: EventBus,
        repository: Repository | None = None,
        *,
        settings: Settings | None = None,
        channel: Mapping[str, object] | None = None,
        **other_rails: Any,
    ):
        """Without a `repository` the workspace is a plain folder. `other_rails` are arguments of `make_rails`."""
        self.root, self.database, self.clock, self.repository = root, database, clock, repository
        self.home = Home.locate(root / "home")
        self.workspace = repository.path if repository else root / "work space ü"
        self.workspace.mkdir(exist_ok=True)
        self.permits = StandInPermits()
        self.stop_reason = ""
        """Why the kill switch stops everything."""
        self.started: list[SessionView] = []
        self.ended: list[SessionView] = []
        channels = {"koji-core": ChannelSettings.model_validate({"agent": "builder", **(channel or {})})}
        self.settings = MutableSettings((settings or Settings()).model_copy(update={"channels": channels}))
        self._numbers = itertools.count(1)
        randomness = Randomness()  # worlds of parallel tests must not end each other's processes
        self.changes = ChangeSets(home=self.home, database=database, clock=clock, randomness=randomness)
        self.worktrees = self.changes.worktrees
        caches = Caches(self.home.cache / "build")
        self.folders = SessionFolders(database, self.settings, self.changes, caches)
        stubs = {"consume": self.permits.consume, "stop_signal": lambda: self.stop_reason, "sandbox": NoSandbox()}
        self.sessions = Sessions(
            database,
            home=self.home,
            clock=clock,
            bus=bus,
            randomness=randomness,
            settings=self.settings,
            rails=make_rails(**stubs | other_rails),
            runners=self.make_runners(),
        )
        self.sessions.store.observe_start(lambda tx, view: self.started.append(view))
        self.sessions.store.observe_end(lambda tx, view: self.ended.append(view))

    def make_runners(self) -> list[Runner]:
        """What carries out assignments here."""
        raise NotImplementedError

    def make_permit(self, assignment: Assignment) -> Permit:
        """A permit of the next number, valid for 15 minutes."""
        now, number = self.clock.now(), next(self._numbers)
        until = now + timedelta(minutes=15)
        return Permit(f"permit_{number}", f"pred_{number}", assignment.digest, TriggerType.MANUAL, now, until)

    def begin(self, assignment: Assignment, mode: str = "approved") -> SessionView:
        """Start a session of an assignment, with a permit for it."""
        return self.sessions.start(
            self.make_permit(assignment),
            assignment,
            agent="builder",
            mode=mode,
            estimate=50_000,
            without_sandbox=not self.sessions.sandbox.confines,
        )

    def begin_prose(self, prompt: str = "write it") -> SessionView:
        """Start a session of a text prompt."""
        return self.begin(Assignment(prompt, "koji-core", str(self.workspace), "model"))

    def wait(self, view: SessionView, seconds: float = 10) -> SessionView:
        """The session when it has ended."""
        ended = self.sessions.wait(view.id, seconds)
        assert ended.state.is_over, f"did not end in time: {self.read_lines(view, ())[-5:]}"
        return ended

    def read_lines(self, view: SessionView, kinds: Sequence[str] = ("output",)) -> list[str]:
        """The lines of these kinds in its transcript; without a kind all."""
        lines = self.sessions.read_transcript(view.id, limit=10**6)
        return [line.text for line in lines if not kinds or line.kind in kinds]

    def get_state(self, view: SessionView) -> SessionState:
        return self.sessions.get(view.id).state

    def find_change(self, view: SessionView) -> ChangeSet | None:
        """The change set of a session."""
        return self.changes.find_of_session(view.id)


class ScriptWorld(SessionWorld):
    """Sessions whose work a test gives: a function, or "gate", which waits for `runner.gate`."""

    def make_runners(self) -> list[Runner]:
        self.runner = ScriptRunner()
        return [self.runner]

    def make_assignment(self, work: str | Callable[[LiveSession], str]) -> Assignment:
        name = work if isinstance(work, str) else f"work_{len(self.runner.works)}"
        if not isinstance(work, str):
            self.runner.works[name] = work
        return Assignment("do it", "koji-core", str(self.workspace), "flow", name)

    def start(self, work: str | Callable[[LiveSession], str]) -> SessionView:
        return self.begin(self.make_assignment(work))

    def run(self, work: str | Callable[[LiveSession], str]) -> SessionView:
        return self.wait(self.start(work))


MakeWorld = Callable[..., Any]
"""Makes a world of a class, `ScriptWorld` unless named, with the options that it takes."""
