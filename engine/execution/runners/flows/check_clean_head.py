"""Does HEAD pass without the uncommitted files?"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, Job, Place
from engine.execution.runners.flows.common import (
    ProjectParameters,
    RepoPath,
    clean,
    combined,
    commit,
    count,
    in_project,
    in_words,
    listed,
    reddest,
    resolve,
    run_plan,
    run_tests,
    sentence,
    show_tree,
    stored,
    tidy,
    toolchains,
)
from engine.execution.runners.toolchains.bound import Toolchain, borrowed
from engine.model import CheckResult

COMPARE_LIMIT = 50
"""With more failing tests than this the files as they were are not tried again."""


class CheckCleanHeadParameters(ProjectParameters):
    """What is not committed."""

    files: list[RepoPath] = Field(
        default=[], description="the uncommitted files, only for the description: all are left out"
    )


class CheckCleanHead:
    """Runs the whole suite on HEAD alone; what is red there is tried again with the uncommitted files."""

    name: ClassVar = "check_clean_head"
    title: ClassVar = "Check a clean HEAD"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = CheckCleanHeadParameters

    def describe(self, parameters: CheckCleanHeadParameters) -> str:
        files, where = parameters.files, in_project(parameters.project)
        if not files:
            return f"Check that HEAD passes{where} without the uncommitted files"
        names = listed(files, 3)
        return f"Check that HEAD passes{where} without {count(len(files), 'uncommitted file')}: {names}"

    def run(self, job: Job) -> FlowResult:
        snapshot = stored(job)
        head = resolve(job, "HEAD")
        tidy(job, head)
        left_out = _between(job, head, snapshot)
        job.say(f"HEAD is {commit(job.git, head)}")
        job.say(f"Left out: {listed(left_out) if left_out else 'nothing, everything is committed'}")
        tools = toolchains(job)
        facts: dict[str, object] = {"head": head, "left_out": left_out}
        with borrowed(tools, job.folder, job.workspace):
            done = run_plan(job, [(tool, []) for tool in tools])
            check = combined([check for _, check in done])
            if check.green:
                return FlowResult(f"HEAD is complete: {in_words(check)}", check=check, facts=facts, full=True)
            needed = self._with_files(job, *reddest(done), snapshot) if left_out else None
            tidy(job, head)  # the result is HEAD's: that is the state it is recorded with
        if needed is None:
            return FlowResult(sentence(f"on HEAD alone {in_words(check)}"), check=check, facts=facts, full=True)
        facts["passes_with_files"] = needed
        words = (
            f"; {len(needed)} of them pass with the uncommitted files"
            if needed
            else "; they also fail with the uncommitted files"
        )
        return FlowResult(f"On HEAD alone {in_words(check)}{words}", check=check, facts=facts, full=True)

    def _with_files(self, job: Job, tool: Toolchain, check: CheckResult, snapshot: str) -> list[str] | None:
        """Which of the failing tests pass once the uncommitted files are there; None when that cannot be asked."""
        failing = list(check.failing)
        if not tool.exact or not failing or len(failing) > COMPARE_LIMIT:
            return None
        job.say("Running the failing tests again, with the uncommitted files")
        show_tree(job, snapshot)
        if not tool.present(failing):
            return None
        try:
            again = run_tests(job, tool, tool.present(failing))
        except CannotRun as error:
            job.say(error.message)
            return None
        return [test for test in failing if test not in again.failing]


def _between(job: Job, head: str, tree: str) -> list[str]:
    """The files in which the snapshot differs from HEAD."""
    names = job.git.text("diff-tree", "-r", "--name-only", "--no-renames", "-z", head, tree).split("\0")
    return [clean(name) for name in names if name]
