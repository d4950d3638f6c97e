"""The context of a workspace: its situation at one moment, from which templates propose cards.

`context_reader` makes it. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Protocol

from engine.clock import PartOfDay, part_of_day
from engine.execution.housekeeping import FullDisk
from engine.execution.runners.toolchains.lock_files import LockMismatch
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import Project
from engine.frozen import frozen
from engine.git.github import GitHubState
from engine.git.inspection import NOTHING_INSPECTED, Inspection
from engine.git.state import FileState, GitState
from engine.model import ChangeSet, CheckResult, Landing, SessionView, Signal, Task
from engine.model.adaptation import KnownFix
from engine.prediction.signals import (
    ANY_NEW_FILE,
    Meeting,
    OurWrite,
    Thread,
    describe_git_evidence,
    describe_thread,
    find_nearest_meeting,
    list_open_tasks,
    make_continuation_signal,
)
from engine.storage.validation_runs import ValidationRun
from engine.text import plain
from engine.wording import count, join_shortened, moment, span


@frozen
class ChangedFile:
    """A file that changed since the last run of the tests. `at` is when, None for unknown; `gone` says that it was
    deleted."""

    path: str
    at: datetime | None = None
    gone: bool = False


@frozen
class Part:
    """A project of the workspace, with its test runs."""

    project: Project
    runs: tuple[ValidationRun, ...] = ()
    """Newest first."""
    tree_runs: tuple[ValidationRun, ...] = ()
    """The runs on the operator's own files: not those on HEAD alone, or on a trial merge. A run on a session's changes
    is one of them from their landing on."""
    changed: tuple[ChangedFile, ...] = ()
    """The files that changed since `tree_runs[0]`. There are none without such a run."""
    inner_folders: tuple[str, ...] = ()
    """Folders of projects inside it that have tools."""
    test_written_in: Mapping[str, str] = field(default_factory=dict)
    """By test that fails at HEAD: the commit that last changed its file, without HEAD itself."""
    deleted_tests: frozenset[str] = frozenset()
    """The tests that failed in one of `tree_runs` and whose files are gone."""

    def find_failed_run(self, head: str) -> ValidationRun | None:
        """The newest run of its tests on the files of this commit alone, if tests failed in it."""
        run = next((run for run in self.runs if run.head == head and run.clean), None)
        return None if run is None or run.check.green else run

    @property
    def last_tree_run(self) -> ValidationRun | None:
        """The newest of `tree_runs`, None for none."""
        return next(iter(self.tree_runs), None)

    def passes_without_changes(self, head: str) -> bool:
        """Whether its newest run failed with uncommitted changes, and its whole suite passed last on the files of this
        commit alone, which may not have the tests that failed."""
        of_head = next((run for run in self.runs if run.head == head and run.clean and run.full), None)
        last = self.last_tree_run
        return bool(of_head and of_head.check.green and last and not last.check.green and not last.clean)

    @property
    def tool(self) -> Toolchain | None:
        """Its test runner, None without one."""
        return self.project.tool

    def holds(self, path: str) -> bool:
        """Whether a file belongs to this project, and not to a project inside it. `path` is relative to the top of the
        repository."""
        is_inner = any(path.startswith(f"{folder}/") for folder in self.inner_folders)
        return not is_inner and self.project.path_inside(path) is not None

    def tests(self, path: str) -> bool:
        """Whether a change of the file can change what its tests say."""
        return self.holds(path) and self.project.tests(path)

    def lints(self, path: str) -> bool:
        """Whether one of its linters reads the file."""
        return self.holds(path) and self.project.lints(path)

    @property
    def within(self) -> str:
        """` in services/api` for a project below the top, else ""."""
        return f" in {plain(self.project.path, 40)}" if self.project.path else ""

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters with which a flow works in this project: none if it is the project at the top."""
        return {"project": self.project.path} if self.project.path else {}

    def about(self, subject: str) -> str:
        """The subject of a card about this project."""
        return f"{subject} in {self.project.path}" if self.project.path else subject


