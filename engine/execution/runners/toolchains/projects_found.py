"""The projects of workspaces, remembered: sensing asks for them every few minutes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine.clock import Clock
from engine.execution.runners.toolchains.projects import Project

log = logging.getLogger(__name__)

TOOL_FRESH_SECONDS = 60.0
"""A project's tools are looked for again after so long."""

QUICK_SECONDS = 0.25
"""A look for projects that took less than so long may be repeated while a cycle waits."""


class ProjectsFound:
    """Remembers the projects of workspaces: to look for them means to read many files, and to start an interpreter.

    What was found is given at once and, after a minute, looked for again in the background. Where something was lacking
    and the look is quick, every question looks again, so that a tool just installed is seen.
    """

    def __init__(self, clock: Clock, find: Callable[[Path], tuple[Project, ...]]) -> None:
        self._clock = clock
        self._find = find
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, float, tuple[Project, ...]]] = {}
        self._looking: dict[str, threading.Thread] = {}

    def of(self, workspace: str) -> tuple[Project, ...]:
        """The projects of `workspace`, the top first. Raises what `find` raises when nothing is known yet."""
        with self._lock:
            if workspace not in self._known:
                known = None
            else:
                asked_at, took, known = self._known[workspace]
                lacking = not any(one.tools for one in known) or any(one.lacks for one in known)
                if lacking and took < QUICK_SECONDS:
                    known = None
                elif self._clock.monotonic() - asked_at >= TOOL_FRESH_SECONDS and workspace not in self._looking:
                    thread = threading.Thread(target=self._again, args=(workspace,), name="projects", daemon=True)
                    self._looking[workspace] = thread
                    thread.start()
        return self._look(workspace) if known is None else known

    def settle(self, timeout: float | None = None) -> None:
        """Wait until every background look is over, each at most `timeout` seconds."""
        with self._lock:
            looking = list(self._looking.values())
        for thread in looking:
            thread.join(timeout)

    def _look(self, workspace: str) -> tuple[Project, ...]:
        began = time.perf_counter()
        found = self._find(Path(workspace))
        with self._lock:
            self._known[workspace] = (self._clock.monotonic(), time.perf_counter() - began, found)
        return found

    def _again(self, workspace: str) -> None:
        try:
            self._look(workspace)
        except Exception:  # forgotten, so that the next question asks itself and tells the error
            log.exception("looking for the projects of %s failed", workspace)
            with self._lock:
                self._known.pop(workspace, None)
        finally:
            with self._lock:
                del self._looking[workspace]
