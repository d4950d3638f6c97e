"""What the project's own tests ask for: run them, find what broke them, look for the unreliable ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engine.prediction.collectors.time_of_day import Activity
from engine.prediction.context import Run, ToolFound, WorkspaceContext, result_words
from engine.prediction.templates.making import MOST_PATHS, branch_of, offer, oldest, usable, usable_names
from engine.prediction.words import count, counted, listing, moment, plain
from engine.values import Proposal, SessionState

CHANNEL = "koji-core"
SLOWEST = 4
SLOW_SECONDS = 0.5
"""A test that takes less is not slow, and nothing to rerun for that."""
TIMES = 20
TIMES_RED = 5  # a test that fails always shows it soon
FEWEST_TIMES = 3
FLIPPED = 5  # so many unreliable tests are hunted at once
HUNT_SECONDS = 900.0
"""A hunt takes about so long at most; slower tests are repeated less often."""


def run_tests(context: WorkspaceContext) -> list[Proposal]:
    """The tests of what changed since the last run; the whole suite when there is none yet, or when CI or HEAD asks."""
    git, tool = context.git, context.tool
    if git is None or tool is None or not (tool.name or tool.installs) or not (git.head or git.files):
        return []
    if not context.runs:
        return [_first_run(context, tool)]
    if not tool.name:
        return []
    return _changed_files(context) or _failing_ci(context) or _full_run(context)


def _run(
    context: WorkspaceContext,
    prompt: str,
    reasoning: str,
    *,
    subject: str,
    facts: Mapping[str, Any],
    paths: Sequence[str],
    strength: float,
    evidence: str,
    evidence_at: datetime | None,
    activities: tuple[Activity, ...] = (Activity.WORK,),
) -> Proposal:
    return offer(
        context,
        "run_tests",
        prompt,
        reasoning,
        subject=subject,
        facts=facts,
        parameters={"paths": list(paths)},
        activities=activities,
        strength=strength,
        evidence=evidence,
        channel=CHANNEL,
        evidence_at=evidence_at,
        usual_hours=4.0,
        continues=("bisect", "fix_lint"),
        about=f"{prompt} {' '.join(paths)}",
    )


def _first_run(context: WorkspaceContext, tool: ToolFound) -> Proposal:
    assert context.git is not None
    told = f"This project's tests run with {tool.name}, and no run of them is known here."
    if not tool.name:
        told = f"Its tests need pytest, which is not installed here: first `{tool.installs}`, then approve this."
    return _run(
        context,
        "Run the test suite once, so that later runs have something to compare with",
        told,
        subject="first run",
        # An environment made since, where the tests could not run, is worth another look.
        facts={"scope": "first", "tool": tool.name, "where": tool.where},
        paths=(),
        strength=0.8 if tool.name else 0.4,
        evidence="no test run known",
        evidence_at=context.git.recent[0].at if context.git.recent else None,
        activities=(Activity.REVIEW, Activity.WORK),
    )


def _noun(context: WorkspaceContext) -> str:
    return "module" if context.test_tool is not None and context.test_tool.name == "pytest" else "file"


def _changed_files(context: WorkspaceContext) -> list[Proposal]:
    git, tool = context.git, context.test_tool
    assert git is not None
    assert tool is not None
    changed = [file for file in context.changed if tool.tests(file.path) and usable(file.path)]
    if not changed:
        return []
    last = context.runs[0]
    when = moment(last.ran_at, context.local)
    paths = [file.path for file in changed]
    noun = _noun(context)
    if len(paths) > MOST_PATHS:
        prompt = f"Run the whole suite: {count(len(paths), noun)} changed since the last run"
    else:
        prompt = f"Run the tests of {counted(paths, noun)} changed since the last run"
    return [
        _run(
            context,
            prompt,
            f"{listing(paths)} changed since {when} ({result_words(last.check)}).",
            subject=f"changes on {branch_of(git)}",
            facts={"paths": paths, "head": git.head, "run": last.session_id or last.ran_at.isoformat()},
            paths=paths if len(paths) <= MOST_PATHS else (),
            strength=min(1.0, 0.5 + 0.1 * len(paths)),
            evidence=f"{count(len(paths), 'file')} since {when}",
            evidence_at=oldest(file.at for file in changed) or (git.recent[0].at if git.recent else None),
        )
    ]


def _failing_ci(context: WorkspaceContext) -> list[Proposal]:
    git = context.git
    assert git is not None
    checks = [check.name for check in (context.github.failing if context.github else ()) if check.branch == git.branch]
    if not checks or any(run.head == git.head and run.full for run in context.runs):
        return []
    return [
        _run(
            context,
            f"CI fails on {plain(git.branch, 30)}: run the whole suite here",
            f"The check “{plain(checks[0], 40)}” failed on the server.",
            subject=f"CI of {branch_of(git)}",
            facts={"ci": sorted(checks), "head": git.head},
            paths=(),
            strength=0.9,
            evidence=f"CI fails: {plain(checks[0], 30)}",
            evidence_at=git.recent[0].at if git.recent else None,
            activities=(Activity.REPAIR,),
        )
    ]


def _full_run(context: WorkspaceContext) -> list[Proposal]:
    """Nothing changed since the last run, but the whole suite has not seen this HEAD."""
    git = context.git
    assert git is not None
    if not git.head or any(run.full and run.head == git.head for run in context.runs):
        return []
    last = next((run for run in context.runs if run.full), None)
    since = f"the last full run was {moment(last.ran_at, context.local)}" if last else "it never ran as a whole"
    return [
        _run(
            context,
            "Run the whole suite on the present HEAD",
            f"Only parts ran since HEAD moved; {since}.",
            subject=f"whole suite on {branch_of(git)}",
            facts={"scope": "full", "head": git.head},
            paths=(),
            strength=0.4,
            evidence="no full run of HEAD",
            evidence_at=git.recent[0].at if git.recent else None,
        )
    ]


def verdict_on(run: Run, test: str) -> bool | None:
    """Whether `test` passed in `run`; None when the run does not say (it broke, or did not contain the test).

    A failing test is on the list; one that passed must have been measured, or the whole suite have run.
    """
    if test in run.check.failing:
        return False
    if run.check.errors or run.check.passed == 0:
        return None
    if run.full or any(name == test for name, _ in run.check.durations):
        return True
    return None


def flipped_tests(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(test, tree) for tests that passed and failed on the very same files, those of the newest runs first."""
    found: dict[str, str] = {}
    for run in runs:
        same = [other for other in runs if other.tree == run.tree and run.tree]
        for test in run.check.failing:
            if test not in found and any(verdict_on(other, test) for other in same):
                found[test] = run.tree
    return list(found.items())


