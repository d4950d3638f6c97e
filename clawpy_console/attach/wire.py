"""What a client and a console say to each other: a kind of one byte, the length, the content."""

from __future__ import annotations

import struct

HEAD = struct.Struct(">cI")

LARGEST = 16 * 1024 * 1024
"""Bytes of one message at most."""

# To the client
ENTER = b"E"
"""Take the terminal (raw mode), and write this."""
OUTPUT = b"O"
"""Write this; not while the terminal is given back."""
LEAVE = b"L"
"""Give the terminal back."""
RUN = b"R"
"""Give the terminal to a program until it ends: JSON with `command`, `folder`, `banner`."""
EXIT = b"X"
"""End: JSON with `code` and `text`, or with `again`: another engine has the home, attach to that one."""

# From the client
INPUT = b"I"
"""What was typed."""
SIZE = b"S"
"""The terminal's size: JSON, columns and rows."""
BACK = b"B"
"""The terminal is free again after `RUN` or a stop (SIGTSTP): JSON, columns and rows."""


def message(kind: bytes, content: bytes = b"") -> bytes:
    """One message as it is sent."""
    return HEAD.pack(kind, len(content)) + content


class Messages:
    """Cuts what was received into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that `data` completes, as kind and content. Raises ValueError for one that is too large."""
        self._buffer += data
        found = []
        while len(self._buffer) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._buffer)
            if length > LARGEST:
                raise ValueError(f"a message of {length} bytes")
            end = HEAD.size + length
            if len(self._buffer) < end:
                break
            found.append((kind, bytes(self._buffer[HEAD.size : end])))
            del self._buffer[:end]
        return found
