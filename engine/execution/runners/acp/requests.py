"""Answers the requests and notifications of a coding agent, by the rails of its session (SPEC 3.5, 3.8, 9.3).

Everything that an agent sends is treated as hostile. Each request is validated, and refused when it names another
session. Work that blocks (a question to a person, a file, a command) runs in its own thread, never in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from acp import RequestError, schema
from pydantic import BaseModel, ValidationError

from engine.background import run_in_thread
from engine.execution.live_session import LiveSession
from engine.execution.runners.acp.agent_transcript import AgentTranscript, command_of
from engine.execution.runners.acp.terminals import Terminals, terminal_argv
from engine.execution.runners.flow import SessionStopped
from engine.execution.tools.texts import unified_diff
from engine.execution.tools.tool_gate import AgentToolCall
from engine.execution.tools.toolbelt import Toolbelt
from engine.model import Refusal, sanitise
from engine.model.secrets import MAX_KEY_LENGTH

log = logging.getLogger(__name__)

MAX_OPEN_REQUESTS = 64
"""Maximum number of requests of an agent that wait at the same time."""

MAX_DETAIL = 20_000
"""Maximum number of characters of the details of a permission that are checked and shown."""

T = TypeVar("T")

REQUESTS: Mapping[str, type[BaseModel]] = {
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/kill": schema.KillTerminalRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
}
"""The form of each request that is answered, by method."""

UsageCallback = Callable[[int, "schema.Cost | None"], None]


class ClientRequests:
    """The client's side of one conversation: the handler of its connection."""

    def __init__(
        self,
        live: LiveSession,
        belt: Toolbelt,
        terminals: Terminals,
        transcript: AgentTranscript,
        *,
        on_usage: UsageCallback,
    ) -> None:
        self.session_id: str | None = None
        self.stopping = asyncio.Event()
        self._live = live
        self._belt = belt
        self._terminals = terminals
        self._transcript = transcript
        self._on_usage = on_usage
        self._open_requests = 0
        self._granted_commands: Counter[str] = Counter()
        self._warnings: set[str] = set()

    async def __call__(self, method: str, params: Any, notification: bool) -> BaseModel | None:
        """Answer a request or handle a notification. A `RequestError` goes back to the agent."""
        if notification:
            if method == "session/update":
                self._handle_update(params)
            return None
        if method not in REQUESTS:
            raise RequestError.method_not_found(sanitise(method)[:80])
        if self._open_requests >= MAX_OPEN_REQUESTS:
            raise _request_error(f"{MAX_OPEN_REQUESTS} requests are already waiting for an answer")
        self._open_requests += 1
        try:
            return await self._answer(self._validate(REQUESTS[method], params))
        except ValidationError as error:
            raise RequestError.invalid_params({"details": f"{error.error_count()} fields are wrong"}) from None
        except Refusal as refusal:
            raise _refusal_error(refusal) from None
        except SessionStopped:
            raise _request_error("the session is ending") from None
        except RequestError:
            raise
        except Exception as error:
            # The library would log the error to the terminal.
            log.exception("%s of session %s", method, self._live.id)
            raise _request_error(f"it failed: {type(error).__name__}") from None
        finally:
            self._open_requests -= 1

    def warn_once(self, warning: str) -> None:
        """Show a warning about the agent, once."""
        if warning not in self._warnings and len(self._warnings) < 20:
            self._warnings.add(warning)
            self._live.note(warning, error=True)

    # Notifications

    def _handle_update(self, params: Any) -> None:
        try:
            note = schema.SessionNotification.model_validate(params)
        except ValidationError:
            self.warn_once("the agent sent updates outside the protocol; they are left out")
            return
        if self.session_id is not None and note.session_id != self.session_id:
            self.warn_once("the agent sent updates for another session; they are left out")
            return
        match note.update:
            case schema.AgentMessageChunk(content=content):
                self._transcript.add_chunk("say", content)
            case schema.AgentThoughtChunk(content=content):
                self._transcript.add_chunk("thought", content)
            case schema.ToolCallStart() | schema.ToolCallProgress() as call:
                self._transcript.add_tool_call(call)
            case schema.AgentPlanUpdate(entries=entries):
                self._transcript.add_plan(entries)
            case schema.UsageUpdate(used=used, cost=cost):
                self._on_usage(used, cost)
            case schema.CurrentModeUpdate(current_mode_id=mode):
                self._live.write("note", f"its mode is now {mode}")

    # Requests

    async def _answer(self, request: BaseModel) -> BaseModel:
        match request:
            case schema.RequestPermissionRequest():
                return await self._answer_permission(request)
            case schema.ReadTextFileRequest(path=path, line=line, limit=limit):
                text = await self._run_in_thread(lambda: self._belt.read_text(path, line, limit))
                return schema.ReadTextFileResponse(content=text)
            case schema.WriteTextFileRequest(path=path, content=content):
                await self._run_in_thread(lambda: self._belt.write_text(path, content))
                return schema.WriteTextFileResponse()
            case schema.CreateTerminalRequest():
                return await self._create_terminal(request)
            case schema.TerminalOutputRequest(terminal_id=terminal_id):
                terminal = self._terminals.get(terminal_id)
                status = None
                if terminal.ended.is_set():
                    status = schema.TerminalExitStatus(exit_code=terminal.exit_code, signal=terminal.signal)
                return schema.TerminalOutputResponse(
                    output=terminal.output, truncated=terminal.truncated, exit_status=status
                )
            case schema.WaitForTerminalExitRequest(terminal_id=terminal_id):
                terminal = self._terminals.get(terminal_id)
                await self._run_in_thread(terminal.ended.wait)
                return schema.WaitForTerminalExitResponse(exit_code=terminal.exit_code, signal=terminal.signal)
            case schema.KillTerminalRequest(terminal_id=terminal_id):
                terminal = self._terminals.get(terminal_id)
                terminal.cancel.set()
                await self._run_in_thread(terminal.ended.wait)
                return schema.KillTerminalResponse()
            case schema.ReleaseTerminalRequest(terminal_id=terminal_id):
                self._terminals.release(terminal_id)
                return schema.ReleaseTerminalResponse()
        raise AssertionError(f"no answer to {type(request).__name__}")

    async def _answer_permission(self, request: schema.RequestPermissionRequest) -> schema.RequestPermissionResponse:
        allowed: bool | None = None
        call = self._describe_call(request.tool_call)
        with contextlib.suppress(SessionStopped):
            if not self.stopping.is_set():
                allowed = await self._run_in_thread(lambda: self._belt.is_allowed(call))
        option = None if allowed is None else choose_option(request.options, allowed)
        if allowed and call.command:
            self._granted_commands[call.command] += 1
        if allowed is not None and option is None:
            self._live.note(
                f"{call.title}: it has no option to {'allow' if allowed else 'refuse'} this once", error=True
            )
        if option is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=option))

    async def _create_terminal(self, request: schema.CreateTerminalRequest) -> schema.CreateTerminalResponse:
        argv = terminal_argv(request.command, request.args)
        command = command_of({"command": argv})
        if self._granted_commands[command] > 0:  # the agent asked for this command before, and it was allowed
            self._granted_commands[command] -= 1
        elif not await self._run_in_thread(
            lambda: self._belt.is_allowed(AgentToolCall("execute", command, command, command=command))
        ):
            raise _request_error("it is not allowed to run this; do the task without it, or say why it is needed")
        env = {variable.name: variable.value for variable in request.env or ()}
        created = self._terminals.create(argv, cwd=request.cwd, env=env, max_bytes=request.output_byte_limit)
        return schema.CreateTerminalResponse(terminal_id=created)

    def _validate(self, form: type[BaseModel], params: Any) -> BaseModel:
        """Parse a request of this session. Raises ValidationError, `RequestError`."""
        request = form.model_validate(params)
        if self.session_id is None or getattr(request, "session_id", None) != self.session_id:
            raise RequestError.invalid_params({"details": "there is no such session"})
        if self.stopping.is_set() and form is not schema.RequestPermissionRequest:
            raise _request_error("the session is ending")
        return request

    def _describe_call(self, update: schema.ToolCallUpdate) -> AgentToolCall:
        """The tool call for which the agent asks for a permission."""
        known_title, known_kind = self._transcript.find_call(update.tool_call_id)
        title = sanitise(update.title or known_title or "a tool")[:300]
        raw = update.raw_input if isinstance(update.raw_input, dict) else {}
        command = command_of(raw)
        kind = update.kind or known_kind or "other"
        if command and kind in ("other", "think"):
            kind = "execute"
        if kind == "execute" and not command:
            command = title.strip("` ")  # nothing else says what it would run
        diffs = [block for block in update.content or () if isinstance(block, schema.FileEditToolCallContent)]
        paths = [diff.path for diff in diffs] + [location.path for location in update.locations or ()]
        paths += [raw[name] for name in ("file_path", "path", "abs_path") if isinstance(raw.get(name), str)]
        changes = filter(None, (unified_diff(diff.old_text or "", diff.new_text, diff.path) for diff in diffs))
        shown_input = json.dumps(raw, ensure_ascii=False) if raw else ""
        detail = "\n".join(changes) or command or "\n".join(paths) or shown_input
        return AgentToolCall(
            kind,
            title,
            _truncate_detail(sanitise(detail)),
            command=command if kind == "execute" else "",
            url=raw["url"] if isinstance(raw.get("url"), str) else "",
            paths=tuple(dict.fromkeys(paths)),
        )

    async def _run_in_thread(self, blocking: Callable[[], T]) -> T:
        """Run `blocking` in a thread of its own and return its result. Raises `SessionStopped` as soon as the session
        ends.

        Asyncio's own pool is not used: a few questions that wait for a person would block everything else in it.
        """
        answer = asyncio.wrap_future(run_in_thread(f"clawpy-{self._live.id}-ask", blocking))
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            futures: set[asyncio.Future[Any]] = {answer, stop}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if not answer.done():
            answer.cancel()
            raise SessionStopped("the session is ending")
        return answer.result()


def choose_option(options: Sequence[schema.PermissionOption], allowed: bool) -> str | None:
    """The id of the option that matches the decision by its kind, never by its order or name; None if there is none.

    An action is allowed only once. An agent that remembers "always" would not ask again, even after this session, and
    so would avoid the content filter. What was allowed for the whole session is remembered by the permissions instead.
    """
    for kind in ("allow_once",) if allowed else ("reject_once", "reject_always"):
        for option in options:
            if option.kind == kind:
                return option.option_id
    return None


def _request_error(message: str) -> RequestError:
    return RequestError.internal_error({"details": message})


def _refusal_error(refusal: Refusal) -> RequestError:
    code = -32002 if refusal.code in ("not_there", "unknown_terminal") else -32603
    return RequestError(code, refusal.message, {"details": str(refusal)})


def _truncate_detail(detail: str) -> str:
    """The beginning of the details, unchanged, because rails judge it. No word is cut: half a key would not be
    recognised as a secret."""
    if len(detail) <= MAX_DETAIL:
        return detail
    head = detail[:MAX_DETAIL]
    return head[: max(head.rfind(" ") + 1, head.rfind("\n") + 1, MAX_DETAIL - MAX_KEY_LENGTH)]
