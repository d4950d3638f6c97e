"""The sandbox ladder (SPEC 3.8): what a session's commands may touch, and who holds them to it.

Here are the places that a session's commands have, their limits, and the base class of the rungs. Each rung has a
module. `ladder` chooses one, and `escapes` measures what each of them holds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from engine.frozen import frozen

# Limits on processes, files and memory of one command
#
# Control groups would count a whole session, but an unprivileged engine gets one only from systemd, over D-Bus, at
# several times what bubblewrap itself costs; resource limits are everywhere. Processes are counted for each user
# namespace, and so for each sandbox, since Linux 5.14; root is exempt from that one. Memory has no limit of its own
# (sanitizers and runtimes reserve terabytes that they never use), but when it runs out the kernel ends a session's
# commands before anything of the operator's.


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

OOM_SCORE = 800
"""Of 1,000: the kernel ends the process with the highest first when memory runs out."""

NICE = 10
"""Added to our own niceness for commands of agents: the operator's keys and programs come first (SPEC 11.4)."""

_LIMIT_SCRIPT = (
    "{{ ulimit -c 0; ulimit -f {blocks}; ulimit -p {tasks} || ulimit -u {tasks}; "
    "echo {score} >/proc/self/oom_score_adj; }} 2>/dev/null; "
)
"""Limits set by a POSIX shell, whose dialects differ in the letter for processes."""

SUPERVISOR_FOLDER = Path(__file__).resolve().parent
"""The folder from which the package `supervisor` is imported."""

# Behind the standard library on the path, so that no module of this folder takes the place of one there.
_START_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main(sys.argv[2:])"


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
    start = [sys.executable, "-I", "-S", "-c", _START_SUPERVISOR, str(SUPERVISOR_FOLDER)]
    return [*start, *options, *more_options, "--", *argv]


def _count_tasks() -> int:
    """Processes and threads of the machine now."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return MAX_PROCESSES


SESSION_MARK = "CLAWPY_SESSION"
"""Environment variable that every process of a session carries: its session's id."""

PRIVATE_FOLDERS = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""Places of which a session has its own, empty at first: other programs' temporary files are none of its business."""


@frozen
class Confinement:
    """The places and hosts that one session's commands may touch. All paths are absolute. Commands see no other places
    but those of the system and of installed tools (see `host_paths`)."""

    folder: Path
    """Where the session works: writable but for its `.git`."""
    scratch: Path
    """Deleted with the session. Never shown itself, only folders in it."""
    caches: Path
    """Written by tools."""
    tree: Path | None = None
    """The operator's own tree, read-only. Where it is `folder` itself, commands write over it, and all that they wrote
    is discarded with the session."""
    readable: tuple[Path, ...] = ()
    """Further places to read."""
    hidden: tuple[Path, ...] = ()
    """Secrets, not seen even inside a place that is shown."""
    network: bool = False
    """Any public host may be reached."""
    writable: tuple[Path, ...] = ()
    """Further places to write."""
    hosts: tuple[str, ...] = ()
    """Hosts that are needed, "name" or "name:port"."""
    gate: Path | None = None
    """The socket of the filter that leads to `hosts` and to nothing else (see `HostGate`)."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that commands inherit besides the usual ones."""
    bind_mounts: tuple[tuple[Path, Path], ...] = ()
    """Writable folders that are seen elsewhere than they lie: place inside, folder outside. Only over an overlay."""
    prepared: bool = False
    """`folder` is a worktree with an environment of its own, which is used instead of the tree's."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether `folder` is the operator's tree, so that what commands write there is thrown away."""
        return self.tree is not None and self.folder == self.tree

    @property
    def files(self) -> Path:
        """Files of the session's own; commands write them under the same path."""
        return self.scratch / "files"

    @property
    def tmp(self) -> Path:
        """The folder that commands see as /tmp, or as TMPDIR where a rung cannot move places."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        """HOME of the commands, empty but for links to what their tools read (see `host_paths.link_tools`)."""
        return self.scratch / "home"

    @property
    def layers(self) -> Path:
        """The folder of what is written over the operator's tree. Commands never see it."""
        return self.scratch / "layers"

    def make(self) -> None:
        """Make the folders of the session's own. Raises OSError."""
        for folder in (self.files, self.tmp, self.home, self.layers, self.caches):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.layers / "empty").touch()


class Sandbox(ABC):
    """One rung of the ladder."""

    name: str
    confines = True
    """The operating system holds commands to their places."""
    can_filter_hosts = False
    """It can hold commands to the hosts of a `HostGate`."""
    has_process_namespaces = False
    """Each command has a process namespace of its own, which ends with it."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """Why it does not work here; "" when it does, which a command has shown that it held."""

    @property
    def fix(self) -> str:
        """How to get it to work here, while it has a `problem`."""
        return f"check that `{self.name}` can run a command"

    @property
    def limitations(self) -> Sequence[str]:
        """Limits of the rung on this machine, where it works."""
        return ()

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` confined in `cwd`. Raises `Refusal` `sandbox_tampered` when a folder that
        it relies on was exchanged."""

    def can_overlay(self, confinement: Confinement) -> bool:
        """Whether commands can write over `confinement.tree` without a change to it. Where they cannot, a session that
        only checks works in a copy."""
        return False

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        """The text of a session's row, for instance "bubblewrap, network only to api.anthropic.com"."""
        if network:
            return f"{self.name}, with network"
        names = ", ".join(dict.fromkeys(hosts))  # those of a workspace and of its work may be the same
        to = f"network only to {names}" if names and self.can_filter_hosts else "no network"
        return f"{self.name}, {to}"

    def temporary_folder(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""
        return str(confinement.tmp)


@frozen
class Trial:
    """The outcome of a command that tries a rung."""

    problem: str
    """Why the command failed; "" when it succeeded."""
    output: str = ""


def try_command(argv: Sequence[str], cwd: Path | None = None) -> Trial:
    """Run a command to see whether a rung works here; ten seconds at most."""
    try:
        completed = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Trial(str(error))
    problem = completed.stderr.strip()[-500:] or f"exit code {completed.returncode}"
    return Trial("" if completed.returncode == 0 else problem, completed.stdout)
