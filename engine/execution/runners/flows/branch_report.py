"""The flow that reports merged and stale branches, with the commands that delete them. It deletes nothing."""

from __future__ import annotations

import shlex
from datetime import datetime

from pydantic import Field

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place
from engine.execution.runners.flows.git_state import main_branch
from engine.execution.runners.flows.wording import as_facts, count
from engine.frozen import frozen
from engine.git.commits import count_apart
from engine.git.merges import is_merged, separate_objects

MAX_BRANCHES = 200
"""Maximum number of branches; the longest idle ones when there are more."""


@frozen
class ComparedBranch:
    """One local branch, compared with the base."""

    name: str
    sha: str
    days: int
    """Days since its last commit."""
    ahead: int
    behind: int
    is_checked_out: bool
    """In some working tree."""
    state: str
    """"merged", "applied" (rebased or squashed), "stale" or "active"."""

    @property
    def command(self) -> str:
        """The shell command that deletes it; "" when there is nothing to do."""
        name = shlex.quote(self.name)
        if self.is_checked_out or self.state == "active":
            return ""
        # -d refuses what git does not know to be merged; a rebased or squashed branch needs -D
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
        for state, title in (
            ("merged", f"Merged into {base}"),
            ("applied", f"Their changes are in {base} as other commits (rebased or squashed)"),
            ("stale", f"No commit for {self.days} days"),
        ):
            group = [branch for branch in branches if branch.state == state]
            if group:
                job.say(f"{title}:")
            for branch in group:
                note = "checked out" if branch.is_checked_out else branch.command
                numbers = f"{branch.days:>4} d  +{branch.ahead} -{branch.behind}"
                job.say(f"  {branch.name:<{width}}  {numbers:<16}  {note}")
        return _make_result(branches, base)

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
        return ComparedBranch(name, sha, days, ahead, behind, is_checked_out=bool(worktree), state=state)


def _is_applied(job: Job, base: str, sha: str) -> bool:
    """Whether the base has every change of a branch, commit for commit or squashed into one."""
    upstream = f"refs/heads/{base}"
    lines = job.git.text("cherry", upstream, sha).splitlines()
    if lines and all(line.startswith("-") for line in lines):
        return True
    return is_merged(job.git, upstream, sha, separate_objects(job.git, job.scratch))


def _make_result(branches: list[ComparedBranch], base: str) -> FlowResult:
    to_tidy = [branch for branch in branches if branch.state != "active"]
    facts = {
        "base": base,
        "branches": as_facts(to_tidy, "name", "state", "days", "ahead", "behind", "command"),
    }
    stale = sum(branch.state == "stale" for branch in to_tidy)
    if not to_tidy:
        return FlowResult(
            f"Nothing to tidy: {count(len(branches), 'branch', 'branches')} besides {base}, all active", facts=facts
        )
    return FlowResult(
        f"{len(to_tidy) - stale} merged and {stale} stale of {count(len(branches), 'branch', 'branches')}", facts=facts
    )
