"""Sends the text of a model's answer to the engine while it comes, a few messages a second.

Runs in the model host only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPartDelta,
)

from engine.execution.runners.model import host_http, host_protocol
from engine.execution.runners.model.host_protocol import Message

Send = Callable[[Message], None]


class StreamOutput:
    """Collects the text of a stream, and sends at most one message every `host_protocol.BATCH_SECONDS` seconds."""

    def __init__(self, send: Send) -> None:
        self.received = 0
        self.ending = host_http.EndDetector()
        self._send = send
        self._kind = ""
        self._pending: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    def handle_event(self, event: Any) -> None:
        """Collect the text of an event of the stream."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._add("text", text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                self._add("thought", text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                self._add("thought", text)
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
                self.received += len(text)

    def note_bytes(self, chunk: bytes) -> None:
        """Report at most every `ALIVE_SECONDS` that bytes came, if only to keep the connection open."""
        self.ending.add(chunk)
        if time.monotonic() - self._sent_at >= host_protocol.ALIVE_SECONDS:
            self._send_now({"type": "alive"})

    def flush(self) -> None:
        """Send the text that is collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            text, self._pending = "".join(self._pending), []
            self._send_now({"type": self._kind, "text": text})

    def _add(self, kind: str, text: str) -> None:
        if not text:
            return
        self.received += len(text)
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pending.append(text)
        since = time.monotonic() - self._sent_at
        if since >= host_protocol.BATCH_SECONDS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(host_protocol.BATCH_SECONDS - since, self.flush)

    def _send_now(self, message: Message) -> None:
        self._sent_at = time.monotonic()
        self._send(message)
