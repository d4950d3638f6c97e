"""Contexts of real repositories, for tests of the reader and of templates. A test supplies the test runs, tasks and
sessions, and may let a source fail."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.execution.runners.toolchains import LINTERS, TEST_RUNNERS
from engine.execution.runners.toolchains.project_tools import Linter, Toolchain
from engine.execution.runners.toolchains.projects import Project, ProjectCache
from engine.model import SessionView, Task
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.context_reader import ContextReader, ReaderSources
from tests.prediction.builders import NOW
from tests.support.past_run import PastRun
from tests.support.repository import Repository, touch

_FOLDER = Path("/srv/shop")
PYTEST_PROJECT = Project(
    "",
    tuple(
        Toolchain(row=row, folder=_FOLDER, workspace=_FOLDER, title=row.title)
        for row in TEST_RUNNERS
        if row.name == "pytest"
    ),
    tuple(Linter(row=row, folder=_FOLDER, workspace=_FOLDER) for row in LINTERS if row.name == "ruff"),
)
"""A project that is tested with pytest and linted with ruff."""


@dataclass
class SensedWorkspace:
    """What a context is made of. A test sets the fields that it is about, and reads the context with `sense`."""

    path: Path
    runs: Sequence[PastRun] = ()
    tasks: Sequence[Task] = ()
    sessions: Sequence[SessionView] = ()
    now: datetime = NOW
    github: Any = field(default_factory=lambda: SimpleNamespace(get_latest=lambda workspace: None))
    threads: Any = field(
        default_factory=lambda: SimpleNamespace(read_newest=lambda workspace: (), find_last_growth=lambda: None)
    )
    broken: set[str] = field(default_factory=set)
    """The sources that fail: tasks, sessions, runs, tools."""

    def read_newest(self, workspace: str) -> Sequence[PastRun]:
        self._fail("runs")
        return self.runs

    def find_projects(self, folder: Path) -> tuple[Project, ...]:
        self._fail("tools")
        return (PYTEST_PROJECT,)

    def _fail(self, name: str):
        if name in self.broken:
            raise RuntimeError(f"no {name} today")

    def make_reader(self) -> ContextReader:
        """A new reader of these sources."""
        world = self

        class StandInTasks:
            def list(self, *, workspace: str, state: str, limit: int) -> Sequence[Task]:
                world._fail("tasks")
                return [task for task in world.tasks if task.state == state][:limit]

        class StandInSessions:
            def list_newest(self, *, workspace: str, limit: int) -> Sequence[SessionView]:
                world._fail("sessions")
                return world.sessions[:limit]

        clock = FakeClock(self.now)
        sources = ReaderSources(
            self,
            StandInTasks(),
            StandInSessions(),
            ProjectCache(clock, self.find_projects),
            github=self.github,
            threads=self.threads,
            learned_flows=lambda workspace: (),
            fixes=lambda workspace: (),
            prompt_runner=lambda workspace: "",
            landings=lambda workspace: (),
            changes=lambda session_id: None,
            disk=lambda workspace: None,
        )
        return ContextReader(clock, FixedSettings(), sources)

    def sense_top(self) -> tuple[WorkspaceContext, Part]:
        """The context and the project at the top, as templates of projects take them."""
        context = self.sense()
        return context, context.parts[0]

    def sense(self, last_input: datetime | None = None) -> WorkspaceContext:
        """Read the context."""
        return self.make_reader().read(str(self.path), last_input=last_input)


BEFORE_RUN, LAST_RUN_AT, AFTER_RUN = NOW - timedelta(hours=2), NOW - timedelta(hours=1), NOW - timedelta(minutes=5)
"""When the files of an old workspace were committed, and times before and after which a test changes them."""


def make_old_workspace(repository: Repository) -> SensedWorkspace:
    """A workspace with three files, in which nothing happened since `BEFORE_RUN`."""
    repository.commit("one", {"a.py": "1", "b.py": "1", "t.py": "1"}, at=BEFORE_RUN)
    for path in (".git/index", ".git/logs/HEAD"):
        touch(repository.path / path, BEFORE_RUN)
    return SensedWorkspace(repository.path)
