"""A toolbelt with everything around it real: a session, a database, the content filter, a folder in a larger world."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.config.settings import FixedSettings, Settings
from engine.events.work import ToolRefused
from engine.execution.live_session import LiveSession
from engine.execution.permissions import Permissions
from engine.execution.processes import Processes
from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.ladder import NoSandbox
from engine.execution.session_limits import Limits, SessionStop, Stopwatch
from engine.execution.session_store import APPROVED
from engine.execution.tools import TOOL_NAMES, Policy, ToolResult
from engine.execution.tools.tool_gate import Gate, ToolServices
from engine.execution.tools.toolbelt import AgentToolbelt
from engine.execution.tools.web import Web
from engine.execution.transcripts import TranscriptReader, TranscriptWriter
from engine.model import Assignment, PermissionAnswer, SessionState
from engine.randomness import Randomness
from engine.safety.content.commands import check_command
from engine.safety.content.rulebook import make_own_rules
from engine.storage.database import Database
from tests.execution.session_world import make_rails
from tests.support.sessions import make_session_view
from tests.support.web_server import WebServer

SECRET = "the operator's own"
"""The text of the file outside."""

MakeBeltWorld = Callable[..., "BeltWorld"]
"""Makes a world with these options of `BeltWorld`."""


class BeltWorld:
    """A running session with its toolbelt. `folder` is the session's; `outside` beside it has `secret.txt`."""

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        *,
        mode: str = APPROVED,
        policy: Policy | None = None,
        settings: Mapping[str, Any] | None = None,
        sandbox: Sandbox | None = None,
        web: Mapping[str, Any] | None = None,
    ):
        """`web` are options of `Web`. Without `seconds` a page has five."""
        self.root = root / "world"
        self.folder = self.root / "work tree"
        self.outside = self.root / "outside"
        scratch, caches = self.root / "scratch", self.root / "caches"
        for folder in (self.folder, self.outside):
            folder.mkdir(parents=True)
        confinement = Confinement(folder=self.folder, scratch=scratch, caches=caches)
        confinement.make()
        self.secret = self.outside / "secret.txt"
        self.secret.write_text(SECRET)
        (self.folder / ".git").write_text("gitdir: /somewhere\n")
        self.database = database
        self.settings = FixedSettings(Settings.model_validate(settings or {}))
        own = make_own_rules(self.settings.current.content.allow, self.settings.current.content.block)
        transcript = self.root / "transcript.jsonl"
        self.live = LiveSession(
            Assignment("do it", "koji-core", str(self.folder), "model"),
            Processes(Randomness().new_id("sess")),
            limits=Limits(600, 600, 1_000_000),
            stopwatch=Stopwatch(clock, on_pause=lambda: None),
            transcript=TranscriptWriter(transcript, clock, tuple),
            sandbox=sandbox or NoSandbox(),
            confinement=confinement,
            rails=make_rails(check=lambda command: check_command(command, own=own)),
        )
        self._transcript = transcript
        self.view = make_session_view(id=self.live.id, workspace=str(self.folder), mode=mode, cwd=str(self.folder))
        self.permissions = Permissions(database, randomness=Randomness())
        self.refused: list[ToolRefused] = []
        pages = Web(self.settings, **({"seconds": 5.0} | dict(web or {})))
        services = ToolServices(self.settings, self.permissions, pages, self.refused.append)
        policy = policy or Policy(allow=TOOL_NAMES)
        self.belt = AgentToolbelt(Gate(self.live, self.view, self.folder, policy, services))

    def __call__(self, tool: str, **arguments: Any) -> ToolResult:
        """Call a tool as a model does."""
        return self.belt.call(tool, arguments)

    def get_answer(self, tool: str, **arguments: Any) -> str:
        """The text of a call that succeeds."""
        result = self(tool, **arguments)
        assert result.ok, result.text
        return result.text

    def get_problem(self, tool: str, **arguments: Any) -> str:
        """The text of a call that is refused or fails."""
        result = self(tool, **arguments)
        assert not result.ok, result.text
        assert SECRET not in result.text
        return result.text

    def write_file(self, name: str, text: str | bytes = "") -> Path:
        """Write a file of the session's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def answer_request(self, answer: PermissionAnswer):
        """Answer the next permission request from a thread, if one comes within twenty seconds."""

        def give_answer():
            end = time.monotonic() + 20
            while not (waiting := self.permissions.list_waiting()):
                if self.live.stop_requested or time.monotonic() > end:
                    return
                time.sleep(0.005)
            self.permissions.answer(waiting[0].id, answer)

        threading.Thread(target=give_answer, daemon=True).start()

    def read_lines(self, *kinds: str) -> list[str]:
        """The lines of these kinds in the transcript; without a kind those about tools."""
        self.live.transcript.flush()
        lines = TranscriptReader().read_page(self._transcript, limit=10_000)
        return [line.text for line in lines if line.kind in (kinds or ("tool",))]

    def stop(self, reason: str = "enough"):
        """End the session: its thread notices, and its last transaction is made."""
        self.live.stop(SessionStop(SessionState.CANCELLED, reason))
        self.database.write(lambda tx: self.permissions.session_ended(tx, self.view))


def open_world(make_belt_world: MakeBeltWorld, server: WebServer, *, seconds: float = 5.0, **options: Any) -> BeltWorld:
    """A world that may reach the server, as `here.test`, and nothing else of this machine. A page has `seconds`."""
    allowed = {"web": {"allow": [f"here.test:{server.port}"]}}
    web = {"resolve": lambda host, port: ["127.0.0.1"], "seconds": seconds}
    return make_belt_world(settings=allowed, web=web, **options)


def make_url(server: WebServer, path: str = "/", host: str = "here.test") -> str:
    return f"http://{host}:{server.port}{path}"