@dataclass(frozen=True)
class WorkspaceContext:
    """One workspace at one moment."""

    workspace: str
    now: datetime
    """In UTC."""
    local: datetime
    """The same moment in the operator's zone."""
    silence: timedelta | None = None
    """How long the operator has done nothing here, None for unknown."""
    git: GitState | None = None
    """None if it could not be read. Then the signal of git has the error."""
    inspection: Inspection = NOTHING_INSPECTED
    github: GitHubState | None = None
    runs: tuple[ValidationRun, ...] = ()
    """The test runs of all projects, newest first."""
    parts: tuple[Part, ...] = ()
    """The projects, the one at the top first."""
    locks: tuple[LockMismatch, ...] = ()
    """The lock files that do not fit their manifest."""
    coverage_folders: frozenset[str] = frozenset()
    """The folders of projects that measure their coverage."""
    prompt_runner: str = ""
    """The agent or model that text prompts here run on, "" for none."""
    ancestors: frozenset[str] = frozenset()
    """The commits of `runs` that are in the history of HEAD."""
    tasks: tuple[Task, ...] = ()
    sessions: tuple[SessionView, ...] = ()
    threads: tuple[Thread, ...] = ()
    meetings: tuple[Meeting, ...] = ()
    signals: tuple[Signal, ...] = ()
    """The six of SPEC 2.1."""
    errors: tuple[str, ...] = ()
    """The sources that could not be read, each with its error."""
    disk: FullDisk | None = None
    """The disk of the home, if it is nearly full."""
    landings: tuple[Landing, ...] = ()
    """Landings of ours that can be undone, newest first."""
    equal_trees: frozenset[tuple[str, str]] = frozenset()
    """Pairs of trees with the same files: that of a run, and one of `landings`. See `saw_tree`."""
    answers: Mapping[str, ChangeSet] = field(default_factory=dict)
    """The change sets of `sessions`, by session. They are read only if the last run failed."""
    is_first: bool = True
    """Whether it is the first workspace. Tasks that belong to no workspace are proposed there."""
    fixes: tuple[KnownFix, ...] = ()
    """Diffs that made tests pass before and that the files do not have, the surest first. They are read only if the
    last run failed."""
    learned_flows: tuple[str, ...] = ()
    """The names of the learned flows that may run here. These flows take no parameters."""

    @property
    def part(self) -> PartOfDay:
        """The part of the operator's day."""
        return part_of_day(self.local)

    @property
    def repository(self) -> GitState:
        """`git`, which is not None: templates are only asked about workspaces whose git could be read."""
        assert self.git is not None
        return self.git

    def saw_tree(self, run: ValidationRun, tree: str) -> bool:
        """Whether a run of the tests is known to have seen the very files of this tree of a landing. Folders that tools
        fill do not count, nor do files that git ignores."""
        return (run.tree, tree) in self.equal_trees

    @cached_property
    def unrelated_signals(self) -> Mapping[str, Signal]:
        """The signals by name, as they count for proposals that do not arise from them: not at all."""
        return {signal.name: replace(signal, relevance=0.0) for signal in self.signals}

    @cached_property
    def conversations(self) -> Callable[[frozenset[str]], Signal]:
        """Returns the conversations signal of a proposal that continues these flows. Results are kept, because many
        proposals continue the same flows."""
        return cache(partial(make_continuation_signal, self.sessions, self.local))

    @property
    def reasons_for_no_cards(self) -> tuple[str, ...]:
        """Why there may be few cards or none, in words: no commit, or no project whose tests can run."""
        reasons = []
        if self.git is not None and not self.git.head:
            reasons.append("no commit yet; most cards need a history, so make a commit")
        lacking = next((part.project for part in self.parts if part.project.missing_tool), None)
        if lacking and not any(part.tool for part in self.parts):
            reasons.append(": ".join(filter(None, (lacking.path, lacking.untested_reason))))
        return tuple(reasons)

    @cached_property
    def text(self) -> str:
        """The situation in a few plain lines, as learners read it and preference pairs keep it (SPEC 8.2)."""
        return "\n".join(_describe_lines(self))


def _describe_lines(context: WorkspaceContext) -> Iterable[str]:
    """The lines of `WorkspaceContext.text`."""
    quiet = "unknown" if context.silence is None else span(context.silence)
    yield f"workspace: {plain(Path(context.workspace).name)}"
    yield f"time: {context.local:%A %H:%M}, {context.part.value}; silence: {quiet}"
    if context.git is not None:
        yield from _describe_repository(context, context.git)
    if meeting := find_nearest_meeting(context.meetings, context.local):
        yield f"next meeting: {plain(meeting.name, 50)} at {meeting.begins:%H:%M}"
    yield from _describe_tests(context)
    for task in list_open_tasks(context.tasks)[:3]:
        yield f"task: {plain(task.title, 80)}, {span(context.now - task.updated_at)} old"
    for session in context.sessions[:3]:
        yield f"session: {plain(session.prompt, 80)}: {session.state.value}"
    for thread in context.threads[:2]:
        yield f"conversation: {describe_thread(thread, context.local)}"


