"""A world with a whole engine and a scripted model on loopback. All but the model is real, rails and costs included."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from engine import Engine, Home
from engine.clock import FakeClock
from engine.execution.runners.model import MAX_RETRY_AFTER_S
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import NoSandbox
from engine.execution.session_processes import find_marked_processes
from engine.model import Card, ModelCall, SessionState, SessionView
from engine.randomness import Randomness
from tests.support.engines import open_idle_engine
from tests.support.model_server import ModelServer
from tests.support.repository import Repository
from tests.support.settings import write_settings

PROMPT = "Write a greeting into hello.txt"
KEY = "sk-test-0123456789abcdefghijklmnop"
"""The key of the provider, which must be read nowhere."""
CHANNEL = "koji-core"
"""The channel of all prompts."""
GPT = "gpt-5-mini"
CLAUDE = "claude-sonnet-4-5"
"""The model of each protocol."""


class ModelWorld:
    """Opens an engine on a small repository, whose provider is `server`."""

    def __init__(
        self,
        root: Path,
        clock: FakeClock,
        server: ModelServer,
        *,
        kind: str = "openai",
        host: ModelHost | None = None,
    ):
        """`kind` is the protocol of the provider: "openai" or "anthropic".

        `host` is a model host that is already running; without one, the engine starts its own.
        """
        self.host = host
        self.sandbox: Sandbox | None = NoSandbox()
        """None for the best one of this machine."""

        self.throw_away = True
        """Whether the home may be lost: memory has no index and no embedder, and commits do not wait for the disk."""

        self.randomness = Randomness()
        self.clock = clock
        self.server = server
        self.kind = kind
        self.home = Home.locate(root / "home")
        self.repository = Repository(root / "shop")
        self.repository.commit("Begin", {"readme.md": "# Shop\n", "src/a.txt": "one\n"})
        self.engine: Engine
        self._pauses_passed: dict[str, int] = {}
        """How many pauses of a session `pass_pause` has let go by."""

        self.configure()

    @property
    def model(self) -> str:
        return CLAUDE if self.kind == "anthropic" else GPT

    def configure(
        self,
        *,
        model: str = "",
        base_url: str = "",
        keyless: bool = False,
        validation: bool = False,
        **settings: Any,
    ):
        """Write the settings of the provider and the channel, and other `settings`, which are named as in the file."""
        address = base_url or (self.server.anthropic if self.kind == "anthropic" else self.server.openai)
        channel = {name: settings.pop(name) for name in ("sessionCostCap", "sessionMinutes") if name in settings}
        provider = "local" if keyless else self.kind
        settings["validation.enabled"] = validation
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += [f"[providers.{provider}]", f'kind = "{self.kind}"', f'baseUrl = "{address}"']
        lines += [f'model = "{model or self.model}"', f"keyless = {str(keyless).lower()}"]
        lines += [
            f"[channels.{CHANNEL}]",
            'agent = "backend_builder"',
            *(f"{key} = {value}" for key, value in channel.items()),
        ]
        write_settings(self.home, "\n".join(lines) + "\n")

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        """Open the engine. At the end it is closed, and no model host that it started may be left."""
        self._earlier_hosts = find_hosts()
        engine = open_idle_engine(
            self.home,
            self.repository.path,
            clock=self.clock,
            randomness=self.randomness,
            sandbox=self.sandbox,
            unreachable=True,
            throw_away=self.throw_away,
            model_host=self.host,
        )
        self.engine = engine
        try:
            yield engine
        finally:
            engine.close()
            assert self.host is not None or not self.find_started_hosts(), "the model host outlived its engine"

    def find_started_hosts(self) -> list[psutil.Process]:
        """The model hosts that its engine started and that still live."""
        return [host for host in find_hosts() if host not in self._earlier_hosts]

    def propose(self, prompt: str = PROMPT, **options: Any) -> Card:
        return self.engine.cards.propose(prompt, workspace=str(self.repository.path), channel=CHANNEL, **options)

    def start(self, prompt: str = PROMPT, **options: Any) -> SessionView:
        """Propose a card, approve it, and return its session."""
        card = self.engine.cards.approve(self.propose(prompt, **options).id, without_sandbox=True)
        return self.engine.sessions.get(card.session_id)

    def finish(self, session: SessionView, seconds: float = 120.0) -> SessionView:
        """Wait for the end of a session. Its pauses before another try go by."""
        deadline = time.monotonic() + seconds
        while not (view := self.engine.sessions.wait(session.id, 0.02)).state.is_over:
            assert time.monotonic() < deadline, "\n".join(self.read_lines(view)) or "it hangs"
            self.pass_pause(view)
        return view

    def pass_pause(self, view: SessionView):
        """If the transcript announces another pause, advance the clock beyond its end."""
        pauses = sum("; again in " in text for text in self.read_lines(view))
        if pauses > self._pauses_passed.get(view.id, 0):
            self._pauses_passed[view.id] = pauses
            self.clock.advance(timedelta(seconds=MAX_RETRY_AFTER_S + 1))

    def run(self, prompt: str = PROMPT, *, seconds: float = 120.0, **options: Any) -> SessionView:
        return self.finish(self.start(prompt, **options), seconds)

    def read_lines(self, view: SessionView, *kinds: str) -> list[str]:
        lines = self.engine.sessions.read_transcript(view.id, limit=10**6)
        return [line.text for line in lines if not kinds or line.kind in kinds]

    def read_calls(self, view: SessionView) -> list[ModelCall]:
        """The calls of a session in the order of the conversation. Their times do not tell: the clock stands still.

        A call that failed and was made again is followed by none.
        """
        remaining = self.engine.calls.list_for_session(view.id)
        ordered = []
        while remaining:
            waiting = {call.id for call in remaining}
            ready = [call for call in remaining if call.follows not in waiting]
            ordered += sorted(ready, key=lambda call: call.state == "done")
            remaining = [call for call in remaining if call not in ready]
        return ordered

    def find_card(self, view: SessionView) -> Card:
        return self.engine.cards.get(view.prediction_id)

    def sum_costs(self) -> int:
        """The sum of all costs that were settled, in micro-dollars."""
        return self.engine.safety.costs.sum_settled_since(self.clock.now() - timedelta(days=40))

    def check_end(self, view: SessionView):
        """Check what holds of every session that is over, whatever happened in it."""
        assert view.state.is_over
        assert all(call.state != "running" for call in self.read_calls(view)), self.read_calls(view)
        assert view.state is SessionState.SUCCEEDED or view.error.strip()
        cap = int(self.engine.settings.current.channels[CHANNEL].session_cost_cap * 1_000_000)
        assert view.cost <= cap
        assert self.sum_costs() <= int(self.engine.settings.current.cross_poll_cost_cap_per_hour * 1_000_000)
        assert sum(call.cost for call in self.read_calls(view)) == view.cost
        assert find_marked_processes(view.id) == []
        assert KEY not in "\n".join(self.read_lines(view)) + view.error + view.summary


def find_hosts() -> list[psutil.Process]:
    """The model hosts that this process started and that still live."""
    return [child for child in psutil.Process().children(recursive=True) if _is_host(child)]


def _is_host(process: psutil.Process) -> bool:
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and "engine.execution.runners.model.host_client" in process.cmdline()
    except psutil.Error:
        return False
