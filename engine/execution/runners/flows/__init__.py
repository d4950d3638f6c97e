"""The flows, which are work without a model (SPEC 3.9): those of the program, learned ones, and the registry of both.

Each is a class, a `Flow` of `runners.flow`. A learned flow (SPEC 5.4) is a list of commands that agents often ran one
after the other. It runs without a model, and like any other flow: the content filter checks every command, the sandbox
confines it, it works in a worktree of its own, and its changes wait for review. A learned flow that was rolled back
cannot be started.

Flows may import `runners.flow`, `runners.toolchains`, `execution.trees`, engine.git, engine.files and engine.model.
They start programs and change files only through their `Job`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job
from engine.execution.runners.flows.agents_md import WriteAgentsMd
from engine.execution.runners.flows.branches import KeepCommits, LookAtPullRequest, ReportBranches
from engine.execution.runners.flows.change_log import DraftChangelog, LookAtRelease
from engine.execution.runners.flows.failing_tests import ApplyFix, Bisect, NarrowFailures, RehearseRevert
from engine.execution.runners.flows.housekeeping import ReclaimSpace, UndoLanding
from engine.execution.runners.flows.merging import ForecastConflicts, RehearseAutosquash, RehearseMerge
from engine.execution.runners.flows.own_changes import (
    FindJointChanges,
    LookAtMentions,
    LookForLeftovers,
    RemoveLeftovers,
    UpdateDocs,
)
from engine.execution.runners.flows.recent_work import LookAtChanges, SummariseDay
from engine.execution.runners.flows.testing import CheckCleanHead, RunTests, UncoveredLines
from engine.execution.runners.flows.tooling import FixLint, Lint, PrepareEnvironment, UpdateLock
from engine.execution.runners.flows.unfinished import LookAtStash, UnfinishedOperation
from engine.execution.runners.flows.unpushed_review import ReviewUnpushed
from engine.execution.runners.flows.unreliable_tests import HuntFlakes, Quarantine, TimeTests
from engine.model import FlowForm
from engine.text import find_last_error_line
from engine.wording import count

_FLOW_CLASSES = (
    RunTests, Bisect, RehearseMerge, RehearseRevert, ApplyFix, HuntFlakes, CheckCleanHead, DraftChangelog, Lint,
    FixLint, ForecastConflicts, ReviewUnpushed, LookAtChanges, UndoLanding, ReclaimSpace, ReportBranches,
    SummariseDay, PrepareEnvironment, UpdateLock, WriteAgentsMd, FindJointChanges, LookAtRelease, UnfinishedOperation,
    KeepCommits, RehearseAutosquash, LookAtStash, LookForLeftovers, RemoveLeftovers, LookAtMentions, UpdateDocs,
    NarrowFailures, UncoveredLines, Quarantine, TimeTests, LookAtPullRequest,
)  # fmt: skip

FLOWS: Mapping[str, type[Flow]] = MappingProxyType({flow.name: flow for flow in _FLOW_CLASSES})
"""Every flow of the program by its name."""


_LANDS_CHANGES = "you land the changes"
"""The changes of work whose diff waits until the operator lands it: that of models and agents, and of most flows."""

_CHANGES_BY_PLACE = {Place.INSTALL: "installs packages", Place.BRANCH: "makes a branch"}
"""The changes of a flow, for each place from which something else than a diff comes."""


def name_work(flow: str) -> str:
    """What sort of work a flow does, in a word such as `tests`. A learned flow is called by its name."""
    known_flow = FLOWS.get(flow)
    return known_flow.work if known_flow else flow.replace("_", " ")


def describe_changes(flow: str | None) -> str:
    """What a flow changes, in words for a card that is not read-only. None stands for a model or an agent."""
    known_flow = FLOWS.get(flow or "")
    if known_flow is None:
        return _LANDS_CHANGES
    return known_flow.changes or _CHANGES_BY_PLACE.get(known_flow.place, _LANDS_CHANGES)


def gives_change_set(flow: str | None) -> bool:
    """Whether the changes of a flow wait until they are landed, so that the undo of its card undoes their landing. None
    stands for a model or an agent."""
    known_flow = FLOWS.get(flow or "")
    return known_flow is None or known_flow.place is Place.CHANGE_SET


class LearnedFlow(Flow):
    """A flow that runs commands and has no parameters. `make_learned_flow` makes a class for each active one."""

    place = Place.CHANGE_SET
    commands: ClassVar[tuple[tuple[str, ...], ...]]
    """The commands, each as a program with its arguments."""
    workspace: ClassVar[str]
    """The only workspace in which it may run; "" for all."""

    @classmethod
    def describe_commands(cls) -> str:
        """The commands as a card shows them for approval."""
        return ", then ".join(map(shlex.join, cls.commands))

    def describe(self) -> str:
        """The commands."""
        return f"Run {self.describe_commands()}"

    def run(self, job: Job) -> FlowResult:
        """Run the commands in order. Raises `WorkFailed` at the first one that fails."""
        for number, argv in enumerate(self.commands, start=1):
            result = job.run(argv)
            if not result.ok:
                raise WorkFailed(
                    f"step {number} of {len(self.commands)}, `{shlex.join(argv)}`, ended with exit code "
                    f"{result.exit_code}: {find_last_error_line(result.output)}"
                )
        return FlowResult(f"{count(len(self.commands), 'command')} of {self.name} ran")


def make_learned_flow(
    name: str, label: str, commands: tuple[tuple[str, ...], ...], workspace: str
) -> type[LearnedFlow]:
    """Make the class of a learned flow."""
    attributes = {"name": name, "label": label, "commands": commands, "workspace": workspace, "__module__": __name__}
    return type("LearnedFlow", (LearnedFlow,), attributes)


class FlowRegistry(Mapping[str, type[Flow]]):
    """All flows by name. The flows of the program itself come first, and a learned flow cannot replace them."""

    def __init__(self, learned: Callable[[], Sequence[type[LearnedFlow]]]) -> None:
        self._learned = learned

    def __getitem__(self, name: str) -> type[Flow]:
        return FLOWS.get(name) or self._read_all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_all())

    def __len__(self) -> int:
        return len(self._read_all())

    def find_data_parameters(self, name: str | None) -> frozenset[str]:
        """The parameters of a flow that are data; see `Flow.find_data_parameters`. A learned flow has none."""
        flow = FLOWS.get(name or "")
        return flow.find_data_parameters() if flow else frozenset()

    def forms(self) -> list[FlowForm]:
        """The form of each flow, with required parameters first. Blocks, because it reads learned flows from the
        database."""
        return [
            FlowForm(
                flow.name,
                flow.label,
                tuple((name, field.description or "", field.is_required()) for name, field in flow.list_parameters()),
            )
            for flow in self.values()
        ]

    def _read_all(self) -> dict[str, type[Flow]]:
        """All flows. The learned ones are read from the database."""
        return {**FLOWS, **{flow.name: flow for flow in self._learned()}, **FLOWS}
