"""Sends and receives JSON-RPC messages over an agent's pipes, whatever the agent writes there.

A `Transport` of the protocol's library. It takes the place of the library's own, which reads lines without bound, dies
of JSON that is no message, waits for ever on an agent that does not read, and logs to the terminal.
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
        self._out: asyncio.WriteTransport | None = None
        self._in: asyncio.BaseTransport | None = None
        self._closed = False
        self.problem = ""

    @classmethod
    async def open(cls, process: subprocess.Popen[bytes], on_invalid_line: Callable[[str], None]) -> JsonRpcPipe:
        """Take the pipes of `process` over."""
        pipe = cls(on_invalid_line)
        loop = asyncio.get_running_loop()
        pipe._in, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe._reader), process.stdout)
        pipe._out, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(pipe._input_closed), process.stdin)
        return pipe

    async def send(self, message: dict[str, Any]) -> None:
        """Queue a message. Raises ConnectionError for a request that nobody will read; answers are dropped then."""
        if self._out is None or self._closed or self._out.is_closing():
            if "method" in message:
                raise ConnectionError("the agent has exited")
            return
        self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if self._out.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._fail(f"it does not read what it is sent; {MAX_UNREAD_BYTES // 2**20} MiB wait")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None when there will be none."""
        while not self._closed:
            await asyncio.sleep(0)  # what came before is dealt with first: a flood does not pile up as tasks
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial  # a last line without its end, or nothing
                self._closed = True
            except asyncio.LimitOverrunError:
                self._fail(f"it wrote a line of more than {MAX_LINE_BYTES // 2**20} MiB")
                return None
            if not line.strip():
                continue
            message = parse_message(line)
            if message is not None:
                return message
            self._on_invalid_line(
                line[: MAX_SHOWN_CHARACTERS * 4].decode(errors="replace").strip()[:MAX_SHOWN_CHARACTERS]
            )
        return None

    async def close(self) -> None:
        """Let the pipes go. Nothing more is sent or received."""
        self._closed = True
        if self._in is not None:
            self._in.close()
        if self._out is not None and not self._out.is_closing():
            self._out.abort()  # nobody waits until it is read

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self._closed = True
        self._end_reading()

    def _input_closed(self) -> None:
        """The agent closed its input or ended; what it wrote before can still be read."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self._end_reading)

    def _end_reading(self) -> None:
        if self._in is not None:
            self._in.close()  # before the end is fed: nothing may be fed after it
        self._reader.feed_eof()


class _WriteProtocol(asyncio.BaseProtocol):
    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


def parse_message(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON-RPC message that the library can take without dying of it; None when it is none."""
    try:
        message = json.loads(line.decode(errors="replace"))
        if b"\\ud" in line.lower():
            message = _replace_surrogates(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "id" in message and not _is_request_id(message["id"]):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    if not isinstance(message.get("id"), int):  # ours are numbers
        return None
    if "result" not in message:
        error = message.get("error")
        error = error if isinstance(error, dict) else {"message": str(error)[:MAX_SHOWN_CHARACTERS]}
        code = error.get("code")
        message["error"] = {
            "code": code if isinstance(code, int) else -32603,
            "message": str(error.get("message") or "an error without a message")[: 10 * MAX_SHOWN_CHARACTERS],
            "data": error.get("data"),
        }
    return message


def _is_request_id(value: object) -> bool:
    return value is None or (isinstance(value, int | str) and not isinstance(value, bool))


def _replace_surrogates(value: Any) -> Any:
    """The value without half characters, which no model of the protocol takes."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value
