"""A flow that reports merged and stale branches, with the commands that delete them."""

from __future__ import annotations

import shlex
from datetime import datetime

from pydantic import Field

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place, as_facts
from engine.execution.runners.flows.git_steps import main_branch
from engine.frozen import frozen
from engine.git.history import count_apart
from engine.git.merges import try_merge
from engine.model.text import count

MAX_BRANCHES = 200
"""Maximum number of branches. If there are more, those with the oldest last commits are taken."""


@frozen
class ComparedBranch:
    """One local branch, compared with the base."""

    name: str
    days: int
    """Days since its last commit."""
    ahead: int
    behind: int
    is_checked_out: bool
    """Whether it is checked out in any working tree."""
    state: str
    """"merged", "applied" (rebased or squashed), "stale" or "active"."""

    @property
    def command(self) -> str:
        """The shell command that deletes it; "" if it should not be deleted."""
        name = shlex.quote(self.name)
        if self.is_checked_out or self.state == "active":
            return ""
        # -d deletes only a branch that git knows to be merged. A rebased or squashed branch needs -D.
        return f"git branch {'-d' if self.state == 'merged' else '-D'} -- {name}"


class ReportBranches(Flow):
    """Compares each local branch with the main one."""

    name = "report_branches"
    label = "Report branches"
    place = Place.OPERATOR_TREE
    days: int = Field(default=30, ge=1, le=3650, description="a branch without a commit for this many days is stale")

    def describe(self) -> str:
        return f"Report the branches that are merged or had no commit for {count(self.days, 'day')}"

    def run(self, job: Job) -> FlowResult:
        base = main_branch(job)
        if base is None:
            raise FlowError("no branch to compare with", "create main, or check out a branch")
        job.say(f"Compared with {base}")
        branches = self._read_branches(job, base)
        width = max((len(branch.name) for branch in branches), default=0)
        titles = {
            "merged": f"Merged into {base}",
            "applied": f"Their changes are in {base} as other commits (rebased or squashed)",
            "stale": f"No commit for {self.days} days",
        }
        for state, title in titles.items():
            group = [branch for branch in branches if branch.state == state]
            if group:
                job.say(f"{title}:")
            for branch in group:
                note = "checked out" if branch.is_checked_out else branch.command
                numbers = f"{branch.days:>4} d  +{branch.ahead} -{branch.behind}"
                job.say(f"  {branch.name:<{width}}  {numbers:<16}  {note}")
        to_tidy = [branch for branch in branches if branch.state in titles]
        rows = as_facts(to_tidy, "name", "state", "days", "ahead", "behind", "command")
        stale = sum(branch.state == "stale" for branch in to_tidy)
        number = count(len(branches), "branch")
        summary = f"{len(to_tidy) - stale} merged and {stale} stale of {number}"
        if not to_tidy:
            summary = f"Nothing to tidy: {number} besides {base}, all active"
        return FlowResult(summary, facts={"base": base, "branches": rows})

    def _read_branches(self, job: Job, base: str) -> list[ComparedBranch]:
        form = "%(refname)%00%(objectname)%00%(committerdate:iso-strict)%00%(worktreepath)"
        out = job.git.text(
            "for-each-ref", "--sort=committerdate", f"--count={MAX_BRANCHES}", f"--format={form}", "refs/heads/"
        )
        rows = [line.split("\0") for line in out.splitlines()]
        return [self._read_branch(job, base, row) for row in rows if row[0].removeprefix("refs/heads/") != base]

    def _read_branch(self, job: Job, base: str, row: list[str]) -> ComparedBranch:
        reference, sha, date, worktree = row
        ahead, behind = count_apart(job.git, sha, f"refs/heads/{base}")
        days = max(0, (job.clock.now() - datetime.fromisoformat(date)).days)
        state = "stale" if days >= self.days else "active"
        if ahead == 0:
            state = "merged"
        elif ahead <= 100 and _is_applied(job, base, sha):
            state = "applied"
        name = reference.removeprefix("refs/heads/")
        return ComparedBranch(name, days, ahead, behind, is_checked_out=bool(worktree), state=state)


def _is_applied(job: Job, base: str, sha: str) -> bool:
    """Whether the base has all changes of a branch, as separate commits or squashed into one."""
    upstream = f"refs/heads/{base}"
    lines = job.git.text("cherry", upstream, sha).splitlines()
    if lines and all(line.startswith("-") for line in lines):
        return True
    return not try_merge(job.git.folder, job.git.text("rev-parse", upstream), sha).adds
