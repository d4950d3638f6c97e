"""The pipe to the process of a coding agent: JSON-RPC messages over its stdin and stdout (SPEC 3.8).

An agent may be hostile: the pipe limits what it can do with long lines or by not reading.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from typing import Any

from engine.execution.transcripts import LineSplitter

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Maximum number of bytes of a message. The default of asyncio is 64 KiB, which is too little for a diff."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that wait for an agent that does not read."""

LAST_OUTPUT_S = 0.5
"""Seconds after an agent closed its input in which its output is still read."""

MAX_SHOWN_CHARS = 300
"""Maximum number of characters that are shown of a line that is not a message."""


class JsonRpcPipe:
    """Sends and receives messages over the stdin and stdout of one agent. All methods must be called in one event loop.

    It is used instead of the transport of the protocol's library. That transport reads lines of any length, fails on
    JSON that is not a message, waits forever for an agent that does not read, and logs to the terminal.

    `on_invalid_line` receives lines that are not messages. After `receive` returned None, `problem` says why; it is ""
    if the agent closed its output.
    """

    def __init__(self, on_invalid_line: Callable[[str], None]) -> None:
        self._on_invalid_line = on_invalid_line
        self._reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        self._out: asyncio.WriteTransport
        self._in: asyncio.BaseTransport
        self.problem = ""

    @classmethod
    async def open(cls, process: subprocess.Popen[bytes], on_invalid_line: Callable[[str], None]) -> JsonRpcPipe:
        """Open the pipes of `process`."""
        pipe = cls(on_invalid_line)
        loop = asyncio.get_running_loop()
        pipe._in, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe._reader), process.stdout)
        pipe._out, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(pipe._end_soon), process.stdin)
        return pipe

    async def send(self, message: dict[str, Any]) -> None:
        """Queue a message. If the agent has closed its pipes, an answer is dropped, and a request raises
        ConnectionError."""
        if self._out.is_closing() or self._in.is_closing():
            if "method" in message:
                raise ConnectionError("the agent has exited")
            return
        self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if self._out.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._end(f"it does not read what it is sent; {MAX_UNREAD_BYTES // 2**20} MiB wait")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None if there are no more."""
        while not self.problem:
            await asyncio.sleep(0)  # lets earlier messages be handled first, so that tasks do not pile up
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial  # the last line without a newline, or nothing
                if not line:
                    return None
            except asyncio.LimitOverrunError:
                self._end(f"it wrote a line of more than {MAX_LINE_BYTES // 2**20} MiB")
                return None
            if (message := parse_message(line)) is not None:
                return message
            if text := line[: 4 * MAX_SHOWN_CHARS].decode(errors="replace").strip():
                self._on_invalid_line(text[:MAX_SHOWN_CHARS])
        return None

    async def close(self) -> None:
        """Close the pipes. Nothing more is sent or received."""
        self._in.close()
        if not self._out.is_closing():
            self._out.abort()  # nobody waits until it is read

    def _end_soon(self) -> None:
        """End a moment later, because the agent closed its input or ended. Its earlier output can still be read."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT_S, self._end, "")

    def _end(self, problem: str) -> None:
        self.problem = self.problem or problem
        self._in.close()  # before `feed_eof`, because no data may be fed after it
        self._reader.feed_eof()


def parse_message(line: bytes) -> dict[str, Any] | None:
    """The JSON-RPC message in a line, in a form that the protocol's library accepts; None if the line has none."""
    try:
        message = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:  # the id of a request is the agent's, and goes back as it is
        return message if isinstance(message["method"], str) else None
    if type(message.get("id")) is not int:
        return None
    if "result" not in message and not isinstance(message.get("error"), dict):
        # The message becomes an error. Otherwise the turn would wait until it is given up.
        reason = str(message.get("error") or "an error without a message")[:MAX_SHOWN_CHARS]
        message["error"] = {"code": -32603, "message": reason}
    return message


class LineProtocol(asyncio.Protocol):
    """Calls `on_lines` with the lines of a pipe as they come."""

    def __init__(self, on_lines: Callable[[list[str]], None]) -> None:
        self._on_lines = on_lines
        self._splitter = LineSplitter()

    def data_received(self, data: bytes) -> None:
        self._on_lines(self._splitter.split(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lines(self._splitter.end())


class _WriteProtocol(asyncio.BaseProtocol):
    """Calls `on_lost` when the other end of a pipe is closed."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
