"""Makes the HTTP clients of the model host, which bound answers and follow no redirect, and classifies their failures.

Runs in the model host only.
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
"""Characters of a provider's message that are passed on."""

on_bytes: ContextVar[Callable[[bytes], None]] = ContextVar("on_bytes")
"""Called with the bytes that come for the request of this task."""

_END = re.compile(rb'data:\s*\[DONE\]|"(?:finish|stop)_reason":\s*"|"type":\s*"message_stop"')
_MAX_END_BYTES = 64


def _ignore_bytes(chunk: bytes) -> None:
    """Nothing waits for bytes."""


class AnswerTooBig(Exception):
    """The answer is longer than any that is read."""


class CompressedAnswer(Exception):
    """The answer is compressed, though that was not asked for: its size could not be bounded."""


class AnswerCutShort(Exception):
    """The stream ended as HTTP allows, but in the middle of the answer. The libraries would accept it as complete."""


class EndDetector:
    """Watches a stream for the marks that end an answer, in either protocol. In a quoted text these are escaped."""

    def __init__(self) -> None:
        self.is_seen = False
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Read the next bytes of the stream."""
        if not self.is_seen:
            data = self._rest + chunk
            self.is_seen = _END.search(data) is not None
            self._rest = data[-_MAX_END_BYTES:]


class _BoundedStream(httpx2.AsyncByteStream):
    """A stream that ends with `AnswerTooBig` after `host_protocol.MAX_ANSWER_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        report: Callable[[bytes], None] = on_bytes.get(_ignore_bytes)
        async for chunk in self._inner:
            received += len(chunk)
            if received > host_protocol.MAX_ANSWER_BYTES:
                raise AnswerTooBig
            report(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise CompressedAnswer("it is compressed, though that was not asked for")
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(stream)


def make_client(base_url: str) -> httpx2.AsyncClient:
    """Make a client for one provider. Proxies are taken from the environment, but never for this machine itself."""
    host = urlsplit(base_url).hostname or ""
    return httpx2.AsyncClient(
        follow_redirects=False,  # the key would travel along
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
"""The error of llama.cpp for a conversation that is too long; the libraries know those of other servers only."""


def failure_of(error: BaseException, key: str, *, received: int = 0) -> Failure:
    """The failure that `error` stands for. `key` is cut out of its message."""
    chain = list(_exception_chain(error))
    codes = (getattr(cause, "status_code", None) for cause in chain)
    status = next((code for code in codes if isinstance(code, int)), None)
    retry_after = next((cause.retry_after for cause in chain if isinstance(cause, exceptions.ModelAPIError)), None)
    message = redact(_error_message(error), [key])[:MAX_MESSAGE]
    return Failure(_classify(chain, status), message, status, retry_after, received)


def _classify(chain: list[BaseException], status: int | None) -> FailureKind:
    if any(isinstance(cause, AnswerTooBig) for cause in chain):
        return FailureKind.TOO_BIG
    if any(isinstance(cause, AnswerCutShort) for cause in chain):
        return FailureKind.CONNECTION
    if any(isinstance(cause, CompressedAnswer) for cause in chain):
        return FailureKind.RUBBISH
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
    """The error in the body of the provider's answer; a bare text is its message."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return inner if isinstance(inner, dict) else {"message": inner}


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    depth = 0
    while error is not None and depth < 10:
        yield error
        error, depth = error.__cause__ or error.__context__, depth + 1
