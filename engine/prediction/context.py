"""The situation of a workspace at one moment: all that templates, learners and people need to understand a card.

`ContextReader` is the edge: it fetches in threads and never raises for one bad workspace or one failed collector.
Everything else here is a plain value or a plain function over values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from engine.clock import Clock
from engine.config import SettingsSource
from engine.prediction.collectors import attempt
from engine.prediction.collectors.calendar import calendar_signal
from engine.prediction.collectors.conversations import conversations_signal
from engine.prediction.collectors.git import FileState, GitState, git_evidence, git_signal
from engine.prediction.collectors.git_reader import GitReader
from engine.prediction.collectors.github import GitHub, GitHubState
from engine.prediction.collectors.silence import OurWrite, silence_of, silence_signal
from engine.prediction.collectors.tasks import open_tasks, tasks_signal
from engine.prediction.collectors.time_of_day import time_signal
from engine.prediction.words import count, listing, moment, plain, span
from engine.values import CheckResult, PartOfDay, Refusal, SessionView, Signal, Task, part_of_day, sanitise

Value = TypeVar("Value")

RECENT_SESSIONS = 20
TOOL_FRESH_SECONDS = 60.0
"""A project's tools are looked for again after so long."""

GREEN_HEADS = 8
"""So many older commits with a run are checked for being ancestors of HEAD."""


