"""Runs the conversation with the process of an agent, by JSON-RPC over its pipes (SPEC 3.8, 9.4).

`Conversation` opens a session of the agent and sends it one prompt a turn. `ClientRequests` answers what the agent asks
meanwhile.

The thread of the session drives it. The event loop runs only at the start, during turns and at the end. Between turns,
while tests run on the changes, the agent waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.connection import Connection
from acp.utils import serialize_params
from pydantic import BaseModel, ValidationError

from engine.execution.live_session import LiveSession
from engine.execution.processes import read_exit_code
from engine.execution.runners import RetryLater, WorkFailed
from engine.execution.runners.acp import ConfiguredAgent
from engine.execution.runners.acp.agent_transcript import AgentTranscript
from engine.execution.runners.acp.pipe import JsonRpcPipe, LineProtocol
from engine.execution.runners.acp.requests import ClientRequests
from engine.frozen import frozen
from engine.text import sanitise

log = logging.getLogger(__name__)

CANCEL_S = 0.25
"""Seconds in which an agent must answer a cancellation. After that its processes are ended."""

EXIT_CODE_S = 0.5
"""Seconds in which the exit code of an agent that closed its output is waited for, to name it in the error."""

AUTH_REQUIRED = -32000
"""The code of the error of an agent that is not logged in."""

_LOGIN_HINT = re.compile(r"auth(?!or(?:s|ed|ing)?\b)|log ?in|logged in|api[ _]?key|credential|\b401\b", re.IGNORECASE)
"""Matches what means the same in the text of an error, but no author and no line 1401."""

AnswerType = TypeVar("AnswerType", bound=BaseModel)


@frozen
class TurnResult:
    """The end of a turn."""

    reason: str
    """The reason in the words of the protocol: end_turn, max_tokens, max_turn_requests, refusal, cancelled."""
    message: str
    usage: schema.Usage | None
    """The totals of the conversation; None from an agent that does not report them."""


@dataclass
class Conversation:
    """The conversation with the `agent` that runs in `process`."""

    live: LiveSession
    process: subprocess.Popen[bytes]
    requests: ClientRequests
    transcript: AgentTranscript
    agent: ConfiguredAgent
    version: str
    """The version of Clawpy."""
    start_seconds: float
    """Seconds in which the agent must answer its first requests."""
    reported_agent: str = ""
    """The name and version of the agent, as it reports them."""
    _pipe: JsonRpcPipe | None = None
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _connection: Connection | None = None
    _stderr_pipe: asyncio.BaseTransport | None = None
    _error_lines: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    @contextmanager
    def open_session(self, folder: Path) -> Iterator[None]:
        """Open a session of the agent in `folder`, and end the conversation at the end of the block.

        Raises `RetryLater` if it cannot begin, which says how to log in if that is needed; `SessionStopped`.
        """
        with self._runner:
            loop = self._runner.get_loop()
            loop.set_exception_handler(_log_quietly)
            self.live.on_stop(lambda: _call_soon(loop, self._cancel_turn))
            try:
                self._start(folder)
                yield
            finally:
                self._runner.run(self._close_connection())

    def _start(self, folder: Path) -> None:
        """Start a session of the agent in `folder`. Whatever fails, nothing was done yet, so that it is a
        `RetryLater`."""
        try:
            self._runner.run(self._start_session(folder))
        except WorkFailed as error:
            raise RetryLater(error.message, error.fix) from None

    def run_turn(self, texts: list[str]) -> TurnResult:
        """Send texts, and wait for the end of the agent's turn.

        Raises `WorkFailed` if the agent fails, dies or breaks the protocol, `RetryLater` if it is not logged in and has
        done nothing, and `SessionStopped` when the session ends.
        """
        self.live.check_running()
        return self._runner.run(self._run_turn(texts))

    async def _start_session(self, folder: Path) -> None:
        self._pipe = await JsonRpcPipe.open(self.process, self._on_invalid_line)
        await self._read_stderr()
        self._connection = Connection(self.requests, self._pipe)
        await self._initialize()
        session = await self._request(
            "session/new",
            schema.NewSessionRequest(cwd=str(folder), mcp_servers=[]),
            schema.NewSessionResponse,
            self.start_seconds,
        )
        self.requests.session_id = session.session_id

    async def _initialize(self) -> None:
        """Agree with the agent on the version of the protocol, and learn the name and version of the agent."""
        capabilities = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
        )
        initialized = await self._request(
            "initialize",
            schema.InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=capabilities,
                client_info=schema.Implementation(name="clawpy", title="Clawpy", version=self.version),
            ),
            schema.InitializeResponse,
            self.start_seconds,
        )
        if initialized.protocol_version != PROTOCOL_VERSION:
            versions = f"version {initialized.protocol_version} of the protocol, not {PROTOCOL_VERSION}"
            raise WorkFailed(f"{self.agent.title} speaks {versions}", "install another version")
        if initialized.agent_info is not None:
            self.reported_agent = sanitise(f"{initialized.agent_info.name} {initialized.agent_info.version}")[:100]

    async def _run_turn(self, texts: list[str]) -> TurnResult:
        assert self.requests.session_id is not None
        self.transcript.begin_turn()
        prompt = schema.PromptRequest(
            session_id=self.requests.session_id,
            prompt=[schema.TextContentBlock(type="text", text=text) for text in texts],
        )
        try:
            answer = await self._request("session/prompt", prompt, schema.PromptResponse, None)
        finally:
            self.transcript.end_text()
        return TurnResult(answer.stop_reason, self.transcript.message, answer.usage)

    async def _request(
        self, method: str, request: BaseModel, answer_type: type[AnswerType], seconds: float | None
    ) -> AnswerType:
        """Send a request and wait for its answer, at most `seconds`."""
        assert self._connection is not None
        self.live.check_running()
        pending = asyncio.ensure_future(self._connection.send_request(method, serialize_params(request)))
        try:
            await self._wait_for_answer(pending, seconds)
            if not pending.done():
                raise WorkFailed(f"{self.agent.title} did not answer `{method}` within {seconds:g} s", self.agent.login)
            return answer_type.model_validate(pending.result())
        except RequestError as error:
            raise self._explain_refused_request(error) from None
        except ConnectionError:
            raise await self._explain_lost_connection() from None
        except ValidationError:
            raise WorkFailed(f"{self.agent.title} answered `{method}` with something outside the protocol") from None
        finally:
            pending.cancel()

    async def _wait_for_answer(self, pending: asyncio.Future[Any], seconds: float | None) -> None:
        """Wait until a request is answered, at most `seconds`. If the session is stopped, the agent has `CANCEL_S` to
        answer. Raises `SessionStopped`."""
        stop = asyncio.ensure_future(self.requests.stopping.wait())
        try:
            await asyncio.wait({pending, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if self.requests.stopping.is_set():
            await asyncio.wait({pending}, timeout=CANCEL_S)
            self.live.check_running()

    def _explain_refused_request(self, error: RequestError) -> WorkFailed:
        """The error that says what the agent answered, or that it is not logged in."""
        details = error.data.get("details") if isinstance(error.data, dict) else error.data
        message = sanitise(f"{error}: {details}" if details and str(details) != str(error) else str(error))[:500]
        if error.code != AUTH_REQUIRED and not _LOGIN_HINT.search(message):
            return WorkFailed(f"{self.agent.title} answered with an error: {message}")
        kind = WorkFailed if self.transcript.has_acted else RetryLater
        return kind(f"{self.agent.title} is not logged in: {message}", self.agent.login)

    async def _explain_lost_connection(self) -> WorkFailed:
        """The error that says why the connection ended."""
        self.live.check_running()
        if self._pipe is not None and self._pipe.problem:
            return WorkFailed(f"{self.agent.title} was ended: {self._pipe.problem}")
        deadline = asyncio.get_running_loop().time() + EXIT_CODE_S
        while (code := read_exit_code(self.process)) is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        self.live.check_running()
        output = " / ".join(self._error_lines)
        last_output = f"; its last output: {output[:600]}" if output else ""
        ending = "closed its output" if code is None else f"ended with exit code {code}"
        return WorkFailed(
            f"{self.agent.title} {ending} in the middle{last_output}",
            self.agent.login if _LOGIN_HINT.search(output) else "",
        )

    async def _read_stderr(self) -> None:
        """Write the stderr of the agent into the transcript, and keep the last lines for an error message."""

        def add_lines(lines: list[str]) -> None:
            self._error_lines.extend(line for line in lines if line.strip())
            if lines:
                self.live.write("output", "\n".join(lines))

        loop = asyncio.get_running_loop()
        self._stderr_pipe, _ = await loop.connect_read_pipe(lambda: LineProtocol(add_lines), self.process.stderr)

    def _on_invalid_line(self, line: str) -> None:
        self.requests.warn_once("the agent writes lines that are not messages")
        self.live.write("output", line)

    def _cancel_turn(self) -> None:
        """Answer pending permissions with `cancelled`, and send the agent a cancellation. Call it in the event loop."""
        self.requests.stopping.set()
        if self._connection is not None and self.requests.session_id is not None:
            note = schema.CancelNotification(session_id=self.requests.session_id)
            notification = self._connection.send_notification("session/cancel", serialize_params(note))
            asyncio.ensure_future(_ignore_closed(notification))  # noqa: RUF006 (the loop ends moments later)

    async def _close_connection(self) -> None:
        if self._connection is not None:
            await self._connection.close()  # this also closes the pipe
        if self._stderr_pipe is not None:
            self._stderr_pipe.close()


async def _ignore_closed(notification: Any) -> None:
    with contextlib.suppress(ConnectionError):
        await notification


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the conversation is over
        loop.call_soon_threadsafe(callback)


def _log_quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of asyncio at a level that does not reach the terminal."""
    log.debug("%s", context.get("message"), exc_info=context.get("exception"))
