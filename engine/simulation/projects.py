"""Simulated repositories, which are no files, and the contexts that the engine reads from them (SPEC 2.1)."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from engine.clock import Clock
from engine.execution.runners.toolchains import LINTERS, TEST_RUNNERS, project_tools, projects
from engine.git.history import Commit
from engine.git.state import Branch, FileState, GitState, Touch
from engine.model import CheckResult, SessionView
from engine.prediction.context import Part, WorkspaceContext, find_files_changed_since
from engine.prediction.signals import (
    OurWrite,
    make_calendar_signal,
    make_conversations_signal,
    make_git_signal,
    make_silence_signal,
    make_tasks_signal,
    make_time_signal,
)
from engine.storage.database import Transaction
from engine.storage.validation_runs import ValidationRun

PYTEST = replace(next(row for row in TEST_RUNNERS if row.name == "pytest"), suffixes=(".py", ".json"))
RUFF = next(row for row in LINTERS if row.name == "ruff")
ANYWHERE = Path("/")

PROJECT_TOOLS = projects.Project(
    tools=(project_tools.Toolchain(row=PYTEST, folder=ANYWHERE, workspace=ANYWHERE, title="pytest"),),
    linters=(project_tools.Linter(row=RUFF, folder=ANYWHERE, workspace=ANYWHERE),),
)
"""The tools of every simulated repository; none is ever started."""

MODULES = ("cart", "stock", "prices", "orders", "mail", "search", "login", "report", "tax", "images")
"""The names of the files that somebody edits, without `.py`."""

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

FIRST_COMMITS = ((6, "Begin"), (4, "Name the units"), (3, "Handle empty baskets"))
"""The commits of a new project: how many days before its beginning, and the subject."""

SILENCE_THRESHOLD = timedelta(minutes=30)
"""The silence at which its signal is at its highest."""

MAX_RECENT = 12
"""Maximum number of commits, runs and sessions of a project that are kept."""


@dataclass
class SimulatedProject:
    """One simulated repository with the branches `work` and `main`, whose files somebody edits, commits and pushes.

    Every change takes the `lock`, because sessions call `record_run` and `leave_file` from their threads. `sessions`
    grows where the end of a session is written.
    """

    workspace: str
    commits: list[Commit]
    """The newest commits of `work`, newest first."""
    ahead: int = 0
    """Number of commits that are not pushed."""
    behind_base: int = 0
    """Number of commits that only the base has."""
    since_tag: int = 3
    """Number of commits since the last tag."""
    files: dict[str, datetime] = field(default_factory=dict)
    """The uncommitted files, and when each was written."""
    written_by_sessions: set[str] = field(default_factory=set)
    """Those of `files` that sessions wrote."""
    runs: list[ValidationRun] = field(default_factory=list)
    """The last runs of the tests, newest first."""
    sessions: deque[SessionView] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    touched: datetime | None = None
    """When somebody last edited or committed."""
    id_counter: int = 0
    """Number of changes so far. Ids are made from it."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, workspace: str, now: datetime) -> SimulatedProject:
        """A new project with a few commits from the days before `now`."""
        project = cls(workspace, [])
        for days_ago, subject in FIRST_COMMITS:
            project._commit(now - timedelta(days=days_ago), subject)
        return project

    def edit(self, random_source: random.Random, now: datetime, modules: Sequence[str] = MODULES) -> None:
        """Somebody changes a file or two in an editor."""
        names = random_source.sample(modules, min(len(modules), random_source.choice((1, 1, 2))))
        with self.lock:
            for path in (f"{name}.py" for name in names):
                self.files[path] = now
                self.written_by_sessions.discard(path)
            self.touched = now

    def commit(self, random_source: random.Random, now: datetime) -> None:
        """Commit all uncommitted files."""
        with self.lock:
            self._commit(now, random_source.choice(COMMIT_SUBJECTS))
            self.files.clear()
            self.written_by_sessions.clear()
            self.ahead += 1
            self.since_tag += 1
            self.touched = now

    def push(self) -> None:
        """Push all commits."""
        with self.lock:
            self.ahead = 0

    def receive_base_commits(self, commits: int) -> None:
        """Others push this many commits to the base."""
        with self.lock:
            self.behind_base += commits
            self.id_counter += 1

    def merge_base(self) -> None:
        """Merge all commits of the base into `work`."""
        with self.lock:
            self.behind_base = 0
            self.id_counter += 1

    def leave_file(self, now: datetime, suffix: str) -> None:
        """A session leaves a new file behind, which is evidence for a card but no activity of the operator. Tests read
        `.py` and `.json` files, and the linter reads only `.py` files."""
        with self.lock:
            self.id_counter += 1
            path = f"build/part{self.id_counter}{suffix}"
            self.files[path] = now
            self.written_by_sessions.add(path)
            for old in [path for path in self.files if path in self.written_by_sessions][:-3]:  # the oldest
                self.files.pop(old, None)
                self.written_by_sessions.discard(old)

    def record_run(self, session_id: str, now: datetime, check: CheckResult, *, full: bool) -> None:
        """A session ran the tests."""
        with self.lock:
            files = {"head": self.head, "tree": f"{self.id_counter}", "clean": not self.files}
            run = ValidationRun.of(check, session_id=session_id, workspace="", full=full, ran_at=now, **files)
            self.runs = [run, *self.runs[: MAX_RECENT - 1]]

    @property
    def head(self) -> str:
        return self.commits[0].id

    def git_state(self) -> GitState:
        """The state that `GitReader` would read."""
        base_tip = f"{self.id_counter:039x}b"
        edited = {path: at for path, at in self.files.items() if path not in self.written_by_sessions}
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
                FileState(path, modified=path in edited, untracked=path not in edited, modified_at=at)
                for path, at in sorted(self.files.items())
            ),
            recent=tuple(self.commits),
            own_files=tuple(f"{name}.py" for name in MODULES[:2]),
            branches=(Branch("work", self.head, self.commits[0].at), Branch("main", base_tip, self.commits[-1].at)),
            tag="v1.0",
            commits_since_tag=self.since_tag,
            touches=tuple(Touch(path, at, untracked=False) for path, at in edited.items()),
        )

    def _commit(self, now: datetime, subject: str) -> None:
        self.id_counter += 1
        parents = (self.commits[0].id,) if self.commits else ()
        new = Commit(f"{self.id_counter:039x}c", now, "Ada", subject, parents)
        self.commits = [new, *self.commits[: MAX_RECENT - 1]]


