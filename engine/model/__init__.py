"""The nouns of the engine: small frozen classes that services, events, JSON and screens share.

Standard library only, so that a screen can draw them before anything heavy is imported. All instants are aware
`datetime` in UTC; all money is whole micro-dollars (`int`, 1 USD = 1_000_000).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.model.cards import *
from engine.model.changes import *
from engine.model.layers import *
from engine.model.rails import *
from engine.model.refusal import *
from engine.model.sessions import *

if TYPE_CHECKING:
    from engine.model.decisions import *
    from engine.model.guidance import *
    from engine.model.learnings import *
    from engine.model.memory import *
    from engine.model.prompts import *
else:  # unseen by mypy, for which every name would exist
    _LATER = ("prompts", "memory", "guidance", "learnings", "decisions")
    """Modules that the first frame does not need. Each is imported when one of its names is first used."""

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            for module in _LATER:
                value = getattr(import_module(f"engine.model.{module}"), name, None)
                if value is not None:
                    globals()[name] = value
                    return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
