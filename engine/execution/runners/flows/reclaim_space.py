"""Give back the disk space that clawpy itself holds and does not need."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, count


class ReclaimSpaceParameters(Parameters):
    """None: everything that is not needed goes."""


class ReclaimSpace:
    """Worktrees of sessions that are over and decided, caches that no session uses. What waits to be landed stays."""

    name: ClassVar = "reclaim_space"
    title: ClassVar = "Reclaim disk space"
    place: ClassVar = Place.ENGINE
    parameters: ClassVar[type[BaseModel]] = ReclaimSpaceParameters

    def describe(self, parameters: ReclaimSpaceParameters) -> str:
        return "Remove worktrees and caches of clawpy that are no longer needed"

    def run(self, job: Job) -> FlowResult:
        upkeep = job.its_upkeep()
        try:
            done = upkeep.reclaim()
        except OSError as error:
            raise FlowUnable(f"not everything could be removed: {error}", "check the folder") from error
        for session in done.worktrees:
            job.say(f"removed the worktree of {session}")
        kept = upkeep.waiting()
        if kept:
            job.say(f"{count(kept, 'worktree')} of undecided work kept: see `clawpy work`")
        if not done.worktrees and not done.caches:
            return FlowResult("Nothing to remove: clawpy needs everything that it stores")
        what = [count(len(done.worktrees), "worktree")] if done.worktrees else []
        what += [count(done.caches, "cache")] if done.caches else []
        free = upkeep.free()[0]
        job.say("The next test run rebuilds its cache and takes longer")
        told = f"Freed {in_megabytes(done.freed)}: {' and '.join(what)}; {in_megabytes(free)} free now"
        return FlowResult(told, facts={"freed": done.freed})


def in_megabytes(size: int) -> str:
    """`3 MB`, `4.2 GB`."""
    return f"{size / 1_000_000_000:.1f} GB" if size >= 1_000_000_000 else f"{size / 1_000_000:.1f} MB"
