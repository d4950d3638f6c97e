"""Finds the processes of sessions and ends them, even after a crash of the engine (SPEC 3.7).

The processes of a session are the descendants of its commands, those in its control group, and those that carry its
mark in their environment. They get SIGTERM, and a moment later SIGKILL. The programs that keep them together, which are
bubblewrap and the supervisor, end last: if they were killed first, they would set the others free.

Without the engine they are found by files. The first process of each command writes its line of /proc to a PID file
before it becomes the command. That line has its process id and its start time. If the id belongs to another process by
now, the start time differs. A process without the session's mark in its environment is not the session's either. One
with the mark of another home is a process of the home from which this one, with its files, was copied.
None of them is touched, whatever a file says. One more file of a session names its control group.

The kernel limits the processes of a control group (cgroup v2) together, and ends all of them at once. A process leaves
its group only by writing to another one, which no sandbox allows. Where the engine may not divide its own group (a
login session without systemd's delegation, a container) there are no groups, and sandboxes do without.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from engine.execution.sandbox import HOME_MARK, SESSION_MARK, supervisor
from engine.files import read_plain
from engine.frozen import frozen
from engine.home import Home

SUPERVISOR = supervisor.NAME.decode()
"""The name of a command's supervisor in lists of processes."""

_KEEPERS = ("bwrap", SUPERVISOR)
"""The names of the programs that keep the processes of a command together."""


# -- processes of the machine

ChildrenOf = Mapping[int, Sequence[psutil.Process]]
"""The children of each process, by its id."""


def read_children() -> ChildrenOf:
    """The children of this process and of each of its descendants. All processes of the machine are read once for all
    sessions, because that is slow."""
    children_of = defaultdict[int, list[psutil.Process]](list)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            children_of[process.ppid()].append(process)
    return children_of


def find_marked_processes(session_id: str, home: str = "") -> list[psutil.Process]:
    """The living processes of this user that carry the session's mark and not that of a home other than `home`, except
    for this one. "" means any home."""
    processes = []
    for pid in _find_pids_with(f"{SESSION_MARK}={session_id}") if sys.platform == "linux" else psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if _is_marked(process, session_id, home) and _is_alive(process):
                processes.append(process)
    return processes


def _is_marked(process: psutil.Process, session_id: str, home: str) -> bool:
    """Whether a process is one of a session of this home. One that says nothing about its home is taken for one: it was
    started by an earlier version. Raises psutil.Error, OSError."""
    variables = process.environ()
    return variables.get(SESSION_MARK) == session_id and (not home or variables.get(HOME_MARK, home) == home)


def _find_pids_with(variable: str) -> Iterator[int]:
    """The ids of the processes whose environment has `variable`, in the form "NAME=VALUE".

    Every session looks through all processes of the machine more than once, and a `psutil.Process` for each of them
    would take several times as long.
    """
    entry = variable.encode()
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  a path for each costs more than to read it
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb", buffering=0) as stream:
                variables = stream.read().split(b"\0")
            if entry in variables:
                yield int(name)


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process runs. False for a zombie, and when the id belongs to another process by now."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def read_name(process: psutil.Process) -> str:
    """The name of a process, "" when it has ended."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def wait_for_deaths(processes: Iterable[psutil.Process], until: float) -> list[psutil.Process]:
    """Wait until no process is alive, at most until `until` (monotonic seconds). Returns those that are alive then."""
    alive = list(processes)
    while (alive := [process for process in alive if _is_alive(process)]) and time.monotonic() < until:
        time.sleep(0.01)
    return alive


def kill_process_group(leader: int) -> None:
    """Kill the process group of `leader`."""
    # macOS answers EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process, so that it answers nothing."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


# -- control groups


def _name_group(session_id: str, home: str) -> str:
    """The name of a session's control group. Homes that are copies of each other have sessions with the same ids."""
    return f"clawpy-{session_id}-{home}"


@functools.cache
def find_parent_group() -> Path | None:
    """The engine's own group, in which it may make others. None where it may not."""
    try:
        line = next(entry for entry in Path("/proc/self/cgroup").read_text().splitlines() if entry.startswith("0::"))
        mounts = [mount.split() for mount in Path("/proc/self/mounts").read_text().splitlines()]
    except (OSError, StopIteration):
        return None
    for _, mount_point, kind, *_ in mounts:
        group = Path(mount_point) / line.removeprefix("0::/")
        if kind == "cgroup2" and os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK):
            return group
    return None


