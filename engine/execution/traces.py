"""How to find the processes of every session without the engine: small files in the home (SPEC 3.7).

Each command's first process writes its line of /proc before it becomes the command: its number, and when it began. A
number that has gone to another process since began at another time, and a process that does not carry the session's
mark is none of its own, whatever a file says: neither is touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.execution import cgroups
from engine.execution.sandbox import SESSION_MARK
from engine.home import Home

_COMMAND, _GROUP = ".command", ".group"

_SHELL = ["/bin/sh", "-c"]


def folder(home: Home) -> Path:
    """Where they lie."""
    return home.data / "run" / "sessions"


class Traces:
    """Those of one session, in the folder `at`."""

    def __init__(self, at: Path, session_id: str) -> None:
        self._at = at
        self._session_id = session_id
        self._number = 0

    def enter(self, group: Path | None) -> None:
        """Keep the session's control group. Raises OSError."""
        self._at.mkdir(parents=True, exist_ok=True, mode=0o700)
        if group is not None:
            (self._at / f"{self._session_id}{_GROUP}").write_text(str(group))

    def leaving(self, argv: Sequence[str], group: Path | None) -> tuple[list[str], Path]:
        """The command line that runs `argv` in the group once it has left its trace, and the file of that."""
        self._number += 1
        file = self._at / f"{self._session_id}.{self._number}{_COMMAND}"
        begin = f'read -r line </proc/$$/stat; echo "$line" >{shlex.quote(str(file))}; '
        if group is not None:
            begin += f"echo 0 >{shlex.quote(str(group / 'cgroup.procs'))}; "
        if list(argv[:2]) == _SHELL:  # it becomes the command itself later: no second shell for this
            return [*_SHELL, begin + argv[2], *argv[3:]], file
        return [*_SHELL, begin + 'exec "$@"', "sh", *argv], file

    def clear(self) -> None:
        """The session is over and nothing of it is left."""
        for file in self._at.glob(f"{self._session_id}.*"):
            file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Trace:
    """What the files tell of a session: its first processes that still live, and its group."""

    session_id: str
    leaders: tuple[psutil.Process, ...]
    group: Path | None


def found(at: Path) -> Iterator[Trace]:
    """What lies in the folder `at`, of sessions of whom something may be left."""
    sessions: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for file in sorted(at.iterdir()):
            if file.suffix in (_COMMAND, _GROUP):
                sessions.setdefault(file.name.partition(".")[0], []).append(file)
    for session_id, files in sessions.items():
        leaders, group = [], None
        for file in files:
            text = _read(file)
            if file.suffix == _GROUP:
                named = Path(text)
                group = named if cgroups.belongs(named, session_id) else None
            elif (leader := _leader(text, session_id)) is not None:
                leaders.append(leader)
        yield Trace(session_id, tuple(leaders), group)


def forget_dead(at: Path) -> None:
    """Take away what leads to nobody any more."""
    for file in [*at.glob(f"*{_COMMAND}"), *at.glob(f"*{_GROUP}")]:
        session_id, text = file.name.partition(".")[0], _read(file)
        lives = cgroups.belongs(Path(text), session_id) if file.suffix == _GROUP else _leader(text, session_id)
        if not lives:
            with contextlib.suppress(OSError):
                file.unlink()


def _leader(line: str, session_id: str) -> psutil.Process | None:
    """The process of which this is the line in /proc, when it still lives and is the session's."""
    try:
        pid = int(line.partition(" ")[0])
        process = psutil.Process(pid)  # holds when it began: from here on psutil sees to it
        now = Path(f"/proc/{pid}/stat").read_text()
        began = [one.rpartition(")")[2].split()[19] for one in (line, now)]
        if began[0] == began[1] and process.environ().get(SESSION_MARK) == session_id:
            return process
    except (ValueError, IndexError, OverflowError, OSError, psutil.Error):
        pass  # it has ended, or never was
    return None


def _read(file: Path) -> str:
    """Its text, as far as a trace goes; "" for what is not a regular file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, errors="replace") as stream:
            return stream.read(4096).strip()
    except OSError:
        return ""
