"""Answers what a coding agent asks of its client: permissions, files and terminals (SPEC 3.5, 3.8, 9.3).

Everything that an agent sends is treated as hostile. Each request is validated, and refused when it names another
session. Work that blocks (a question to a person, a file, a command) runs in its own thread, never in the event loop.

A terminal is created when the agent asks for one and its command is allowed. It ends with its command, when the agent
releases it, or with the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp import RequestError, schema
from pydantic import BaseModel, ValidationError

from engine.background import run_in_thread
from engine.execution.live_session import LiveSession
from engine.execution.runners import SessionStopped, WorkFailed
from engine.execution.runners.acp.agent_transcript import AgentTranscript
from engine.execution.sandbox import SESSION_MARK, Confinement
from engine.execution.session_commands import Command
from engine.execution.tools.tool_gate import AgentToolCall
from engine.execution.tools.toolbelt import AgentToolbelt, make_unified_diff
from engine.model import Refusal
from engine.redaction import MAX_KEY_CHARS
from engine.text import sanitise

log = logging.getLogger(__name__)

MAX_OPEN_REQUESTS = 64
"""Maximum number of requests of an agent that wait at the same time."""

MAX_WARNINGS = 20
"""Maximum number of warnings that are shown. An agent could cause any number of them."""

MAX_DETAIL_CHARS = 20_000
"""Maximum number of characters of the details of a permission that are checked and shown."""

ResultType = TypeVar("ResultType")

REQUEST_FORMS: Mapping[str, type[BaseModel]] = {
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
"""A function that receives the tokens and the cost of the conversation so far."""


@dataclass(slots=True, eq=False)
class ClientRequests:
    """The client's side of one conversation: the handler of its connection."""

    live: LiveSession
    belt: AgentToolbelt
    terminals: Terminals
    transcript: AgentTranscript
    on_usage: UsageCallback
    session_id: str | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _open_requests: int = 0
    _granted_commands: Counter[str] = field(default_factory=Counter)
    _warnings: set[str] = field(default_factory=set)

    async def __call__(self, method: str, params: Any, notification: bool) -> BaseModel | None:
        """Answer a request or handle a notification. A `RequestError` goes back to the agent."""
        if notification:
            if method == "session/update":
                self._handle_update(params)
            return None
        if method not in REQUEST_FORMS:
            raise RequestError.method_not_found(sanitise(method)[:80])
        if self._open_requests >= MAX_OPEN_REQUESTS:
            raise _make_error(f"{MAX_OPEN_REQUESTS} requests are already waiting for an answer")
        self._open_requests += 1
        try:
            return await self._answer(self._validate(REQUEST_FORMS[method], params))
        except ValidationError as error:
            raise RequestError.invalid_params({"details": f"{error.error_count()} fields are wrong"}) from None
        except Refusal as refusal:
            code = -32002 if refusal.code in ("not_there", "unknown_terminal") else -32603
            raise RequestError(code, refusal.message, {"details": str(refusal)}) from None
        except SessionStopped:
            raise _make_error("the session is ending") from None
        except RequestError:
            raise
        except Exception as error:
            # The library would log the error to the terminal.
            log.exception("%s of session %s", method, self.live.id)
            raise _make_error(f"it failed: {type(error).__name__}") from None
        finally:
            self._open_requests -= 1

    def warn_once(self, warning: str) -> None:
        """Show a warning about the agent, once."""
        if warning not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.add(warning)
            self.live.write("error", warning)

    # -- notifications

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
                self.transcript.add_chunk("say", content)
            case schema.AgentThoughtChunk(content=content):
                self.transcript.add_chunk("thought", content)
            case schema.ToolCallStart() | schema.ToolCallProgress() as call:
                self.transcript.add_tool_call(call)
            case schema.AgentPlanUpdate(entries=entries):
                self.transcript.add_plan(entries)
            case schema.UsageUpdate(used=used, cost=cost):
                self.on_usage(used, cost)
            case schema.CurrentModeUpdate(current_mode_id=mode):
                self.live.write("note", f"its mode is now {mode}")

    # -- requests

    async def _answer(self, request: BaseModel) -> BaseModel:
        match request:
            case schema.RequestPermissionRequest():
                return await self._answer_permission(request)
            case schema.ReadTextFileRequest(path=path, line=line, limit=limit):
                text = await self._run_in_thread(lambda: self.belt.read_text(path, line, limit))
                return schema.ReadTextFileResponse(content=text)
            case schema.WriteTextFileRequest(path=path, content=content):
                await self._run_in_thread(lambda: self.belt.write_text(path, content))
                return schema.WriteTextFileResponse()
            case schema.CreateTerminalRequest():
                return await self._create_terminal(request)
            case schema.TerminalOutputRequest(terminal_id=terminal_id):
                terminal = self.terminals.get(terminal_id)
                return schema.TerminalOutputResponse(
                    output=terminal.output, truncated=terminal.is_truncated, exit_status=terminal.exit_status
                )
            case schema.WaitForTerminalExitRequest(terminal_id=terminal_id):
                terminal = self.terminals.get(terminal_id)
                await self._run_in_thread(terminal.ended.wait)
                return schema.WaitForTerminalExitResponse(exit_code=terminal.exit_code, signal=terminal.signal)
            case schema.KillTerminalRequest(terminal_id=terminal_id):
                terminal = self.terminals.get(terminal_id)
                terminal.cancel.set()
                await self._run_in_thread(terminal.ended.wait)
                return schema.KillTerminalResponse()
            case schema.ReleaseTerminalRequest(terminal_id=terminal_id):
                self.terminals.release(terminal_id)
                return schema.ReleaseTerminalResponse()
        raise AssertionError(f"no answer to {type(request).__name__}")

    async def _answer_permission(self, request: schema.RequestPermissionRequest) -> schema.RequestPermissionResponse:
        """Ask the rails, and perhaps a person. The answer is "cancelled" if the session ends meanwhile."""
        allowed: bool | None = None
        call = self._describe_call(request.tool_call)
        with contextlib.suppress(SessionStopped):
            if not self.stopping.is_set():
                allowed = await self._run_in_thread(lambda: self.belt.ask_permission(call))
        option = None if allowed is None else choose_option(request.options, allowed=allowed)
        if allowed is not None and option is None:
            answer = "allow" if allowed else "refuse"
            self.live.write("error", f"{call.title}: it has no option to {answer} this once")
        if option is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        if allowed and call.command:
            self._granted_commands[call.command] += 1
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=option))

    async def _create_terminal(self, request: schema.CreateTerminalRequest) -> schema.CreateTerminalResponse:
        """Start a command that the rails allow, now or in an earlier permission."""
        argv = _make_argv(request.command, request.args)
        command = find_command({"command": argv})
        if self._granted_commands[command] > 0:  # the agent asked for this command before, and it was allowed
            self._granted_commands[command] -= 1
        elif not await self._run_in_thread(
            lambda: self.belt.ask_permission(AgentToolCall("execute", command, command, command=command))
        ):
            raise _make_error("it is not allowed to run this; do the task without it, or say why it is needed")
        env = {variable.name: variable.value for variable in request.env or ()}
        terminal_id = self.terminals.create(argv, cwd=request.cwd, env=env, max_bytes=request.output_byte_limit)
        return schema.CreateTerminalResponse(terminal_id=terminal_id)

    def _validate(self, form: type[BaseModel], params: Any) -> BaseModel:
        """Parse a request of this session. Raises ValidationError, `RequestError`."""
        request = form.model_validate(params)
        if self.session_id is None or getattr(request, "session_id", None) != self.session_id:
            raise RequestError.invalid_params({"details": "there is no such session"})
        if self.stopping.is_set() and form is not schema.RequestPermissionRequest:
            raise _make_error("the session is ending")
        return request

    def _describe_call(self, update: schema.ToolCallUpdate) -> AgentToolCall:
        """The tool call for which the agent asks for a permission."""
        known_title, known_kind = self.transcript.find_title_and_kind(update.tool_call_id)
        title = sanitise(update.title or known_title or "a tool")[:300]
        tool_input = update.raw_input if isinstance(update.raw_input, dict) else {}
        command = find_command(tool_input)
        kind = update.kind or known_kind or "other"
        if command and kind in ("other", "think"):
            kind = "execute"
        if kind == "execute" and not command:
            command = title.strip("` ")  # nothing else says what it would run
        diffs = [block for block in update.content or () if isinstance(block, schema.FileEditToolCallContent)]
        paths = _list_paths(update, diffs, tool_input)
        changes = (make_unified_diff(diff.old_text or "", diff.new_text, diff.path) for diff in diffs)
        detail = "\n".join(filter(None, changes)) or command or "\n".join(paths)
        if tool_input and not detail:
            detail = json.dumps(tool_input, ensure_ascii=False)
        url = tool_input.get("url")
        return AgentToolCall(
            kind,
            title,
            _truncate_detail(sanitise(detail)),
            command=command if kind == "execute" else "",
            url=url if isinstance(url, str) else "",
            paths=paths,
        )

    async def _run_in_thread(self, blocking: Callable[[], ResultType]) -> ResultType:
        """Run `blocking` in a thread of its own and return its result. Raises `SessionStopped` as soon as the session
        ends.

        Asyncio's own pool is not used: a few questions that wait for a person would block everything else in it.
        """
        answer = asyncio.wrap_future(run_in_thread(f"clawpy-{self.live.id}-ask", blocking))
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


