"""Doing approved work: channels, sessions, sandboxes, runners, worktrees and the change sets they leave.

Serves SPEC 2.4 (channels), 3.7 (what runs ends within a second of a stop), 3.8 (sessions), 3.9 (work lands by
review). May import safety and what is below it. Sessions ask the rails through the functions of `SessionRails`.

Sessions and landings meet in the files of a workspace. Its lock, which keeps them apart, is here.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.model import Refusal

_EVERYWHERE = ""
"""The place of a session without a sandbox, which may write in every workspace."""


class WorkspaceLocks:
    """Keeps landings, undos and snapshots of one workspace from overlapping, with each other and with sessions that may
    write there (SPEC 3.9): one lock for each workspace, and the sessions that write in it."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()
        self._writers: dict[str, str] = {}
        """The place in which each session may write, by the session's id."""

    @contextmanager
    def hold(self, workspace: str) -> Iterator[None]:
        """Hold the lock of a workspace."""
        with self._guard:
            lock = self._locks[os.path.realpath(workspace)]
        with lock:
            yield

    @contextmanager
    def hold_exclusively(self, workspace: str) -> Iterator[None]:
        """Hold the lock of a workspace. Raises `Refusal` `session_writes` while a session may write there."""
        path = os.path.realpath(workspace)
        with self.hold(workspace):
            with self._guard:
                writers = [writer for writer in self._writers.items() if writer[1] in (path, _EVERYWHERE)]
            if writers:
                writer_id, place = writers[0]
                cause = "runs without a sandbox" if place == _EVERYWHERE else "works in these files"
                raise Refusal(
                    "session_writes",
                    f"session {writer_id} {cause} and could change them in the meantime; nothing was changed",
                    "wait until it has finished, or stop it on the work screen, then try again",
                )
            yield

    @contextmanager
    def register_writer(self, session_id: str, workspace: Path, *, is_confined: bool) -> Iterator[None]:
        """Block landings while the commands of a session may write the operator's files. Without a sandbox
        (`is_confined`) these are the files of every workspace. Waits for a landing that is under way there."""
        path = os.path.realpath(workspace) if is_confined else _EVERYWHERE
        with self._guard:
            self._writers[session_id] = path
            locks = [lock for locked_path, lock in self._locks.items() if path in (locked_path, _EVERYWHERE)]
        try:
            for lock in locks:
                with lock:
                    pass  # its holder checked for writers before this one was registered
            yield
        finally:
            with self._guard:
                self._writers.pop(session_id, None)
