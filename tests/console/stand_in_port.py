"""What every port of the still engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.console.stand_in import StandIn


class Port:
    """A port that notes what was called and refuses what it was told to refuse."""

    def __init__(self, engine: StandIn) -> None:
        self._engine = engine
        self.fill()

    def fill(self) -> None:
        """Put in what the port has to show."""

    def note(self, name: str, *arguments: Any) -> None:
        self._engine.call_log.append((name, *arguments))
        if (refusal := self._engine.refuse.pop(name, None)) is not None:
            raise refusal
