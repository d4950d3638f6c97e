"""Take one commit back where nobody sees it, and run the tests on what comes out."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    ProjectParameters,
    Revision,
    TestId,
    clean,
    combined,
    commit,
    count,
    in_project,
    in_words,
    listed,
    resolve,
    run_plan,
    run_tests,
    show_tree,
    tidy,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.flows.rehearse_merge import unmerged
from engine.execution.runners.toolchains.bound import Toolchain, borrowed
from engine.git.leftovers import secret
from engine.model import CheckResult, sanitise

SHOWN: Final = 200
"""Lines of the commit's diff in the transcript."""


class RehearseRevertParameters(ProjectParameters):
    """Which commit, and the test that it broke."""

    commit: Revision = Field(description="the commit to revert")
    test: TestId | None = Field(default=None, description="a test that fails because of it, as its tool names it")


class RehearseRevert:
    """What comes out is a change set: the operator lands it, or throws it away. No commit is made, no branch moves."""

    name: ClassVar = "rehearse_revert"
    title: ClassVar = "Rehearse a revert"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = RehearseRevertParameters

    def describe(self, parameters: RehearseRevertParameters) -> str:
        test = f"`{clean(parameters.test)}` and " if parameters.test else ""
        return f"Revert {clean(parameters.commit)[:10]} in a worktree and run {test}the whole suite" + in_project(
            parameters.project
        )

    def run(self, job: Job) -> FlowResult:
        culprit, head = resolve(job, job.parameters.commit), resolve(job, "HEAD")
        found = commit(job.git, culprit)
        facts: dict[str, object] = {"commit": culprit, "test": job.parameters.test, "conflicts": []}
        if job.git.run("merge-base", "--is-ancestor", culprit, head, allowed=(0, 1)).returncode:
            raise FlowUnable(f"HEAD does not contain {culprit[:10]}", "name a commit in the history of HEAD")
        job.say(f"{found.sha}\n{found.author}, {found.date}\n{found.subject}")
        _show(job, culprit)
        start = job.git.text("rev-parse", "HEAD")
        parents = job.git.text("rev-list", "--parents", "--no-walk", culprit).split()[1:]
        mainline = ("--mainline", "1") if len(parents) > 1 else ()
        done = job.git.run("revert", "--no-commit", *mainline, culprit, allowed=(0, 1, 128))
        if conflicts := unmerged(job.git):
            for path, places in conflicts:
                job.say(f"conflict  {clean(path)}" + (f"  ({count(places, 'place')})" if places else "  (whole file)"))
            tidy(job, start)  # files with markers in them are nothing to land
            job.say(f"Next: run git revert {culprit[:10]} and resolve these by hand")
            names = [path for path, _ in conflicts]
            told = f"Reverting {found} conflicts in {count(len(names), 'file')}: {listed(names, 4)}"
            return FlowResult(told, sound=False, facts=facts | {"conflicts": [clean(path) for path in names]})
        if done.returncode:
            raise FlowUnable(f"git cannot revert it: {clean(done.stderr.decode(errors='replace'))[-300:]}")
        reverted = job.git.text("write-tree")
        if reverted == job.git.text("rev-parse", f"{start}^{{tree}}"):
            return FlowResult(f"Nothing to revert: no changes of {found} are left", facts=facts)
        job.say("The revert is clean")
        result = _tested(job, str(found), facts)
        tidy(job, start)
        show_tree(job, reverted)  # what tests left behind is no part of the revert
        return result


def _tested(job: Job, name: str, facts: dict[str, object]) -> FlowResult:
    """The test that broke, then everything."""
    asked = job.parameters.test
    try:
        tools = toolchains(job)
        with borrowed(tools, job.folder, job.workspace):
            alone = _alone(job, toolchain_of(tools, [asked]), asked) if asked else None
            check = combined([check for _, check in run_plan(job, [(tool, []) for tool in tools])])
    except CannotRun as error:
        job.say(str(error))
        return FlowResult(f"{name} reverts cleanly; its tests could not be run: {error.message}", facts=facts)
    if asked and (asked in check.failing or (alone is not None and not alone.green)):
        told = f"{name} reverts cleanly, but `{clean(asked)}` still fails: {in_words(check)}"
        return FlowResult(told, check=check, facts=facts, full=True)
    fixes = f" and `{clean(asked)}` then passes" if asked else ""
    joint = "; " if check.green else "; but "
    return FlowResult(f"{name} reverts cleanly{fixes}{joint}{in_words(check)}", check=check, facts=facts, full=True)


def _alone(job: Job, tool: Toolchain, test: str) -> CheckResult | None:
    """The one test, where its tool can run it and the revert leaves it there."""
    if not tool.exact or not tool.present([test]):
        return None
    check = run_tests(job, tool, [test])
    job.say(f"{clean(test)}: {in_words(check)}")
    return check


def _show(job: Job, culprit: str) -> None:
    """The diff of the commit, without values that look secret."""
    text = job.git.text("show", "--format=", "--stat", "--patch", "--no-color", "--diff-merges=first-parent", culprit)
    lines = text.splitlines()
    for line in lines[:SHOWN]:
        job.say("(a line that looks secret)" if secret("", line[1:], "A" * 40) else sanitise(line))
    if len(lines) > SHOWN:
        job.say(f"and {len(lines) - SHOWN} more lines: git show {culprit[:10]}")
