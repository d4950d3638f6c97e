"""Cards that offer to run tests: of changed files, tests that failed or got slower, HEAD without your uncommitted
files, and the whole suite if CI fails.

Each compares the test runs of a project (`Part.runs`) with what changed since. A run is offered only if it can say
something new: after a change, on other files, or of other tests than the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from engine.execution.runners.toolchains import TEST_FILE
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.frozen import frozen
from engine.git.state import GitState
from engine.model import SessionState, SessionView, Tier
from engine.prediction.context import Part, WorkspaceContext, describe_result
from engine.prediction.templates.offers import (
    LONG_AGO,
    MAX_PATHS,
    Offer,
    count_others,
    describe_branch,
    find_earliest,
    find_ended_sessions,
    find_head_time,
    is_usable,
    is_usable_path,
    select_usable_failures,
    select_usable_paths,
    shorten_test,
    template,
)
from engine.storage.validation_runs import (
    ValidationRun,
    find_seconds_of,
    find_test_that_failed_alone,
    find_unreliable_tests,
)
from engine.text import plain
from engine.wording import count, join_shortened, moment

STALE_AFTER = timedelta(days=1)
"""Age from which a commit of yours is no reason to check HEAD."""

MIN_SLOWDOWN_FACTOR = 2.0
"""A test is slower if it takes at least this many times its usual time,"""

MIN_SLOWDOWN_S = 1.0
"""and at least this many seconds more."""

MIN_MEASURED_RUNS = 5
"""Minimum number of runs that must have measured it."""


@template
def run_tests(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Files changed since the last run of the tests.

    If no run is known, the card offers the tests of uncommitted files, or else of unpushed ones, or else the whole
    suite once.
    """
    git, tool, last = context.repository, part.tool, part.last_tree_run
    if tool is None or part.project.missing_tool or not (git.head or git.files):
        return
    if last is None:
        yield from _offer_first_run(context, part, tool)
        return
    changed = [file for file in part.changed if not file.gone and part.tests(file.path) and is_usable_path(file.path)]
    if not changed:
        return
    when = moment(last.ran_at, context.local)
    yield _make_run_offer(
        context,
        part,
        [file.path for file in changed],
        f"{join_shortened((file.path for file in changed), 3)} changed after the last test run, at {when}: "
        f"{describe_result(last.check)}.",
        facts={"run": last.session_id or last.ran_at.isoformat()},
        evidence_at=find_earliest(file.at for file in changed) or find_head_time(git),
    )


def find_stopped_run(context: WorkspaceContext, part: Part) -> SessionView | None:
    """The last run of the tests, if it was stopped and no run has finished yet."""
    if part.tool is None or part.tree_runs:
        return None
    runs = (ran for ran in context.sessions if ran.flow == "run_tests" and ran.project == part.project.path)
    last = next(runs, None)
    return last if last is not None and last.state is SessionState.CANCELLED else None


def _offer_first_run(context: WorkspaceContext, part: Part, tool: Toolchain) -> Iterator[Offer]:
    """The tests of uncommitted files, or else of unpushed ones, or else the whole suite once."""
    git = context.repository
    unknown = "No test run of your files is known." if part.runs else "No test run is known here."
    files = [file for file in git.files if not file.deleted and part.tests(file.path)]
    state, at = "Not committed yet", find_earliest(file.modified_at for file in files)
    paths = select_usable_paths(file.path for file in files)
    if not paths:
        state, at = "Not pushed yet" if git.upstream else "On this branch alone", find_head_time(git)
        paths = select_usable_paths(path for path in git.own_files if part.tests(path))
    if paths:
        reason = f"{state}: {join_shortened(paths, 3)}. {unknown}"
        yield _make_run_offer(context, part, paths, reason, facts={}, evidence_at=at)
        return
    yield Offer(
        f"Run the test suite{part.within} once with {plain(tool.title, 30)}",
        f"{unknown} Later runs are compared with it.",
        subject="first run",
        facts={"tool": tool.name, "where": tool.interpreter},
        parameters={"paths": []},
        evidence_at=LONG_AGO,
        kind="first_run",
    )


def _make_run_offer(
    context: WorkspaceContext,
    part: Part,
    paths: Sequence[str],
    reason: str,
    *,
    facts: Mapping[str, Any],
    evidence_at: datetime | None,
) -> Offer:
    """The offer to run the tests of these files, or the whole suite if they are too many."""
    git, whole = context.repository, len(paths) > MAX_PATHS
    return Offer(
        f"Run the whole suite{part.within}: {count(len(paths), 'file')} changed"
        if whole
        else f"Run the tests of {join_shortened(paths)}",
        reason,
        subject=f"changes on {describe_branch(git)}",
        facts={"paths": list(paths), "head": git.head, **facts},
        parameters={"paths": [] if whole else list(paths)},
        evidence_at=evidence_at,
    )