def can_limit_groups() -> bool:
    """Whether the kernel limits the groups that the engine makes."""
    parent = find_parent_group()
    if parent is None:
        return False
    try:
        controllers = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return "memory" in controllers or "pids" in controllers


@frozen
class ControlGroup:
    """The control group of a session, which exists."""

    folder: Path

    @classmethod
    def make(
        cls, session_id: str, home: str, *, max_memory: int, max_processes: int, is_contained: bool
    ) -> ControlGroup | None:
        """Make the group of a session; None where that is not possible.

        It is limited to `max_memory` bytes and `max_processes`, where the kernel has controllers for that.
        `is_contained` means that the kernel ends a command with its first process anyway. Then a group is made only
        where it limits: a process waits more than 10 ms to enter one, and meanwhile no process of the machine may fork.
        """
        parent = find_parent_group()
        if parent is None or (is_contained and not can_limit_groups()):
            return None
        folder = parent / _name_group(session_id, home)
        try:
            folder.mkdir(exist_ok=True)
            if not (folder / "cgroup.kill").exists():  # before Linux 5.14
                folder.rmdir()
                return None
            for name, maximum in (("memory.max", max_memory), ("pids.max", max_processes)):
                if (folder / name).exists():
                    (folder / name).write_text(str(maximum))
        except OSError:
            return None
        return cls(folder)

    @classmethod
    def of_session(cls, folder: Path, session_id: str, home: str) -> ControlGroup | None:
        """The group in `folder`, if that is the group of this session of this home, and exists."""
        is_own = folder.name == _name_group(session_id, home) and (folder / "cgroup.kill").is_file()
        return cls(folder) if is_own else None

    @property
    def entrance(self) -> Path:
        """The file into which a process writes "0" to enter the group."""
        return self.folder / "cgroup.procs"

    def read_pids(self) -> list[int]:
        """The ids of its processes."""
        try:
            return [int(line) for line in self.entrance.read_text().split()]
        except (OSError, ValueError):
            return []

    def kill(self) -> None:
        """Kill all of its processes, even those that fork meanwhile."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove it if it is empty."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


# -- processes that are ended together

GRACE_S = 0.3
"""Seconds between SIGTERM and SIGKILL."""

KILLING_S = 0.9
"""Maximum number of seconds after the grace in which SIGKILL is sent again and again, until nothing is left."""


@frozen
class ProcessFamily:
    """Processes that are ended together: some commands with their descendants, those in a control group, and those that
    carry the mark of a session. Together these are all processes of a session."""

    session_id: str = ""
    """The session whose mark is looked for; "" for none."""
    leaders: tuple[psutil.Process, ...] = ()
    """The first processes of the commands."""
    group: ControlGroup | None = None
    home: str = ""
    """The home of the session, as `identify_home` names it; "" for any."""

    def find(self, children_of: ChildrenOf | None = None) -> list[psutil.Process]:
        """The processes that are alive. Without `children_of` the whole machine is read for each leader."""
        processes: dict[int, psutil.Process] = {}
        for leader in self.leaders:
            with contextlib.suppress(psutil.Error):
                processes |= {process.pid: process for process in _find_family(leader, children_of)}
        for pid in [] if self.group is None else self.group.read_pids():
            with contextlib.suppress(psutil.Error):
                processes.setdefault(pid, psutil.Process(pid))
        if self.session_id:
            processes |= {process.pid: process for process in find_marked_processes(self.session_id, self.home)}
        return [process for process in processes.values() if _is_alive(process)]

    def kill(self, survivors: Sequence[psutil.Process]) -> None:
        """Kill the processes that `find` returned.

        A supervisor is only told to end, which it does when nothing that it keeps is left. If it were killed before, it
        would set free programs that fork faster than a list of processes is read.
        """
        if self.group is not None:
            self.group.kill()
        supervisors = [leader for leader in self.leaders if leader in survivors and read_name(leader) == SUPERVISOR]
        for process in [*supervisors, *(process for process in survivors if process not in supervisors)]:
            with contextlib.suppress(psutil.Error):
                if process in supervisors:
                    process.resume()
                    process.terminate()
                else:
                    process.kill()
        for leader in self.leaders:
            if leader not in supervisors and _is_alive(leader):
                kill_process_group(leader.pid)

    def end(self, grace: float = GRACE_S) -> bool:
        """End the processes: SIGTERM, `grace` seconds, SIGKILL. True when nothing is left."""
        began = time.monotonic()
        if grace:
            running = self.find()
            # A keeper ends when the processes that it keeps have ended. Ended first, it would kill them at once.
            for process in [process for process in running if read_name(process) not in _KEEPERS]:
                with contextlib.suppress(psutil.Error):
                    process.terminate()
            wait_for_deaths(running, began + grace)
        while survivors := self.find():
            if time.monotonic() - began > grace + KILLING_S:
                return False
            self.kill(survivors)
            wait_for_deaths(survivors, time.monotonic() + 0.02)
        return True


def _find_family(leader: psutil.Process, children_of: ChildrenOf | None) -> list[psutil.Process]:
    """A process and its descendants. Raises psutil.Error."""
    if children_of is None:
        return [leader, *leader.children(recursive=True)]
    family = [leader]
    for process in family:  # which grows meanwhile
        family += children_of.get(process.pid, ())
    return family


# -- the files by which they are found

_COMMAND_SUFFIX = ".command"
_GROUP_SUFFIX = ".group"
"""The ends of the names of the file of a command, and of the file that names a session's control group."""

