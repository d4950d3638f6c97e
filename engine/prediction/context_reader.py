"""Reads the context of a workspace (SPEC 2.1) from git, test runs, tasks, sessions, conversations and calendars.

A check reads all workspaces with it. A context is read field by field, in an order in which each may depend on those
before it (`ContextReader.read`). A source that fails gives nothing, and the context names its error. At the end stand
what is read of git for a single project, and the calendars.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.clock import Clock, find_midnight
from engine.config.settings import SettingsSource
from engine.execution.housekeeping import FullDisk
from engine.execution.runners.toolchains import TEST_FILE
from engine.execution.runners.toolchains.lock_files import LockMismatch, find_mismatches
from engine.execution.runners.toolchains.projects import Project, ProjectCache
from engine.execution.runners.toolchains.python_projects import measures_coverage
from engine.execution.sessions import Sessions
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.github import GitHub
from engine.git.history import find_last_commit_of, is_in_history, is_text_at, list_files_between
from engine.git.inspection import Inspection
from engine.git.patch import are_changes_present
from engine.git.reader import GitReader
from engine.git.state import GitState, Touch, is_byproduct, is_text_in_files
from engine.model import ChangeSet, Landing, Refusal, SessionView, Signal, TaskState
from engine.model.adaptation import KnownFix
from engine.prediction.context import (
    ChangedFile,
    Part,
    WorkspaceContext,
    collect_writes_of_sessions,
    find_files_changed_since,
)
from engine.prediction.signals import (
    MEETINGS_AHEAD,
    Meeting,
    OurWrite,
    find_last_activity,
    make_calendar_signal,
    make_conversations_signal,
    make_git_signal,
    make_signal,
    make_silence_signal,
    make_tasks_signal,
    make_time_signal,
)
from engine.prediction.tasks import TaskBoard
from engine.prediction.threads import Threads
from engine.storage.validation_runs import ValidationRun, ValidationRuns
from engine.text import sanitise

Value = TypeVar("Value")

MAX_SESSIONS = 20
"""Maximum number of sessions of a context, the newest."""

MAX_OPEN_TASKS = 1000
"""Maximum number of open tasks of a context."""

FLOWS_ON_OTHER_FILES = (
    "check_clean_head", "bisect", "rehearse_merge", "rehearse_autosquash", "unfinished_operation", "time_tests",
)  # fmt: skip
"""Flows that run the tests on other files than the operator's own as they are."""

MAX_COMPARED_HEADS = 8
"""Maximum number of older commits with a test run of which git is asked whether they are ancestors of HEAD."""

MAX_LOCATED_TESTS = 3
"""Maximum number of failing tests whose files are looked up in the history."""

MEETINGS_BEHIND = timedelta(days=14)
"""How far back the last occurrence of a meeting is looked for."""

MAX_CALENDAR_BYTES = 20 * 1024 * 1024
"""Maximum size of a calendar in bytes."""

MAX_GONE_FILES = 20
"""Maximum number of deleted test files that are searched for the names of failing tests."""


@frozen
class ReaderSources:
    """The sources that contexts are read from. The functions are called with a workspace."""

    runs: ValidationRuns
    tasks: TaskBoard
    sessions: Sessions
    projects: ProjectCache
    github: GitHub
    threads: Threads
    learned_flows: Callable[[str], Sequence[str]]
    """The names of the learned flows that may run there."""
    fixes: Callable[[str], Sequence[KnownFix]]
    """The fixes that made tests pass there before."""
    prompt_runner: Callable[[str], str]
    """The agent or model that runs text prompts there, "" for none."""
    landings: Callable[[str], Sequence[Landing]]
    """The landings that can be undone."""
    changes: Callable[[str], ChangeSet | None]
    """The change set of a session."""
    disk: Callable[[str], FullDisk | None]
    """The disk of the home, if it is nearly full."""


class _Step(NamedTuple):
    """How one field of a context is read from the fields before it. `source` is the name of its source in errors."""

    field: str
    source: str
    read: Callable[[WorkspaceContext], Any]
    """Its value, None if there is none."""


