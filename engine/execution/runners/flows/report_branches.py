"""Which branches are done or forgotten, and the commands that tidy them. Deletes nothing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.clock import Clock, SystemClock
from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, clean, count, main_branch
from engine.git.merges import objects_aside

MAX_BRANCHES = 200
"""The branches that were idle longest, when there are more."""


class ReportBranchesParameters(Parameters):
    """What counts as forgotten."""

    days: int = Field(default=30, ge=1, le=3650, description="a branch without a commit for this many days is stale")


@dataclass(frozen=True, slots=True)
class Branch:
    """One local branch against the base. `here`: it is checked out in some working tree."""

    name: str
    sha: str
    days: int
    ahead: int
    behind: int
    here: bool
    state: str  # "merged", "applied", "stale" or "active"

    @property
    def command(self) -> str:
        """What tidies it, to be pasted into a shell; "" when there is nothing to do."""
        name = shlex.quote(self.name)
        if self.here or self.state == "active":
            return ""
        # -d refuses what git does not know to be merged; a rebased or squashed branch needs -D
        return f"git branch {'-d' if self.state == 'merged' else '-D'} -- {name}"


class ReportBranches:
    """Compares each local branch with the main one."""

    name: ClassVar = "report_branches"
    title: ClassVar = "Report branches"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = ReportBranchesParameters

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def describe(self, parameters: ReportBranchesParameters) -> str:
        return f"Report the branches that are merged or had no commit for {count(parameters.days, 'day')}"

    def run(self, job: Job) -> FlowResult:
        base = main_branch(job)
        if base is None:
            raise FlowUnable("no branch to compare with", "create main, or check out a branch")
        job.say(f"Compared with {clean(base)}")
        branches = self._branches(job, base)
        width = max((len(branch.name) for branch in branches), default=0)
        for state, title in (
            ("merged", f"Merged into {clean(base)}"),
            ("applied", f"Their changes are in {clean(base)} as other commits (rebased or squashed)"),
            ("stale", f"No commit for {job.parameters.days} days"),
        ):
            group = [branch for branch in branches if branch.state == state]
            if group:
                job.say(f"{title}:")
            for branch in group:
                note = "checked out" if branch.here else branch.command
                numbers = f"{branch.days:>4} d  +{branch.ahead} -{branch.behind}"
                job.say(f"  {clean(branch.name):<{width}}  {numbers:<16}  {note}")
        return _told(branches, base)

    def _branches(self, job: Job, base: str) -> list[Branch]:
        form = "%(refname)%00%(objectname)%00%(committerdate:iso-strict)%00%(worktreepath)"
        out = job.git.text(
            "for-each-ref", "--sort=committerdate", f"--count={MAX_BRANCHES}", f"--format={form}", "refs/heads/"
        )
        rows = [line.split("\0") for line in out.splitlines()]
        return [self._branch(job, base, row) for row in rows if row[0].removeprefix("refs/heads/") != base]

    def _branch(self, job: Job, base: str, row: list[str]) -> Branch:
        reference, sha, date, worktree = row
        left, right = job.git.text("rev-list", "--left-right", "--count", f"refs/heads/{base}...{sha}").split()
        ahead, behind = int(right), int(left)
        days = max(0, (self._clock.now() - datetime.fromisoformat(date)).days)
        state = "stale" if days >= job.parameters.days else "active"
        if ahead == 0:
            state = "merged"
        elif ahead <= 100 and _applied(job, base, sha):
            state = "applied"
        name = reference.removeprefix("refs/heads/")
        return Branch(name, sha, days, ahead, behind, here=bool(worktree), state=state)


def _applied(job: Job, base: str, sha: str) -> bool:
    """Whether the base has every change of a branch, commit for commit or squashed into one."""
    upstream = f"refs/heads/{base}"
    lines = job.git.text("cherry", upstream, sha).splitlines()
    if lines and all(line.startswith("-") for line in lines):
        return True
    fork = job.git.run("merge-base", upstream, sha, allowed=(0, 1)).stdout.decode().strip()
    if not fork:
        return False
    # squashed: merging it would change nothing any more
    aside = objects_aside(job.git, job.scratch)
    done = job.git.run("merge-tree", "--write-tree", "--no-messages", upstream, sha, allowed=(0, 1), environment=aside)
    return done.returncode == 0 and done.stdout.decode().strip() == job.git.text("rev-parse", f"{upstream}^{{tree}}")


def _told(branches: list[Branch], base: str) -> FlowResult:
    facts = {
        "base": clean(base),
        "branches": [
            {
                "name": clean(branch.name),
                "state": branch.state,
                "days": branch.days,
                "ahead": branch.ahead,
                "behind": branch.behind,
                "command": branch.command,
            }
            for branch in branches
            if branch.state != "active"
        ],
    }
    done = sum(branch.state in ("merged", "applied") for branch in branches)
    stale = sum(branch.state == "stale" for branch in branches)
    if not done + stale:
        return FlowResult(
            f"Nothing to tidy: {count(len(branches), 'branch', 'branches')} besides {base}, all active", facts=facts
        )
    return FlowResult(f"{done} merged and {stale} stale of {count(len(branches), 'branch', 'branches')}", facts=facts)