def _describe_repository(context: WorkspaceContext, git: GitState) -> Iterable[str]:
    """The repository: its branch, changes, tag and last commit."""
    where = plain(git.branch) or ("detached" if git.is_detached else "none")
    yield f"branch: {where}; {'; '.join(describe_git_evidence(git, context.github))}"
    if git.files:
        yield f"uncommitted: {join_shortened((file.path for file in git.files), 5)}"
    if git.tag:
        yield f"tag: {plain(git.tag)}, {count(git.commits_since_tag, 'commit')} since"
    if git.recent:
        yield f"last commit: {moment(git.recent[0].at, context.local)} {plain(git.recent[0].subject, 80)}"


def _describe_tests(context: WorkspaceContext) -> Iterable[str]:
    """The tools of the projects, and the last run of tests with what changed since."""
    tools = [tool.name for part in context.parts for tool in part.project.tools]
    tools += [linter.name for part in context.parts for linter in part.project.linters]
    if context.parts:
        yield f"tools: {join_shortened(dict.fromkeys(tools), 5) or 'none'}"
    if not context.runs:
        return
    last = context.runs[0]
    yield f"last test run: {moment(last.ran_at, context.local)} {describe_result(last.check)}"
    changed = dict.fromkeys(file.path for part in context.parts for file in part.changed)
    if changed:
        yield f"changed since: {join_shortened(changed, 5)}"


def describe_result(check: CheckResult) -> str:
    """`23 passed`, `1 failed, 22 passed`, `2 errors`, `nothing ran`."""
    errors = "1 error" if check.errors == 1 else f"{check.errors} errors"
    counts = (
        (check.failed, f"{check.failed} failed"),
        (check.errors, errors),
        (check.passed, f"{check.passed} passed"),
    )
    words = [word for number, word in counts if number]
    return ", ".join(words) or "nothing ran"


def find_files_changed_since(
    ran_at: datetime, between: Sequence[str] | None, files: Sequence[FileState], *, exact: bool
) -> tuple[ChangedFile, ...]:
    """The files that changed since the run at `ran_at`, sorted by path.

    `between` are the paths that differ between what the run saw and HEAD, None if that is unknown by now. `files` are
    the files that differ from HEAD now. With `exact`, the very files that the run saw are known, otherwise only their
    commit.

    An uncommitted file that is not in `between` was seen as HEAD has it if `exact`, so it has changed. Any other
    uncommitted file has changed if it was written after the run. A deleted file counts only if the run saw it.
    """
    uncommitted = {file.path: file for file in files}
    changed = {path: ChangedFile(path) for path in between or () if path not in uncommitted}
    for file in uncommitted.values():
        seen_like_head = exact and between is not None and file.path not in between
        if seen_like_head or (file.modified_at is not None and file.modified_at > ran_at):
            changed[file.path] = ChangedFile(file.path, file.modified_at, file.deleted)
    return tuple(changed[path] for path in sorted(changed))


def collect_writes_of_sessions(sessions: Iterable[SessionView], workspace: str, now: datetime) -> list[OurWrite]:
    """The times in which our checks ran in the operator's own tree and may have left untracked files there."""
    return [
        OurWrite(ANY_NEW_FILE, session.started_at, session.ended_at or now)
        for session in sessions
        if session.cwd == workspace and session.started_at is not None
    ]


class ContextSource(Protocol):
    """Reads workspaces. The real one is `engine.prediction.context_reader.ContextReader`."""

    def read_all(
        self, workspaces: Sequence[str], *, last_input: datetime | None, ours: Mapping[str, Sequence[OurWrite]]
    ) -> list[WorkspaceContext]:
        """The context of each workspace, in their order."""

    def find_last_activity(self, workspaces: Sequence[str], ours: Mapping[str, Sequence[OurWrite]]) -> datetime | None:
        """The last time at which anyone but the engine wrote in the workspaces; None if it is unknown."""
