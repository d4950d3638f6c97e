"""Runs flows (SPEC 3.8, 3.9): finds the flow, checks its parameters, and runs it in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from engine.execution.housekeeping import Housekeeping
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import UNDO_NOTES, Flow, FlowError, Job, Place, ProjectFlow, RunScope
from engine.execution.runners.flow_registry import (
    LearnedFlow,
    edit_parameters,
    parameter_refusal,
    validate_parameters,
)
from engine.execution.runners.flows.tooling import InstallFlow
from engine.execution.runners.runner import RunnerResult
from engine.execution.runners.toolchains.installing import Installation, install_into_tree
from engine.execution.session_workspace import SessionWorkspaces
from engine.model import (
    Assignment,
    Refusal,
    RunnerInfo,
    SessionView,
    sanitise,
)


class FlowRunner:
    """Runs `flows`, a mapping that may change at any time. `workspaces` opens the place in which a flow works, and
    stores its result."""

    name = "flow"

    def __init__(
        self, flows: Mapping[str, type[Flow]], *, workspaces: SessionWorkspaces, upkeep: Housekeeping | None = None
    ) -> None:
        self._flows = flows
        self._workspaces = workspaces
        self._upkeep = upkeep

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the flow exists and accepts its parameters, and what it would change."""
        try:
            flow = self._resolve(assignment)
            installation = _find_installation(flow, assignment)
        except Refusal as refusal:
            return RunnerInfo(available=False, reason=refusal.message)
        except FlowError as unable:
            return RunnerInfo(available=False, reason=str(unable))
        info = RunnerInfo(
            available=True,
            check_only=flow.place not in (Place.CHANGE_SET, Place.BRANCH, Place.ENGINE, Place.INSTALL),
            undo_note=UNDO_NOTES[flow.place],
            is_free=True,
            learned_commands=flow.describe_commands() if isinstance(flow, LearnedFlow) else "",
        )
        if installation is None:
            return info
        undo = installation.undo_note if flow.place is Place.INSTALL else info.undo_note
        return replace(info, undo_note=undo, hosts=installation.packages.hosts, learned_commands=installation.summary)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment with edited parameters, and with the prompt that describes them.

        Raises `Refusal`: `no_runner`, `bad_parameters`."""
        flow_type = self._flow_type(assignment)
        flow = edit_parameters(flow_type, assignment.parameters, edit)
        try:
            _find_installation(flow, assignment)
        except FlowError as unable:
            raise parameter_refusal(flow_type, str(unable)) from unable
        return replace(assignment, prompt=sanitise(flow.describe()), parameters=flow.model_dump(mode="json"))

    def recover(self) -> list[str]:
        """See `SessionWorkspaces.recover`."""
        return self._workspaces.recover()

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Run the flow to its end. Raises `Refusal`, `FlowError`, `SessionStopped`."""
        flow = self._resolve(live.assignment)
        installation = _find_installation(flow, live.assignment)
        network, hosts = (False, installation.packages.hosts) if installation else (live.confinement.network, ())
        live.say(f"{flow.label} · sandbox: {live.sandbox.describe(network=network, hosts=hosts)}")
        place = flow.place
        with self._workspaces.open(live, view, place) as workspace:
            job = Job(
                workspace=Path(live.assignment.workspace),
                folder=workspace.folder,
                git=live.git(workspace.git),
                session=live,
                upkeep=self._upkeep,
            )
            with _prepare_installation(live, installation, place) if installation else nullcontext():
                result = flow.run(job)
            discarded_files = self._workspaces.describe_discarded(live)
            scope = RunScope(result.full, flow.project if isinstance(flow, ProjectFlow) else "")
            write = self._workspaces.keep(live, view, workspace, place, check=result.check, scope=scope)
        check = result.check and result.check.for_storage(live.without_secrets)
        summary = f"{result.summary} · {discarded_files}" if discarded_files else result.summary
        return RunnerResult(summary, check, result.sound, result.facts, write)

    def _flow_type(self, assignment: Assignment) -> type[Flow]:
        if assignment.flow is None:
            problem = "This text names no flow, and no model or agent is set up for it"
            raise Refusal("no_runner", problem, "`clawpy help flows` lists the flows")
        flow = self._flows.get(assignment.flow)
        if flow is None:
            raise Refusal("no_runner", f"there is no flow {assignment.flow!r}", f"flows: {', '.join(self._flows)}")
        if issubclass(flow, LearnedFlow) and flow.workspace not in ("", assignment.workspace):
            problem = f"the flow {flow.name} was learned in {flow.workspace} and works only there"
            raise Refusal("no_runner", problem, "run it there")
        return flow

    def _resolve(self, assignment: Assignment) -> Flow:
        return validate_parameters(self._flow_type(assignment), assignment.parameters)


def _find_installation(flow: Flow, assignment: Assignment) -> Installation | None:
    """The installation that a flow makes; None if the flow installs nothing. Raises `FlowError` for a command that is
    not the project's own."""
    return flow.installation(Path(assignment.workspace)) if isinstance(flow, InstallFlow) else None


@contextmanager
def _prepare_installation(live: LiveSession, installation: Installation, place: Place) -> Iterator[None]:
    """Let a flow that installs reach its hosts, and after a success put the packages in place."""
    live.say(installation.summary)
    with live.network_access(installation.packages.hosts):
        if place is Place.INSTALL:
            with install_into_tree(live, installation, Path(live.assignment.workspace)):
                yield
        else:
            (live.confinement.caches / installation.cache).mkdir(parents=True, exist_ok=True)
            yield