@template
def rerun_failing(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """The last run failed, and another one may say something new.

    If the failed tests cannot be run alone, the card offers the whole suite: a second run tells whether they always
    fail. Otherwise, if files changed since, it offers the tests that failed. If nothing changed and one test was run
    alone, it offers the whole suite, unless that ran on the same files, has no other test, or passes without your
    uncommitted changes."""
    last = part.last_tree_run
    if part.tool is None or last is None or last.check.green:
        return
    if part.passes_without_changes(context.repository.head) and not part.changed:
        return
    failing = select_usable_failures(last)
    if not (failing or (last.check.errors and part.changed)):
        return
    if failing and _can_run_alone(part, part.tool, failing):
        which = f"`{shorten_test(failing[0])}`" if len(failing) == 1 else f"the {len(failing)} failed tests"
        if part.changed:
            yield _make_rerun_offer(context, part, f"Run {which} again", {"tests": failing})
        elif _may_whole_suite_say_more(part):  # otherwise `still_red` says more
            prompt = f"Run the whole suite{part.within}: does more than {which} fail?"
            yield _make_rerun_offer(context, part, prompt, {"paths": []})
    else:
        yield _make_rerun_offer(context, part, f"Run the whole suite{part.within} again", {"paths": []})


def _make_rerun_offer(context: WorkspaceContext, part: Part, prompt: str, parameters: Mapping[str, Any]) -> Offer:
    last, paths = part.tree_runs[0], [file.path for file in part.changed]
    changed = f"; {join_shortened(paths)} changed since" if paths else ""
    return Offer(
        prompt,
        f"{describe_result(last.check)} at {moment(last.ran_at, context.local)}{changed}.",
        subject="what failed last",
        facts={"run": last.session_id or last.ran_at.isoformat(), "changed": paths},
        parameters=parameters,
        evidence_at=last.ran_at,
    )


def _can_run_alone(part: Part, tool: Toolchain, failing: Sequence[str]) -> bool:
    """Whether the tests that failed in the last run can be run without the others, and their files are still there."""
    is_listed = part.tree_runs[0].check.counted and len(failing) <= MAX_PATHS
    return tool.runs_single_tests and is_listed and part.deleted_tests.isdisjoint(failing)


def _may_whole_suite_say_more(part: Part) -> bool:
    """Whether one test was run alone, and the whole suite has other tests and was not run on the same files."""
    last = part.tree_runs[0]
    whole_runs = [run for run in part.tree_runs if run.full]
    is_known = any(
        run.tree == last.tree or find_test_that_failed_alone(run) == find_test_that_failed_alone(last)
        for run in whole_runs
    )
    return bool(find_test_that_failed_alone(last)) and not is_known


@template
def failing_ci(context: WorkspaceContext) -> Iterator[Offer]:
    """A check of this branch fails on the server, and the whole suite has not run here at HEAD."""
    git = context.repository
    part = next((part for part in context.parts if part.tool), None)
    if part is None or context.github is None:
        return
    checks = [name for branch, name in context.github.failing if branch == git.branch]
    if not checks or any(run.head == git.head and run.full for run in part.runs):
        return
    yield Offer(
        f"Run the whole suite here: CI fails on {plain(git.branch, 30)}",
        f"The check “{plain(checks[0], 40)}” failed on the server.",
        subject=describe_branch(git),
        facts={"ci": sorted(checks), "head": git.head},
        parameters={"paths": [], **part.parameters},
        evidence_at=find_head_time(git),
    )


@template
def check_clean_head(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Tests failed with uncommitted files, and may fail at HEAD as well; or you committed something, and a new source
    file is in no commit: HEAD may need that file to pass its tests."""
    git = context.repository
    if not git.head or part.tool is None or part.project.missing_tool:
        return
    tried = find_ended_sessions(context, part.project.path, "run_tests", "check_clean_head")[:1]
    if any(session.state is SessionState.CANNOT_RUN for session in tried):
        return  # whatever the tests lack here, they lack at HEAD as well
    if any(run.head == git.head and run.clean and run.full for run in part.runs):
        return
    failures = list(_offer_check_of_failures(context, part))
    yield from failures or _offer_check_of_new_files(context, part)


def _offer_check_of_failures(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Whether the tests that failed on the present files fail without the uncommitted ones, too."""
    git, last = context.repository, part.last_tree_run
    if last is None or last.clean or last.head != git.head or part.changed:
        return
    unreliable = {test for test, _ in find_unreliable_tests(part.runs)}
    new_files = {part.project.path_inside(file.path) for file in git.untracked}
    failing = [
        test
        for test in select_usable_failures(last)
        if test not in unreliable and test.partition("::")[0] not in new_files  # HEAD has no test of a new file
    ]
    is_unnamed = not last.check.failing and bool(last.check.failed or last.check.errors)
    if not (failing or is_unnamed):
        return
    which = (
        "the whole suite" if is_unnamed else f"`{shorten_test(failing[0])}`{count_others(failing, noun='other test')}"
    )
    left_out = join_shortened(file.path for file in git.files)
    yield Offer(
        f"{'Does' if len(failing) < 2 else 'Do'} {which} fail without your uncommitted changes, too?",
        f"{describe_result(last.check)} at {moment(last.ran_at, context.local)} with {left_out}. A run of HEAD alone "
        "tells whether a commit or your changes broke it.",
        subject=next(iter(failing), which),
        facts={"head": git.head, "tests": failing[:MAX_PATHS]},
        parameters={"tests": failing[:MAX_PATHS]},
        evidence_at=last.ran_at,
        tier=Tier.BLOCKS,
    )


def _offer_check_of_new_files(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """Whether HEAD passes without the new source files that are in no commit."""
    git = context.repository
    has_own_commits = git.own_files or any(
        git.is_mine(commit) and context.now - commit.at < STALE_AFTER for commit in git.recent[:1]
    )
    new_files = [file for file in git.untracked if part.tests(file.path) and not TEST_FILE.search(file.path)]
    files = select_usable_paths(file.path for file in new_files)
    if not has_own_commits or not files:
        return
    # The check leaves out all uncommitted files, not only the new ones.
    has_others = len(git.files) > len(files)
    left_out = f"your {count(len(git.files), 'uncommitted file')}" if has_others else join_shortened(files)
    yield Offer(
        f"Does HEAD pass without {left_out}?",
        _explain_new_files(git, files, are_named=not has_others),
        subject=describe_branch(git),
        facts={"head": git.head, "files": files},
        parameters={"files": files[: 4 * MAX_PATHS]},
        evidence_at=find_earliest(file.modified_at for file in new_files),
    )


def _explain_new_files(git: GitState, files: Sequence[str], *, are_named: bool) -> str:
    """What it means that these files are in no commit. `are_named` says that the prompt names them already."""
    pronoun, verb, them = ("It", "is", "it") if len(files) == 1 else ("They", "are", "them")
    subject = pronoun if are_named else join_shortened(files)
    return f"{subject} {verb} in no commit: others get {plain(git.branch, 30) or 'HEAD'} without {them}."


@frozen
class _Slowdown:
    """A test that got slower."""

    extra_seconds: float
    """How many seconds more than usual the faster of its last two runs took."""
    usual_seconds: float
    """Its usual time in seconds."""
    test: str
    fast_head: str
    """The newest commit at which it took its usual time."""


@template
def slower_tests(context: WorkspaceContext, part: Part) -> Iterator[Offer]:
    """In both of the last two green runs, a test took at least twice its usual time, and at least a second more."""
    tool = part.tool
    runs = [run for run in part.runs if run.check.green and run.check.durations]
    if tool is None or not tool.runs_single_tests or len(runs) < MIN_MEASURED_RUNS:
        return
    tests = [test for test, _ in runs[0].check.durations if is_usable(test)]
    slowdowns = [found for test in tests if (found := _measure_slowdown(test, runs, context.ancestors)) is not None]
    if not slowdowns:
        return
    slowest = max(slowdowns, key=lambda slowdown: (slowdown.extra_seconds, slowdown.usual_seconds, slowdown.test))
    name, seconds = shorten_test(slowest.test), slowest.usual_seconds + slowest.extra_seconds
    yield Offer(
        f"Time `{name}` at HEAD and at {slowest.fast_head[:7]}",
        f"`{name}` took at least {seconds:.1f} s in the last two runs, and {slowest.usual_seconds:.1f} s before.",
        subject=slowest.test,
        facts={"test": slowest.test, "fast": slowest.fast_head, "head": context.repository.head},
        parameters={"tests": [slowest.test], "fast": slowest.fast_head},
        evidence_at=runs[1].ran_at,
    )


def _measure_slowdown(test: str, runs: Sequence[ValidationRun], ancestors: Collection[str]) -> _Slowdown | None:
    """How much slower a test got, None if it did not, or if it cannot be told. `runs` are green, the newest first."""
    last = [seconds for run in runs[:2] if (seconds := find_seconds_of(run, test)) is not None]
    earlier = [(seconds, run) for run in runs[2:] if (seconds := find_seconds_of(run, test)) is not None]
    if len(last) < 2 or len(earlier) < MIN_MEASURED_RUNS - 2:
        return None
    usual_seconds = median(seconds for seconds, _ in earlier)
    extra_seconds = min(last) - usual_seconds
    if min(last) < MIN_SLOWDOWN_FACTOR * usual_seconds or extra_seconds < MIN_SLOWDOWN_S:
        return None
    for seconds, run in earlier:
        if run.clean and seconds <= usual_seconds * 1.5 and run.head in ancestors:
            return _Slowdown(extra_seconds, usual_seconds, test, run.head)
    return None
