"""The sandbox ladder (SPEC 3.8): confines the commands of a session to its files, its network and its resources.

This module has the places that the commands may use (`Confinement`), their resource limits, and the base class of the
rungs (`Sandbox`). Each rung is a module. `ladder` chooses one, and measures how well each of them confines.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from engine.frozen import frozen

# -- limits on processes, files and memory of one command
#
# Control groups would limit a whole session. But an engine without privileges can get one only from systemd over D-Bus,
# which takes several times as long as starting bubblewrap. Resource limits work everywhere. Since Linux 5.14 processes
# are counted separately in each user namespace, so in each sandbox; the limit does not apply to root. There is no limit
# on the memory of a command, because sanitizers and runtimes reserve terabytes that they never use. When memory runs
# out, the kernel ends commands of sessions before it ends programs of the operator (`OOM_SCORE`).


MAX_PROCESSES = 2048
"""Maximum number of processes and threads of one command."""

MAX_MEMORY_BYTES = max(2 * 1024**3, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
"""Maximum memory of all processes of a session together, unless the settings say otherwise: half of the machine's, but
at least 2 GiB."""

MAX_WRITTEN_FILE_BYTES = 2 * 1024**3
"""Maximum size of a file that a command may write."""

SHARED_MEMORY_BYTES = 512 * 1024**2
"""Size of /dev/shm, a folder in memory."""

PLACEHOLDER_BYTES = 65_536
"""Size of the empty folder in memory that is mounted over a hidden folder."""

OOM_SCORE = 800
"""The score of commands when memory runs out, up to 1,000. The kernel ends the process with the highest score first."""

NICE = 10
"""Added to the engine's own niceness for commands, so that keys and programs of the operator come first (SPEC 11.4)."""

SUPERVISOR_FOLDER = Path(__file__).resolve().parent
"""The folder from which the package `supervisor` is imported."""

# The folder comes after the standard library on the path, so that none of its modules hides one of the library.
_START_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main(sys.argv[2:])"

SESSION_MARK = "CLAWPY_SESSION"
"""The environment variable with the id of the session. Every process of a session has it."""

HOME_MARK = "CLAWPY_SESSION_HOME"
"""The environment variable that tells the home of the session from a copy, which has sessions with the same ids."""

PRIVATE_FOLDERS = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""The folders for temporary files. A session gets an empty one of its own instead of those of other programs."""


def make_limit_script() -> str:
    """The beginning of a shell script that sets the limits, before the shell becomes the command. The rungs that start
    a program use it (`programs`). For the number of processes, some shells have the letter `p` and others `u`.

    While a sandbox starts, all processes of the user count against the limit on processes. So those that run already
    are added to it.
    """
    tasks = _count_tasks() + MAX_PROCESSES
    limits = f"ulimit -c 0; ulimit -f {MAX_WRITTEN_FILE_BYTES // 512}; ulimit -p {tasks} || ulimit -u {tasks}; "
    return "{ " + limits + f"echo {OOM_SCORE} >/proc/self/oom_score_adj; " + "} 2>/dev/null; "


def make_supervised_command(more_options: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` under the supervisor, which sets the same limits. The rungs without a program
    use it (`landlock`, and `ladder` without any sandbox). `more_options` are options of the supervisor, `NAME=VALUE`.

    Only this process may start it, because the supervisor ends with its parent.
    """
    limited = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_WRITTEN_FILE_BYTES),
        (resource.RLIMIT_NPROC, _count_tasks() + MAX_PROCESSES),
    )
    options = [
        f"engine={os.getpid()}",
        f"nice={min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)}",
        f"oom={OOM_SCORE}",
    ]
    options += [f"limit={kind}:{maximum}" for kind, maximum in limited]
    start = [sys.executable, "-I", "-S", "-c", _START_SUPERVISOR, str(SUPERVISOR_FOLDER)]
    return [*start, *options, *more_options, "--", *argv]


