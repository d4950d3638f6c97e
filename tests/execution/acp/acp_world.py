"""A world for sessions of a coding agent: git, worktrees, database, processes and agent are real; prompts, model calls,
the toolbelt and the operator are stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.config.external_sections import AcpSettings
from engine.config.settings import Settings
from engine.execution.live_session import LiveSession
from engine.execution.runners import SessionStopped
from engine.execution.runners.acp.runner import AcpRunner
from engine.execution.runners.runner import AgentServices, Runner
from engine.execution.runners.validation import ValidationResult
from engine.execution.session_processes import find_marked_processes
from engine.execution.tools.tool_gate import AgentToolCall
from engine.model import (
    Assignment,
    Prompt,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    SessionView,
    SourceKind,
)
from tests.execution.acp.steps import Step, make_script
from tests.execution.session_world import SessionWorld
from tests.support import acp_agent
from tests.support.checks import wait_until


class StandInToolbelt:
    """A toolbelt whose permissions `AcpWorld.decide` decides, and whose files have no jail."""

    def __init__(self, world: AcpWorld, live: LiveSession, folder: Path):
        self._world, self._live, self._folder = world, live, folder

    def ask_permission(self, call: AgentToolCall) -> bool:
        self._world.permission_requests.append(call)
        with self._live.pause_clock():
            wait_until(lambda: self._world.decide(call.title) is not None or self._live.stop_requested, 60)
        if self._live.stop_requested:
            raise SessionStopped("the session ended")
        return bool(self._world.decide(call.title))

    def read_text(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        lines = (self._folder / path).read_text().splitlines(keepends=True)
        start = (line or 1) - 1
        return "".join(lines[start : None if limit is None else start + limit])

    def write_text(self, path: str, text: str):
        (self._folder / path).write_text(text)


class StandInValidation:
    """Finds nothing to validate."""

    def validate(self, *session: object) -> ValidationResult:
        return ValidationResult()


class StandInModelCalls:
    """Remembers the model calls that began and ended, each with its fields."""

    def __init__(self):
        self.begun: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []

    def begin(self, session: SessionView, **fields: Any) -> str:
        self.begun.append(fields)
        return f"call_{len(self.begun)}"

    def finish(self, call_id: str, **fields: Any):
        self.ended.append({"id": call_id, **fields})


class StandInPrompts:
    """Assembles prompts of a soul, unless that is empty, and the task."""

    def __init__(self, soul: str = "You are careful."):
        self._soul = soul

    def assemble(self, request: PromptRequest) -> Prompt:
        soul = PromptPart("identity", (PromptLine(self._soul, PromptSource(SourceKind.SOUL)),))
        lines = tuple(PromptLine(line, PromptSource(SourceKind.TASK)) for line in request.task.split("\n"))
        task = PromptPart("task", lines, role="user")
        return Prompt((soul, task) if self._soul else (task,))


class AcpWorld(SessionWorld):
    """Sessions of a coding agent.

    `decide` is given the title of a permission request: True allows it, False denies it, and None lets it wait.
    """

    def __init__(
        self,
        *parts: Any,
        modes: Sequence[str] = (),
        command: Sequence[str] = (),
        section: Mapping[str, Any] | None = None,
        prompts: Any = None,
        start_seconds: float = 20,
        **options: Any,
    ):
        """`modes` are options of the agent. A `command` is another agent. `section` has more of its settings."""
        agent = AcpSettings(command=tuple(command) or (*acp_agent.COMMAND, *modes), **(section or {}))
        self.permission_requests: list[AgentToolCall] = []
        self.decide: Callable[[str], bool | None] = lambda title: True
        self.calls = StandInModelCalls()
        self._prompts = prompts or StandInPrompts()
        self._start_seconds = start_seconds
        super().__init__(*parts, settings=Settings().model_copy(update={"acp": {"small": agent}}), **options)

    def make_runners(self) -> list[Runner]:
        belts = SimpleNamespace(open_for_agent=self.open_belt)
        services = AgentServices(self.folders, self._prompts, self.calls, belts, self.settings, StandInValidation())
        self.runner = AcpRunner(services, data=self.home.data, version="0", start_seconds=self._start_seconds)
        return [self.runner]

    def open_belt(self, live: LiveSession, view: SessionView, folder: Path) -> Any:
        """The toolbelt of a session."""
        return StandInToolbelt(self, live, folder)

    def start(self, *steps: Step, prompt: str = "", mode: str = "approved") -> SessionView:
        """Start a session whose agent takes these steps, or is given a prompt."""
        return self.begin(
            Assignment(prompt or make_script(*steps), "koji-core", str(self.workspace), "acp:small"), mode
        )

    def finish(self, view: SessionView, seconds: float = 20) -> SessionView:
        """Wait for the end of a session and of its processes."""
        view = self.wait(view, seconds)
        wait_until(lambda: not find_marked_processes(view.id))
        return view

    def run(self, *steps: Step, mode: str = "approved") -> SessionView:
        """Run a session to its end."""
        return self.finish(self.start(*steps, mode=mode))

    def read_words(self, view: SessionView) -> list[str]:
        """What its agent says, line by line."""
        return self.read_lines(view, ["say"])


MakeAcpWorld = Callable[..., Any]
"""Makes worlds; see the fixture `make_acp_world`."""
