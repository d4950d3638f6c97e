"""HTTP of the model host: bounded answers, no redirect, no compressed bomb, and a word when bytes come.

Runs in the model host only.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from urllib.parse import urlsplit

import httpx2

from engine.execution.runners.model import wire

CONNECT_SECONDS = 15.0
"""Seconds to reach a provider. How long an answer may take is for the engine to say."""

on_bytes: ContextVar[Callable[[bytes], None]] = ContextVar("on_bytes")
"""Called with the bytes that come for the request of this task."""

_END = re.compile(rb'data:\s*\[DONE\]|"(?:finish|stop)_reason":\s*"|"type":\s*"message_stop"')
_LONGEST_END = 64


def _nobody(chunk: bytes) -> None:
    """Nothing waits for bytes."""


class TooBig(Exception):
    """The answer is longer than any that is read."""


class Packed(Exception):
    """The answer is compressed, though that was not asked for: its size could not be bounded."""


class CutShort(Exception):
    """The stream ended well for HTTP, and in the middle of the answer. The libraries take it for a whole one."""


class Ending:
    """Watches a stream for the words that end an answer, in either protocol. Quoted in a text they are escaped."""

    def __init__(self) -> None:
        self.seen = False
        self._rest = b""

    def take(self, chunk: bytes) -> None:
        """More of the stream."""
        if not self.seen:
            data = self._rest + chunk
            self.seen = _END.search(data) is not None
            self._rest = data[-_LONGEST_END:]


class _Bounded(httpx2.AsyncByteStream):
    """A stream that ends with `TooBig` after `wire.MOST_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        tell: Callable[[bytes], None] = on_bytes.get(_nobody)
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > wire.MOST_BYTES:
                raise TooBig
            tell(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bind(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Packed("it is compressed, though that was not asked for")
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(stream)


def client(base_url: str) -> httpx2.AsyncClient:
    """A client for one provider. Proxies are taken from the environment, but never for this machine itself."""
    host = urlsplit(base_url).hostname or ""
    return httpx2.AsyncClient(
        follow_redirects=False,  # the key would travel along
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bind]},
        trust_env=not (host in ("localhost", "::1") or host.startswith("127.")),
    )