def _count_tasks() -> int:
    """The number of processes and threads that the machine has now."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return MAX_PROCESSES


# -- the places that the commands of a session may use


@frozen
class Confinement:
    """The places and hosts that the commands of one session may use. All paths are absolute. Besides these, commands
    see only the system and installed tools (see `host_paths`)."""

    folder: Path
    """The folder in which the session works. Commands may write in it, except to its `.git`."""
    scratch: Path
    """A folder that is deleted with the session. Commands see only some of the folders in it."""
    caches: Path
    """The folder for the caches of tools, which commands may write."""
    tree: Path | None = None
    """The operator's own tree, which is read-only. If it is `folder` itself, commands may write over it, and the
    session discards what they wrote when it ends."""
    readable: tuple[Path, ...] = ()
    """Further places that commands may read."""
    hidden: tuple[Path, ...] = ()
    """Places of secrets, which commands do not see even inside a place that they may read."""
    network: bool = False
    """Whether commands may reach any public host."""
    writable: tuple[Path, ...] = ()
    """Further places that commands may write."""
    hosts: tuple[str, ...] = ()
    """The hosts that commands need, as "name" or "name:port"."""
    gate: Path | None = None
    """The socket of the filter that lets commands reach `hosts` and no others (see `HostGate`)."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that commands inherit in addition to the usual ones."""
    bind_mounts: tuple[tuple[Path, Path], ...] = ()
    """(path inside, folder outside) of writable folders that commands see at another path. Only with an overlay."""
    prepared: bool = False
    """Whether `folder` is a worktree with an environment of its own, which is used instead of that of the tree."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether `folder` is the operator's tree, so that the session discards what commands write there."""
        return self.tree is not None and self.folder == self.tree

    @property
    def files(self) -> Path:
        """The folder for files of the session. Commands see it at the same path and may write in it."""
        return self.scratch / "files"

    @property
    def tmp(self) -> Path:
        """The folder that commands see as /tmp, or as TMPDIR if a rung cannot show it at another path."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        """HOME of the commands. It contains only links to files that their tools read (see `host_paths.link_tools`)."""
        return self.scratch / "home"

    @property
    def layers(self) -> Path:
        """The folder for the overlays, which hold what commands write over the operator's tree. Commands do not see
        it."""
        return self.scratch / "layers"

    def make(self) -> None:
        """Make the folders of the session. Raises OSError."""
        for folder in (self.files, self.tmp, self.home, self.layers, self.caches):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.layers / "empty").touch()


# -- the rungs of the ladder


class Sandbox(ABC):
    """One rung of the ladder."""

    name: str
    confines = True
    """Whether the operating system confines commands to their places."""
    can_filter_hosts = False
    """Whether it can confine commands to the hosts of a `HostGate`."""
    has_process_namespaces = False
    """Whether each command has a process namespace of its own, which ends with the command."""
    upgrade = ""
    """How to get a rung that can do more on this system; "" if there is none."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """Why the rung does not work on this machine; "" if it works. A command that was confined has shown that."""

    @property
    def fix(self) -> str:
        """How to solve its `problem`."""
        return f"check that `{self.name}` can run a command"

    @property
    def limitations(self) -> Sequence[str]:
        """What the rung cannot confine or limit on this machine, although it works."""
        return ()

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` confined in `cwd`. Raises `Refusal` `sandbox_tampered` if a folder of the
        session was replaced."""

    def can_overlay(self, confinement: Confinement) -> bool:
        """Whether commands can write over `confinement.tree` without changing it. If not, a session that only checks
        works in a copy."""
        return False

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        """The description for the row of a session, such as "bubblewrap, network only to api.anthropic.com"."""
        if network:
            return f"{self.name}, with network"
        names = ", ".join(dict.fromkeys(hosts))  # those of a workspace and of its work may be the same
        to = f"network only to {names}" if names and self.can_filter_hosts else "no network"
        return f"{self.name}, {to}"

    def find_hosts_problem(self, hosts: Sequence[str]) -> str:
        """Why it cannot confine a command to these hosts; "" if it can."""
        if self.can_filter_hosts or not hosts:
            return ""
        return f"this needs the network ({', '.join(hosts)}), and {self.name} cannot hold it to that"

    def describe_way_out(self, other: str) -> str:
        """How to do what this rung cannot do: with a better rung, or in an `other` way."""
        return f"{self.upgrade}, or {other}" if self.upgrade else other

    def get_temporary_folder(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""
        return str(confinement.tmp)


@frozen
class Trial:
    """The outcome of a command that was run to see whether a rung works."""

    problem: str
    """Why the command failed; "" if it succeeded."""
    output: str = ""


def try_command(argv: Sequence[str], cwd: Path | None = None) -> Trial:
    """Run a command to see whether a rung works on this machine. It may take ten seconds."""
    try:
        completed = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Trial(str(error))
    problem = completed.stderr.strip()[-500:] or f"exit code {completed.returncode}"
    return Trial("" if completed.returncode == 0 else problem, completed.stdout)


_ESCAPE_SCRIPT = """
touch "$0/folder/made" && chmod 700 "$0/folder/made" || exit 1
cat "$0/outside"; chmod 000 "$0/outside"; echo x >"$0/outside"; touch "$0/new"; exit 0
"""
"""A script that does what it may do in its folder, and tries to read, to change and to make files beside it."""


def find_escape(sandbox: Sandbox) -> str:
    """Why a rung does not confine a command; "" if it does. `_ESCAPE_SCRIPT` tries it."""
    with tempfile.TemporaryDirectory(prefix="clawpy-try-") as name:
        root = Path(name).resolve()
        confinement = Confinement(root / "folder", root / "scratch", root / "caches")
        confinement.folder.mkdir()
        confinement.make()
        outside, new = root / "outside", root / "new"
        outside.write_text("canary")
        argv = sandbox.wrap(["/bin/sh", "-c", _ESCAPE_SCRIPT, str(root)], confinement, cwd=confinement.folder)
        trial = try_command(argv, confinement.folder)
        is_changed = new.exists() or outside.stat().st_mode & 0o777 == 0 or outside.read_text() != "canary"
        has_worked = (confinement.folder / "made").exists()
        return trial.problem or ("" if has_worked and not (trial.output or is_changed) else "it did not hold a command")
