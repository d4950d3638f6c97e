"""Learned flows: commands that agents ran again and again, one after the other, without a model (SPEC 5.4).

Each is like any other flow: the content filter checks every command, the sandbox confines it, it works in a worktree of
its own, and its changes wait for review. `FlowRegistry` has the program's own flows and the learned ones that are
active now, so a flow that was rolled back cannot be started.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place
from engine.execution.runners.flows.wording import count, last_line
from engine.execution.runners.parameters import named_flow
from engine.model import FlowForm


class LearnedFlow(Flow):
    """A flow of commands without parameters. Each active one is a class of its own, see `learned_flow`."""

    place = Place.CHANGE_SET
    commands: ClassVar[tuple[tuple[str, ...], ...]]
    """Each a program with its arguments."""
    workspace: ClassVar[str]
    """The only workspace that it is for, "" for all."""

    @classmethod
    def describe_commands(cls) -> str:
        """The commands as a card shows them for approval."""
        return ", then ".join(map(shlex.join, cls.commands))

    def describe(self) -> str:
        """The commands."""
        return f"Run {self.describe_commands()}"

    def run(self, job: Job) -> FlowResult:
        """Run every command; the first that fails ends the flow."""
        for number, argv in enumerate(self.commands, start=1):
            done = job.run(argv)
            if not done.ok:
                raise FlowError(
                    f"step {number} of {len(self.commands)}, `{shlex.join(argv)}`, ended with exit code "
                    f"{done.exit_code}: {last_line(done.output)}"
                )
        return FlowResult(f"{count(len(self.commands), 'command')} of {self.name} ran")


def learned_flow(name: str, label: str, commands: Sequence[Sequence[str]], workspace: str = "") -> type[LearnedFlow]:
    """The flow of one overlay."""
    attributes = {"name": name, "label": label, "commands": tuple(map(tuple, commands)), "workspace": workspace}
    return type("LearnedFlow", (LearnedFlow,), {**attributes, "__module__": __name__})


class FlowRegistry(Mapping[str, type[Flow]]):
    """The present flows by name. The program's own come first and cannot be replaced."""

    def __init__(self, own: Mapping[str, type[Flow]], learned: Callable[[], Sequence[type[LearnedFlow]]]) -> None:
        self._own = own
        self._learned = learned

    def __getitem__(self, name: str) -> type[Flow]:
        flow = self._own.get(name)
        return self._learned_by_name()[name] if flow is None else flow

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._learned_by_name() if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find_named(self, prompt: str) -> str:
        """The flow that `prompt` names, "" for prose."""
        named = named_flow(prompt, tuple(self))
        return named[0] if named else ""

    def forms(self) -> list[FlowForm]:
        """The form of each flow, required parameters first. Blocking: the learned flows are in the database."""
        return [FlowForm(flow.name, flow.label, _list_parameters(flow)) for flow in self.values()]

    def _learned_by_name(self) -> Mapping[str, type[Flow]]:
        return {flow.name: flow for flow in self._learned()}


def _list_parameters(flow: type[Flow]) -> tuple[tuple[str, str, bool], ...]:
    fields = sorted(flow.model_fields.items(), key=lambda named: not named[1].is_required())
    return tuple((name, field.description or "", field.is_required()) for name, field in fields)
