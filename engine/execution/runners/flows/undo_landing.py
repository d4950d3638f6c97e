"""Take a landing back, as `clawpy undo` does."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, Revision, clean, count
from engine.model import Refusal


class UndoLandingParameters(Parameters):
    """Which landing."""

    change_set: Revision = Field(description="id of the change set that was landed")


class UndoLanding:
    """All of its files, or none: it refuses where one of them was edited since."""

    name: ClassVar = "undo_landing"
    title: ClassVar = "Undo a landing"
    place: ClassVar = Place.ENGINE
    parameters: ClassVar[type[BaseModel]] = UndoLandingParameters

    def describe(self, parameters: UndoLandingParameters) -> str:
        return f"Undo the landing of {clean(parameters.change_set)}"

    def run(self, job: Job) -> FlowResult:
        upkeep = job.its_upkeep()
        try:
            change = upkeep.undo(job.parameters.change_set, str(job.workspace))
        except Refusal as refusal:
            raise FlowUnable(refusal.message, refusal.fix or "") from refusal
        for file in change.files:
            job.say(f"restored: {clean(file.path)}")
        job.say(f"Next: run the tests again. To land the change again: clawpy land {change.id}")
        return FlowResult(
            f"The landing of “{clean(change.title)}” is undone: {count(len(change.files), 'file')} restored",
            facts={"change_set": change.id, "next": "rerun_failing"},
        )
