"""The engine: whole without a screen, knows nothing of one (ARCHITECTURE).

This is its face. It exports `open_engine`, `Engine` and the public types, nothing else. Importing it is cheap:
what is heavy is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.home import Home
from engine.values import Refusal

if TYPE_CHECKING:
    from engine.doors.calling import call, failed, stop, take_over, talk
    from engine.doors.keys import keep_key
    from engine.engine import Engine, open_engine
    from engine.lock import Holder, read_holder
    from engine.simulation.simulate import simulate

__all__ = [
    "Engine",
    "Holder",
    "Home",
    "Refusal",
    "call",
    "failed",
    "keep_key",
    "open_engine",
    "read_holder",
    "simulate",
    "stop",
    "take_over",
    "talk",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("Engine", "open_engine"):
        from engine import engine

        return getattr(engine, name)
    if name in ("Holder", "read_holder"):
        from engine import lock

        return getattr(lock, name)
    if name in ("call", "failed", "stop", "take_over", "talk"):
        from engine.doors import calling

        return getattr(calling, name)
    if name == "keep_key":
        from engine.doors import keys

        return keys.keep_key
    if name == "simulate":
        from engine.simulation import simulate

        return simulate.simulate
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