def _list_paths(
    update: schema.ToolCallUpdate, diffs: Sequence[schema.FileEditToolCallContent], tool_input: Mapping[str, Any]
) -> tuple[str, ...]:
    """The files that a tool call names: in its diffs, as its locations, or in the input of the tool."""
    paths = [item.path for item in (*diffs, *(update.locations or ()))]
    paths += [path for name in ("file_path", "path", "abs_path") if isinstance(path := tool_input.get(name), str)]
    return tuple(dict.fromkeys(paths))


def find_command(tool_input: Any) -> str:
    """The command in the input of a call of an agent's own tool, "" for none."""
    if not isinstance(tool_input, dict):
        return ""
    for name in ("command", "cmd", "script"):
        match tool_input.get(name):
            case str() as command:
                return command
            case [_, *_] as words if all(isinstance(word, str) for word in words):
                is_script = Path(words[0]).name in ("sh", "bash", "zsh", "dash") and words[1:2] in (["-c"], ["-lc"])
                # A script may run its arguments, so they are part of the command.
                return words[2] if is_script and len(words) == 3 else shlex.join(words)
    return ""


def choose_option(options: Sequence[schema.PermissionOption], *, allowed: bool) -> str | None:
    """The id of the option that matches the decision by its kind, never by its order or name; None if there is none.

    An action is allowed only once. An agent that remembers "always" would not ask again, even after this session, and
    so would avoid the content filter. What was allowed for the whole session is remembered by the permissions instead.
    """
    for kind in ("allow_once",) if allowed else ("reject_once", "reject_always"):
        for option in options:
            if option.kind == kind:
                return option.option_id
    return None


