"""The base of the services of the stand-in engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.console.stand_in import StandIn


class StandInService:
    """A service of which tests may read and change the data."""

    def __init__(self, engine: StandIn):
        self._engine = engine
        self.fill()

    def fill(self):
        """Set the data that the service returns."""

    def record_call(self, name: str, *arguments: Any):
        """Note a call, and raise the refusal that a test has set for the next call of this name."""
        self._engine.call_log.append((name, *arguments))
        if (refusal := self._engine.refuse.pop(name, None)) is not None:
            raise refusal
