"""Says which known problem of a workspace still holds, and what the operator can do about it (SPEC 2.10).

It is shown where the stack is empty, and by `clawpy status`. The approval of a card does not end a problem: it ends
when the files, the test runs or git no longer show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from engine.execution.runners.toolchains import PROGRAM_FIXES
from engine.frozen import frozen, group_pairs
from engine.model import ChangeState, CheckResult, Proposal
from engine.prediction.context import Part, WorkspaceContext, describe_result
from engine.prediction.templates.commits import describe_problem
from engine.prediction.templates.failures import find_culprit
from engine.prediction.templates.offers import LONG_AGO, is_usable, shorten_test
from engine.prediction.templates.runs import find_stopped_run
from engine.storage.validation_runs import ValidationRun, read_verdict_on
from engine.text import plain
from engine.wording import count, join_shortened, moment

PROBLEM_INSPECTIONS = frozenset({"unpushed", "unfinished", "merges"})
"""The fields of `Inspection` that say whether a problem still holds."""

_ANSWER_WORDS = {"bisect": "bisect", "rehearse_revert": "revert", "apply_fix": "fix"}
"""The flows that answer failing tests, in words."""

_CHANGE_WORDS = {
    ChangeState.WAITING: "its {} waits for you",
    ChangeState.UNDONE: "its {} was undone; `clawpy land {change.id}` lands all of it",
    ChangeState.BRANCHED: "its {} is on the branch {change.branch}",
}
"""What became of an answer whose changes are not in the files, in words."""


@frozen
class _Problem:
    """A problem that still holds, and when it was found or made."""

    at: datetime
    sentence: str


def knows_problems(context: WorkspaceContext) -> bool:
    """Whether the check could read all that says which problems still hold."""
    return context.git is not None and PROBLEM_INSPECTIONS.isdisjoint(context.inspection.unknown)


def find_unsolved_problem(context: WorkspaceContext, muted: Sequence[Proposal] = ()) -> str:
    """The newest problem that is known in a workspace and still holds, in words; "" for none. It is named also after
    its cards were approved and other work has run. Secrets and unfinished operations are left out if their card is
    among those that are `muted`."""
    if context.git is None:
        return ""
    muted_kinds = {proposal.kind for proposal in muted if proposal.facts.get("committed", True)}
    problems = [
        *(_find_secrets(context) if "secret" not in muted_kinds else ()),
        *(_find_unfinished_operation(context) if "unfinished_operation" not in muted_kinds else ()),
        *_find_bad_merges(context),
        *_find_failing_tests(context),
        *_find_failing_commit(context),
        *_find_stopped_runs(context),
        *_find_missing_programs(context),
    ]
    problems.sort(key=lambda problem: problem.at, reverse=True)
    if len(problems) < 2:
        return "".join(problem.sentence for problem in problems)
    return f"{problems[0].sentence}; {count(len(problems) - 1, 'more problem')} here"


def _find_secrets(context: WorkspaceContext) -> Iterator[_Problem]:
    """The first secret in commits that are not pushed."""
    problem = next((problem for problem in context.inspection.unpushed.committed if problem.is_secret), None)
    if problem is not None:
        commit = next((commit for commit in context.repository.recent if commit.id == problem.sha), None)
        yield _Problem(commit.at if commit else context.now, f"do not push yet: {describe_problem(problem)}")


def _find_unfinished_operation(context: WorkspaceContext) -> Iterator[_Problem]:
    """The unfinished operation, if it has conflicts."""
    operation = context.inspection.unfinished
    if operation is not None and operation.unmerged:
        sentence = f"the unfinished {operation.name} has conflicts in {join_shortened(operation.unmerged, 3)}"
        yield _Problem(operation.begun_at or context.now, sentence)


def _find_bad_merges(context: WorkspaceContext) -> Iterator[_Problem]:
    """What the newest rehearsal of a merge found, if both sides still conflict, or if the merge of the same commits
    breaks tests."""
    merges = {merge.tip: merge for merge in context.inspection.merges}
    for session in context.sessions:
        if session.flow != "rehearse_merge":
            continue
        merge = merges.pop(session.facts.get("source", ""), None)  # older rehearsals of it do not count
        if merge is None or not session.has_problem:
            continue
        branches = f"{plain(merge.source, 40)} into {plain(context.repository.branch, 40)}"
        broken = _describe_broken_tests(session.check)
        at = session.ended_at or session.created_at
        if merge.files:
            yield _Problem(at, f"merging {branches} still conflicts in {join_shortened(merge.files, 3)}")
        elif broken and session.facts.get("target") == context.repository.head:
            yield _Problem(at, f"merging {branches} breaks {broken}")


def _describe_broken_tests(check: CheckResult | None) -> str:
    """What fails and did not fail before the merge, in words; "" if there is nothing, or if that is unknown."""
    if check is None or check.failed_before is None or check.all_failed_before:
        return ""
    broken = [shorten_test(test) for test in check.failing if test not in check.failed_before]
    return join_shortened(broken, 3) or "the tests"


def _find_failing_tests(context: WorkspaceContext) -> Iterator[_Problem]:
    """For each project, the newest run in which tests failed that have not passed since."""
    for part in context.parts:
        for run, unsolved in _find_unsolved_runs(part.tree_runs):
            failing = [test for test in unsolved if test not in part.deleted_tests]
            if failing:
                yield _Problem(run.ran_at, _describe_failing(context, part, run, failing))
                break


def _find_failing_commit(context: WorkspaceContext) -> Iterator[_Problem]:
    """The projects whose tests failed at HEAD alone. If they failed on the operator's files too, that is named
    already."""
    for part in context.parts:
        run = part.find_failed_run(context.repository.head)
        newest = part.tree_runs[0] if part.tree_runs else None
        if run is None or (newest is not None and not newest.check.green):
            continue
        sentence = f"at HEAD alone{part.within}: {describe_result(run.check)}, at {moment(run.ran_at, context.local)}"
        if newest is not None and newest.head == run.head and context.repository.files:
            sentence += "; with your uncommitted files the tests passed, so commit what they need"
        yield _Problem(run.ran_at, sentence)


def _find_unsolved_runs(runs: Sequence[ValidationRun]) -> Iterator[tuple[ValidationRun, list[str]]]:
    """Runs in which tests failed that have not passed since, each with these tests ("" where it named none). `runs` are
    of one project, newest first."""
    for number, run in enumerate(runs):
        failed = [] if run.check.green else run.check.failing or ("",)
        failing = [test for test in failed if not any(_has_passed(later, test) for later in runs[:number])]
        if failing:
            yield run, failing


def had_failing_tests(runs: Sequence[ValidationRun], at: datetime) -> bool:
    """Whether tests failed before `at` that had not passed until then. `runs` are of one workspace, newest first."""
    by_project = group_pairs((run.project, run) for run in runs if run.ran_at < at)
    return any(True for of_project in by_project.values() for _ in _find_unsolved_runs(of_project))


def _find_stopped_runs(context: WorkspaceContext) -> Iterator[_Problem]:
    """The projects whose last test run was stopped, and in which none has finished yet."""
    for part in context.parts:
        if (stopped := find_stopped_run(context, part)) is not None:
            request = " project=".join(filter(None, ("run_tests", part.project.path)))
            sentence = f"the tests{part.within} were stopped, no run has finished here yet; ask for “{request}”"
            yield _Problem(stopped.ended_at or stopped.created_at, sentence)


def _find_missing_programs(context: WorkspaceContext) -> Iterator[_Problem]:
    """The projects with changes of the operator whose tests need a program that no package manager brings."""
    paths = [*(file.path for file in context.repository.files), *context.repository.own_files]
    for part in context.parts:
        if part.project.missing_tool in PROGRAM_FIXES and any(map(part.holds, paths)):
            yield _Problem(LONG_AGO, ": ".join(filter(None, (part.project.path, part.project.lacking_reason))))


def _has_passed(run: ValidationRun, test: str) -> bool:
    """Whether a later run shows that a test passes, or for "", that the tests of an earlier run do, which named none.
    Some test runners do not list the tests that passed; a green run of theirs counts for every test."""
    verdict = read_verdict_on(run, test) if test else None
    if verdict is None:
        return run.check.green and not (test and run.check.durations)
    return verdict


def _describe_failing(context: WorkspaceContext, part: Part, run: ValidationRun, failing: Sequence[str]) -> str:
    """What failed and when, and if no file has changed since that run, what the operator can do now."""
    test = failing[0]
    tests = f"`{shorten_test(test)}`" if len(failing) == 1 else count(len(failing), "test")
    verb = "has" if len(failing) == 1 else "have"
    sentence = (
        f"{tests if test else 'the run of the tests'}{part.within} failed at {moment(run.ran_at, context.local)} and "
        f"{verb} not passed since"
    )
    if part.changed or not _saw_same_files(run, part.tree_runs[0]):
        return sentence
    return f"{sentence}; {_describe_answer(context, part, failing)}"


def _saw_same_files(run: ValidationRun, latest_run: ValidationRun) -> bool:
    """Whether the newest run saw the same files as this run, as far as it is known."""
    is_same_commit = run.clean and latest_run.clean and run.head == latest_run.head
    return run is latest_run or is_same_commit or bool(run.tree and run.tree == latest_run.tree)


def _describe_answer(context: WorkspaceContext, part: Part, tests: Sequence[str]) -> str:
    """The newest answer to failing tests, in words: the bisect, revert or fix that runs, the changes that are not
    landed, or the commit that broke one of them. If there is none, what the operator can do."""
    for session in context.sessions:
        answer = _ANSWER_WORDS.get(session.flow or "")
        if answer is None or session.project != part.project.path:
            continue
        change = context.answers.get(session.id)
        if not session.state.is_over:
            if any(test and shorten_test(test) in session.prompt for test in tests):
                return f"a {answer} is {'running' if session.flow == 'bisect' else 'being tried'}"
        elif not {session.facts.get("test"), *session.facts.get("tests", ())}.isdisjoint(tests):
            if change is not None and change.state in _CHANGE_WORDS:
                return _CHANGE_WORDS[change.state].format(answer, change=change)
            sha, subject = find_culprit(session)
            if sha:
                return f"{sha} “{plain(subject, 50)}” broke `{shorten_test(session.facts['test'])}`"
            if suspects := session.facts.get("suspects"):
                commits = join_shortened([suspect[:10] for suspect in suspects], 3)
                return f"it cannot run at {commits}, and one of these broke it"
    return _make_advice(context, part, tests)


def _make_advice(context: WorkspaceContext, part: Part, failing: Sequence[str]) -> str:
    """What the operator can do about failing tests."""
    advice, test = f"fix {'it' if len(failing) == 1 else 'them'}", failing[0]
    if part.passes_without_changes(context.repository.head):
        return "without your uncommitted changes all tests pass"
    has_earlier = len(context.repository.recent) > 1
    if not (is_usable(test) and part.tool is not None and part.tool.runs_single_tests and has_earlier):
        return advice
    project = f" project={part.project.path}" if part.project.path else ""
    return f"{advice}, or ask for “bisect test={test} good=COMMIT{project}” with a commit where it passed"
