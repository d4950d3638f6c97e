"""Sessions of flows on a real repository, in the best sandbox of this machine."""

from collections.abc import Callable
from typing import Any

from engine.execution.runners import Place
from engine.execution.runners.flow import Flow, FlowResult, Job
from engine.execution.runners.flow_runner import FlowRunner
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.runner import Runner
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import Assignment, SessionView
from engine.storage.validation_runs import ValidationRun, ValidationRuns
from tests.execution.session_world import RerunTests, SessionWorld


def make_flow(work_place: Place, perform: Callable[[Job], FlowResult]) -> type[Flow]:
    """A flow that does this work, with the parameters of `RerunTests`."""

    class ScriptedFlow(RerunTests):
        name = "scripted"
        place = work_place
        undo_note = "run it again"

        def run(self, job: Job) -> FlowResult:
            return perform(job)

    return ScriptedFlow


class FlowWorld(SessionWorld):
    """Sessions of flows, in the best sandbox of this machine unless `options` has another."""

    def __init__(self, *parts: Any, **options: Any):
        super().__init__(*parts, **{"sandbox": find_best_sandbox(), **options})
        self.runs = ValidationRuns(self.database)

    def make_runners(self) -> list[Runner]:
        self.flows: dict[str, Any] = dict(FLOWS)
        return [FlowRunner(self.flows, folders=self.folders, clock=self.clock, housekeeping=None)]

    def assign(self, name: str, **parameters: Any) -> Assignment:
        return Assignment("do it", "koji-core", str(self.workspace), "flow", name, parameters)

    def run_flow(self, name: str, **parameters: Any) -> SessionView:
        return self.wait(self.begin(self.assign(name, **parameters)), 300)

    def run_scripted(self, place: Place, perform: Callable[[Job], FlowResult]) -> SessionView:
        self.flows["scripted"] = make_flow(place, perform)
        return self.run_flow("scripted", tests=["a"])

    def get_only_run(self) -> ValidationRun:
        (run,) = self.runs.read_newest(str(self.workspace))
        return run

    def read_transcript(self, view: SessionView) -> str:
        return "\n".join(self.read_lines(view, ()))
