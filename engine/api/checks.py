"""What `doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `state` is ok, warn (something works less well) or fail (something does not work)."""

    name: str
    state: str
    message: str
    fix: str = ""
