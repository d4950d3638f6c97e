"""What is in a stash, and whether it still applies."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import (
    IDENTITY,
    Parameters,
    Revision,
    clean,
    count,
    home_git,
    listed,
    tidy,
)
from engine.git.operation import conflicted
from engine.git.stashes import Stash, read_stashes

TOLD = 20
"""So many files of a stash are named."""


class LookAtStashParameters(Parameters):
    """Which stashes."""

    stashes: list[Revision] = Field(min_length=1, max_length=10, description="the stashes, as ids of their commits")


class LookAtStash:
    """Each stash is applied to HEAD in a throw-away worktree; the stashes stay as they are."""

    name: ClassVar = "look_at_stash"
    title: ClassVar = "Look at stashes"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = LookAtStashParameters

    def describe(self, parameters: LookAtStashParameters) -> str:
        return f"Look at {count(len(parameters.stashes), 'old stash', 'old stashes')}: does it still apply?"

    def run(self, job: Job) -> FlowResult:
        git = home_git(job)
        asked = dict.fromkeys(job.parameters.stashes)
        there = [stash for stash in read_stashes(git) if stash.commit in asked]
        head = git.text("rev-parse", "HEAD")
        if not there:
            return FlowResult("None of these stashes exists any more")
        states = {stash.name: self._look(job, stash, head) for stash in there}
        tidy(job, head)
        gone = [stash for stash in there if states[stash.name] == "already in HEAD"]
        if gone:
            # Dropping one renumbers those above it: the highest number goes first.
            commands = " && ".join(f"git stash drop {stash.name}" for stash in reversed(gone))
            job.say(f"To drop the stashes that are already in HEAD: `{commands}`")
        told = "; ".join(f"{stash.name} ({clean(stash.words)[:40]}): {states[stash.name]}" for stash in there)
        return FlowResult(told, facts={"stashes": states})

    def _look(self, job: Job, stash: Stash, head: str) -> str:
        where = f"on {clean(stash.branch)}" if stash.branch else "on a detached HEAD"
        job.say(f"{stash.name} of {stash.at:%F}, {where}: {clean(stash.words)}")
        for path in stash.files[:TOLD]:
            job.say(f"  {clean(path)}")
        if len(stash.files) > TOLD:
            job.say(f"  and {len(stash.files) - TOLD} more")
        tidy(job, head)
        # As a commit on what it was made on: `git stash apply` itself would look into nested repositories.
        job.git.run(*IDENTITY, "cherry-pick", "--no-commit", "--mainline", "1", stash.commit, allowed=(0, 1))
        conflicts, (there, added) = list(conflicted(job.git)), self._untracked(job, stash, head)
        if conflicts:
            state = f"conflicts in {listed(conflicts, 3)}"
        elif there:
            state = f"does not apply: {listed(there, 3)} already {'exists' if len(there) == 1 else 'exist'}"
        elif not added and not job.git.text("status", "--porcelain"):
            state = "already in HEAD"
        else:
            state = "still applies"
        job.say(f"  {state}")
        job.say(f"  To apply: `git stash apply {stash.name}`; to drop: `git stash drop {stash.name}`")
        return state

    def _untracked(self, job: Job, stash: Stash, head: str) -> tuple[list[str], list[str]]:
        """Of the untracked files in a stash: those that HEAD has with other contents, and those that it lacks."""
        if job.git.run("rev-parse", "--verify", "--quiet", f"{stash.commit}^3", allowed=(0, 1)).returncode:
            return [], []
        there, added = [], []
        for entry in filter(None, job.git.text("ls-tree", "-r", "-z", f"{stash.commit}^3").split("\0")):
            about, _, path = entry.partition("\t")
            now = job.git.run("rev-parse", "--verify", "--quiet", f"{head}:{path}", allowed=(0, 1)).stdout.decode()
            if not now:
                added.append(path)
            elif now.strip() != about.split()[2]:
                there.append(path)
        return there, added
