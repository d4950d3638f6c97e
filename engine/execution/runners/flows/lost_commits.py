"""Flows about commits that are on no branch: stashes, and commits that git will delete."""

from __future__ import annotations

from pydantic import Field

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place, Revision
from engine.execution.runners.flows.git_steps import (
    list_commits,
    operator_git,
    read_commit,
    reset_worktree,
    resolve_commit,
    try_git,
)
from engine.execution.tree_merges import create_branch
from engine.git.lost_commits import Stash, is_reachable, read_stashes
from engine.model.text import count, join_names, last_line

MAX_STASH_FILES = 20
"""Maximum number of files of a stash in the transcript."""


class LookAtStash(Flow):
    """Applies each stash to HEAD in a throw-away worktree; the stashes stay as they are."""

    name = "look_at_stash"
    label = "Look at stashes"
    place = Place.WORKTREE
    stashes: list[Revision] = Field(min_length=1, max_length=10, description="the stashes, as ids of their commits")

    def describe(self) -> str:
        return f"Look at {count(len(self.stashes), 'old stash')}: does it still apply?"

    def run(self, job: Job) -> FlowResult:
        git = operator_git(job)
        head = git.text("rev-parse", "HEAD")
        stashes = [stash for stash in read_stashes(git) if stash.commit in self.stashes]
        if not stashes:
            return FlowResult("None of these stashes exists any more")
        states = {stash.name: self._try_stash(job, stash, head) for stash in stashes}
        reset_worktree(job, head)
        # Dropping a stash renumbers those with higher numbers, so the highest number is dropped first.
        in_head = [name for name, state in reversed(states.items()) if state == "already in HEAD"]
        if in_head:
            commands = " && ".join(f"git stash drop {name}" for name in in_head)
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        summary = "; ".join(f"{stash.name} ({stash.words[:40]}): {states[stash.name]}" for stash in stashes)
        return FlowResult(summary, facts={"stashes": states})

    def _try_stash(self, job: Job, stash: Stash, head: str) -> str:
        where = f"on {stash.branch}" if stash.branch else "on a detached HEAD"
        job.say(f"{stash.name} of {stash.at:%F}, {where}: {stash.words}")
        job.say_list(stash.files, MAX_STASH_FILES, indent="  ")
        state = _find_state(job, stash, head)
        job.say(f"  {state}")
        job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        return state


def _find_state(job: Job, stash: Stash, head: str) -> str:
    """Apply a stash to `head` in the worktree. Returns in words whether that works."""
    reset_worktree(job, head)
    # The stash is picked like a commit, because `git stash apply` would look into nested repositories.
    applied = try_git(job, "cherry-pick", "--no-commit", "--mainline", "1", stash.commit)
    if applied.error:
        raise FlowError(f"git cannot try {stash.name}: {last_line(applied.error)}")
    if applied.conflicts:
        return f"conflicts in {join_names(applied.conflicts, 3)}"
    untracked = _read_untracked(job, stash)
    in_head = {path: _find_object(job, head, path) for path in untracked}
    different = [path for path, blob in untracked.items() if in_head[path] not in ("", blob)]
    if different:
        return f"does not apply: {join_names(different, 3)} already {'exists' if len(different) == 1 else 'exist'}"
    if untracked == in_head and not job.git.text("status", "--porcelain"):
        return "already in HEAD"
    return "still applies"


def _read_untracked(job: Job, stash: Stash) -> dict[str, str]:
    """The untracked files of a stash: the ids of their contents by path."""
    blobs = {}
    for entry in job.git.items("ls-tree", "-r", "-z", f"{stash.commit}^3", allowed=(0, 128)):
        about, _, path = entry.partition("\t")
        blobs[path] = about.split()[2]
    return blobs


def _find_object(job: Job, commit: str, path: str) -> str:
    """The id of what `commit` has at `path`, "" if it has nothing there."""
    return job.git.text("rev-parse", "--verify", "--quiet", f"{commit}:{path}", allowed=(0, 1))


class KeepCommits(Flow):
    """Makes `rescued-…` branches and changes nothing else."""

    name = "keep_commits"
    label = "Keep commits"
    place = Place.BRANCH
    commits: list[Revision] = Field(min_length=1, max_length=5, description="the newest commit of each line to keep")

    def describe(self) -> str:
        return f"Make a branch for the commits that are on no branch: {join_names(sha[:10] for sha in self.commits)}"

    def run(self, job: Job) -> FlowResult:
        git = operator_git(job)
        branches: dict[str, int] = {}
        for tip in dict.fromkeys(resolve_commit(job, revision) for revision in self.commits):
            if is_reachable(git, tip):
                job.say(f"A branch or tag has {read_commit(git, tip)} already")
                continue
            unreachable = git.text("rev-list", tip, "--not", "--branches", "--remotes", "--tags").split()
            name = f"rescued-{tip[:10]}"
            create_branch(git, name, tip)
            branches[name] = len(unreachable)
            job.say(f"{name} keeps {count(len(unreachable), 'commit')}:")
            list_commits(job, git, unreachable)
            job.say(f"To work on them: `git switch {name}`. To bring them here: `git merge {name}`.")
            job.say(f"To remove the branch: `git branch -D {name}`")
        facts = {"branches": branches, "undo": [f"git branch -D {name}" for name in branches]}
        if not branches:
            return FlowResult("Nothing to keep: all of them are already on a branch or tag", facts=facts)
        names = " and ".join(f"{name} ({count(number, 'commit')})" for name, number in branches.items())
        return FlowResult(f"Made {names}; to remove it: `git branch -D {' '.join(branches)}`", facts=facts)