class _Fetch:
    """Asks the sources of a context, and keeps the error of each source that fails in `errors`."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    def ask(self, name: str, source: Callable[[], Value]) -> Value | None:
        """The answer of a source, None if it fails."""
        try:
            return source()
        except Refusal as refusal:
            self.errors[name] = sanitise(refusal.message)
        except Exception as error:  # the context names it: no source may fail a check
            self.errors[name] = sanitise(f"{type(error).__name__}: {error}")
        return None

    def ask_signal(self, name: str, collect: Callable[[], Signal]) -> Signal:
        """The signal of that name. If its source or its collector failed, it has the error and a relevance of 0."""
        collected = None if name in self.errors else self.ask(name, collect)
        return collected or make_signal(name, 0.0, error=self.errors[name])


class ContextReader:
    """Reads contexts. It may be called from several threads."""

    def __init__(self, clock: Clock, settings: SettingsSource, sources: ReaderSources) -> None:
        self._clock = clock
        self._settings = settings
        self._sources = sources
        self._git = GitReader()
        self._calendars = CalendarReader()

    def read_all(
        self, workspaces: Sequence[str], *, last_input: datetime | None, ours: Mapping[str, Sequence[OurWrite]]
    ) -> list[WorkspaceContext]:
        """Read the contexts of these workspaces in parallel, and return them in the same order. `ours` has, by
        workspace, what our landings wrote there."""
        with ThreadPoolExecutor(8, thread_name_prefix="context") as pool:
            return list(
                pool.map(lambda path: self.read(path, last_input=last_input, ours=ours.get(path, ())), workspaces)
            )

    def read(self, workspace: str, *, last_input: datetime | None, ours: Sequence[OurWrite] = ()) -> WorkspaceContext:
        """Read the context of one workspace. No source makes it raise; a field that cannot be read has its default.

        `last_input` is when the operator last used the console, a verb or the API. `ours` is what our landings wrote
        there, which is no activity of the operator."""
        context = WorkspaceContext(workspace, now=self._clock.now(), local=self._clock.local())
        fetch, sources = _Fetch(), self._sources
        projects = fetch.ask("tools", lambda: sources.projects.get_projects(workspace)) or ()
        grown_at = fetch.ask("transcripts", sources.threads.find_last_growth)
        last_sign = max((sign for sign in (last_input, grown_at) if sign is not None), default=None)
        steps = (
            *self._list_steps_of_history(),
            _Step("silence", "git", lambda context: _measure_silence(context, last_sign, ours)),
            *self._list_steps_of_projects(projects),
            *self._list_steps_of_work(),
        )
        for step in steps:
            value = fetch.ask(step.source, partial(step.read, context))
            if value is not None:
                context = replace(context, **{step.field: value})
        signals = self._make_signals(context, fetch)
        errors = tuple(f"{name}: {error}" for name, error in fetch.errors.items())
        return replace(context, signals=signals, errors=errors)

    def _list_steps_of_history(self) -> tuple[_Step, ...]:
        """What git and GitHub say, and what ran here."""
        sources = self._sources
        return (
            _Step("git", "git", lambda context: self._git.read(Path(context.workspace))),
            _Step("inspection", "git", self._inspect),
            _Step(
                "github",
                "github",
                lambda context: (
                    sources.github.get_latest(context.workspace) if context.git and context.git.on_github else None
                ),
            ),
            _Step("runs", "runs", _list_of_workspace(sources.runs.read_newest)),
            _Step("sessions", "conversations", _list_of_workspace(self._list_sessions)),
        )

    def _list_steps_of_projects(self, projects: tuple[Project, ...]) -> tuple[_Step, ...]:
        """The projects, and what their test runs and lock files say."""
        return (
            _Step("parts", "runs", lambda context: self._read_parts(context, projects)),
            _Step("locks", "locks", lambda context: _find_lock_mismatches(context, projects)),
            _Step("coverage_folders", "tool", lambda context: _select_coverage_folders(context, projects)),
            _Step("ancestors", "runs", _find_ancestors),
        )

    def _list_steps_of_work(self) -> tuple[_Step, ...]:
        """What waits to be done here, what could do it, and the known answers to tests that fail."""
        sources = self._sources
        return (
            _Step("prompt_runner", "agents", lambda context: sources.prompt_runner(context.workspace)),
            _Step(
                "tasks",
                "tasks",
                lambda context: tuple(
                    sources.tasks.list(workspace=context.workspace, state=TaskState.OPEN, limit=MAX_OPEN_TASKS)
                ),
            ),
            _Step("threads", "transcripts", _list_of_workspace(sources.threads.read_newest)),
            _Step(
                "meetings",
                "calendar",
                lambda context: tuple(self._calendars.read_meetings(self._calendar_files, context.local)),
            ),
            _Step("disk", "disk", lambda context: sources.disk(context.workspace)),
            _Step("landings", "landings", _list_of_workspace(sources.landings)),
            _Step("equal_trees", "landings", _find_equal_trees),
            _Step("answers", "changes", self._read_answers),
            _Step("fixes", "fixes", self._find_missing_fixes),
            _Step("learned_flows", "learned flows", _list_of_workspace(sources.learned_flows)),
        )

    def _list_sessions(self, workspace: str) -> Sequence[SessionView]:
        """The newest sessions in a workspace."""
        return self._sources.sessions.list_newest(workspace=workspace, limit=MAX_SESSIONS)

    def _inspect(self, context: WorkspaceContext) -> Inspection | None:
        """What git says that takes longer to read."""
        if context.git is None:
            return None
        today = find_midnight(context.local.date(), context.local.tzinfo)
        return self._git.inspect(Path(context.workspace), context.git, context.now, today)

    @property
    def _calendar_files(self) -> Sequence[str]:
        """The calendars that the settings name."""
        return self._settings.current.calendar.files

    def _make_signals(self, context: WorkspaceContext, fetch: _Fetch) -> tuple[Signal, ...]:
        """The six signals of the workspace as a whole."""
        local = context.local
        threshold = timedelta(milliseconds=self._settings.current.silence_threshold_ms)
        tests_stale = any(part.changed for part in context.parts)
        meetings = context.meetings if self._calendar_files else None
        return (
            fetch.ask_signal("time", lambda: make_time_signal(local)),
            fetch.ask_signal("silence", lambda: make_silence_signal(context.silence, threshold, local)),
            fetch.ask_signal("tasks", lambda: make_tasks_signal(context.tasks, local)),
            fetch.ask_signal(
                "conversations", lambda: make_conversations_signal(context.sessions, context.threads, local)
            ),
            fetch.ask_signal(
                "git",
                lambda: make_git_signal(context.git or GitState(), context.github, tests_stale=tests_stale),
            ),
            fetch.ask_signal("calendar", lambda: make_calendar_signal(meetings, local)),
        )

    def find_last_activity(self, workspaces: Sequence[str], ours: Mapping[str, Sequence[OurWrite]]) -> datetime | None:
        """When anyone but us last wrote in these workspaces (SPEC 2.2), None for unknown; `ours` as in `read_all`.

        It starts two git processes for each workspace. A workspace that cannot be read is left out here, because the
        next check names its error."""
        now = self._clock.now()
        signs = []
        for workspace in workspaces:
            try:
                touches: Sequence[Touch] = self._git.read(Path(workspace)).touches
            except Refusal:
                continue
            sessions = self._list_sessions(workspace)
            writes = [*ours.get(workspace, ()), *collect_writes_of_sessions(sessions, workspace, now)]
            signs.append(find_last_activity(now, None, touches, writes))
        return max((sign for sign in signs if sign is not None), default=None)

    def _read_answers(self, context: WorkspaceContext) -> dict[str, ChangeSet] | None:
        """The change sets of the sessions, by session, if the last run failed."""
        if not _did_last_run_fail(context):
            return None
        changed = (session.id for session in context.sessions if session.change_set_id)
        answers = ((session_id, self._sources.changes(session_id)) for session_id in changed)
        return {session_id: change for session_id, change in answers if change is not None}

    def _find_missing_fixes(self, context: WorkspaceContext) -> tuple[KnownFix, ...]:
        """The known fixes that the present files do not have, if the last run failed."""
        fixes = self._sources.fixes(context.workspace) if _did_last_run_fail(context) else ()
        return tuple(fix for fix in fixes if not are_changes_present(Path(context.workspace), fix.template.patch))

    def _read_parts(self, context: WorkspaceContext, projects: tuple[Project, ...]) -> tuple[Part, ...]:
        """The projects with their test runs."""
        elsewhere = {session.id for session in context.sessions if session.flow in FLOWS_ON_OTHER_FILES}
        equipped = [project.path for project in projects if project.path and (project.tools or project.linters)]
        parts = []
        for project in projects:
            inner = [path for path in equipped if path != project.path and project.path_inside(path) is not None]
            of_project = [run for run in context.runs if run.project == project.path]
            on_tree = [run for run in of_project if run.changed or run.session_id not in elsewhere]
            part = Part(project, tuple(of_project), tuple(on_tree), inner_folders=tuple(inner))
            parts.append(part if context.git is None else _add_history(Path(context.workspace), context.git, part))
        return tuple(parts)


def _list_of_workspace(source: Callable[[str], Iterable[Value]]) -> Callable[[WorkspaceContext], tuple[Value, ...]]:
    """A step's reader of a source that lists something of a workspace."""
    return lambda context: tuple(source(context.workspace))


