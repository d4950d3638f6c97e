"""How to find the processes of every session without the engine: small files in the home (SPEC 3.7); and a control
group for each session, where the engine may make one (cgroup v2): the kernel ends all in it at once.

Each command's first process writes its line of /proc before it becomes the command: its number, and when it began.
A number that has gone to another process since began at another time, and a process that does not carry the
session's mark is none of its own, whatever a file says: neither is touched.

Nobody leaves a control group but by writing to another one, which no sandbox lets. Where the engine's own group is
not its to divide (a login session without systemd's delegation, a container), there is none, and the rungs do
without.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from engine.execution.sandbox import SESSION_MARK
from engine.frozen import frozen
from engine.home import Home

PREFIX = "clawpy-"


@functools.cache
def own() -> Path | None:
    """The engine's own group, in which it may make others; None where it may not."""
    try:
        line = next(entry for entry in Path("/proc/self/cgroup").read_text().splitlines() if entry.startswith("0::"))
        mounts = [mount.split() for mount in Path("/proc/self/mounts").read_text().splitlines()]
    except (OSError, StopIteration):
        return None
    for _, at, kind, *_ in mounts:
        group = Path(at) / line.removeprefix("0::/")
        if kind == "cgroup2" and os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK):
            return group
    return None


def limits() -> bool:
    """Whether the kernel limits the groups that the engine makes."""
    parent = own()
    try:
        return parent is not None and bool(
            {"memory", "pids"} & {*(parent / "cgroup.subtree_control").read_text().split()}
        )
    except OSError:
        return False


def make(session_id: str, *, memory: int, processes: int, contained: bool = False) -> Path | None:
    """The group of a session, limited to `memory` bytes and so many `processes` where the kernel's controllers are
    there; None where there is none. `contained`: the kernel ends all of a command with its first process anyway. Then
    a group is made only where it limits, because a process waits for more than 10 ms to enter one: the kernel sees to
    it that nobody forks meanwhile."""
    parent = own()
    if parent is None or (contained and not limits()):
        return None
    group = parent / f"{PREFIX}{session_id}"
    try:
        group.mkdir(exist_ok=True)
        if not (group / "cgroup.kill").exists():  # before Linux 5.14
            group.rmdir()
            return None
        for name, most in (("memory.max", memory), ("pids.max", processes)):
            if (group / name).exists():
                (group / name).write_text(str(most))
    except OSError:
        return None
    return group


def belongs(group: Path, session_id: str) -> bool:
    """Whether this is a session's group, whatever a file says."""
    return group.name == f"{PREFIX}{session_id}" and (group / "cgroup.kill").is_file()


def members(group: Path) -> list[int]:
    """The processes in it."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []


def kill(group: Path) -> None:
    """End everything in it, whatever it does meanwhile."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def remove(group: Path) -> None:
    """Take it away once it is empty."""
    with contextlib.suppress(OSError):
        group.rmdir()


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


@frozen
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
                group = named if belongs(named, session_id) else None
            elif (leader := _leader(text, session_id)) is not None:
                leaders.append(leader)
        yield Trace(session_id, tuple(leaders), group)


def forget_dead(at: Path) -> None:
    """Take away what leads to nobody any more."""
    for file in [*at.glob(f"*{_COMMAND}"), *at.glob(f"*{_GROUP}")]:
        session_id, text = file.name.partition(".")[0], _read(file)
        lives = belongs(Path(text), session_id) if file.suffix == _GROUP else _leader(text, session_id)
        if not lives:
            with contextlib.suppress(OSError):
                file.unlink()


def _leader(line: str, session_id: str) -> psutil.Process | None:
    """The process of which this is the line in /proc, when it still lives and is the session's."""
    try:
        pid = int(line.partition(" ")[0])
        process = psutil.Process(pid)  # holds when it began: from here on psutil sees to it
        now = Path(f"/proc/{pid}/stat").read_text()
        began = [status.rpartition(")")[2].split()[19] for status in (line, now)]
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