_MAX_PID_FILE_BYTES = 4096
"""Maximum number of bytes of a file that are read."""

_SHELL = ["/bin/sh", "-c"]
"""The beginning of a command line that runs a shell script."""


def get_pid_folder(home: Home) -> Path:
    """The folder with the files of all sessions."""
    return home.data / "run" / "sessions"


def identify_home(pid_folder: Path) -> str:
    """What tells a home from a copy of it: the device and the number of the folder with the files, which is made if it
    is missing. They stay when the home is moved. Raises OSError."""
    pid_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = pid_folder.stat()
    return f"{status.st_dev}:{status.st_ino}"


class PidFiles:
    """The files in `folder` by which the processes of sessions are found without the engine. The engine writes those of
    a session; whoever stops everything reads them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command_count = 0
        """The number of commands that got a file."""

    def write_group_file(self, session_id: str, group: ControlGroup | None) -> None:
        """Write the file that names the session's control group. Raises OSError."""
        if group is not None:
            (self._folder / f"{session_id}{_GROUP_SUFFIX}").write_text(str(group.folder))

    def wrap(self, session_id: str, argv: Sequence[str], group: ControlGroup | None) -> tuple[list[str], Path]:
        """A command line that writes its PID file, enters the group and becomes `argv`; and the path of that file."""
        self._command_count += 1
        file = self._folder / f"{session_id}.{self._command_count}{_COMMAND_SUFFIX}"
        prologue = f'read -r line </proc/$$/stat; echo "$line" >{shlex.quote(str(file))}; '
        if group is not None:
            prologue += f"echo 0 >{shlex.quote(str(group.entrance))}; "
        if list(argv[:2]) == _SHELL:  # a shell command needs no second shell around it
            return [*_SHELL, prologue + argv[2], *argv[3:]], file
        return [*_SHELL, prologue + 'exec "$@"', "sh", *argv], file

    def clear(self, session_id: str) -> None:
        """Remove the files of a session that has no processes any more."""
        for file in self._folder.glob(f"{session_id}.*"):
            file.unlink(missing_ok=True)

    def read_sessions(self) -> list[ProcessFamily]:
        """The processes of each session that has files."""
        sessions: dict[str, ProcessFamily] = {}
        for file in self._read_files():
            session = sessions.get(file.session_id, ProcessFamily(file.session_id, home=identify_home(self._folder)))
            if file.leader is not None:
                session = replace(session, leaders=(*session.leaders, file.leader))
            sessions[file.session_id] = replace(session, group=file.group or session.group)
        return [*sessions.values()]

    def remove_stale(self) -> None:
        """Remove the control groups that are empty, and the files of processes and groups that are gone."""
        for session in self.read_sessions():
            if session.group is not None:
                session.group.remove()
        for file in self._read_files():
            if file.leader is None and file.group is None:
                with contextlib.suppress(OSError):
                    file.path.unlink()

    def _read_files(self) -> Iterator[_PidFile]:
        """The files of all sessions, each with what it names; none if the folder cannot be read."""
        with contextlib.suppress(OSError):
            paths = sorted(self._folder.iterdir())
            home = identify_home(self._folder)
            for path in paths:
                session_id = path.name.partition(".")[0]
                if path.suffix == _COMMAND_SUFFIX:
                    yield _PidFile(path, session_id, leader=_find_leader(_read_beginning(path), session_id, home))
                elif path.suffix == _GROUP_SUFFIX:
                    group = ControlGroup.of_session(Path(_read_beginning(path)), session_id, home)
                    yield _PidFile(path, session_id, group=group)