def _did_last_run_fail(context: WorkspaceContext) -> bool:
    """Whether tests failed in the last run."""
    return any(not run.check.green for run in context.runs[:1])


def _find_equal_trees(context: WorkspaceContext) -> frozenset[tuple[str, str]]:
    """See `WorkspaceContext.equal_trees`. Only of the projects whose last run failed, and only the pairs that can tell
    whether a landing broke the tests: the files before it and an earlier run, the files after it and the last run."""
    pairs: set[tuple[str, str]] = set()
    for part in context.parts:
        last_failed = next((run for run in part.runs[:1] if not run.check.green), None)
        for landing in context.landings:
            landed_at = landing.change.decided_at
            if last_failed is None or landed_at is None or landed_at > last_failed.ran_at:
                continue
            earlier = [run for run in part.runs if run.head == last_failed.head and run.ran_at <= landed_at]
            pairs.add((last_failed.tree, landing.tree_after))
            pairs.update((run.tree, landing.tree_before) for run in earlier)
    folder = Path(context.workspace)
    return frozenset(
        (seen, landed)
        for seen, landed in pairs
        # They may differ in folders that tools fill; None if git no longer has one of them.
        if seen and landed and (seen == landed or list_files_between(folder, seen, landed) == ())
    )


def _measure_silence(
    context: WorkspaceContext, last_sign: datetime | None, ours: Sequence[OurWrite]
) -> timedelta | None:
    """How long the operator has done nothing here, None for unknown. `last_sign` is one outside of the files."""
    writes = [*ours, *collect_writes_of_sessions(context.sessions, context.workspace, context.now)]
    touches = context.git.touches if context.git else ()
    active_at = find_last_activity(context.now, last_sign, touches, writes)
    return None if active_at is None else context.now - active_at


