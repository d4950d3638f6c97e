"""The limits on processes, files and memory of one sandboxed command (SPEC 3.8).

Control groups would count a whole session, but an unprivileged engine gets one only from systemd,
over D-Bus, at several times what bubblewrap itself costs; resource limits are everywhere. Processes are counted for
each user namespace, and so for each sandbox, since Linux 5.14; root is exempt from that one. Memory has no limit of its
own (sanitizers and runtimes reserve terabytes that they never use), but when it runs out the kernel ends a session's
commands before anything of the operator's.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.execution.sandbox import supervisor

MAX_PROCESSES = 2048
"""Processes and threads of one command, besides as many as the machine has already."""

MAX_MEMORY_BYTES = max(2 * 1024**3, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
"""Memory for all processes of a session, unless the settings say otherwise: half of the machine's."""

MAX_FILE_BYTES = 2 * 1024**3
"""Maximum size of a file that a command may write."""

SHARED_MEMORY_BYTES = 512 * 1024**2
"""Size of /dev/shm, which is memory."""

PLACEHOLDER_BYTES = 65_536
"""Size of the folder in memory that stands in a hidden folder's place."""

MIN_FREE_BYTES = 256 * 1024**2
"""A session ends when less than this is left on its disk: the engine's own records need room."""

MIN_FREE_FILES = 10_000
"""A session ends when fewer files than this can be made on its disk."""

OOM_SCORE = 800
"""Of 1,000: the kernel ends the process with the highest first when memory runs out."""

NICE = 10
"""Added to our own niceness for commands of agents: the operator's keys and programs come first (SPEC 11.4)."""

_LIMIT_SCRIPT = (
    "{{ ulimit -c 0; ulimit -f {blocks}; ulimit -p {tasks} || ulimit -u {tasks}; "
    "echo {score} >/proc/self/oom_score_adj; }} 2>/dev/null; "
)
"""Limits set by a POSIX shell, whose dialects differ in the letter for processes."""


def limit_script() -> str:
    """The shell script that sets the limits, before the shell becomes the command.

    On the way into the sandbox the limit on processes is checked against all of the user's: those of the machine are
    added to those of the command.
    """
    return _LIMIT_SCRIPT.format(blocks=MAX_FILE_BYTES // 512, tasks=_count_tasks() + MAX_PROCESSES, score=OOM_SCORE)


def supervised_command(more_options: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` limited, under the supervisor, with `more_options` for the supervisor."""
    limited = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NPROC, _count_tasks() + MAX_PROCESSES),
    )
    options = [f"nice={min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)}", f"oom={OOM_SCORE}"]
    options += [f"limit={kind}:{maximum}" for kind, maximum in limited]
    return [sys.executable, "-I", "-S", supervisor.program_path(), *options, *more_options, "--", *argv]


def _count_tasks() -> int:
    """Processes and threads of the machine now."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return MAX_PROCESSES


def disk_shortage(*folders: Path) -> str:
    """Why the disk of one of `folders` has too little room for a session; "" when there is room."""
    for folder in folders:
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue  # gone with the session
        if stats.f_bavail * stats.f_frsize < MIN_FREE_BYTES:
            return f"less than {MIN_FREE_BYTES // 1024**2} MB are free on the disk of {folder}"
        if stats.f_files and stats.f_favail < MIN_FREE_FILES:
            return f"the disk of {folder} has room for fewer than {MIN_FREE_FILES:,} more files"
    return ""