class _PidFile(NamedTuple):
    """A file of a session, with the process or the control group that it names, if that still exists."""

    path: Path
    session_id: str
    leader: psutil.Process | None = None
    group: ControlGroup | None = None


def _find_leader(line: str, session_id: str, home: str) -> psutil.Process | None:
    """The process whose line of /proc this is, if it is alive and belongs to the session of this home."""
    try:
        pid = int(line.partition(" ")[0])
        process = psutil.Process(pid)  # psutil compares the start time from here on
        current = Path(f"/proc/{pid}/stat").read_text()
        written_start, current_start = (stat.rpartition(")")[2].split()[19] for stat in (line, current))
        if written_start == current_start and _is_marked(process, session_id, home):
            return process
    except (ValueError, IndexError, OverflowError, OSError, psutil.Error):
        pass  # it has ended, or the file is damaged
    return None


def _read_beginning(file: Path) -> str:
    """The first `_MAX_PID_FILE_BYTES` of a file as text; "" when it cannot be read. Links are not followed."""
    try:
        return read_plain(file, _MAX_PID_FILE_BYTES, follow=False, cut=True).decode(errors="replace").strip()
    except (OSError, ValueError):
        return ""


# -- ending all sessions, with or without the engine

TERMINATION_S = 5.0
"""Maximum number of seconds for ending all sessions. Processes that are left then are reported."""


@frozen
class Termination:
    """The result of `terminate_sessions`."""

    sessions: tuple[str, ...]
    """The sessions that had processes."""
    killed: int
    survivors: tuple[str, ...]
    """The processes that did not end: "PID NAME"."""


def terminate_sessions(folder: Path, *, ask_engine: Callable[[], object] = lambda: None) -> Termination:
    """End all sessions that have PID files in `folder`.

    `ask_engine` may ask the engine to do it. Processes that are left after that, or that begin meanwhile, are ended
    here, for at most `TERMINATION_S` seconds.
    """
    pid_files = PidFiles(folder)
    session_of = _map_to_sessions(_find_alive(pid_files))
    ask_engine()
    until = time.monotonic() + TERMINATION_S
    while time.monotonic() < until and (alive := _find_alive(pid_files)):
        session_of |= _map_to_sessions(alive)
        for session, processes in alive:
            session.kill(processes)
        wait_for_deaths(_map_to_sessions(alive), min(until, time.monotonic() + 0.02))
    survivors = wait_for_deaths(session_of, until)  # a process that is ending has no environment to be found by
    pid_files.remove_stale()
    return Termination(
        sessions=tuple(sorted(set(session_of.values()))),
        killed=len(session_of) - len(survivors),
        survivors=tuple(f"{process.pid} {read_name(process)}" for process in survivors),
    )


def _find_alive(pid_files: PidFiles) -> list[tuple[ProcessFamily, list[psutil.Process]]]:
    """The sessions of the PID files that have living processes, each with these."""
    sessions = ((session, session.find()) for session in pid_files.read_sessions())
    return [(session, processes) for session, processes in sessions if processes]


def _map_to_sessions(alive: Sequence[tuple[ProcessFamily, list[psutil.Process]]]) -> dict[psutil.Process, str]:
    """The id of the session of each process."""
    return {process: session.session_id for session, processes in alive for process in processes}
