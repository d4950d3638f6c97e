"""Decides whether and when a failed request is sent again, and describes failures to the operator. Pure."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from engine.execution.runners.model.host_protocol import Failure, Kind, Model

MAX_RETRIES = 4
"""Maximum number of retries of a request."""

FIRST_DELAY_S = 1.0
"""Seconds before the first retry; twice as many before each further one."""

MAX_DELAY_S = 60.0
"""Maximum number of seconds before a retry."""

MAX_RETRY_AFTER_S = 120.0
"""The longest pause in seconds that a provider may ask for; after a longer one the card is given back."""

_RETRIES = {
    Kind.RATE: MAX_RETRIES,
    Kind.SERVER: MAX_RETRIES,
    Kind.CONNECTION: MAX_RETRIES,
    Kind.GONE: 2,
    Kind.SILENT: 1,
    Kind.RUBBISH: 1,
}

_WORK_FAILURES = {Kind.CONTEXT, Kind.REFUSED, Kind.HISTORY}


def retry_delay(failure: Failure, tried: int, chance: float) -> float | None:
    """Seconds to wait before trying again what failed `tried` times (1 for the first); None when it is given up.

    `chance` in [0, 1) spreads tries of many sessions: a pause is between a half and the whole of what it could be. What
    the provider asked for is never cut short.
    """
    if tried > _RETRIES.get(failure.kind, 0):
        return None
    requested = failure.retry_after or 0.0
    if requested > MAX_RETRY_AFTER_S:
        return None
    delay: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (tried - 1))
    return max(requested, delay * (0.5 + chance / 2))


def is_provider_failure(failure: Failure) -> bool:
    """Whether the provider or the network failed and not the work: done later, the same may succeed."""
    return failure.kind not in _WORK_FAILURES


def may_be_billed(failure: Failure) -> bool:
    """Whether a provider may ask money for a request that failed."""
    return failure.received > 0 or failure.kind in (Kind.SILENT, Kind.GONE, Kind.TOO_BIG)


def describe_failure(failure: Failure, model: Model) -> tuple[str, str]:
    """The problem and its fix, as texts for the operator."""
    status = f" ({failure.status})" if failure.status else ""
    detail = f": {failure.message}" if failure.message else ""
    description = _load_descriptions()[failure.kind]
    names = {"provider": model.provider, "model": model.name, "address": model.base_url}
    return description["problem"].format(**names) + status + detail, description["fix"].format(**names)


@cache
def _load_descriptions() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("failures.toml").read_text(encoding="utf-8"))
