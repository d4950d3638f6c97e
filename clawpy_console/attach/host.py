"""What the consoles of one process share. Imports nothing of a screen."""

from __future__ import annotations

from typing import Any

from clawpy_console.pauses import Pauses


class Host:
    """The apps of all attached terminals. `own`: the engine ends with the last of them unless it is `kept`."""

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self.kept = False
        self.pauses = Pauses()
        self.apps: dict[Any, Any] = {}

    def goes_on(self) -> bool:
        """Whether the engine would stay if a console were closed now. Call on the loop."""
        return not self.own or len(self.apps) > 1