def _find_ancestors(context: WorkspaceContext) -> frozenset[str] | None:
    """The commits of the runs that are in the history of HEAD."""
    git = context.git
    if git is None or not git.head:
        return None
    folder, recent = Path(context.workspace), {commit.id for commit in git.recent}
    heads = list(dict.fromkeys(run.head for run in context.runs if run.head not in ("", git.head)))
    compared = heads[:MAX_COMPARED_HEADS]
    return frozenset(head for head in compared if head in recent or is_in_history(folder, head, git.head))


def _select_coverage_folders(context: WorkspaceContext, projects: Sequence[Project]) -> frozenset[str] | None:
    """The folders of projects that measure their coverage, if the operator's changes have new lines."""
    if not context.inspection.own.added_lines:
        return None
    folder = Path(context.workspace)
    tools = [(project.path, tool) for project in projects for tool in project.tools if tool.row.language == "python"]
    return frozenset(path for path, tool in tools if measures_coverage(folder / path, tool.interpreter))


def _find_lock_mismatches(context: WorkspaceContext, projects: Sequence[Project]) -> tuple[LockMismatch, ...]:
    """The lock files that do not fit their manifest."""
    locked = [package.folder for project in projects for package in project.packages if package.lock]
    return tuple(find_mismatches(Path(context.workspace), locked))


# -- what changed since a run


def _add_history(folder: Path, git: GitState, part: Part) -> Part:
    """The part with what changed since its last run, and with the commits and missing files of tests that fail."""
    changed = _find_changed_files(folder, git, part.tree_runs[0]) if part.tree_runs else ()
    return replace(
        part,
        changed=tuple(file for file in changed if part.holds(file.path)),
        test_written_in=_find_commits_of_failed_tests(folder, git, part),
        deleted_tests=_find_deleted_tests(folder, git, part),
    )


def _find_changed_files(folder: Path, git: GitState, last: ValidationRun) -> tuple[ChangedFile, ...]:
    """The files that changed since a run of the tests."""
    for revision, exact in ((last.tree, True), (last.head, last.clean)):
        between = list_files_between(folder, revision, git.head) if revision and git.head else None
        if between is not None:
            changed = find_files_changed_since(last.ran_at, between, git.files, exact=exact)
            marked = (replace(file, gone=not os.path.lexists(folder / file.path)) for file in changed)
            return tuple(file for file in marked if not (file.gone and is_byproduct(file.path)))
    return find_files_changed_since(last.ran_at, None, git.files, exact=False)