def _make_error(message: str) -> RequestError:
    return RequestError.internal_error({"details": message})


def _truncate_detail(detail: str) -> str:
    """The beginning of the details, unchanged, because rails judge it. No word is cut: half a key would not be
    recognised as a secret."""
    if len(detail) <= MAX_DETAIL_CHARS:
        return detail
    head = detail[:MAX_DETAIL_CHARS]
    return head[: max(head.rfind(" ") + 1, head.rfind("\n") + 1, MAX_DETAIL_CHARS - MAX_KEY_CHARS)]


# -- terminals

MAX_OUTPUT_BYTES = 1024 * 1024
"""Maximum number of bytes that are kept of a terminal's output. An agent may ask for fewer."""

MAX_TERMINALS = 32
"""Maximum number of open terminals of a session. An agent may forget to release them."""

_RESERVED_VARIABLES = ("LD_", "DYLD_", SESSION_MARK)
"""The beginnings of variables that an agent may not set for commands."""


@dataclass(slots=True)
class Terminal:
    """One command and its output."""

    max_bytes: int
    """The number of bytes that are kept of the end of its output."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set to end the command."""
    ended: threading.Event = field(default_factory=threading.Event)
    exit_code: int | None = None
    """None while it runs, and if a signal ended it."""
    signal: str | None = None
    """The signal that ended it."""
    is_truncated: bool = False
    """Whether output is missing."""
    _output: bytearray = field(default_factory=bytearray)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_output(self, lines: list[str]) -> None:
        """Add clean lines (see `SessionCommands.run`)."""
        with self._lock:
            self._output += "".join(f"{line}\n" for line in lines).encode(errors="replace")
            excess = len(self._output) - self.max_bytes
            if excess > 0:
                del self._output[:excess]
                self.is_truncated = True

    @property
    def exit_status(self) -> schema.TerminalExitStatus | None:
        """How its command ended; None while it runs."""
        if not self.ended.is_set():
            return None
        return schema.TerminalExitStatus(exit_code=self.exit_code, signal=self.signal)

    @property
    def output(self) -> str:
        """The end of its output."""
        with self._lock:
            return self._output.decode(errors="replace")


