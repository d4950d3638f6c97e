"""The part of `Consoles` that an app needs. Imports nothing of a screen."""

from __future__ import annotations

from typing import Any

from clawpy_console.garbage import GarbageCollector


class Host:
    """The apps of all attached terminals."""

    def __init__(self, *, owns_engine: bool) -> None:
        self.owns_engine = owns_engine
        """Whether the engine ends with the last console."""
        self.keeps_running = False
        """Whether the operator wants the engine to run on without a console."""
        self.garbage_collector = GarbageCollector()
        self.apps: dict[Any, Any] = {}

    def outlives_console(self) -> bool:
        """Whether the engine would run on if a console closed now. Call it on the event loop."""
        return not self.owns_engine or len(self.apps) > 1