def _find_commits_of_failed_tests(folder: Path, git: GitState, part: Part) -> dict[str, str]:
    """See `Part.test_written_in`. Only where no tag is there to go back to."""
    has_tag = git.tag and git.commits_since_tag
    run = part.find_failed_run(git.head) if git.head and not has_tag else None
    tests = run.check.failing[:MAX_LOCATED_TESTS] if run is not None else ()
    commits = {test: _find_last_commit_of_test(folder, git, part, test) for test in tests}
    return {test: commit for test, commit in commits.items() if commit}


def _find_deleted_tests(folder: Path, git: GitState, part: Part) -> frozenset[str]:
    """See `Part.deleted_tests`. The names that pytest gives begin with the path of a file. A test of another tool is
    deleted if a test file that is gone since its run had its name, and no file has it now."""
    failed = {test for run in part.tree_runs for test in run.check.failing}
    files = {test: test.partition("::")[0] for test in failed if ".py::" in test}
    missing = {file for file in set(files.values()) if not os.path.lexists(folder / part.project.path / file)}
    deleted = {test for test, file in files.items() if file in missing}
    for last_failed in [run for run in part.tree_runs if not run.check.green][:1]:
        unnamed = [test for test in last_failed.check.failing if test not in files][:MAX_LOCATED_TESTS]
        gone = _find_deleted_test_files(folder, git, part, last_failed) if unnamed else []
        revision = last_failed.tree or last_failed.head
        for test in unnamed:
            was_there = any(is_text_at(folder, revision, path, _extract_last_name(test)) for path in gone)
            if was_there and not is_text_in_files(folder, part.project.path, _extract_last_name(test)):
                deleted.add(test)
    return frozenset(deleted)


def _extract_last_name(test: str) -> str:
    """The name of a test without those of its file, its class and its parameters: `TestAdd` for `shop/cart.TestAdd`."""
    return re.split(r"::|[.#/]| [›>] ", re.sub(r"[\[(].*$", "", test))[-1].strip() or test


def _find_deleted_test_files(folder: Path, git: GitState, part: Part, run: ValidationRun) -> list[str]:
    """The test files of a project that were deleted since a run."""
    between = list_files_between(folder, run.tree or run.head, git.head) or ()
    changed = {*between, *(file.path for file in git.files if file.deleted)}
    gone = [path for path in sorted(changed) if part.holds(path) and not os.path.lexists(folder / path)]
    return [path for path in gone if TEST_FILE.search(path)][:MAX_GONE_FILES]


def _find_last_commit_of_test(folder: Path, git: GitState, part: Part, test: str) -> str:
    """The commit that last changed the file of a test, "" if it is unknown, or if the name of the test does not begin
    with the file, as those of pytest do. If HEAD changed the file, it is the commit before that, if it has the test."""
    path, is_named, name = test.partition("::")
    if not is_named:
        return ""
    file = f"{part.project.path}/{path}".lstrip("/")
    commit = find_last_commit_of(folder, file, git.head)
    if commit != git.head:
        return commit
    commit = find_last_commit_of(folder, file, f"{git.head}^")
    function = name.rpartition("::")[2].partition("[")[0]
    return commit if commit and is_text_at(folder, commit, file, function) else ""


# -- calendars


MAX_REPETITIONS = 25_000
"""An event that was repeated more often until now is no meeting: expanding its rule takes 30 µs for each time."""

_REPETITIONS_A_DAY = {
    "SECONDLY": 86_400,
    "MINUTELY": 1_440,
    "HOURLY": 24,
    "DAILY": 1,
    "WEEKLY": 1 / 7,
    "MONTHLY": 1 / 30,
    "YEARLY": 1 / 365,
}
"""How often a rule with an interval of 1 repeats in a day, by its frequency."""

_MULTIPLYING_PARTS = ("BYSECOND", "BYMINUTE", "BYHOUR", "BYDAY", "BYMONTHDAY", "BYYEARDAY")
"""Parts of a rule that list several times, the shortest unit first. The frequencies are in the same order."""