def bisect(context: WorkspaceContext) -> list[Proposal]:
    """HEAD itself is red: from an older commit at which the same test passed, else, to try, from the last tag."""
    return _from_green(context) or _from_tag(context)


def _red_head(context: WorkspaceContext) -> Run | None:
    """The last run of exactly HEAD, when its tests can be run one by one."""
    git = context.git
    if git is None or not git.head or context.test_tool is None or not context.test_tool.exact:
        return None
    return next((run for run in context.runs if run.head == git.head and run.clean), None)


def _bisected(context: WorkspaceContext) -> set[str]:
    """The tests of which a bisect up to this very HEAD has said what broke them; to ask again would tell nothing."""
    head = context.git.head if context.git is not None else ""
    done = {one.id for one in context.sessions if one.flow == "bisect" and one.state is SessionState.SUCCEEDED}
    answers = (run for run in context.runs if run.session_id in done and run.head == head)
    return {test for run in answers for test in run.check.failing}


def _from_green(context: WorkspaceContext) -> list[Proposal]:
    """An older commit in HEAD's history is known where the same test passed."""
    git, runs, red = context.git, context.runs, _red_head(context)
    if git is None or red is None:
        return []
    unfit = {test for test, _ in flipped_tests(runs)} | _bisected(context)
    older = runs[runs.index(red) + 1 :]
    for test in red.check.failing:
        good = next(
            (run for run in older if run.clean and run.head in context.ancestors and verdict_on(run, test)), None
        )
        if good is None or test in unfit or not usable(test):
            continue
        since = min(
            run.ran_at
            for run in runs
            if run.ran_at > good.ran_at and run.head == git.head and test in run.check.failing
        )
        others = len(red.check.failing) - 1
        return [
            offer(
                context,
                "bisect",
                f"HEAD is red since {moment(since, context.local)}: bisect `{short_test(test)}`",
                f"It passed at {good.head[:7]} ({moment(good.ran_at, context.local)}) and fails at HEAD"
                + (f", with {count(others, 'other')}." if others else "."),
                subject=test,
                facts={"test": test, "good": good.head, "bad": git.head},
                parameters={"test": test, "good": good.head, "bad": git.head},
                activities=(Activity.REPAIR,),
                strength=1.0,
                evidence=f"red since {moment(since, context.local)}: {result_words(red.check)}",
                channel=CHANNEL,
                evidence_at=since,
                usual_hours=2.0,
                continues=("run_tests", "check_clean_head"),
                about=test.replace("_", " "),
            )
        ]
    return []


