"""The messages between a client and its console: each has a byte for its kind, a length, and the content.

A client begins with the `TerminalDescription`.
"""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

# To the client
TAKE_TERMINAL = b"E"
"""Set the terminal to raw mode, and write this."""
OUTPUT = b"O"
"""Write this, unless the terminal is given to a program."""
RESTORE_TERMINAL = b"L"
"""Restore the terminal."""
RUN = b"R"
"""Give the terminal to a program until it ends: JSON with `command`, `folder`, `banner`. Answered by
`TERMINAL_IS_FREE`."""
SUSPEND = b"Z"
"""Stop until the shell continues the client."""
EXIT = b"X"
"""End: a `ClientEnd` as JSON."""

# From the client
INPUT = b"I"
"""Typed bytes."""
SIZE = b"S"
"""The terminal's size: JSON, columns and rows."""
TERMINAL_IS_FREE = b"B"
"""The terminal is free again after `RUN` or SIGTSTP: its size as JSON, columns and rows."""

MESSAGE_HEAD = struct.Struct(">cI")
"""The head of a message: its kind, and the length of its content."""


def encode_message(kind: bytes, content: bytes = b"") -> bytes:
    """The bytes of one message."""
    return MESSAGE_HEAD.pack(kind, len(content)) + content


class ClientEnd(NamedTuple):
    """The end of a client: its exit code and last words."""

    code: int = 0
    """The exit code."""
    text: str = ""
    """Printed on standard error."""
    attach_again: bool = False
    """Whether the client attaches again, to the engine that holds the home now."""

    def encode(self) -> bytes:
        """The bytes of the message that ends a client in this way."""
        return encode_message(EXIT, json.dumps(self._asdict()).encode())


MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of one message."""


class MessageParser:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that `data` completes, as kind and content. Raises ValueError for one that is too large."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= MESSAGE_HEAD.size:
            kind, length = MESSAGE_HEAD.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = MESSAGE_HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append((kind, bytes(self._buffer[MESSAGE_HEAD.size : end])))
            del self._buffer[:end]
        return messages


class TerminalDescription(NamedTuple):
    """The facts about a terminal that a console needs before it draws."""

    environment: dict[str, str]
    """The variables of the terminal's environment that a console needs, if they are set."""
    size: tuple[int, int]
    """Columns and rows."""
    folder: str
    """The current folder, "" if it was removed."""
    workspaces: tuple[str, ...] = ()
    """The folders that the command line names."""
