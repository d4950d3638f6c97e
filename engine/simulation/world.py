"""The simulated parts around the engine: repositories, what is read from them (SPEC 2.1), runner, and sandbox."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from engine.clock import Clock
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.flow_registry import edit_parameters
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.runner import RunnerResult
from engine.execution.runners.toolchains import project_tools, projects
from engine.execution.runners.toolchains.tool_table import LINTERS, TEST_RUNNERS
from engine.execution.sandbox import Confinement, Sandbox
from engine.git.history import Commit
from engine.git.state import Branch, FileState, GitState, Touch
from engine.model import MICRO, Assignment, CheckResult, Refusal, RunnerInfo, SessionView
from engine.prediction.context import ChangedFile, Part, WorkspaceContext, changed_since
from engine.prediction.signals import (
    OurWrite,
    calendar_signal,
    conversations_signal,
    git_signal,
    silence_signal,
    tasks_signal,
    time_signal,
)
from engine.storage.database import Transaction
from engine.storage.validation_runs import ValidationRun

PYTEST = replace(next(row for row in TEST_RUNNERS if row.name == "pytest"), suffixes=(".py", ".json"))
RUFF = next(row for row in LINTERS if row.name == "ruff")
ANYWHERE = Path("/")
TOOLS = projects.Project(
    tools=(project_tools.Toolchain(row=PYTEST, folder=ANYWHERE, workspace=ANYWHERE, top=ANYWHERE, title="pytest"),),
    linters=(project_tools.Linter(row=RUFF, folder=ANYWHERE, workspace=ANYWHERE),),
)
"""The tools of every simulated repository; none is ever started."""
MODULES = ("cart", "stock", "prices", "orders", "mail", "search", "login", "report", "tax", "images")
PRODUCTION_FILES = ("deploy/shop",)
"""Files that are edited on days with work on production (SPEC 3.6)."""
COMMIT_SUBJECTS = (
    "Round totals",
    "Speed up search",
    "Tidy imports",
    "Handle empty baskets",
    "Name the units",
    "Fix a typo",
)
SILENCE_THRESHOLD = timedelta(minutes=30)
MAX_RECENT = 12
"""Maximum number of commits, runs and sessions of a project that are kept."""


@dataclass
class SimulatedProject:
    """One simulated repository: a branch `work` beside `main`, files that somebody edits, commits, pushes.

    `lock` guards what sessions' threads change (`ran`, `left_behind`); the rest belongs to the simulation's thread.
    """

    workspace: str
    commits: list[Commit]
    ahead: int = 0
    behind_base: int = 0
    since_tag: int = 3
    files: dict[str, datetime] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)
    runs: list[ValidationRun] = field(default_factory=list)
    sessions: deque[SessionView] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    touched: datetime | None = None
    changes: int = 0
    """Number of changes so far, of which ids are made."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, workspace: str, now: datetime) -> SimulatedProject:
        """A young project with a few commits of the days before."""
        project = cls(workspace, [])
        for days in (6, 4, 3):
            project._commit(now - timedelta(days=days), "Begin" if days == 6 else COMMIT_SUBJECTS[days])
        return project

    def edit(self, chance: random.Random, now: datetime, modules: Sequence[str] = MODULES) -> None:
        """Somebody changes a file or two in an editor."""
        for name in chance.sample(modules, min(len(modules), chance.choice((1, 1, 2)))):
            path = f"{name}.py"
            self.files[path] = now
            self.ours.discard(path)
        self.touched = now

    def commit(self, chance: random.Random, now: datetime) -> None:
        """Everything uncommitted becomes a commit, the first of the day a tag's successor."""
        self._commit(now, chance.choice(COMMIT_SUBJECTS))
        self.files.clear()
        self.ours.clear()
        self.ahead += 1
        self.since_tag += 1
        self.touched = now

    def push(self) -> None:
        """The commits that were ahead are pushed now."""
        self.ahead = 0

    def others_push(self, commits: int) -> None:
        """The base moved on without us; 0: we caught up."""
        self.behind_base = self.behind_base + commits if commits else 0
        self.changes += 1

    def left_behind(self, now: datetime, suffix: str) -> None:
        """A session of ours leaves a file lying about: new evidence, but no sign of the operator. Tests read `.py`
        and `.json`, the linter only `.py`."""
        with self.lock:
            self.changes += 1
            path = f"build/part{self.changes}{suffix}"
            self.files[path] = now
            self.ours.add(path)
            for old in sorted(self.ours)[:-3]:
                self.files.pop(old, None)
                self.ours.discard(old)

    def ran(self, session_id: str, now: datetime, check: CheckResult, full: bool) -> None:
        """A session ran the tests."""
        with self.lock:
            files = {"head": self.head, "tree": f"{self.changes}", "clean": not self.files}
            run = ValidationRun.of(check, session_id=session_id, workspace="", full=full, ran_at=now, **files)
            self.runs = [run, *self.runs[: MAX_RECENT - 1]]

    @property
    def head(self) -> str:
        return self.commits[0].id

    def state(self) -> GitState:
        """The state that `GitReader` would read."""
        base_tip = f"{self.changes:039x}b"
        touches = tuple(
            Touch(path, at, untracked=path in self.ours) for path, at in self.files.items() if path not in self.ours
        )
        return GitState(
            head=self.head,
            branch="work",
            upstream="origin/work",
            upstream_tip=self.commits[min(self.ahead, len(self.commits) - 1)].id,
            ahead=self.ahead,
            base="main",
            base_tip=base_tip,
            ahead_of_base=self.ahead + 1,
            behind_base=self.behind_base,
            files=tuple(
                FileState(path, modified=path not in self.ours, untracked=path in self.ours, modified_at=at)
                for path, at in sorted(self.files.items())
            ),
            recent=tuple(self.commits),
            own_files=tuple(f"{name}.py" for name in MODULES[:2]),
            branches=(Branch("work", self.head, self.commits[0].at), Branch("main", base_tip, self.commits[-1].at)),
            tag="v1.0",
            commits_since_tag=self.since_tag,
            subjects=tuple(commit.subject for commit in self.commits[: self.since_tag]),
            touches=touches,
        )

    def changed(self, files: tuple[FileState, ...]) -> tuple[ChangedFile, ...]:
        """The uncommitted files that differ from the last run."""
        if not self.runs:
            return ()
        return changed_since(self.runs[0].ran_at, None, files, exact=False)

    def _commit(self, now: datetime, subject: str) -> None:
        self.changes += 1
        parents = (self.commits[0].id,) if self.commits else ()
        new = Commit(f"{self.changes:039x}c", now, "Ada", subject, parents)
        self.commits = [new, *self.commits[: MAX_RECENT - 1]]


