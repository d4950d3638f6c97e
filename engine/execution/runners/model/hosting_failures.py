"""What went wrong with a request, from the exceptions of three libraries. Runs in the model host only."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
from pydantic_ai import exceptions

from engine.execution.runners.model.hosting_http import CutShort, Packed, TooBig
from engine.execution.runners.model.wire import Failure, Kind
from engine.model.secrets import redact

MESSAGE_MOST = 600
"""Characters of a provider's words that are told."""

_KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (exceptions.ModelAuthenticationError, Kind.AUTH),
    (exceptions.ModelQuotaExceededError, Kind.QUOTA),
    (exceptions.ModelRateLimitError, Kind.RATE),
    (exceptions.ModelContextWindowExceededError, Kind.CONTEXT),
    (exceptions.ModelNotFoundError, Kind.MODEL),
    (exceptions.ModelUnavailableError, Kind.SERVER),
    (exceptions.ModelServerError, Kind.SERVER),
    (exceptions.ModelConnectionError, Kind.CONNECTION),
    (exceptions.ModelRequestRejectedError, Kind.REFUSED),
)


_TOO_LONG = "exceed_context_size_error"
"""What llama.cpp calls a conversation that is longer than it reads; the libraries know other servers' words alone."""


def failure_of(error: BaseException, key: str, *, received: int = 0) -> Failure:
    """The failure that `error` stands for. `key` is cut out of its words."""
    chain = list(_chain(error))
    found = (getattr(one, "status_code", None) for one in chain)
    status = next((one for one in found if isinstance(one, int)), None)
    waited = next((one.retry_after for one in chain if isinstance(one, exceptions.ModelAPIError)), None)
    words = redact(_words(error), [key])[:MESSAGE_MOST]
    return Failure(_kind(chain, status), words, status, waited, received)


def _kind(chain: list[BaseException], status: int | None) -> Kind:
    if any(isinstance(one, TooBig) for one in chain):
        return Kind.TOO_BIG
    if any(isinstance(one, CutShort) for one in chain):
        return Kind.CONNECTION
    if any(isinstance(one, Packed) for one in chain):
        return Kind.RUBBISH
    if status is not None and 300 <= status < 400:
        return Kind.REDIRECT
    if status == 413 or any(_said(one).get("type") == _TOO_LONG for one in chain):
        return Kind.CONTEXT
    for error in chain:
        for category, kind in _KINDS:
            if isinstance(error, category):
                return kind
    if status is not None:
        return Kind.SERVER if status in (408, 409) else Kind.REFUSED
    if any(isinstance(one, (httpx2.TransportError, ConnectionError)) for one in chain):
        return Kind.CONNECTION
    return Kind.RUBBISH


def _words(error: BaseException) -> str:
    told = _said(error).get("message")
    if isinstance(told, str) and told.strip():
        return " ".join(told.split())
    return " ".join(str(error).split()) or type(error).__name__


def _said(error: BaseException) -> dict[str, object]:
    """The error in the body of the provider's answer; a bare text is its message."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return inner if isinstance(inner, dict) else {"message": inner}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen = 0
    while error is not None and seen < 10:
        yield error
        error, seen = error.__cause__ or error.__context__, seen + 1
