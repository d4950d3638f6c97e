"""How much of the machine one sandboxed command may take (SPEC 3.8): no fork bomb, no file without end.

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

PROCESSES = 2048
"""Processes and threads of one command, besides as many as the machine has already."""

MEMORY_BYTES = max(2 * 1024**3, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
"""What all processes of a session may take together, unless the settings say otherwise: half of the machine's."""

FILE_BYTES = 2 * 1024**3
"""The largest file it may write."""

SHARED_MEMORY_BYTES = 512 * 1024**2
"""/dev/shm, which is memory."""

PLACEHOLDER_BYTES = 65_536
"""What stands in a hidden folder's place is memory too."""

FREE_BYTES = 256 * 1024**2
"""A session ends when less than this is left on its disk: the engine's own records need room."""

FREE_FILES = 10_000
"""The same for how many files there may be."""

OOM_SCORE = 800
"""Of 1,000: who goes first when memory runs out."""

NICE = 10
"""What is added to our own niceness for what agents run: the operator's keys and programs come first (SPEC 11.4)."""


SHELL = (
    "{{ ulimit -c 0; ulimit -f {blocks}; ulimit -p {tasks} || ulimit -u {tasks}; "
    "echo {score} >/proc/self/oom_score_adj; }} 2>/dev/null; "
)
"""Limits set by a POSIX shell, whose dialects differ in the letter for processes."""


def limiting() -> str:
    """What a shell does before it becomes a command, so that the command is limited.

    The limit on processes is checked against all of the user's on the way into the sandbox: those of the machine are
    added to what the command may have.
    """
    return SHELL.format(blocks=FILE_BYTES // 512, tasks=_tasks() + PROCESSES, score=OOM_SCORE)


def supervised(more_options: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` limited, under the supervisor; `more_options` are what else that is told."""
    limited = (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NPROC, _tasks() + PROCESSES),
    )  # fmt: skip
    options = ["nice", str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)), "oom", str(OOM_SCORE)]
    for kind, maximum in limited:
        options += ["limit", str(kind), str(maximum)]
    return [sys.executable, "-I", "-S", supervisor.program(), *options, *more_options, "--", *argv]


def _tasks() -> int:
    """Processes and threads of the machine now."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return PROCESSES


def disk_shortage(*folders: Path) -> str:
    """Which disk a session works on is nearly full, in words; "" for none."""
    for folder in folders:
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue  # gone with the session
        if stats.f_bavail * stats.f_frsize < FREE_BYTES:
            return f"less than {FREE_BYTES // 1024**2} MB are free on the disk of {folder}"
        if stats.f_files and stats.f_favail < FREE_FILES:
            return f"the disk of {folder} has room for fewer than {FREE_FILES:,} more files"
    return ""