class SimulatedContexts:
    """Contexts of simulated repositories (`engine.services.Contexts`); observes sessions for the conversations."""

    def __init__(self, projects: Mapping[str, SimulatedProject], clock: Clock) -> None:
        self._projects = projects
        self._clock = clock

    def read_all(
        self, workspaces: Sequence[str], *, last_input: datetime | None, ours: Mapping[str, Sequence[OurWrite]]
    ) -> list[WorkspaceContext]:
        return [self._read(self._projects[workspace], last_input) for workspace in workspaces]

    def last_activity(self, workspaces: Sequence[str], ours: Mapping[str, Sequence[OurWrite]]) -> datetime | None:
        return self._sign([self._projects[workspace] for workspace in workspaces], None)

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions: it is now one of the recent conversations."""
        self._projects[view.workspace].sessions.appendleft(view)

    def _sign(self, projects: Sequence[SimulatedProject], last_input: datetime | None) -> datetime | None:
        signs = [last_input, *(project.touched for project in projects)]
        return max((sign for sign in signs if sign is not None), default=None)

    def _read(self, project: SimulatedProject, last_input: datetime | None) -> WorkspaceContext:
        now, local = self._clock.now(), self._clock.local()
        sign = self._sign([project], last_input)
        silence = None if sign is None else now - sign
        with project.lock:
            git = project.state()
            changed, sessions, runs = project.changed(git.files), tuple(project.sessions), tuple(project.runs)
        return WorkspaceContext(
            workspace=project.workspace,
            now=now,
            local=local,
            silence=silence,
            git=git,
            runs=runs,
            parts=(Part(TOOLS, runs, runs, changed),),
            ancestors=frozenset(commit.id for commit in git.recent),
            sessions=sessions,
            signals=(
                time_signal(local),
                silence_signal(silence, SILENCE_THRESHOLD, local),
                tasks_signal((), local),
                conversations_signal(sessions, (), local),
                git_signal(git, None, bool(changed)),
                calendar_signal(None, local),
            ),
        )


HANG_TIMEOUT_S = 30.0
"""Real seconds until a simulation that hangs is aborted."""

NEXT_STEPS: Mapping[str, str] = {"run_tests": "lint", "lint": "run_tests"}
"""On chatty days a flow names the other as its next step (SPEC 2.10)."""

STEPS_ELSEWHERE: Mapping[str, str] = {"run_tests": "draft_changelog", "lint": "draft_changelog"}
"""The same on days when work leads to another channel."""


STATEMENT = "Decision: we keep totals in whole cents"
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


@dataclass
class SimulatedRunner:
    """Takes every flow and every text prompt, and does nothing, for a price.

    A session ends when the simulation opens the `gate`, so that its loop, not a thread, decides the order, and takes no
    time of the fake clock. `price_factor`: what prices are multiplied with today; `chatty`: sessions leave files behind
    and name the next step that `next_steps` has.
    """

    clock: Clock
    projects: Mapping[str, SimulatedProject]
    seed: int
    price_factor: float = 1.0
    chatty: bool = False
    next_steps: Mapping[str, str] = field(default_factory=lambda: NEXT_STEPS)
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
        live.reserve_cost(price)  # as the real ones: what a call may cost is reserved before it is made, or not made
        live.charge(price, tokens=chance.randint(500, 20_000))
        return self._result(live, chance)

    def _result(self, live: LiveSession, chance: random.Random) -> RunnerResult:
        assignment, now = live.assignment, self.clock.now()
        project = self.projects[assignment.workspace]
        if self.chatty and assignment.flow in NEXT_STEPS:
            project.left_behind(now, ".py" if assignment.flow == "run_tests" else ".json")
        following = (
            {"next": self.next_steps[flow]}
            if self.chatty and (flow := assignment.flow or "") in self.next_steps
            else {}
        )
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
