"""Flows that change the engine's own files: they reclaim disk space, or undo a landing as `clawpy undo` does."""

from __future__ import annotations

from pydantic import Field

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place, Revision
from engine.model import Refusal
from engine.model.text import count


class ReclaimSpace(Flow):
    """Removes worktrees of decided sessions and caches that no session uses. Changes that wait to be landed stay."""

    name = "reclaim_space"
    label = "Reclaim disk space"
    place = Place.ENGINE

    def describe(self) -> str:
        return "Remove worktrees and caches of clawpy that are no longer needed"

    def run(self, job: Job) -> FlowResult:
        upkeep = job.require_upkeep()
        try:
            reclaimed = upkeep.reclaim()
        except OSError as error:
            raise FlowError(f"not everything could be removed: {error}", "check the folder") from error
        for session in reclaimed.worktrees:
            job.say(f"removed the worktree of {session}")
        waiting = upkeep.count_needed_worktrees()
        if waiting:
            job.say(f"{count(waiting, 'worktree')} of undecided work kept: see `clawpy work`")
        if not reclaimed.worktrees and not reclaimed.caches:
            return FlowResult("Nothing to remove: clawpy needs everything that it stores")
        removed = [count(len(reclaimed.worktrees), "worktree")] if reclaimed.worktrees else []
        removed += [count(reclaimed.caches, "cache")] if reclaimed.caches else []
        free = upkeep.read_free_space()[0]
        job.say("The next test run rebuilds its cache and takes longer")
        summary = f"Freed {format_size(reclaimed.freed)}: {' and '.join(removed)}; {format_size(free)} free now"
        return FlowResult(summary, facts={"freed": reclaimed.freed})


def format_size(size: int) -> str:
    """`3 MB`, `4.2 GB`."""
    return f"{size / 1_000_000_000:.1f} GB" if size >= 1_000_000_000 else f"{size / 1_000_000:.1f} MB"


class UndoLanding(Flow):
    """Restores all files of a landing, or none if one of them was edited since."""

    name = "undo_landing"
    label = "Undo a landing"
    place = Place.ENGINE
    change_set: Revision = Field(description="id of the change set that was landed")

    def describe(self) -> str:
        return f"Undo the landing of {self.change_set}"

    def run(self, job: Job) -> FlowResult:
        upkeep = job.require_upkeep()
        try:
            change = upkeep.undo(self.change_set, str(job.workspace))
        except Refusal as refusal:
            raise FlowError(refusal.message, refusal.fix or "") from refusal
        for file in change.files:
            job.say(f"restored: {file.path}")
        job.say(f"Next: run the tests again. To land the change again: clawpy land {change.id}")
        return FlowResult(
            f"The landing of “{change.title}” is undone: {count(len(change.files), 'file')} restored",
            facts={"change_set": change.id, "next": "rerun_failing"},
        )
