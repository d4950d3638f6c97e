"""Flows that tidy up: the branches, stashes and commits of a repository, and what Clawpy stored for it.

Those on a repository never delete anything of yours. They say which branches and stashes are no longer needed, with the
commands that delete them, make branches for commits that are on none, and try the squashing of fixup commits. The last
two flows undo a landing and free disk space, through the housekeeping of the engine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Argument, Flow, FlowResult, Job, ProjectFlow, Revision
from engine.execution.runners.flows.git_steps import (
    find_known_main_branch,
    find_main_branch,
    list_commits,
    make_operator_git,
    read_commit,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    try_git,
)
from engine.execution.runners.flows.suite_runs import try_whole_suite
from engine.execution.trees import create_branch
from engine.frozen import frozen
from engine.git.history import Stash, count_apart, read_stashes, try_merge
from engine.git.lost_commits import is_reachable
from engine.model import Refusal
from engine.text import find_last_error_line
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
            "merged": f"Merged into {base} (git deletes them while {base} is checked out)",
            "applied": f"Their changes are in {base} as other commits (rebased or squashed)",
            "stale": f"No commit for {self.days} days (deleting them loses the commits that no other branch has)",
        }
        width = max((len(branch.name) for branch in branches), default=0)
        for state, title in titles.items():
            in_state = [branch for branch in branches if branch.state == state]
            if in_state:
                job.say(f"{title}:")
            for branch in in_state:
                note = "checked out" if branch.is_checked_out else branch.command
                numbers = f"{branch.days:>4} d  +{branch.ahead} -{branch.behind}"
                job.say(f"  {branch.name:<{width}}  {numbers:<16}  {note}")

    def _read_branches(self, job: Job, base: str) -> list[ComparedBranch]:
        """The other local branches, those with the oldest last commits first."""
        form = "%(refname:lstrip=2)%00%(objectname)%00%(committerdate:iso-strict)%00%(worktreepath)"
        lines = job.git.lines(
            "for-each-ref", "--sort=committerdate", f"--count={MAX_BRANCHES}", f"--format={form}", "refs/heads/"
        )
        branches = []
        for line in lines:
            name, sha, date, worktree = line.split("\0")
            if name == base:
                continue
            ahead, behind = count_apart(job.git, sha, f"refs/heads/{base}")
            days = max(0, (job.clock.now() - datetime.fromisoformat(date)).days)
            state: BranchState = "stale" if days >= self.days else "active"
            if ahead == 0:
                state = "merged"
            elif ahead <= MAX_PATCHES and _is_applied(job, base, sha):
                state = "applied"
            branches.append(ComparedBranch(name, days, ahead, behind, is_checked_out=bool(worktree), state=state))
        return branches


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

    @property
    def command(self) -> str:
        """The shell command that deletes it; "" if it should not be deleted."""
        name = shlex.quote(self.name)
        if self.is_checked_out or self.state == "active":
            return ""
        # -d deletes only a branch that git knows to be merged. A rebased or squashed branch needs -D.
        return f"git branch {'-d' if self.state == 'merged' else '-D'} -- {name}"


def _summarise_branches(base: str, branches: Sequence[ComparedBranch]) -> str:
    if not branches:
        return f"Nothing to tidy: there is no branch besides {base}"
    number = count(len(branches), "branch")
    to_tidy = [branch.state for branch in branches if branch.state != "active"]
    if not to_tidy:
        return f"Nothing to tidy: {number} besides {base}, all active"
    stale = to_tidy.count("stale")
    return f"{len(to_tidy) - stale} merged and {stale} stale of {number}"


def _is_applied(job: Job, base: str, sha: str) -> bool:
    """Whether the base has all changes of a branch, as separate commits or squashed into one."""
    upstream = f"refs/heads/{base}"
    lines = job.git.lines("cherry", upstream, sha)
    if lines and all(line.startswith("-") for line in lines):
        return True
    return not try_merge(job.git.folder, job.git.text("rev-parse", upstream), sha).changes_anything


# -- stashes that still apply

MAX_STASH_FILES = 20
"""Maximum number of files of a stash in the transcript."""


class LookAtStash(Flow):
    """Applies each stash to HEAD in a throw-away worktree; the stashes stay as they are."""

    name = "look_at_stash"
    label = "Look at stashes"
    work = "review"
    place = Place.WORKTREE
    stashes: list[Revision] = Field(min_length=1, max_length=10, description="the stashes, as ids of their commits")

    def describe(self) -> str:
        return f"Look at {count(len(self.stashes), 'old stash')}: does it still apply?"

    def run(self, job: Job) -> FlowResult:
        git = make_operator_git(job)
        head = git.text("rev-parse", "HEAD")
        stashes = [stash for stash in read_stashes(git) if stash.commit in self.stashes]
        if not stashes:
            return FlowResult("None of these stashes exists any more")
        trials: dict[str, StashTrial] = {}
        for stash in stashes:
            where = f"on {stash.branch}" if stash.branch else "on a detached HEAD"
            job.say(f"{stash.name} of {stash.at:%F}, {where}: {stash.message}")
            job.say_list(stash.files, MAX_STASH_FILES, indent="  ")
            trials[stash.name] = trial = _try_stash(job, stash, head)
            job.say(f"  {trial.outcome}")
            job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        reset_worktree(job, head)
        # Dropping a stash renumbers those with higher numbers, so the highest number is dropped first.
        needless = [name for name, trial in reversed(trials.items()) if trial.is_in_head]
        if needless:
            commands = " && ".join(f"git stash drop {name}" for name in needless)
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        outcomes = {name: trial.outcome for name, trial in trials.items()}
        summary = "; ".join(f"{stash.name} ({stash.message[:40]}): {outcomes[stash.name]}" for stash in stashes)
        return FlowResult(summary)


@frozen
class StashTrial:
    """What came of applying a stash."""

    outcome: str
    """In words."""
    is_in_head: bool = False
    """Whether HEAD has all of it, so that it can be dropped."""


def _try_stash(job: Job, stash: Stash, head: str) -> StashTrial:
    """Apply a stash to `head` in the worktree."""
    reset_worktree(job, head)
    # The stash is picked like a commit, because `git stash apply` would look into nested repositories.
    applied = try_git(job, "cherry-pick", "--no-commit", "--mainline", "1", stash.commit)
    if applied.error:
        raise WorkFailed(f"git cannot try {stash.name}: {find_last_error_line(applied.error)}")
    if applied.conflicts:
        return StashTrial(f"conflicts in {join_names(applied.conflicts, 3)}")
    untracked = _read_untracked(job, stash)
    in_head = {
        path: job.git.text("rev-parse", "--verify", "--quiet", f"{head}:{path}", allowed=(0, 1)) for path in untracked
    }
    different = [path for path, blob in untracked.items() if in_head[path] not in ("", blob)]
    if different:
        return StashTrial(f"does not apply: already there: {join_names(different, 3)}")
    if untracked == in_head and not job.git.text("status", "--porcelain"):
        return StashTrial("already in HEAD", is_in_head=True)
    return StashTrial("still applies")


def _read_untracked(job: Job, stash: Stash) -> dict[str, str]:
    """The untracked files of a stash: the ids of their contents by path."""
    blobs = {}
    for entry in job.git.items("ls-tree", "-r", "-z", f"{stash.commit}^3", allowed=(0, 128)):
        fields, _, path = entry.partition("\t")
        blobs[path] = fields.split()[2]
    return blobs


# -- commits that are on no branch, and fixup commits

_NO_EDITOR = {"GIT_SEQUENCE_EDITOR": ":", "GIT_EDITOR": ":"}
"""Environment in which git starts no editor: for the name `:` it runs no program."""


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


class RehearseAutosquash(ProjectFlow):
    """Runs `git rebase --autosquash` in a throw-away worktree; no branch moves."""

    name = "rehearse_autosquash"
    label = "Rehearse an autosquash"
    work = "rebase"
    place = Place.WORKTREE
    onto: Revision | None = Field(
        default=None, description="the parent of the oldest commit that changes; without it, the whole history"
    )

    def describe(self) -> str:
        since = f"since {self.onto[:10]}" if self.onto else "of the whole history"
        return f"Rehearse squashing the fixup commits {since}"

    def run(self, job: Job) -> FlowResult:
        head = make_operator_git(job).text("rev-parse", "HEAD")
        onto = resolve_commit(job, self.onto) if self.onto else ""
        command = f"git -c sequence.editor=: rebase -i --autosquash {onto[:10] or '--root'}"
        reset_worktree(job, head)
        before = _read_commits_since(job, onto)
        squashed = try_git(
            job, "rebase", "--interactive", "--autosquash", "--no-verify", onto or "--root", environment=_NO_EDITOR
        )
        if squashed.stop:
            report_conflicts(job, squashed.conflicts)
            job.say(squashed.error)
            return FlowResult(f"The autosquash {squashed.stop}", sound=False)
        after = _read_commits_since(job, onto)
        if len(after) == len(before):
            return FlowResult(f"Nothing to fold: no fixup of another among {count(len(before), 'commit')}")
        effect = f"{count(len(before), 'commit')} would become {len(after)}"
        job.say(f"{effect}:")
        list_commits(job, after)
        has_same_files = job.git.text("rev-parse", "HEAD^{tree}") == job.git.text("rev-parse", f"{head}^{{tree}}")
        if not has_same_files:
            summary = f"The autosquash changes the files: {effect}, but the result differs from HEAD"
            return FlowResult(summary, sound=False)
        check, outcome = try_whole_suite(job, self.project)
        summary = f"The autosquash is clean: {effect}, with the same files at the end{outcome}; to do it: `{command}`"
        return FlowResult(summary, check=check, full=check is not None)


def _read_commits_since(job: Job, onto: str) -> list[str]:
    return job.git.lines("rev-list", "HEAD", *(["--not", onto] if onto else []))


# -- what Clawpy stored: landings, worktrees and caches


class UndoLanding(Flow):
    """Restores all files of a landing, or none if one of them was edited since."""

    name = "undo_landing"
    label = "Undo a landing"
    work = "undo"
    place = Place.ENGINE
    changes = "undoes a landing"
    undo_note = "land the change again on the work screen"
    change_set: Argument = Field(description="id of the change set that was landed")

    def describe(self) -> str:
        return f"Undo the landing of {self.change_set}"

    def run(self, job: Job) -> FlowResult:
        housekeeping = job.require_housekeeping()
        try:
            undone = housekeeping.undo(self.change_set, str(job.workspace))
        except Refusal as refusal:
            raise WorkFailed(refusal.message, refusal.fix or "") from refusal
        for path in undone.restored:
            job.say(f"restored: {path}")
        job.say(f"Next: run the tests again. To land the change again: clawpy land {undone.change.id}")
        return FlowResult(
            f"The landing of “{undone.change.title}” is undone: {count(len(undone.restored), 'file')} restored",
            facts={"next": "rerun_failing"},
        )


class ReclaimSpace(Flow):
    """Removes worktrees of decided sessions and caches that no session uses. Changes that wait to be landed stay."""

    name = "reclaim_space"
    label = "Reclaim disk space"
    work = "disk"
    place = Place.ENGINE
    changes = "deletes what is not needed any more"
    undo_note = "not possible; what was removed is made again when it is needed"

    def describe(self) -> str:
        return "Remove worktrees and caches of clawpy that are no longer needed"

    def run(self, job: Job) -> FlowResult:
        housekeeping = job.require_housekeeping()
        try:
            reclaimed = housekeeping.reclaim()
        except OSError as error:
            raise WorkFailed(f"not everything could be removed: {error}", "check the folder") from error
        for session in reclaimed.worktrees:
            job.say(f"removed the worktree of {session}")
        if kept := housekeeping.count_needed_worktrees():
            job.say(f"{count(kept, 'worktree')} of undecided work kept: see `clawpy work`")
        numbers = {"worktree": len(reclaimed.worktrees), "cache": reclaimed.caches}
        removed = [count(number, kind) for kind, number in numbers.items() if number]
        if not removed:
            return FlowResult("Nothing to remove: clawpy needs everything that it stores")
        free = housekeeping.read_free_space()[0]
        job.say("The next test run rebuilds its cache and takes longer")
        summary = f"Freed {_format_size(reclaimed.freed)}: {' and '.join(removed)}; {_format_size(free)} free now"
        return FlowResult(summary)


def _format_size(size: int) -> str:
    """`3.0 MB`, `4.2 GB`."""
    return f"{size / 1_000_000_000:.1f} GB" if size >= 1_000_000_000 else f"{size / 1_000_000:.1f} MB"