class SimulatedContexts:
    """The contexts of simulated repositories (see `ContextSource`). It also observes sessions, which are the
    conversations of a context."""

    def __init__(self, projects: Mapping[str, SimulatedProject], clock: Clock) -> None:
        self._projects = projects
        self._clock = clock

    def read_all(
        self, workspaces: Sequence[str], *, last_input: datetime | None, ours: Mapping[str, Sequence[OurWrite]]
    ) -> list[WorkspaceContext]:
        return [self._read(self._projects[workspace], last_input) for workspace in workspaces]

    def find_last_activity(self, workspaces: Sequence[str], ours: Mapping[str, Sequence[OurWrite]]) -> datetime | None:
        return self._find_last_sign([self._projects[workspace] for workspace in workspaces], None)

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Add a session that ended to the conversations of its project."""
        project = self._projects[view.workspace]
        with project.lock:
            project.sessions.appendleft(view)

    def _find_last_sign(self, projects: Sequence[SimulatedProject], last_input: datetime | None) -> datetime | None:
        signs = [last_input, *(project.touched for project in projects)]
        return max((sign for sign in signs if sign is not None), default=None)

    def _read(self, project: SimulatedProject, last_input: datetime | None) -> WorkspaceContext:
        now, local = self._clock.now(), self._clock.local()
        sign = self._find_last_sign([project], last_input)
        silence = None if sign is None else now - sign
        with project.lock:
            git, sessions, runs = project.git_state(), tuple(project.sessions), tuple(project.runs)
        changed = find_files_changed_since(runs[0].ran_at, None, git.files, exact=False) if runs else ()
        return WorkspaceContext(
            workspace=project.workspace,
            now=now,
            local=local,
            silence=silence,
            git=git,
            runs=runs,
            parts=(Part(PROJECT_TOOLS, runs, runs, changed),),
            ancestors=frozenset(commit.id for commit in git.recent),
            sessions=sessions,
            signals=(
                make_time_signal(local),
                make_silence_signal(silence, SILENCE_THRESHOLD, local),
                make_tasks_signal((), local),
                make_conversations_signal(sessions, (), local),
                make_git_signal(git, None, tests_stale=bool(changed)),
                make_calendar_signal(None, local),
            ),
        )
