"""A branch for commits that no branch holds, so that git does not clear them away. Nothing is checked out."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution import branching
from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Parameters, Revision, clean, commit, count, home_git, listed, resolve
from engine.git.lost import held

TOLD = 20
"""So many commits of a branch are named."""


class KeepCommitsParameters(Parameters):
    """Which commits."""

    commits: list[Revision] = Field(min_length=1, max_length=5, description="the newest commit of each line to keep")


class KeepCommits:
    """Makes `rescued-…` branches and touches nothing else."""

    name: ClassVar = "keep_commits"
    title: ClassVar = "Keep commits"
    place: ClassVar = Place.BRANCH
    parameters: ClassVar[type[BaseModel]] = KeepCommitsParameters

    def describe(self, parameters: KeepCommitsParameters) -> str:
        return f"Make a branch for the commits that are on no branch: {listed(one[:10] for one in parameters.commits)}"

    def run(self, job: Job) -> FlowResult:
        git = home_git(job)
        made: dict[str, int] = {}
        for revision in dict.fromkeys(job.parameters.commits):
            tip = resolve(job, revision)
            if held(git, tip):
                job.say(f"A branch or tag has {commit(git, tip)} already")
                continue
            kept = git.text("rev-list", tip, "--not", "--branches", "--remotes", "--tags").split()
            name = f"rescued-{tip[:10]}"
            branching.create(git, name, tip)
            made[name] = len(kept)
            job.say(f"{name} keeps {count(len(kept), 'commit')}:")
            for one in kept[:TOLD]:
                job.say(f"  {commit(git, one)}")
            if len(kept) > TOLD:
                job.say(f"  and {len(kept) - TOLD} more")
            job.say(f"To work on them: `git switch {name}`. To bring them here: `git merge {name}`.")
            job.say(f"To remove the branch: `git branch -D {name}`")
        facts = {"branches": made, "undo": [f"git branch -D {name}" for name in made]}
        if not made:
            return FlowResult("Nothing to keep: all of them are already on a branch or tag", facts=facts)
        names = " and ".join(f"{name} ({count(number, 'commit')})" for name, number in made.items())
        undo = f"git branch -D {' '.join(made)}"
        return FlowResult(clean(f"Made {names}; to remove it: `{undo}`"), facts=facts)
