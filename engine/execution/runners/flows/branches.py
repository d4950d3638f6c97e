"""Flows about branches: those that are no longer needed, commits that are on none, and the branch of a pull request.

They delete no branch. They give the command that does, and say what would be lost.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job, Line, Revision
from engine.execution.runners.flows.git_steps import (
    find_known_main_branch,
    find_main_branch,
    list_commits,
    make_operator_git,
    read_commit,
    resolve_commit,
)
from engine.execution.trees import create_branch
from engine.frozen import frozen
from engine.git.history import count_apart, find_commit, is_ancestor, read_reflog, try_merge
from engine.git.lost_commits import is_reachable
from engine.wording import count, join_names

# -- branches that can be deleted

MAX_BRANCHES = 200
"""Maximum number of branches. If there are more, those with the oldest last commits are taken."""

MAX_PATCHES = 100
"""Maximum number of commits of a branch whose changes are searched in the base."""


class ReportBranches(Flow):
    """Compares each local branch with the main one."""

    name = "report_branches"
    label = "Report branches"
    work = "branches"
    place = Place.OPERATOR_TREE
    days: int = Field(default=30, ge=1, le=3650, description="a branch without a commit for this many days is stale")

    def describe(self) -> str:
        return f"Report the branches that are merged or had no commit for {count(self.days, 'day')}"

    def run(self, job: Job) -> FlowResult:
        base = find_main_branch(job)
        if base is None:
            raise WorkFailed("no branch to compare with", "create main, or check out a branch")
        job.say(f"Compared with {base}")
        if find_known_main_branch(job) is None:
            job.say("That is the branch of HEAD: no main branch is known. Name it: git config init.defaultBranch NAME")
        branches = self._read_branches(job, base)
        self._report(job, base, branches)
        return FlowResult(_summarise_branches(base, branches))

    def _report(self, job: Job, base: str, branches: Sequence[ComparedBranch]) -> None:
        """Show the branches that can be tidied up, by their state, each with the command that deletes it."""
        titles = {
            "merged": f"Merged into {base}",
            "applied": f"Their changes are in {base} as other commits (rebased or squashed)",
            "stale": f"No commit for {self.days} days",
        }
        width = max((len(branch.name) for branch in branches), default=0)
        stale = [branch.name for branch in branches if branch.state == "stale"]
        for state, title in titles.items():
            in_state = [branch for branch in branches if branch.state == state]
            if in_state:
                job.say(f"{title}:")
            for branch in in_state:
                note = branch.deletion
                if branch.is_checked_out:
                    note = "checked out"
                elif state == "stale" and (lost := _count_lost_commits(job, branch.name, stale)):
                    note += f"  # loses {count(lost, 'commit')}"
                numbers = f"{branch.days:>4} d  +{branch.ahead} -{branch.behind}"
                job.say(f"  {branch.name:<{width}}  {numbers:<16}  {note}")

    def _read_branches(self, job: Job, base: str) -> list[ComparedBranch]:
        """The other local branches, those with the oldest last commits first."""
        form = "%(refname:lstrip=2)%00%(objectname)%00%(committerdate:iso-strict)%00%(worktreepath)%00%(upstream)"
        lines = job.git.lines(
            "for-each-ref", "--sort=committerdate", f"--count={MAX_BRANCHES}", f"--format={form}", "refs/heads/"
        )
        branches = []
        for line in lines:
            name, sha, date, worktree, upstream = line.split("\0")
            if name == base:
                continue
            ahead, behind = count_apart(job.git, sha, f"refs/heads/{base}")
            days = max(0, (job.clock.now() - datetime.fromisoformat(date)).days)
            state = self._find_state(job, base, name, ahead, days)
            # Without -D, git deletes only what is in the upstream of a branch, or else in HEAD.
            option = "-d" if state == "merged" and _is_in_upstream_or_head(job, sha, upstream) else "-D"
            deletion = f"git branch {option} -- {shlex.quote(name)}"
            branches.append(ComparedBranch(name, days, ahead, behind, bool(worktree), state, deletion))
        return branches

    def _find_state(self, job: Job, base: str, name: str, ahead: int, days: int) -> BranchState:
        """The state of a branch that is `ahead` commits ahead of the base, the last one `days` days old."""
        if ahead == 0:
            return "active" if self._is_new(job, name) else "merged"
        if ahead <= MAX_PATCHES and _is_applied(job, base, f"refs/heads/{name}"):
            return "applied"
        return "stale" if days >= self.days else "active"

    def _is_new(self, job: Job, branch: str) -> bool:
        """Whether a branch was made within `days`, and nothing was done on it since."""
        log = read_reflog(job.git, f"refs/heads/{branch}")
        return len(log) == 1 and job.clock.now() - log[0].at < timedelta(days=self.days)


BranchState = Literal["merged", "applied", "stale", "active"]
"""How a branch compares with the base. "applied" means that the base has its changes as other commits, because it was
rebased or squashed. "stale" had no commit for a number of days."""


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
    state: BranchState
    deletion: str
    """The shell command that deletes it."""


def _summarise_branches(base: str, branches: Sequence[ComparedBranch]) -> str:
    if not branches:
        return f"Nothing to tidy: there is no branch besides {base}"
    number = count(len(branches), "branch")
    to_tidy = [branch.state for branch in branches if branch.state != "active"]
    if not to_tidy:
        return f"Nothing to tidy: {number} besides {base}, all active"
    stale = to_tidy.count("stale")
    return f"{len(to_tidy) - stale} merged and {stale} stale of {number}"


def _is_applied(job: Job, base: str, branch: str) -> bool:
    """Whether the base has all changes of a branch, as separate commits or squashed into one."""
    upstream = f"refs/heads/{base}"
    lines = job.git.lines("cherry", upstream, branch)
    if lines and all(line.startswith("-") for line in lines):
        return True
    return not try_merge(job.git.folder, job.git.text("rev-parse", upstream), branch).changes_anything


def _is_in_upstream_or_head(job: Job, sha: str, upstream: str) -> bool:
    """Whether the `upstream` of a branch has its commit; HEAD, if that does not exist."""
    exists = upstream and find_commit(job.git, upstream)
    return is_ancestor(job.git, sha, upstream if exists else "HEAD")


def _count_lost_commits(job: Job, branch: str, stale: Sequence[str]) -> int:
    """The number of commits that would be lost with a branch, because only branches that are `stale` have them."""
    kept = (*(f"--exclude={name}" for name in stale), "--branches", "--remotes", "--tags")
    return int(job.git.text("rev-list", "--count", f"refs/heads/{branch}", "--not", *kept))


# -- commits that are on no branch


class KeepCommits(Flow):
    """Makes `rescued-…` branches and changes nothing else."""

    name = "keep_commits"
    label = "Keep commits"
    work = "branches"
    place = Place.BRANCH
    commits: list[Revision] = Field(min_length=1, max_length=5, description="the newest commit of each line to keep")

    def describe(self) -> str:
        return f"Make a branch for the commits that are on no branch: {join_names(sha[:10] for sha in self.commits)}"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        branches: dict[str, int] = {}
        for tip in dict.fromkeys(resolve_commit(job, revision) for revision in self.commits):
            if is_reachable(git, tip):
                job.say(f"A branch or tag has {read_commit(job, tip)} already")
                continue
            unreachable = git.lines("rev-list", tip, "--not", "--branches", "--remotes", "--tags")
            name = f"rescued-{tip[:10]}"
            create_branch(git, name, tip)
            branches[name] = len(unreachable)
            job.say(f"{name} keeps {count(len(unreachable), 'commit')}:")
            list_commits(job, unreachable)
            job.say(f"To work on them: `git switch {name}`. To bring them here: `git merge {name}`.")
            job.say(f"To remove the branch: `git branch -D {name}`")
        if not branches:
            return FlowResult("Nothing to keep: all of them are already on a branch or tag")
        names = " and ".join(f"{name} ({count(number, 'commit')})" for name, number in branches.items())
        return FlowResult(f"Made {names}; to remove it: `git branch -D {' '.join(branches)}`")


# -- the branch of a pull request

MAX_SHOWN_ROWS = 30
"""Maximum number of commits, and of files, of a pull request in the transcript."""


class LookAtPullRequest(Flow):
    """Says who waits for what, what its branch changes if it is here, and the commands that show the rest."""

    name = "look_at_pull_request"
    label = "Look at a pull request"
    work = "review"
    place = Place.OPERATOR_TREE
    number: int = Field(ge=1, description="its number")
    title: Line = Field(default="", description="its title")
    url: Line = Field(default="", description="where it is")
    branch: Line = Field(default="", description="the branch to be merged")
    waits: Line = Field(default="", description="who is waiting for what, and since when")

    def describe(self) -> str:
        return f"Look at pull request #{self.number} “{self.title}”"

    def run(self, job: Job) -> FlowResult:
        for line in (f"#{self.number} {self.title}", self.url, self.waits):
            if line.strip():
                job.say(line)
        changed = self._describe_branch(job)
        job.say(f"Next: gh pr view {self.number} --comments")
        job.say(f"      gh pr diff {self.number}")
        job.say(f"      gh pr checkout {self.number}")
        state = self.waits.rstrip(".") or f"Pull request #{self.number}"
        return FlowResult(f"{state}; {changed or 'its branch is not here'}")

    def _describe_branch(self, job: Job) -> str:
        """The changes of the branch against the main branch in words; "" if the repository does not have the branch."""
        git, base, branch = make_operator_git(job), find_main_branch(job), self.branch
        of_remote = re.compile(rf"refs/remotes/[^/]+/{re.escape(branch)}")
        refs = git.lines("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")
        ref = next((name for name in refs if name == f"refs/heads/{branch}" or of_remote.fullmatch(name)), "")
        if not ref or base is None or ref == f"refs/heads/{base}":
            return ""
        start = git.text("merge-base", f"refs/heads/{base}", ref, allowed=(0, 1))
        if not start:
            return ""
        commits = git.lines("log", "--no-show-signature", "--format=%h %an: %s", f"{start}..{ref}")
        files = git.lines("diff", "--stat", "--no-color", start, ref)
        job.say_list(commits, MAX_SHOWN_ROWS)
        job.say_list(files, MAX_SHOWN_ROWS)
        return f"{count(len(commits), 'commit')}, {count(max(len(files) - 1, 0), 'file')} changed against {base}"
