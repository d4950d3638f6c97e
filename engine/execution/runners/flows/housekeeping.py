"""Flows on what Clawpy stored: they undo a landing and free disk space, through the housekeeping of the engine."""

from __future__ import annotations

from pydantic import Field

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Argument, Flow, FlowResult, Job
from engine.model import Refusal
from engine.wording import count


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