@dataclass(slots=True, eq=False)
class Terminals:
    """The terminals of one conversation. Call its public methods from the thread of the session."""

    live: LiveSession
    folder: Path
    confinement: Confinement
    _terminals: dict[str, Terminal] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def create(
        self, argv: Sequence[str], *, cwd: str | None, env: Mapping[str, str], max_bytes: int | None = None
    ) -> str:
        """Start a command that was allowed, and return the terminal's id. If it cannot be started, the reason goes into
        its output.

        Raises `Refusal` `too_many_terminals`, or `outside` for a folder beyond the session's.
        """
        folder = Path(cwd).resolve() if cwd else self.folder
        if not folder.is_relative_to(self.folder.resolve()) or not folder.is_dir():
            raise Refusal("outside", f"{sanitise(str(cwd))} is not a folder of this session", f"work in {self.folder}")
        terminal = Terminal(MAX_OUTPUT_BYTES if max_bytes is None else max(0, min(max_bytes, MAX_OUTPUT_BYTES)))
        if len(self._terminals) >= MAX_TERMINALS:
            raise Refusal("too_many_terminals", f"{MAX_TERMINALS} terminals are open", "release some")
        terminal_id = f"term_{next(self._numbers)}"
        self._terminals[terminal_id] = terminal
        variables = {name: value for name, value in env.items() if not name.startswith(_RESERVED_VARIABLES)}
        run_in_thread(f"clawpy-{self.live.id}-{terminal_id}", lambda: self._run(terminal, argv, folder, variables))
        return terminal_id

    def get(self, terminal_id: str) -> Terminal:
        """One terminal. Raises `Refusal` `unknown_terminal`."""
        if terminal := self._terminals.get(terminal_id):
            return terminal
        raise Refusal("unknown_terminal", f"there is no terminal {sanitise(terminal_id)[:80]}")

    def release(self, terminal_id: str) -> None:
        """End a terminal and forget it. Raises `Refusal` `unknown_terminal`."""
        self.get(terminal_id).cancel.set()
        del self._terminals[terminal_id]

    def close(self) -> None:
        """End all terminals."""
        for terminal_id in [*self._terminals]:
            self.release(terminal_id)

    def _run(self, terminal: Terminal, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        try:
            command = Command(argv, cwd, env, self.confinement, is_approved=True)
            result = self.live.commands.run(command, cancel=terminal.cancel, listen=terminal.add_output)
            if result.timed_out:
                terminal.signal = "SIGTERM"
            elif result.exit_code < 0:
                terminal.signal = f"signal {-result.exit_code}"
            else:
                terminal.exit_code = result.exit_code
        except WorkFailed as error:  # the program does not exist, or the content filter blocks it
            terminal.add_output([sanitise(str(error))])
            terminal.exit_code = 126
            self.live.write("error", str(error))
        except SessionStopped:
            terminal.signal = "SIGKILL"
        finally:
            terminal.ended.set()


def _make_argv(command: str, arguments: Sequence[str] | None) -> list[str]:
    """The command to run. Agents send a program with its arguments, or a whole line for a shell."""
    if arguments:
        return [command, *arguments]
    words = command.split()
    return [command] if len(words) == 1 and shlex.quote(command) == command else ["sh", "-c", command]