def _from_tag(context: WorkspaceContext) -> list[Proposal]:
    """No green run is known, but HEAD has come some way since a tag: what was released may well have been green.

    The flow runs the test there first, and says when it is red there too.
    """
    git, red = context.git, _red_head(context)
    if git is None or red is None or not git.commits_since_tag or not git.tag or not usable(git.tag):
        return []
    unfit = {test for test, _ in flipped_tests(context.runs)} | _bisected(context)
    test = next((test for test in red.check.failing if test not in unfit and usable(test)), None)
    if test is None:
        return []
    tag, others = plain(git.tag, 30), len(red.check.failing) - 1
    beside = f", with {count(others, 'other')}" if others else ""
    since = "the commit" if git.commits_since_tag == 1 else f"one of the {git.commits_since_tag} commits"
    return [
        offer(
            context,
            "bisect",
            f"HEAD is red: look back to {tag} for what broke `{short_test(test)}`",
            f"It fails at HEAD{beside}, no green run of it is known; if it passes at {tag}, {since} since broke it.",
            subject=test,
            facts={"test": test, "good": git.tag, "bad": git.head},
            parameters={"test": test, "good": git.tag, "bad": git.head},
            activities=(Activity.REPAIR,),
            strength=0.6,
            evidence=f"red, no green run known: {result_words(red.check)}",
            channel=CHANNEL,
            evidence_at=red.ran_at,
            usual_hours=4.0,
            continues=("run_tests", "check_clean_head"),
            about=test.replace("_", " "),
        )
    ]


def short_test(test: str) -> str:
    """What one calls a test: `test_cart` for `tests/test_cart.py::TestCart::test_cart`."""
    return plain(test.rpartition("::")[2] or test, 40)


def hunt_flakes(context: WorkspaceContext) -> list[Proposal]:
    """Tests that failed and passed on the same files; else those that fail and that nothing tells more about; else,
    for good measure, the slowest of the last green run."""
    if context.test_tool is None or not context.test_tool.exact or not context.runs:
        return []
    flipped = [(test, tree) for test, tree in flipped_tests(context.runs) if usable(test)][:FLIPPED]
    if flipped:
        return [_unreliable(context, [test for test, _ in flipped], flipped[0][1])]
    if context.runs[0].check.failing:
        return _failing(context) if not _from_green(context) else []
    timed = next((run for run in context.runs if run.check.durations and run.check.green), None)
    if timed is None:
        return []
    slowest = [(test, seconds) for test, seconds in timed.check.durations if seconds >= SLOW_SECONDS and usable(test)]
    slowest = slowest[:SLOWEST]
    if not slowest:
        return []
    tests = [test for test, _ in slowest]
    times = repetitions(sum(seconds for _, seconds in slowest))
    which = "the slowest test" if len(tests) == 1 else f"the {len(tests)} slowest tests"
    return [
        offer(
            context,
            "hunt_flakes",
            f"Rerun {which} {times} times for flakiness",
            f"{short_test(tests[0])} took {slowest[0][1]:.1f} s; slow tests tend to depend on timing.",
            subject="slowest tests",
            facts={"tests": sorted(tests)},
            parameters={"tests": tests, "times": times},
            activities=(Activity.WORK,),
            strength=0.3,
            evidence=f"slowest: {short_test(tests[0])}, {slowest[0][1]:.1f} s",
            channel=CHANNEL,
            evidence_at=timed.ran_at,
            usual_hours=72.0,
            about=" ".join(tests).replace("_", " "),
        )
    ]


def _failing(context: WorkspaceContext) -> list[Proposal]:
    """A few tests fail, and there is no green run to bisect from: are they broken, or unreliable?"""
    last, known = context.runs[0], _bisected(context)
    tests = [test for test in last.check.failing if usable(test) and test not in known]
    if not 0 < len(tests) <= FLIPPED or context.changed:
        return []
    which = f"`{short_test(tests[0])}`" if len(tests) == 1 else f"the {len(tests)} failing tests"
    return [
        offer(
            context,
            "hunt_flakes",
            f"Rerun {which} {TIMES_RED} times: broken or unreliable?",
            f"{result_words(last.check)} at {moment(last.ran_at, context.local)}, and nothing changed since.",
            subject=" ".join(sorted(tests)),
            facts={"tests": sorted(tests), "tree": last.tree or last.head},
            parameters={"tests": tests, "times": TIMES_RED},
            activities=(Activity.REPAIR,),
            strength=0.7,
            evidence=f"{count(len(last.check.failing), 'test')} failing since {moment(last.ran_at, context.local)}",
            channel=CHANNEL,
            evidence_at=last.ran_at,
            usual_hours=4.0,
            continues=("run_tests", "check_clean_head"),
            about=" ".join(tests).replace("_", " "),
        )
    ]


