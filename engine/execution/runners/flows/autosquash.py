"""A flow that rehearses squashing the `fixup!` commits."""

from __future__ import annotations

from pydantic import Field

from engine.execution.runners.flow import Facts, FlowResult, Job, Place, ProjectFlow, Revision
from engine.execution.runners.flows.git_steps import (
    list_commits,
    operator_git,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    try_git,
)
from engine.execution.runners.flows.suite_runs import try_whole_suite
from engine.model.text import count

_NO_EDITOR = {"GIT_SEQUENCE_EDITOR": ":", "GIT_EDITOR": ":"}
"""Environment in which git starts no editor: for the name `:` it runs no program."""


class RehearseAutosquash(ProjectFlow):
    """Runs `git rebase --autosquash` in a throw-away worktree; no branch moves."""

    name = "rehearse_autosquash"
    label = "Rehearse an autosquash"
    place = Place.WORKTREE
    onto: Revision | None = Field(
        default=None, description="the parent of the oldest commit that changes; without it, the whole history"
    )

    def describe(self) -> str:
        since = f"since {self.onto[:10]}" if self.onto else "of the whole history"
        return f"Rehearse squashing the fixup commits {since}"

    def run(self, job: Job) -> FlowResult:
        head = operator_git(job).text("rev-parse", "HEAD")
        onto = resolve_commit(job, self.onto) if self.onto else ""
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or '--root'}"
        reset_worktree(job, head)
        before = _commits_since(job, onto)
        facts: Facts = {"head": head, "onto": onto, "before": len(before)}
        squashed = try_git(
            job, "rebase", "--interactive", "--autosquash", "--no-verify", onto or "--root", environment=_NO_EDITOR
        )
        if squashed.stop:
            report_conflicts(job, squashed.conflicts)
            job.say(squashed.error)
            return FlowResult(
                f"The autosquash {squashed.stop}", sound=False, facts=facts | {"conflicts": [*squashed.conflicts]}
            )
        after = _commits_since(job, onto)
        became = f"{count(len(before), 'commit')} would become {len(after)}"
        job.say(f"{became}:")
        list_commits(job, job.git, after)
        same = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        facts |= {"after": after, "same_files": same}
        if not same:
            summary = f"The autosquash changes the files: {became}, but the result differs from HEAD"
            return FlowResult(summary, sound=False, facts=facts)
        check, outcome = try_whole_suite(job, self.project)
        summary = f"The autosquash is clean: {became}, with the same files at the end{outcome}; to do it: `{command}`"
        return FlowResult(summary, check=check, facts=facts | {"command": command}, full=check is not None)


def _commits_since(job: Job, onto: str) -> list[str]:
    return job.git.text("rev-list", "HEAD", *(["--not", onto] if onto else [])).split()
