"""Decides after a failed request to a model whether it is sent again, and describes the failure to the operator (SPEC
3.8).

`failures.toml` has a table for each kind of failure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.execution.runners.model.host_protocol import Failure, Model
from engine.files import read_table

FIRST_DELAY_S = 1.0
"""Seconds before the first retry; twice as many before each further one."""

MAX_DELAY_S = 60.0
"""Maximum number of seconds before a retry."""

MAX_RETRY_AFTER_S = 120.0
"""Maximum number of seconds that a provider may ask to wait. If it asks for more, the request is not sent again."""


@cache
def _load_rows() -> dict[str, dict[str, Any]]:
    return read_table(__file__, "failures.toml")


def retry_delay(failure: Failure, tried: int, chance: float) -> float | None:
    """The seconds to wait before a request that failed `tried` times (from 1) is sent again; None if it is not.

    `chance` in [0, 1) spreads the retries of many sessions: the delay is between half and all of its full length. It is
    never shorter than the provider asked for.
    """
    if tried > _load_rows()[failure.kind].get("retries", 0):
        return None
    requested = failure.retry_after or 0.0
    if requested > MAX_RETRY_AFTER_S:
        return None
    delay: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (tried - 1))
    return max(requested, delay * (0.5 + chance / 2))


def is_provider_failure(failure: Failure) -> bool:
    """Whether the provider or the network failed, so that the same request may succeed later."""
    return "of_work" not in _load_rows()[failure.kind]


def may_be_billed(failure: Failure) -> bool:
    """Whether a provider may charge for a request that failed."""
    return failure.received > 0 or "billed" in _load_rows()[failure.kind]


def describe_failure(failure: Failure, model: Model) -> tuple[str, str]:
    """The problem and its fix, as texts for the operator."""
    status = f" ({failure.status})" if failure.status else ""
    detail = f": {failure.message}" if failure.message else ""
    row = _load_rows()[failure.kind]
    names = {"provider": model.provider, "model": model.name, "address": model.base_url}
    return row["problem"].format(**names) + status + detail, row["fix"].format(**names)
