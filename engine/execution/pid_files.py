"""Writes PID files for every session, and finds its processes by them without the engine (SPEC 3.7).

The first process of each command writes its line of /proc before it becomes the command: its number and its start time.
Where the number belongs to another process now, the start time differs; and a process without the session's mark in its
environment is not the session's, whatever a file says: neither is touched. A second file names the control
group."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from engine.execution import cgroups
from engine.execution.sandbox import SESSION_MARK
from engine.frozen import frozen
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
        """Make the folder, and write down the session's control group. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if group is not None:
            (self._folder / f"{self._session_id}{_GROUP}").write_text(str(group))

    def wrap(self, argv: Sequence[str], group: Path | None) -> tuple[list[str], Path]:
        """The command line that writes its PID file, enters the group and becomes `argv`; and the path of that file."""
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


@frozen
class SessionProcesses:
    """The processes of a session by its files."""

    session_id: str
    leaders: tuple[psutil.Process, ...]
    """The first processes of its commands that are still alive."""
    group: Path | None
    """Its control group."""


def read_pid_files(folder: Path) -> Iterator[SessionProcesses]:
    """The processes of each session that has files in `folder`."""
    sessions: dict[str, SessionProcesses] = {}
    for session_id, _, process in _read_entries(folder):
        session = sessions.get(session_id, SessionProcesses(session_id, (), None))
        if isinstance(process, Path):
            session = replace(session, group=process)
        elif process is not None:
            session = replace(session, leaders=(*session.leaders, process))
        sessions[session_id] = session
    yield from sessions.values()


def remove_stale(folder: Path) -> None:
    """Remove the files whose process has ended or whose group is gone."""
    for _, file, process in _read_entries(folder):
        if process is None:
            with contextlib.suppress(OSError):
                file.unlink()


def _read_entries(folder: Path) -> Iterator[tuple[str, Path, psutil.Process | Path | None]]:
    """The session of each file, the file, and the process or the control group that it names, None when it is gone."""
    with contextlib.suppress(OSError):
        for file in sorted(folder.iterdir()):
            session_id = file.name.partition(".")[0]
            if file.suffix == _COMMAND:
                yield session_id, file, _find_leader(_read_start(file), session_id)
            elif file.suffix == _GROUP:
                group = Path(_read_start(file))
                yield session_id, file, group if cgroups.is_group_of(group, session_id) else None


def _find_leader(line: str, session_id: str) -> psutil.Process | None:
    """The process whose line of /proc this is, if it is still alive and the session's."""
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
    """The beginning of a file's text; "" when it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, errors="replace") as stream:
            return stream.read(4096).strip()
    except OSError:
        return ""
