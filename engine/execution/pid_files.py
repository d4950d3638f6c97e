"""Writes and reads the files by which the processes of sessions are found without the engine (SPEC 3.7).

The first process of each command writes its line of /proc to a PID file before it becomes the command. That line has
its process id and its start time. If the id belongs to another process by now, the start time differs. A process
without the session's mark in its environment is not the session's either. Neither of them is touched, whatever a file
says. One more file of a session names its control group.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from engine.execution.control_groups import is_group_of
from engine.execution.sandbox import SESSION_MARK
from engine.home import Home

_COMMAND, _GROUP = ".command", ".group"

_SHELL = ["/bin/sh", "-c"]


def pid_folder(home: Home) -> Path:
    """The folder with the files of all sessions."""
    return home.data / "run" / "sessions"


class PidFiles:
    """The files of one session in `folder`."""

    def __init__(self, folder: Path, session_id: str) -> None:
        self._folder = folder
        self._session_id = session_id
        self._number = 0

    def create(self, group: Path | None) -> None:
        """Make the folder, and write the file that names the session's control group. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if group is not None:
            (self._folder / f"{self._session_id}{_GROUP}").write_text(str(group))

    def wrap(self, argv: Sequence[str], group: Path | None) -> tuple[list[str], Path]:
        """A command line that writes its PID file, enters the group and becomes `argv`; and the path of that file."""
        self._number += 1
        file = self._folder / f"{self._session_id}.{self._number}{_COMMAND}"
        prologue = f'read -r line </proc/$$/stat; echo "$line" >{shlex.quote(str(file))}; '
        if group is not None:
            prologue += f"echo 0 >{shlex.quote(str(group / 'cgroup.procs'))}; "
        if list(argv[:2]) == _SHELL:  # a shell command needs no second shell around it
            return [*_SHELL, prologue + argv[2], *argv[3:]], file
        return [*_SHELL, prologue + 'exec "$@"', "sh", *argv], file

    def clear(self) -> None:
        """Remove the files of a session that has no processes any more."""
        for file in self._folder.glob(f"{self._session_id}.*"):
            file.unlink(missing_ok=True)


def read_entries(folder: Path) -> Iterator[tuple[str, Path, psutil.Process | Path | None]]:
    """Each file's session, its path, and the process or the control group that it names, or None if that is gone."""
    with contextlib.suppress(OSError):
        for file in sorted(folder.iterdir()):
            session_id = file.name.partition(".")[0]
            if file.suffix == _COMMAND:
                yield session_id, file, _find_leader(_read_start(file), session_id)
            elif file.suffix == _GROUP:
                group = Path(_read_start(file))
                yield session_id, file, group if is_group_of(group, session_id) else None


def _find_leader(line: str, session_id: str) -> psutil.Process | None:
    """The process whose line of /proc this is, if it is alive and belongs to the session."""
    try:
        pid = int(line.partition(" ")[0])
        process = psutil.Process(pid)  # psutil compares the start time from here on
        current = Path(f"/proc/{pid}/stat").read_text()
        written_start, current_start = (stat.rpartition(")")[2].split()[19] for stat in (line, current))
        if written_start == current_start and process.environ().get(SESSION_MARK) == session_id:
            return process
    except (ValueError, IndexError, OverflowError, OSError, psutil.Error):
        pass  # it has ended, or the file is damaged
    return None


def _read_start(file: Path) -> str:
    """The first 4096 characters of a file; "" when it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, errors="replace") as stream:
            return stream.read(4096).strip()
    except OSError:
        return ""
