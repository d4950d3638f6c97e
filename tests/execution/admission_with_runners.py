"""Admission with runners that answer what a test says, and without a database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.config import ChannelSettings, FixedSettings, Settings, WorkspaceSettings
from engine.execution.runners.flow_runner import PROSE as PROSE_EDIT
from engine.execution.session_run import Admission
from engine.model import Assignment, Refusal, RunnerInfo

PROSE = Assignment("explain the cart", "koji-core", "/w", "auto")

Answer = RunnerInfo | Refusal


class AdmissionWithRunners(Admission):
    """Admission without a database, with runners that answer `answers`, and an earlier cost by the name of a runner."""

    def __init__(
        self,
        answers: dict[str, Answer],
        usual_costs: dict[str, int] | None = None,
        *,
        confines: bool = True,
        workspace: WorkspaceSettings | None = None,
        **channel: Any,
    ) -> None:
        self.answers = answers
        self._usual_costs = usual_costs or {}
        self._sandbox: Any = SimpleNamespace(
            confines=confines,
            describe=lambda network, hosts: f"to {', '.join(hosts)}",
            find_hosts_problem=lambda hosts: "it cannot filter hosts" if hosts else "",
            describe_way_out=lambda other: f"use another, or {other}",
        )
        channels = {"koji-core": ChannelSettings(agent="builder", **channel)}
        workspaces = {PROSE.workspace: workspace} if workspace is not None else {}
        self._settings = FixedSettings(Settings(channels=channels, workspaces=workspaces))

    def find_runner(self, assignment: Assignment) -> Any:
        if assignment.runner not in self.answers:
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}")

        def check(checked: Assignment) -> RunnerInfo:
            assert checked.runner == assignment.runner
            answer = self.answers[assignment.runner]
            if isinstance(answer, Refusal):
                raise answer
            return answer

        def apply_edit(edited: Assignment, edit: str) -> Assignment:
            code = PROSE_EDIT if " " in edit else "bad_parameters"
            raise Refusal(code, "run_tests takes parameters", "`run_tests paths=…`")

        return SimpleNamespace(check=check, apply_edit=apply_edit)

    def compute_usual_cost(self, runner: str, channel: str) -> int | None:
        return self._usual_costs.get(runner)
