"""Sends and receives JSON-RPC messages over the pipes of an agent's process.

It takes the place of the transport of the protocol's library, which reads lines of any length, fails on JSON that is no
message, waits without end for an agent that does not read, and logs to the terminal.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from typing import Any

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Bytes of one message; asyncio's own limit is 64 KiB, which one diff passes."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for an agent which does not read what it asked for."""

LAST_OUTPUT_SECONDS = 0.5
"""Seconds in which what an agent wrote before it closed its input is read."""

MAX_SHOWN_CHARACTERS = 300
"""Characters of a line that is no message which are worth showing."""


class JsonRpcPipe:
    """One agent's stdin and stdout. All methods in one event loop.

    `on_invalid_line` receives lines that are no message. Once `receive` returned None, `problem` says why: "" when the
    agent just closed its output.
    """

    def __init__(self, on_invalid_line: Callable[[str], None]) -> None:
        self._on_invalid_line = on_invalid_line
        self._reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        self._out: asyncio.WriteTransport
        self._in: asyncio.BaseTransport
        self.problem = ""

    @classmethod
    async def open(cls, process: subprocess.Popen[bytes], on_invalid_line: Callable[[str], None]) -> JsonRpcPipe:
        """Take the pipes of `process` over."""
        pipe = cls(on_invalid_line)
        loop = asyncio.get_running_loop()
        pipe._in, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe._reader), process.stdout)
        pipe._out, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(pipe._end_soon), process.stdin)
        return pipe

    async def send(self, message: dict[str, Any]) -> None:
        """Queue a message. Raises ConnectionError for a request that nobody will read; answers are dropped then."""
        if self._out.is_closing() or self._in.is_closing():
            if "method" in message:
                raise ConnectionError("the agent has exited")
            return
        self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if self._out.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._end(f"it does not read what it is sent; {MAX_UNREAD_BYTES // 2**20} MiB wait")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None when there will be none."""
        while not self.problem:
            await asyncio.sleep(0)  # what came before is dealt with first: a flood does not pile up as tasks
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial  # a last line without its end, or nothing
                if not line:
                    return None
            except asyncio.LimitOverrunError:
                self._end(f"it wrote a line of more than {MAX_LINE_BYTES // 2**20} MiB")
                return None
            if (message := parse_message(line)) is not None:
                return message
            if shown := line[: 4 * MAX_SHOWN_CHARACTERS].decode(errors="replace").strip():
                self._on_invalid_line(shown[:MAX_SHOWN_CHARACTERS])
        return None

    async def close(self) -> None:
        """Close the pipes. Nothing more is sent or received."""
        self._in.close()
        if not self._out.is_closing():
            self._out.abort()  # nobody waits until it is read

    def _end_soon(self) -> None:
        """The agent closed its input or ended; what it wrote before can still be read."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self._end, "")

    def _end(self, problem: str) -> None:
        self.problem = self.problem or problem
        self._in.close()  # before the end is fed: nothing may be fed after it
        self._reader.feed_eof()


class _WriteProtocol(asyncio.BaseProtocol):
    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


def parse_message(line: bytes) -> dict[str, Any] | None:
    """The JSON-RPC message of a line, in a form that the protocol's library accepts; None if the line is no message."""
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
        # An error all the same, or the turn would wait for an answer without end.
        words = str(message.get("error") or "an error without a message")[:MAX_SHOWN_CHARACTERS]
        message["error"] = {"code": -32603, "message": words}
    return message
