"""Makes the HTTP clients of the model host, and classifies their failures. It runs only in the model host.

The clients limit the size of answers and follow no redirects.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions

from engine.execution.runners.model import host_protocol
from engine.execution.runners.model.host_protocol import Failure, FailureKind
from engine.model.secrets import redact

CONNECT_SECONDS = 15.0
"""Seconds to reach a provider. The engine decides how long an answer may take."""

MAX_MESSAGE = 600
"""Maximum number of characters of a provider's message that are passed on."""

on_bytes: ContextVar[Callable[[bytes], None]] = ContextVar("on_bytes")
"""The function of the present task that is called with the bytes of its answer."""

_END = re.compile(rb'data:\s*\[DONE\]|"(?:finish|stop)_reason":\s*"|"type":\s*"message_stop"')
_MAX_END_BYTES = 64


class UnusableAnswer(Exception):
    """The answer cannot be used, although the libraries would accept it."""

    def __init__(self, kind: FailureKind, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class EndDetector:
    """Watches a stream for the marks that end an answer, in both protocols. In the text of an answer these marks are
    escaped."""

    def __init__(self) -> None:
        self.is_seen = False
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Search the next bytes of the stream."""
        if not self.is_seen:
            data = self._rest + chunk
            self.is_seen = _END.search(data) is not None
            self._rest = data[-_MAX_END_BYTES:]


class _BoundedStream(httpx2.AsyncByteStream):
    """A stream that fails after `host_protocol.MAX_ANSWER_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        report = on_bytes.get()
        async for chunk in self._inner:
            received += len(chunk)
            if received > host_protocol.MAX_ANSWER_BYTES:
                raise UnusableAnswer(FailureKind.TOO_BIG)
            report(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        # Its real size would not be known.
        raise UnusableAnswer(FailureKind.RUBBISH, "it is compressed, though that was not asked for")
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(stream)


def make_client(base_url: str) -> httpx2.AsyncClient:
    """Make a client for one provider. Proxies come from the environment. For an address of this machine none is
    used."""
    host = urlsplit(base_url).hostname or ""
    return httpx2.AsyncClient(
        follow_redirects=False,  # the key would be sent to the other address
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bound_response]},
        trust_env=not (host in ("localhost", "::1") or host.startswith("127.")),
    )


_FAILURE_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (exceptions.ModelAuthenticationError, FailureKind.AUTH),
    (exceptions.ModelQuotaExceededError, FailureKind.QUOTA),
    (exceptions.ModelRateLimitError, FailureKind.RATE),
    (exceptions.ModelContextWindowExceededError, FailureKind.CONTEXT),
    (exceptions.ModelNotFoundError, FailureKind.MODEL),
    (exceptions.ModelUnavailableError, FailureKind.SERVER),
    (exceptions.ModelServerError, FailureKind.SERVER),
    (exceptions.ModelConnectionError, FailureKind.CONNECTION),
    (exceptions.ModelRequestRejectedError, FailureKind.REFUSED),
)

_TOO_LONG = "exceed_context_size_error"
"""The error of llama.cpp for a conversation that is too long. The libraries know only those of other servers."""


def failure_of(error: BaseException, key: str, *, received: int = 0) -> Failure:
    """The failure for an error. `key` is removed from its message."""
    chain = list(_exception_chain(error))
    codes = (getattr(cause, "status_code", None) for cause in chain)
    status = next((code for code in codes if isinstance(code, int)), None)
    retry_after = next((cause.retry_after for cause in chain if isinstance(cause, exceptions.ModelAPIError)), None)
    message = redact(_error_message(error), [key])[:MAX_MESSAGE]
    return Failure(_classify(chain, status), message, status, retry_after, received)


def _classify(chain: list[BaseException], status: int | None) -> FailureKind:
    for cause in chain:
        if isinstance(cause, UnusableAnswer):
            return cause.kind
    if status is not None and 300 <= status < 400:
        return FailureKind.REDIRECT
    if status == 413 or any(_error_body(cause).get("type") == _TOO_LONG for cause in chain):
        return FailureKind.CONTEXT
    for error in chain:
        for category, kind in _FAILURE_KINDS:
            if isinstance(error, category):
                return kind
    if status is not None:
        return FailureKind.SERVER if status in (408, 409) else FailureKind.REFUSED
    if any(isinstance(cause, (httpx2.TransportError, ConnectionError)) for cause in chain):
        return FailureKind.CONNECTION
    return FailureKind.RUBBISH


def _error_message(error: BaseException) -> str:
    message = _error_body(error).get("message")
    if isinstance(message, str) and message.strip():
        return " ".join(message.split())
    return " ".join(str(error).split()) or type(error).__name__


def _error_body(error: BaseException) -> dict[str, object]:
    """The error in the body of the provider's answer. If the body is only a text, that is the message."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return inner if isinstance(inner, dict) else {"message": inner}


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    depth = 0
    while error is not None and depth < 10:
        yield error
        error, depth = error.__cause__ or error.__context__, depth + 1