class Run(Protocol):
    """A past run of the project's tests. `clean`: the files were exactly those of `head`; `tree` is their tree."""

    @property
    def session_id(self) -> str: ...
    @property
    def head(self) -> str: ...
    @property
    def tree(self) -> str: ...
    @property
    def clean(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    @property
    def ran_at(self) -> datetime: ...
    @property
    def check(self) -> CheckResult: ...


class RunHistory(Protocol):
    """Past runs of a workspace, newest first."""

    def latest(self, workspace: str) -> Sequence[Run]: ...


class TaskList(Protocol):
    """The task board."""

    def list(self, *, workspace: str) -> Sequence[Task]: ...


class SessionList(Protocol):
    """The history of sessions, newest first."""

    def list(self, *, workspace: str, limit: int) -> Sequence[SessionView]: ...


@dataclass(frozen=True, slots=True)
class ToolFound:
    """The project's own tools. `name` is what runs its tests, "" when nothing does; `suffixes`: files whose change
    matters to them (empty: any); `exact`: single tests can be named. `linter` is "" when there is none,
    `lint_suffixes` what it reads (empty: any)."""

    name: str = ""
    suffixes: tuple[str, ...] = ()
    exact: bool = True
    linter: str = ""
    lint_suffixes: tuple[str, ...] = ()

    def tests(self, path: str) -> bool:
        """Whether a change of `path` can change what the tests say."""
        return bool(self.name) and (not self.suffixes or path.endswith(self.suffixes))

    def lints(self, path: str) -> bool:
        """Whether the linter reads `path`."""
        return bool(self.linter) and (not self.lint_suffixes or path.endswith(self.lint_suffixes))


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that changed since the last run of the tests, and when, if that can be told."""

    path: str
    at: datetime | None = None


@dataclass(frozen=True)
class WorkspaceContext:
    """One workspace at one moment. `now` in UTC, `local` the same in the operator's zone.

    `git` is None when it could not be read (its signal names the error). `changed`: files that differ from those of
    `runs[0]`, empty without a run. `ancestors`: commits of `runs` that are in HEAD's history. `signals`: the six.
    """

    workspace: str
    now: datetime
    local: datetime
    silence: timedelta | None = None
    git: GitState | None = None
    github: GitHubState | None = None
    runs: tuple[Run, ...] = ()
    changed: tuple[Changed, ...] = ()
    ancestors: frozenset[str] = frozenset()
    tasks: tuple[Task, ...] = ()
    sessions: tuple[SessionView, ...] = ()
    tool: ToolFound | None = None
    signals: tuple[Signal, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def part(self) -> PartOfDay:
        """The part of the operator's day."""
        return part_of_day(self.local)

    def signal(self, name: str) -> Signal:
        """The workspace's own signal of that name. Raises KeyError for a name that is none of the six."""
        for signal in self.signals:
            if signal.name == name:
                return signal
        raise KeyError(name)

    @property
    def test_tool(self) -> ToolFound | None:
        """What runs the project's tests, None when nothing does."""
        return self.tool if self.tool is not None and self.tool.name else None

    @property
    def text(self) -> str:
        """The situation in a few plain lines, as learners read it and preference pairs keep it (SPEC 8.2)."""
        return "\n".join(_lines(self))


def _lines(context: WorkspaceContext) -> Iterable[str]:
    quiet = "unknown" if context.silence is None else span(context.silence)
    yield f"workspace: {plain(Path(context.workspace).name)}"
    yield f"time: {context.local:%A %H:%M}, {context.part.value}; silence: {quiet}"
    state = context.git
    if state is not None:
        where = plain(state.branch) or ("detached" if state.detached else "none")
        yield f"branch: {where}; {'; '.join(git_evidence(state, context.github))}"
        if state.files:
            yield f"uncommitted: {listing((file.path for file in state.files), 5)}"
        if state.tag:
            yield f"tag: {plain(state.tag)}, {count(state.commits_since_tag, 'commit')} since"
        if state.recent:
            yield f"last commit: {moment(state.recent[0].at, context.local)} {plain(state.recent[0].subject, 80)}"
    if context.tool is not None:
        yield f"tools: {', '.join(filter(None, (context.tool.name, context.tool.linter))) or 'none'}"
    if context.runs:
        last = context.runs[0]
        yield f"last test run: {moment(last.ran_at, context.local)} {result_words(last.check)}"
        if context.changed:
            yield f"changed since: {listing((file.path for file in context.changed), 5)}"
    for task in open_tasks(context.tasks)[:3]:
        yield f"task: {plain(task.title, 80)}, {span(context.now - task.updated_at)} old"
    for session in context.sessions[:3]:
        yield f"session: {plain(session.prompt, 80)}: {session.state.value}"


def result_words(check: CheckResult) -> str:
    """`23 passed`, `1 failed, 22 passed`, `nothing ran`."""
    broken = check.failed + check.errors
    words = ([f"{broken} failed"] if broken else []) + ([f"{check.passed} passed"] if check.passed else [])
    return ", ".join(words) or "nothing ran"


def changed_since(
    ran_at: datetime, between: Sequence[str] | None, files: Sequence[FileState], *, exact: bool
) -> tuple[Changed, ...]:
    """Files that are not as the run at `ran_at` saw them, sorted by path; deleted ones are left out.

    `between`: paths that differ between what the run saw and HEAD, None if that cannot be told any more. `exact`:
    "what the run saw" was its very files, so that an uncommitted file that is not in `between` was seen as HEAD has
    it, and differs now; otherwise only its commit is known. `files`: what differs from HEAD now; one that the run saw
    differ counts by its own time.
    """
    uncommitted = {file.path: file for file in files if not file.submodule}
    changed = {path: Changed(path) for path in between or () if path not in uncommitted}
    for file in uncommitted.values():
        if file.deleted:
            continue
        seen_like_head = exact and between is not None and file.path not in between
        if seen_like_head or (file.modified_at is not None and file.modified_at > ran_at):
            changed[file.path] = Changed(file.path, file.modified_at)
    return tuple(changed[path] for path in sorted(changed))


class ContextReader:
    """Fetches contexts; safe to call from several threads.

    `find_tool` is asked at most once a minute a workspace. What one source cannot say is named in the context.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        settings: SettingsSource,
        runs: RunHistory,
        tasks: TaskList,
        sessions: SessionList,
        find_tool: Callable[[Path], ToolFound | None],
        git: GitReader | None = None,
        github: GitHub | None = None,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._runs = runs
        self._tasks = tasks
        self._sessions = sessions
        self._find_tool = find_tool
        self._git = git or GitReader()
        self._github = github
        self._tools: dict[str, tuple[float, ToolFound | None]] = {}

    def read_all(
        self,
        workspaces: Sequence[str],
        *,
        last_input: datetime | None,
        ours: Mapping[str, Sequence[OurWrite]] | None = None,
    ) -> list[WorkspaceContext]:
        """The contexts of all `workspaces`, in their order, read side by side."""
        ours = ours or {}
        if not workspaces:
            return []
        with ThreadPoolExecutor(min(8, len(workspaces)), thread_name_prefix="context") as pool:
            return list(
                pool.map(lambda path: self.read(path, last_input=last_input, ours=ours.get(path, ())), workspaces)
            )

    def read(self, workspace: str, *, last_input: datetime | None, ours: Sequence[OurWrite] = ()) -> WorkspaceContext:
        """The context of one workspace. `last_input`: when the operator last used console, verbs or API; `ours`: what
        our landings wrote there, which is no sign of life. Never raises for what a source says or fails to say."""
        folder = Path(workspace)
        now, local = self._clock.now(), self._clock.local()
        threshold = timedelta(milliseconds=self._settings.current.silence_threshold_ms)
        failed: dict[str, str] = {}
        no_runs: tuple[Run, ...] = ()
        no_tasks: tuple[Task, ...] = ()
        no_sessions: tuple[SessionView, ...] = ()
        no_changes: tuple[Changed, ...] = ()

        def fetch(name: str, ask: Callable[[], Value], otherwise: Value) -> Value:
            try:
                return ask()
            except Refusal as refusal:
                failed[name] = sanitise(refusal.message)
            except Exception as error:  # told in the context; one source never fails a cycle
                failed[name] = sanitise(f"{type(error).__name__}: {error}")
            return otherwise

        git = fetch("git", lambda: self._git.read(folder), None)
        tool = fetch("tool", lambda: self._tool(workspace), None)
        runs = fetch("runs", lambda: tuple(self._runs.latest(workspace)), no_runs)
        tasks = fetch("tasks", lambda: tuple(self._tasks.list(workspace=workspace)), no_tasks)
        sessions = fetch(
            "conversations",
            lambda: tuple(self._sessions.list(workspace=workspace, limit=RECENT_SESSIONS)),
            no_sessions,
        )
        github = self._github.latest(workspace) if self._github and git and git.on_github else None
        changed = fetch("runs", lambda: self._changed(folder, git, runs), no_changes)
        ancestors = fetch("runs", lambda: self._ancestors(folder, git, runs), frozenset[str]())
        silence = silence_of(now, last_input, git.touches if git else (), ours)
        signals = (
            attempt("time", lambda: time_signal(local)),
            attempt("silence", lambda: silence_signal(silence, threshold)),
            attempt("tasks", lambda: _unless(failed, "tasks", lambda: tasks_signal(tasks, now))),
            attempt(
                "conversations", lambda: _unless(failed, "conversations", lambda: conversations_signal(sessions, now))
            ),
            attempt(
                "git", lambda: _unless(failed, "git", lambda: git_signal(git or GitState(), github, bool(changed)))
            ),
            attempt("calendar", calendar_signal),
        )
        return WorkspaceContext(
            workspace=workspace,
            now=now,
            local=local,
            silence=silence,
            git=git,
            github=github,
            runs=runs,
            changed=changed,
            ancestors=ancestors,
            tasks=tasks,
            sessions=sessions,
            tool=tool,
            signals=signals,
            errors=tuple(f"{name}: {error}" for name, error in failed.items()),
        )

    def _tool(self, workspace: str) -> ToolFound | None:
        asked_at, tool = self._tools.get(workspace, (float("-inf"), None))
        if self._clock.monotonic() - asked_at >= TOOL_FRESH_SECONDS:
            tool = self._find_tool(Path(workspace))
            self._tools[workspace] = (self._clock.monotonic(), tool)
        return tool

    def _changed(self, folder: Path, git: GitState | None, runs: tuple[Run, ...]) -> tuple[Changed, ...]:
        if git is None or not runs:
            return ()
        last = runs[0]
        for seen, exact in ((last.tree, True), (last.head, last.clean)):
            if not seen:
                continue
            between = self._git.files_between(folder, seen, git.head) if git.head else None
            if between is not None:
                return changed_since(last.ran_at, between, git.files, exact=exact)
        return changed_since(last.ran_at, None, git.files, exact=False)

    def _ancestors(self, folder: Path, git: GitState | None, runs: tuple[Run, ...]) -> frozenset[str]:
        if git is None or not git.head:
            return frozenset()
        recent = {commit.id for commit in git.recent}
        heads = [head for head in dict.fromkeys(run.head for run in runs if run.head) if head != git.head]
        return frozenset(
            head for head in heads[:GREEN_HEADS] if head in recent or self._git.is_ancestor(folder, head, git.head)
        )


def _unless(failed: Mapping[str, str], name: str, collect: Callable[[], Signal]) -> Signal:
    """What `collect` says, unless its source failed before."""
    if name in failed:
        raise Refusal("collector_failed", failed[name])
    return collect()
