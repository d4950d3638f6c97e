"""The six signals of SPEC 2.1, one module each: what speaks for work right now, as relevance in [0, 1] and words.

Every relevance is a pure function over values, documented where it stands; the modules that touch the outside
world (`git_reader`, `github`) only fetch. A collector may fail: the caller turns its error into
`Signal(error=...)` with relevance 0 and the cycle goes on.

May import engine.git, clock and values; no sibling service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.model import Refusal, Signal, sanitise

WEIGHTS: Final = {
    "time": 0.3,
    "silence": 0.2,
    "tasks": 0.2,
    "conversations": 0.15,
    "git": 0.1,
    "calendar": 0.05,
}
"""What each signal adds at most to a proposal's rank (SPEC 2.1); the six sum to 1."""


def signal(name: str, relevance: float, *evidence: str, error: str = "") -> Signal:
    """A signal with its weight of SPEC 2.1. Raises KeyError for a name that is none of the six."""
    return Signal(name, WEIGHTS[name], min(1.0, max(0.0, relevance)), evidence, error)


def attempt(name: str, collect: Callable[[], Signal]) -> Signal:
    """What `collect` says, or a signal of relevance 0 that names the error: one collector never fails a cycle."""
    try:
        return collect()
    except Refusal as refusal:
        return signal(name, 0.0, error=sanitise(refusal.message))
    except Exception as error:  # whatever it is, it is told, not swallowed
        return signal(name, 0.0, error=sanitise(f"{type(error).__name__}: {error}"))
