"""Edits of agents' files by other programs, noticed while the engine runs (SPEC 4.1).

Folders are watched, not files: editors replace files. What changed is compared by content, so that our own writes and
a mere touch are nothing new. While nothing changes it costs next to nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from engine.memory.agent_files import AgentFiles

log = logging.getLogger(__name__)

POLL_MS = 250
"""Milliseconds between two looks at what the system reported; bursts of changes within them come together."""

DEBOUNCE_MS = 1000
"""Milliseconds for which a burst that does not end is held back."""

CLOSE_TIMEOUT_S = 2.0


class AgentFileWatcher:
    """Watches the folder of `AgentFiles` in a background thread."""

    def __init__(self, agent_files: AgentFiles, *, report: Callable[[str, str], None]) -> None:
        """`report(where, message)` is called when the folder cannot be watched: changes are then seen at the next
        read."""
        self._agent_files = agent_files
        self._report = report
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_ready = threading.Event()
        """Set when changes are seen from now on, or never will be."""

    def start(self) -> None:
        """Begin; returns at once. A second time changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="clawpy-agent-files", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._watch(self._agent_files.folder)
        except Exception as error:
            if self._stop.is_set():
                return  # the engine closed while a change was recorded
            log.exception("the agents' files are no longer watched")
            self._report(
                "agent files",
                f"edits by other programs are noticed only when a file is next read: {error}",
            )
        finally:
            self.is_ready.set()

    def _watch(self, folder: Path) -> None:
        from watchfiles import watch

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._agent_files.snapshot()
        for _ in watch(
            folder,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=POLL_MS,
            rust_timeout=0,
            stop_event=self,
            raise_interrupt=False,
        ):
            self._agent_files.record_changes()

    def is_set(self) -> bool:
        """Whether to end: asked by the watcher between two looks, for the first time when it is there."""
        if not self.is_ready.is_set():
            self._agent_files.record_changes()  # edits since we first read
            self.is_ready.set()
        return self._stop.is_set()
