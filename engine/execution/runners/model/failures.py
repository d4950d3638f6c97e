"""What the failure of a request to a model means (SPEC 3.8): whether it is sent again, and what the operator is told.

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
"""The longest pause in seconds that a provider may ask for; after a longer one the card is given back."""


@cache
def _load_rows() -> dict[str, dict[str, Any]]:
    return read_table(__file__, "failures.toml")


def retry_delay(failure: Failure, tried: int, chance: float) -> float | None:
    """Seconds to wait before the next try of a request that failed `tried` times (1 for the first); None to give up.

    `chance` in [0, 1) spreads the retries of many sessions: a pause is between half and all of its full length. It is
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
    """Whether the provider or the network failed and not the work: the same request may succeed later."""
    return "of_work" not in _load_rows()[failure.kind]


def may_be_billed(failure: Failure) -> bool:
    """Whether a provider may ask money for a request that failed."""
    return failure.received > 0 or "billed" in _load_rows()[failure.kind]


def describe_failure(failure: Failure, model: Model) -> tuple[str, str]:
    """The problem and its fix, as texts for the operator."""
    status = f" ({failure.status})" if failure.status else ""
    detail = f": {failure.message}" if failure.message else ""
    row = _load_rows()[failure.kind]
    names = {"provider": model.provider, "model": model.name, "address": model.base_url}
    return row["problem"].format(**names) + status + detail, row["fix"].format(**names)
