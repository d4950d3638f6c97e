"""ACP sessions with everything real: git, worktrees, database, processes, the agent; only people are scripted."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.config import ChannelSettings, FixedSettings, Settings
from engine.config.provider_settings import AcpSettings
from engine.events import EventBus
from engine.execution.changesets import ChangeSets
from engine.execution.housekeeping import Caches
from engine.execution.live_session import LiveSession
from engine.execution.runners.acp.runner import AcpRunner
from engine.execution.runners.flow import SessionStopped
from engine.execution.runners.runner import AgentServices
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import NoSandbox
from engine.execution.session_processes import marked_processes
from engine.execution.session_workspace import SessionWorkspaces
from engine.execution.sessions import Sessions
from engine.execution.tools.tool_gate import AgentToolCall
from engine.home import Home
from engine.model import (
    Assignment,
    Prompt,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Randomness,
    Refusal,
    SessionView,
    SourceKind,
    Verdict,
)
from engine.storage.database import Database
from tests.conftest import Repository
from tests.execution.session_world import Permits, permit_for, rails
from tests.support.helpers import wait_until

AGENT = Path(__file__).parents[2] / "support" / "acp_agent.py"


class Belt:
    """A toolbelt whose permissions the test answers; files are confined to the folder."""

    def __init__(self, world: AcpWorld, live: LiveSession, folder: Path) -> None:
        self._world, self._live, self._folder = world, live, folder.resolve()

    def is_allowed(self, call: AgentToolCall) -> bool:
        self._world.permission_requests.append(call)
        with self._live.pause_clock():
            while (answer := self._world.answer(call.title)) is None:
                if self._live.stop_requested:
                    raise SessionStopped("the session ended")
                threading.Event().wait(0.01)
        return answer

    def read_text(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        lines = self._inside(path).read_text().splitlines(keepends=True)
        start = (line or 1) - 1
        return "".join(lines[start : None if limit is None else start + limit])

    def write_text(self, path: str, text: str) -> None:
        self._inside(path).write_text(text)

    def _inside(self, path: str) -> Path:
        real = (self._folder / path).resolve()
        if not real.is_relative_to(self._folder):
            raise Refusal("outside", f"{path} is outside of the session's folder")
        return real


class Calls:
    """Remembers the model calls that began and ended."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []

    def begin(self, session: SessionView, **fields: Any) -> str:
        self.begun.append(fields)
        return f"call_{len(self.begun)}"

    def finish(self, call_id: str, **fields: Any) -> None:
        self.ended.append({"id": call_id, **fields})


class Prompts:
    """A prompt with a soul and the task."""

    def assemble(self, request: PromptRequest) -> Prompt:
        soul = PromptPart("identity", (PromptLine("You are careful.", PromptSource(SourceKind.SOUL)),))
        lines = tuple(PromptLine(line, PromptSource(SourceKind.TASK)) for line in request.task.split("\n"))
        return Prompt((soul, PromptPart("task", lines, role="user")))


class AcpWorld:
    """A home, a repository, an agent, sessions. `answer` decides on permissions: None waits."""

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        bus: EventBus,
        repository: Repository,
        *,
        modes: Sequence[str] = (),
        sandbox: Sandbox | None = None,
        channel: Mapping[str, Any] | None = None,
        verdict: Callable[[str], Verdict] = lambda command: Verdict.ALLOW,
        validation: Any = None,
        purse: Callable[[str, int], str] = lambda session_id, total: "",
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        belts: Any = None,
        start_seconds: float = 20,
        prompts: Any = None,
    ) -> None:
        self.home = Home.locate(root / "home")
        self.repository = repository
        self.root = root
        self.clock = clock
        self.permission_requests: list[AgentToolCall] = []
        self.answer: Callable[[str], bool | None] = lambda title: True
        self.calls = Calls()
        self.permits = Permits()
        self._numbers = iter(range(1, 1_000))
        section = AcpSettings(command=tuple(command) or (sys.executable, str(AGENT), *modes), **(settings or {}))
        channels = {"koji-core": ChannelSettings.model_validate({"agent": "builder", **(channel or {})})}
        self.settings = FixedSettings(Settings().model_copy(update={"channels": channels, "acp": {"small": section}}))
        randomness = Randomness()
        self.changes = ChangeSets(home=self.home, database=database, clock=clock, randomness=randomness)
        workspaces = SessionWorkspaces(database, self.settings, self.changes, Caches(self.home.cache / "build"))
        self.runner = AcpRunner(
            AgentServices(workspaces, prompts or Prompts(), self.calls, belts or self, self.settings, validation),
            data=self.home.data,
            version="0",
            start_seconds=start_seconds,
            **({"environment": environment} if environment is not None else {}),
        )
        self.sessions = Sessions(
            database,
            home=self.home,
            clock=clock,
            bus=bus,
            randomness=randomness,
            settings=self.settings,
            rails=rails(verdict, consume=self.permits.consume, reserve=purse, sandbox=sandbox or NoSandbox()),
            runners=[self.runner],
        )

    def open(self, live: LiveSession, view: SessionView, folder: Path) -> Belt:
        return Belt(self, live, folder)

    def folder(self, view: SessionView) -> Path:
        return self.home.worktrees / view.id

    def start(self, *steps: Mapping[str, Any], prompt: str = "", mode: str = "approved") -> SessionView:
        task = prompt or "SCRIPT " + json.dumps(steps)
        assignment = Assignment(task, "koji-core", str(self.repository.path), "acp:small")
        return self.sessions.start(
            permit_for(assignment, next(self._numbers), self.clock),
            assignment,
            agent="builder",
            mode=mode,
            estimate=50_000,
            without_sandbox=not self.sessions.sandbox.confines,
        )

    def finish(self, view: SessionView, seconds: float = 20) -> SessionView:
        """Wait for its end; nothing of it is left running."""
        view = self.sessions.wait(view.id, seconds)
        assert view.state.over, f"did not end in time: {self.texts(view, None)[-5:]}"
        wait_until(lambda: not marked_processes(view.id))
        return view

    def run(self, *steps: Mapping[str, Any], prompt: str = "", mode: str = "approved") -> SessionView:
        return self.finish(self.start(*steps, prompt=prompt, mode=mode))

    def texts(self, view: SessionView, kinds: Sequence[str] | None = ("say",)) -> list[str]:
        lines = self.sessions.transcript(view.id, limit=10**6)
        return [line.text for line in lines if kinds is None or line.kind in kinds]
