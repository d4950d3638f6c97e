"""Apply a fix that worked before in a worktree, and run the tests that show it."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import (
    Line,
    ProjectParameters,
    TestId,
    clean,
    in_project,
    in_words,
    last_line,
    listed,
    run_tests,
    show_tree,
    tidy,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.flows.rehearse_merge import unmerged
from engine.model import sanitise
from engine.model.adaptation import LONGEST_PATCH

NEXT: Final = "still_red"
"""What follows a fix that does not help: a closer look at what is red."""


class ApplyFixParameters(ProjectParameters):
    """Which fix, and the tests that it turned green."""

    fix: Line = Field(description="id of the fix, as `clawpy candidates` lists it")
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of tests that must pass with it")
    patch: str = Field(min_length=1, max_length=LONGEST_PATCH, description="the fix as a diff of git")


class ApplyFix:
    """Three-way, so that code which moved meanwhile is no hindrance. What comes out is a change set: you land it, or
    throw it away. A fix that conflicts, or with which the tests stay red, leaves nothing and is a failure."""

    name: ClassVar = "apply_fix"
    title: ClassVar = "Apply a fix that worked before"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = ApplyFixParameters

    def describe(self, parameters: ApplyFixParameters) -> str:
        return (
            f"Apply the fix {clean(parameters.fix)} in a worktree and run {listed(parameters.tests, 2)}"
            + in_project(parameters.project)
        )

    def run(self, job: Job) -> FlowResult:
        tests: list[str] = job.parameters.tests
        facts = {"fix": job.parameters.fix, "tests": tests}
        failed = facts | {"next": NEXT}
        start = job.git.text("rev-parse", "HEAD")
        file = job.scratch / "fix.patch"
        file.write_text(job.parameters.patch, encoding="utf-8", newline="")
        for line in job.parameters.patch.splitlines():
            job.say(sanitise(line))
        done = job.git.run("apply", "--3way", "--whitespace=nowarn", str(file), allowed=(0, 1, 128))
        if done.returncode:
            conflicts = [path for path, _ in unmerged(job.git)]
            tidy(job, start)  # files with markers in them are nothing to land
            why = (
                f"it conflicts in {listed(conflicts, 4)}"
                if conflicts
                else clean(last_line(done.stderr.decode(errors="replace")))
            )
            return FlowResult(f"The fix does not apply: {why}", sound=False, facts=failed)
        fixed = job.git.text("write-tree")
        if fixed == job.git.text("rev-parse", f"{start}^{{tree}}"):
            told = "The files already have this fix, so the failure has another cause"
            return FlowResult(told, sound=False, facts=failed)
        job.say("The fix applies")
        tool = toolchain_of(toolchains(job), tests)
        check = run_tests(job, tool, tests if tool.exact else ())
        tidy(job, start)
        if set(tests) & set(check.failing) or not check.passed:
            told = f"The fix applies, but {listed(tests, 2)} still fails, so the fix is discarded: {in_words(check)}"
            return FlowResult(told, sound=False, facts=failed)
        show_tree(job, fixed)  # what tests left behind is no part of the fix
        return FlowResult(f"The fix applies and {listed(tests, 2)} passes: {in_words(check)}", check=check, facts=facts)
