"""How the engine and memory's helper process speak: one line of JSON, then as many raw bytes as its `size` says.

The engine asks `{"n", "do", ...}`; the helper answers each `n` once, in any order, with what was asked for or with
`{"n", "error"}`. Vectors travel as the raw bytes: float32, little-endian.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Message:
    """A head of JSON values, and raw bytes."""

    head: Mapping[str, Any]
    body: bytes = field(default=b"", repr=False)


def encode(message: Message) -> bytes:
    """A message as it goes over the pipe."""
    return json.dumps({**message.head, "size": len(message.body)}).encode() + b"\n" + message.body


def read(stream: IO[bytes]) -> Message | None:
    """The next message, None when the stream ended. Raises ValueError on what is no message."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    size = head.pop("size")
    body = stream.read(size) if size else b""
    return None if len(body) < size else Message(head, body)