def rerun_failing(context: WorkspaceContext) -> list[Proposal]:
    """The last run is red: the same tests again, once something was mended or to see what they say."""
    if context.test_tool is None or not context.runs or context.git is None:
        return []
    last = context.runs[0]
    failing = [test for test in last.check.failing if usable(test)]
    if last.check.green or not failing:
        return []
    some = context.test_tool.exact and last.check.counted and len(failing) <= MOST_PATHS
    which = f"`{short_test(failing[0])}`" if len(failing) == 1 else f"the {len(failing)} failing tests"
    proposal = _run(
        context,
        f"Run {which} again" if some else "Run the whole suite again",
        f"{result_words(last.check)} at {moment(last.ran_at, context.local)}.",
        subject="what failed last",
        facts={"run": last.session_id or last.ran_at.isoformat()},
        paths=(),
        strength=0.6,
        evidence=f"red: {result_words(last.check)}",
        evidence_at=last.ran_at,
        activities=(Activity.REPAIR,),
    )
    return [replace(proposal, kind="rerun_failing", parameters={"tests": failing} if some else {"paths": []})]


def _unreliable(context: WorkspaceContext, tests: list[str], tree: str) -> Proposal:
    first = short_test(tests[0])
    which = f"`{first}`" if len(tests) == 1 else f"{len(tests)} tests"
    again = "it" if len(tests) == 1 else "them"
    return offer(
        context,
        "hunt_flakes",
        f"{which} failed and passed on the same files: rerun {again} {TIMES} times",
        f"Two runs of the same files disagree about {listing((short_test(test) for test in tests), 2, 40)}.",
        subject=" ".join(sorted(tests)),
        facts={"tests": sorted(tests), "tree": tree},
        parameters={"tests": tests, "times": TIMES},
        activities=(Activity.REPAIR,),
        strength=0.9,
        evidence=f"{count(len(tests), 'test')} flipped on the same files",
        channel=CHANNEL,
        evidence_at=context.runs[0].ran_at,
        usual_hours=12.0,
        continues=("run_tests",),
        about=" ".join(tests).replace("_", " "),
    )


def repetitions(seconds: float) -> int:
    """How often tests that take `seconds` together are repeated: 20 times, fewer (at least 3) beyond 15 minutes."""
    if seconds * TIMES <= HUNT_SECONDS:
        return TIMES
    return max(FEWEST_TIMES, int(HUNT_SECONDS / seconds))


def _could_not_run(context: WorkspaceContext) -> bool:
    """Whether the tests lacked something when they were tried last: until that is there, they lack it anywhere."""
    tested = (one for one in context.sessions if one.flow in ("run_tests", "check_clean_head") and one.state.over)
    last = next(tested, None)
    return last is not None and last.state is SessionState.CANNOT_RUN


def check_clean_head(context: WorkspaceContext) -> list[Proposal]:
    """There are uncommitted files, and nobody knows whether HEAD passes without them."""
    git = context.git
    if git is None or not git.head or git.clean or git.operation or context.test_tool is None:
        return []
    if _could_not_run(context) or any(run.head == git.head and run.clean and run.full for run in context.runs):
        return []
    files = usable_names(file.path for file in git.files)
    if not files:
        return []
    number = len(git.files) + git.more_files
    red = bool(context.runs) and not context.runs[0].check.green and context.runs[0].head == git.head
    which = "your uncommitted file" if number == 1 else f"your {count(number, 'uncommitted file')}"
    again = "it" if number == 1 else "them"
    return [
        offer(
            context,
            "check_clean_head",
            f"Does HEAD pass without {which}?",
            f"{listing(files)}: others get {plain(git.branch, 30) or 'HEAD'} without {again}.",
            subject=branch_of(git),
            facts={"head": git.head, "files": files},
            parameters={"files": files[: 4 * MOST_PATHS]},
            activities=(Activity.REPAIR,) if red else (Activity.WORK, Activity.REVIEW),
            strength=0.8 if red else 0.5,
            evidence=count(number, "uncommitted file"),
            channel=CHANNEL,
            evidence_at=oldest(file.modified_at for file in git.files),
            usual_hours=8.0,
            continues=("run_tests",),
            about=" ".join(files),
        )
    ]