class CalendarReader:
    """Reads meetings from calendar files, with libraries that know RRULE, TZID, EXDATE and the rest. A file is parsed
    again only after it changed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: dict[Path, tuple[tuple[int, int], Any]] = {}

    def read_meetings(self, files: Sequence[str], local: datetime) -> list[Meeting]:
        """The meetings that begin within `MEETINGS_AHEAD` of `local`, the earliest first.

        Events of whole days, cancelled events, and events in which the operator is not busy are no meetings. Raises
        `Refusal` `unreadable_calendar` that names the file.
        """
        with self._lock:
            calendars = [self._read_calendar(Path(name).expanduser(), local.date()) for name in files]
            meetings = [meeting for calendar in calendars for meeting in _select_meetings_around(calendar, local)]
        return sorted(meetings, key=lambda meeting: (meeting.begins, meeting.name))

    def _read_calendar(self, file: Path, today: date) -> Any:
        """What finds the events of a file between two times. Raises `Refusal` `unreadable_calendar`."""
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_size)
            known_version, calendar = self._parsed.get(file, (None, None))
            if version != known_version:
                calendar = _parse_calendar(file, today)
                self._parsed[file] = (version, calendar)
        except (OSError, ValueError) as error:
            raise Refusal(
                "unreadable_calendar", f"{file}: {sanitise(str(error))[:200]}", "fix calendar.files in the settings"
            ) from error
        return calendar


def _parse_calendar(file: Path, today: date) -> Any:
    """What finds the events of a file between two times, without those that are repeated too often."""
    import icalendar  # takes 0.3 s, which only users of a calendar wait for
    import recurring_ical_events

    calendar = icalendar.Calendar.from_ical(read_plain(file, MAX_CALENDAR_BYTES))
    calendar.subcomponents = [
        component
        for component in calendar.subcomponents
        if not any(_is_repeated_too_often(event, today) for event in component.walk("VEVENT"))
    ]
    return recurring_ical_events.of(calendar)


def _select_meetings_around(calendar: Any, local: datetime) -> list[Meeting]:
    """The meetings of a calendar that begin within `MEETINGS_AHEAD`, each with the time when it was last held."""
    events = filter(_is_meeting, calendar.between(local - MEETINGS_BEHIND, local + MEETINGS_AHEAD))
    last_held: dict[str, datetime] = {}
    meetings = []
    for event in sorted(events, key=lambda event: _read_begin(event, local)):
        begins, uid = _read_begin(event, local), str(event.get("UID", ""))
        if local <= begins < local + MEETINGS_AHEAD:
            name = sanitise(str(event.get("SUMMARY", ""))).strip() or "a meeting"
            meetings.append(Meeting(name, begins, last_held.get(uid)))
        last_held[uid] = begins
    return meetings


def _is_repeated_too_often(event: Any, today: date) -> bool:
    """Whether an event of a calendar has a rule by which it was repeated too often until now."""
    rules, begins = event.get("RRULE", []), event.get("DTSTART")
    if begins is None:
        return False
    return any(
        _count_repetitions(rule, _get_date(begins.dt), today) > MAX_REPETITIONS
        for rule in (rules if isinstance(rules, list) else [rules])
    )


def _count_repetitions(rule: Any, first_day: date, today: date) -> float:
    """About how often a rule has repeated an event until `today`."""
    [frequency] = rule.get("FREQ", ["DAILY"])[:1]
    last_day = min([today, *map(_get_date, rule.get("UNTIL", []))])
    days = max(0, (last_day - first_day).days) + 1
    shorter_units = _MULTIPLYING_PARTS[: list(_REPETITIONS_A_DAY).index(frequency)]
    times = math.prod(len(rule.get(part, [None])) for part in shorter_units)
    interval = max(1, *rule.get("INTERVAL", [1]))
    counts: list[float] = [days * _REPETITIONS_A_DAY[frequency] * times / interval, *rule.get("COUNT", [])]
    return min(counts)


def _get_date(at: date) -> date:
    return at.date() if isinstance(at, datetime) else at


def _is_meeting(event: Any) -> bool:
    """Whether an event has a time, takes place, and keeps the operator busy."""
    is_whole_day = not isinstance(event["DTSTART"].dt, datetime)
    return not is_whole_day and event.get("STATUS", "") != "CANCELLED" and event.get("TRANSP", "") != "TRANSPARENT"


def _read_begin(event: Any, local: datetime) -> datetime:
    """When an event begins, in the operator's zone. A time without a zone is in that zone, too."""
    begins: datetime = event["DTSTART"].dt
    return begins.replace(tzinfo=local.tzinfo) if begins.tzinfo is None else begins.astimezone(local.tzinfo)
