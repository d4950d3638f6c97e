"""Admission with runners that answer what a test says, and without a database."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from engine.clock import SystemClock
from engine.config import ChannelSettings, FixedSettings, Settings, WorkspaceSettings
from engine.execution.runners.flow_runner import PROSE as PROSE_EDIT
from engine.execution.session_run import Admission
from engine.model import Assignment, Refusal, RunnerInfo
from tests.execution.session_world import make_rails

PROSE = Assignment("explain the cart", "koji-core", "/w", "auto")

Answer = RunnerInfo | Refusal


class StandInRunner:
    """A family of runners that answers by the name of a runner. Flows accept a text without a space as parameters, and
    refuse them."""

    def __init__(self, family: str, answers: Mapping[str, Answer]):
        self.name = family
        self._answers = answers

    def check(self, assignment: Assignment) -> RunnerInfo:
        answer = self._answers.get(assignment.runner, Refusal("no_runner", f"there is no runner {assignment.runner!r}"))
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        code = PROSE_EDIT if " " in edit else "bad_parameters"
        raise Refusal(code, "run_tests takes parameters", "`run_tests paths=…`")


def make_admission(
    answers: Mapping[str, Answer],
    usual_costs: Mapping[str, int] | None = None,
    *,
    confines: bool = True,
    workspace: WorkspaceSettings | None = None,
    others: Mapping[str, ChannelSettings] | None = None,
    **channel: Any,
) -> Admission:
    """Admission with runners that answer `answers`, and an earlier cost by the name of a runner. `channel` are the
    settings of the channel of `PROSE`, `others` other channels."""
    sandbox = SimpleNamespace(
        confines=confines,
        describe=lambda network, hosts: f"to {', '.join(hosts)}",
        find_hosts_problem=lambda hosts: "it cannot filter hosts" if hosts else "",
        describe_way_out=lambda other: f"use another, or {other}",
    )
    channels = {"koji-core": ChannelSettings(agent="builder", **channel), **(others or {})}
    workspaces = {PROSE.workspace: workspace} if workspace is not None else {}
    families = {f"{name.partition(':')[0]}:*" if ":" in name else name for name in answers}
    return Admission(
        SystemClock(),
        FixedSettings(Settings(channels=channels, workspaces=workspaces)),
        make_rails(sandbox=sandbox),
        {family: StandInRunner(family, answers) for family in families},
        lambda runner, channel: (usual_costs or {}).get(runner),
    )
