"""The `fixup!` commits folded into what they mend, where nobody sees it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import (
    IDENTITY,
    ProjectParameters,
    Revision,
    clean,
    commit,
    count,
    home_git,
    in_words,
    listed,
    resolve,
    tidy,
    try_tests,
)
from engine.git.operation import conflicted

TOLD = 50
"""So many of the resulting commits are named."""

_NO_EDITOR = {"GIT_SEQUENCE_EDITOR": ":", "GIT_EDITOR": ":"}
"""git starts no program for an editor of this name."""


class RehearseAutosquashParameters(ProjectParameters):
    """Where the rebase begins."""

    onto: Revision | None = Field(
        default=None, description="the parent of the oldest commit that changes; without it, the whole history"
    )


class RehearseAutosquash:
    """`git rebase --autosquash` in a throw-away worktree; no branch moves."""

    name: ClassVar = "rehearse_autosquash"
    title: ClassVar = "Rehearse an autosquash"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = RehearseAutosquashParameters

    def describe(self, parameters: RehearseAutosquashParameters) -> str:
        since = f"since {clean(parameters.onto)[:10]}" if parameters.onto else "of the whole history"
        return f"Rehearse squashing the fixup commits {since}"

    def run(self, job: Job) -> FlowResult:
        head = home_git(job).text("rev-parse", "HEAD")
        onto = resolve(job, job.parameters.onto) if job.parameters.onto else ""
        start = onto or "--root"
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or start}"
        tidy(job, head)
        before = _since(job, onto)
        done = job.git.run(
            *IDENTITY, "rebase", "--interactive", "--autosquash", "--no-verify", start,
            environment=_NO_EDITOR, allowed=(0, 1, 128),
        )  # fmt: skip
        facts: dict[str, object] = {"head": head, "onto": onto, "before": len(before)}
        if done.returncode:
            return self._stopped(job, done.stderr.decode(errors="replace"), facts)
        after = _since(job, onto)
        job.say(f"{count(len(before), 'commit')} would become {len(after)}:")
        for sha in after[:TOLD]:
            job.say(f"  {commit(job.git, sha)}")
        if len(after) > TOLD:
            job.say(f"  and {len(after) - TOLD} more")
        same = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        facts |= {"after": [clean(sha) for sha in after], "same_files": same}
        became = f"{count(len(before), 'commit')} would become {len(after)}"
        if not same:
            summary = f"The autosquash changes the files: {became}, but the result differs from HEAD"
            return FlowResult(summary, sound=False, facts=facts)
        check, why = try_tests(job)
        if why:
            job.say(why)
        job.say(f"To do it: `{command}`")
        tested = f", {in_words(check)}" if check else ""
        summary = f"The autosquash is clean: {became}, with the same files at the end{tested}; to do it: `{command}`"
        return FlowResult(summary, check=check, facts=facts | {"command": command}, full=check is not None)

    def _stopped(self, job: Job, said: str, facts: dict[str, object]) -> FlowResult:
        files = list(conflicted(job.git))
        stopped = job.git.text("log", "-1", "--no-show-signature", "--format=%h “%s”", "REBASE_HEAD", allowed=(0, 128))
        job.git.run("rebase", "--abort", allowed=(0, 1, 128))
        for path in files:
            job.say(f"conflict  {clean(path)}")
        if not files:
            job.say(clean(said)[-300:])
        where = f" in {listed(files, 3)}" if files else ""
        summary = f"The autosquash stops at {clean(stopped)}{where}"
        return FlowResult(summary, facts=facts | {"conflicts": [clean(path) for path in files]})


def _since(job: Job, onto: str) -> list[str]:
    return job.git.text("rev-list", "HEAD", *(["--not", onto] if onto else [])).split()
