"""Runs assignments that have a flow, each in the place of its flow (SPEC 3.8). Flows that run a package manager reach
the hosts of their registries."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from engine.clock import Clock
from engine.execution.housekeeping import Housekeeping
from engine.execution.live_session import LiveSession
from engine.execution.runners import UNDO_NOTES, CannotRun, Place, WorkFailed
from engine.execution.runners.flow import Flow, Job, ProjectFlow
from engine.execution.runners.flows import LearnedFlow, edit_parameters, make_parameter_refusal, validate_parameters
from engine.execution.runners.flows.packages import PackageManagerFlow
from engine.execution.runners.runner import RunnerResult
from engine.execution.runners.toolchains import MissingItem, find_usual_fix
from engine.execution.runners.toolchains.detection import find_missing_program
from engine.execution.runners.toolchains.installing import Installation, install_into_tree, list_possible_locks
from engine.execution.sandbox.mounts import list_written_files
from engine.execution.session_folders import RunScope, SessionFolders
from engine.frozen import frozen
from engine.git import Git
from engine.model import Assignment, Refusal, RunnerInfo, SessionView
from engine.text import sanitise
from engine.wording import count

MAX_NAMED_FILES = 50
"""Maximum number of discarded files in the transcript of a check."""


@frozen
class FlowRunner:
    """Runs flows in their places."""

    name: ClassVar[str] = "flow"
    flows: Mapping[str, type[Flow]]
    """All flows by name. They may change at any time."""
    folders: SessionFolders
    """Opens the folder in which a flow works, and stores its result."""
    clock: Clock
    housekeeping: Housekeeping

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the flow exists and accepts its parameters, and what it would change."""
        try:
            flow = self._resolve(assignment)
            installation = _find_installation(flow, assignment)
        except Refusal as refusal:
            return RunnerInfo(available=False, reason=refusal.message)
        except WorkFailed as unable:
            return RunnerInfo(available=False, reason=str(unable))
        info = RunnerInfo(
            available=True,
            check_only=flow.place not in (Place.CHANGE_SET, Place.BRANCH, Place.ENGINE, Place.INSTALL),
            runs_commands=flow.place not in (Place.OPERATOR_TREE, Place.BRANCH, Place.ENGINE),
            undo_note=flow.undo_note or UNDO_NOTES[flow.place],
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
        flow_type = self._find_flow_type(assignment)
        flow = edit_parameters(flow_type, assignment.parameters, edit)
        try:
            flow.check_requirements(Path(assignment.workspace))
        except CannotRun as unable:
            raise Refusal("bad_parameters", f"{flow_type.name}: {unable.message}", unable.fix) from unable
        try:
            _find_installation(flow, assignment)
        except WorkFailed as unable:
            raise make_parameter_refusal(flow_type, str(unable)) from unable
        return replace(assignment, prompt=sanitise(flow.describe()), parameters=flow.model_dump(mode="json"))

    def recover(self) -> list[str]:
        """See `SessionFolders.recover`."""
        return self.folders.recover()

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Run the flow to its end. Raises `Refusal`, `WorkFailed`, `SessionStopped`."""
        flow = self._resolve(live.assignment)
        installation = _find_installation(flow, live.assignment)
        network = live.confinement.network and installation is None
        hosts = installation.packages.hosts if installation else ()
        live.say(f"{flow.label} · sandbox: {live.sandbox.describe(network=network, hosts=hosts)}")
        with self.folders.open(live, view, flow.place) as folder:
            job = Job(
                workspace=Path(live.assignment.workspace),
                folder=folder.path,
                git=live.commands.bind_git(folder.git),
                session=live,
                clock=self.clock,
                housekeeping=self.housekeeping,
            )
            with _prepare_installation(live, installation) if installation else nullcontext():
                if live.work_allowed_once:
                    live.commands.allow_once(_list_named_commands(flow, installation, live.assignment))
                result = flow.run(job)
            written_files = sorted(list_written_files(live.confinement)) if live.confinement.is_ephemeral else []
            first_lock = _find_first_lock(written_files, folder.git, installation) if installation else {}
            for name in written_files[:MAX_NAMED_FILES]:
                live.say(f"discarded: {sanitise(name)}")
            scope = RunScope(result.full, flow.project if isinstance(flow, ProjectFlow) else "")
            write = self.folders.capture(live, view, folder, check=result.check, scope=scope)
        discarded = f" · wrote {count(len(written_files), 'file')}, discarded" if written_files else ""
        facts = {**result.facts, **first_lock}
        return RunnerResult(f"{result.summary}{discarded}", result.check, result.has_problem, facts, write)

    def _find_flow_type(self, assignment: Assignment) -> type[Flow]:
        """The class of a flow. Raises `Refusal` `no_runner`."""
        if assignment.flow is None:
            problem = "This text names no flow, and no model or agent is set up for it"
            raise Refusal("no_runner", problem, "`clawpy help flows` lists the flows")
        flow = self.flows.get(assignment.flow)
        if flow is None:
            raise Refusal("no_runner", f"there is no flow {assignment.flow!r}", f"flows: {', '.join(self.flows)}")
        if issubclass(flow, LearnedFlow) and flow.workspace not in ("", assignment.workspace):
            problem = f"the flow {flow.name} was learned in {flow.workspace} and works only there"
            raise Refusal("no_runner", problem, "run it there")
        return flow

    def _resolve(self, assignment: Assignment) -> Flow:
        """The flow with its parameters. Raises `Refusal`: `no_runner`, `bad_parameters`."""
        return validate_parameters(self._find_flow_type(assignment), assignment.parameters)


def _find_installation(flow: Flow, assignment: Assignment) -> Installation | None:
    """The installation that a flow makes; None if the flow installs nothing. Raises `WorkFailed` for a command that is
    not the project's own, and `CannotRun` if its program is not installed."""
    if not isinstance(flow, PackageManagerFlow):
        return None
    top = Path(assignment.workspace)
    installation = flow.find_installation(top)
    if program := find_missing_program(installation.commands, top):
        missing = MissingItem("program", program)
        raise CannotRun(missing.sentence, find_usual_fix(missing, ""))
    return installation


def _list_named_commands(flow: Flow, installation: Installation | None, assignment: Assignment) -> list[str]:
    """The commands that stand in an assignment, exactly as the flow runs them."""
    if installation is not None:
        return installation.command_lines
    if isinstance(flow, LearnedFlow) and assignment.prompt == sanitise(flow.describe()):
        return [*map(shlex.join, flow.commands)]
    return []


def _find_first_lock(written_files: Sequence[str], git: Git, installation: Installation) -> dict[str, str]:
    """The fact `first_lock`: the lock file that an installation wrote where there was none, unless git ignores it. It
    is discarded with everything else, and a card offers its diff."""
    if not installation.packages.lock:
        for path in list_possible_locks(installation.packages):
            ignored = ("check-ignore", "--quiet", "--", path)
            if path in written_files and git.run(*ignored, allowed=(0, 1, 128)).returncode == 1:
                return {"first_lock": path}
    return {}


@contextmanager
def _prepare_installation(live: LiveSession, installation: Installation) -> Iterator[None]:
    """Let a flow that installs reach its hosts, and after a success put the packages in place."""
    live.say(installation.summary)
    with (
        live.commands.allow_hosts(installation.packages.hosts),
        install_into_tree(live, installation, Path(live.assignment.workspace)),
    ):
        yield
