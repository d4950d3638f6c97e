"""The situation of a workspace at one moment: all that templates, learners and people need to understand a card.

Plain values and plain functions over values; `engine.prediction.context_reader` fetches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

from engine.execution.upkeep import Disk
from engine.inspection.state import FileState, GitState
from engine.inspection.unpushed import NOTHING, Unpushed
from engine.prediction.collectors.calendar import Meeting, nearest
from engine.prediction.collectors.conversations import Conversations, thread_words
from engine.prediction.collectors.git import git_evidence
from engine.prediction.collectors.github import GitHubState
from engine.prediction.collectors.silence import ANY_NEW_FILE, OurWrite
from engine.prediction.collectors.tasks import open_tasks
from engine.prediction.words import count, listing, moment, plain, span
from engine.values import ChangeSet, CheckResult, PartOfDay, SessionView, Signal, Task, Thread, part_of_day


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


@dataclass(frozen=True, slots=True)
class ToolFound:
    """The project's own tools. `name` is what runs its tests, "" when nothing does; `suffixes`: files whose change
    matters to them (empty: any); `exact`: single tests can be named. `linter` is "" when there is none,
    `lint_suffixes` what it reads (empty: any). `where` is the environment that runs the tests, "" when told apart
    by nothing. `installs`: the command that brings pytest to tests that nothing can run without it. `changelog`: the
    file in which the project keeps its change log, "" when it keeps none."""

    name: str = ""
    suffixes: tuple[str, ...] = ()
    exact: bool = True
    linter: str = ""
    lint_suffixes: tuple[str, ...] = ()
    where: str = ""
    installs: str = ""
    changelog: str = ""
    below: tuple[str, ...] = ()
    """Folders with a manifest of their own, where the top of the repository has none."""

    @property
    def remark(self) -> str:
        """That projects were found which are not worked with, "" for none."""
        if not self.below:
            return ""
        named = ", ".join(plain(one, 40) for one in self.below[:3])
        more = f" and {len(self.below) - 3} more" if len(self.below) > 3 else ""
        return f"manifests found in {named}{more}; this version looks at the top of a repository only"

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
    unpushed: Unpushed = NOTHING
    github: GitHubState | None = None
    runs: tuple[Run, ...] = ()
    changed: tuple[Changed, ...] = ()
    ancestors: frozenset[str] = frozenset()
    tasks: tuple[Task, ...] = ()
    sessions: tuple[SessionView, ...] = ()
    threads: tuple[Thread, ...] = ()
    tool: ToolFound | None = None
    meetings: tuple[Meeting, ...] = ()
    signals: tuple[Signal, ...] = ()
    errors: tuple[str, ...] = ()
    disk: Disk | None = None
    """The disk of the home, where it is nearly full."""
    landings: tuple[ChangeSet, ...] = ()
    """Landings of ours that can be undone, newest first."""
    learned: tuple[str, ...] = ()
    """Names of the learned flows that may run here; they take no parameters."""

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

    @cached_property
    def conversations(self) -> Callable[[frozenset[str]], Signal]:
        """The signal of that name for a proposal that continues these flows; many continue the same."""
        return cache(Conversations(self.sessions, self.now, self.threads).signal)

    @property
    def test_tool(self) -> ToolFound | None:
        """What runs the project's tests, None when nothing does."""
        return self.tool if self.tool is not None and self.tool.name else None

    @cached_property
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
    if meeting := nearest(context.meetings, context.local):
        yield f"next meeting: {plain(meeting.name, 50)} at {meeting.begins:%H:%M}"
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
    for thread in context.threads[:2]:
        yield f"conversation: {thread_words(thread, context.now)}"


def result_words(check: CheckResult) -> str:
    """`23 passed`, `1 failed, 22 passed`, `2 errors`, `nothing ran`."""
    errors = "1 error" if check.errors == 1 else f"{check.errors} errors"
    said = ((check.failed, f"{check.failed} failed"), (check.errors, errors), (check.passed, f"{check.passed} passed"))
    words = [word for number, word in said if number]
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
    uncommitted = {file.path: file for file in files}
    changed = {path: Changed(path) for path in between or () if path not in uncommitted}
    for file in uncommitted.values():
        if file.deleted:
            continue
        seen_like_head = exact and between is not None and file.path not in between
        if seen_like_head or (file.modified_at is not None and file.modified_at > ran_at):
            changed[file.path] = Changed(file.path, file.modified_at)
    return tuple(changed[path] for path in sorted(changed))


def left_by(sessions: Iterable[SessionView], workspace: str, now: datetime) -> list[OurWrite]:
    """The times in which our checks ran in the operator's own tree and may have left untracked files there."""
    return [
        OurWrite(ANY_NEW_FILE, session.started_at, session.ended_at or now)
        for session in sessions
        if session.cwd == workspace and session.started_at is not None
    ]
