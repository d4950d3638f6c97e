"""Chooses the rung of the sandbox ladder for this machine, and reports how well each rung confines (SPEC 3.8, 9.8).

On Linux the rungs are bubblewrap, and Landlock with seccomp; on macOS Seatbelt; elsewhere there is none. That a program
is installed is not enough: a rung is used only if it confined a real command on this machine. For `clawpy doctor`, a
small program runs on each rung and tries each of `ESCAPES`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox, make_supervised_command
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.programs import Bubblewrap, Seatbelt
from engine.frozen import frozen
from engine.installed import SANDBOX_FIX

UNCONFINED = "no sandbox"
"""The text in the row of a session that nothing confined."""

HELD = "held"
NOT_HELD = "not held"
UNKNOWN = "n.a."
"""The results of an escape that was tried."""

_ESCAPE_PROGRAM = """
import os, signal, socket, subprocess, sys
home, port, victim, token, survivor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
def attempt(f):
    try:
        f()
    except OSError:
        pass
def connect(family, address):
    with socket.socket(family) as client:
        client.settimeout(1)
        client.connect(address)
attempt(lambda: print(open(home + "/canary").read()))
attempt(lambda: open(home + "/written", "w").close())
attempt(lambda: os.chmod(home + "/mode", 0o777))
attempt(lambda: connect(socket.AF_UNIX, home + "/socket"))
attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
attempt(lambda: token.encode() in open(f"/proc/{victim}/cmdline", "rb").read() and print("listed"))
attempt(lambda: os.kill(victim, signal.SIGUSR1))
attempt(lambda: open("program", "w").close())
attempt(lambda: os.chmod("program", 0o4755))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        devnull = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(devnull, number)
        os.execv("/bin/sleep", ["sleep", survivor])
    os._exit(0)
os.wait()
print("done")
"""
"""A program that tries each of `ESCAPES`, whether the others succeed or not, and then prints `done`."""


class NoSandbox(Sandbox):
    """The last rung. A command has a clean environment and limits, and all its processes end with it, but nothing
    confines it. Work that runs by itself executes no command on this rung."""

    name = "none"
    upgrade = SANDBOX_FIX
    confines = False
    problem = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return UNCONFINED

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return make_supervised_command([f"cwd={cwd}"], argv) if sys.platform == "linux" else list(argv)


@frozen
class RungReport:
    """What `clawpy doctor` reports on one rung."""

    name: str
    works: bool
    in_force: bool
    limitations: str
    """What it cannot confine on this machine, or why it does not work."""
    fix: str = ""
    """How to make it work; "" if it works."""


@functools.cache
def find_best_sandbox() -> Sandbox:
    """The best rung that works on this machine. The rungs are tried once a process."""
    return next(find_rungs())


def find_rungs() -> Iterator[Sandbox]:
    """The rungs that work on this machine, the best first. `NoSandbox` is the last."""
    yield from (rung for rung in _make_platform_rungs() if not rung.problem)
    yield NoSandbox()


@functools.cache
def _make_platform_rungs() -> Sequence[Sandbox]:
    """The rungs of this platform, the best first."""
    system = platform.system()
    if system == "Darwin":
        return (Seatbelt(),)
    return (Bubblewrap(), Landlock()) if system == "Linux" else ()


def report_rungs() -> list[RungReport]:
    """A report on each rung of this platform, the best first."""
    in_force = find_best_sandbox().name
    reports = [
        RungReport(rung.name, False, False, f"it does not work: {rung.problem}", rung.fix)
        if rung.problem
        else RungReport(rung.name, True, rung.name == in_force, "; ".join(rung.limitations))
        for rung in _make_platform_rungs()
    ]
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", works=True, in_force=in_force == "none", limitations=nothing)]


@frozen
class _Surroundings:
    """The folders, listeners and processes around the sandbox, and the output of the program that tries to reach
    them."""

    folder: Path
    outside: Path
    token: str
    unix_listener: socket.socket
    port_listener: socket.socket
    victim: subprocess.Popen[bytes]
    output: str = ""
    was_outlived: bool = False
    """Whether a process of the program outlived the command."""

    @property
    def survivor_argument(self) -> str:
        """The argument of the process that tries to outlive the command. The process is found by it."""
        return f"7.{self.token}"


ESCAPES: Mapping[str, Callable[[_Surroundings], bool]] = {
    "reading your home": lambda around: f"canary {around.token}" in around.output,
    "writing outside": lambda around: (around.outside / "written").exists(),
    "modes and times outside": lambda around: stat.S_IMODE((around.outside / "mode").stat().st_mode) != 0o600,
    "sockets of programs": lambda around: _has_connection(around.unix_listener),
    "ports of this machine": lambda around: _has_connection(around.port_listener),
    "signals to processes": lambda around: around.victim.poll() is not None,
    "the list of processes": lambda around: "listed" in around.output,
    "programs as their owner": lambda around: bool((around.folder / "program").stat().st_mode & stat.S_ISUID),
    "outliving the command": lambda around: around.was_outlived,
}
"""For each escape by name, a function that says whether it succeeded. The report has the same order."""

UNMEASURED = dict.fromkeys(ESCAPES, UNKNOWN)
"""The results for a rung on which the program did not run to its end."""


@functools.cache
def measure_rungs() -> dict[str, dict[str, str]]:
    """For each rung that works on this machine, the result of each of `ESCAPES`.

    It is `UNMEASURED` for a rung on which the program did not run to its end. The measurement takes less than a second
    and is made once a process.
    """
    working = list(find_rungs())
    with ThreadPoolExecutor(len(working)) as pool:
        return {rung.name: result for rung, result in zip(working, pool.map(_measure_rung, working), strict=True)}


def _measure_rung(rung: Sandbox) -> dict[str, str]:
    """Run the program on a rung, and see which escapes succeeded. All processes that it started are ended."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), ExitStack() as stack:
        work = _make_temporary_folder(stack)
        confinement = Confinement(work / "folder", work / "scratch", work / "caches")
        around = _make_surroundings(stack, confinement)
        try:
            output = _run_escape_program(rung, confinement, around)
        finally:
            was_outlived = _kill_survivors(around.survivor_argument)
        around = replace(around, output=output, was_outlived=was_outlived)
        if "done" in around.output:
            return {name: NOT_HELD if has_escaped(around) else HELD for name, has_escaped in ESCAPES.items()}
    return UNMEASURED


def _make_surroundings(stack: ExitStack, confinement: Confinement) -> _Surroundings:
    """Make what the program tries to reach. All of it ends with `stack`."""
    confinement.folder.mkdir()
    confinement.make()
    outside = _make_temporary_folder(stack)
    token = str(secrets.randbelow(10**12))
    (outside / "canary").write_text(f"canary {token}")
    (outside / "mode").touch(mode=0o600)
    # The process to be found has another argument than the one that tries to outlive the command.
    victim = stack.enter_context(subprocess.Popen(["sleep", f"8.{token}"], start_new_session=True))
    stack.callback(victim.kill)
    return _Surroundings(
        folder=confinement.folder,
        outside=outside,
        token=token,
        unix_listener=stack.enter_context(_start_listening(socket.AF_UNIX, str(outside / "socket"))),
        port_listener=stack.enter_context(_start_listening(socket.AF_INET, ("127.0.0.1", 0))),
        victim=victim,
    )


def _run_escape_program(rung: Sandbox, confinement: Confinement, around: _Surroundings) -> str:
    """Run the program on a rung. Returns what it printed."""
    port = around.port_listener.getsockname()[1]
    arguments = [str(around.outside), str(port), str(around.victim.pid), around.token, around.survivor_argument]
    argv = [sys.executable, "-I", "-S", "-c", _ESCAPE_PROGRAM, *arguments]
    return subprocess.run(
        rung.wrap(argv, confinement, cwd=confinement.folder),
        cwd=confinement.folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ).stdout


def _make_temporary_folder(stack: ExitStack) -> Path:
    """A new folder in the operator's home, or among the temporary files if the home cannot be written. It is removed
    with `stack`."""
    home = Path.home()
    parent = home if os.access(home, os.W_OK) else None
    folder = tempfile.TemporaryDirectory(prefix=".clawpy-try-", dir=parent, ignore_cleanup_errors=True)
    return Path(stack.enter_context(folder)).resolve()


def _start_listening(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    """A listening socket that does not wait for connections."""
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener


def _has_connection(listener: socket.socket) -> bool:
    """Whether a program connected to the listener."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _kill_survivors(argument: str) -> bool:
    """Kill the processes with this first argument that do not end by themselves within half a second. Returns whether
    there were any."""
    import psutil

    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:2] == [argument]:
                marked.append(process)
    _, survivors = psutil.wait_procs(marked, timeout=0.5)
    for survivor in survivors:
        with contextlib.suppress(psutil.Error):
            survivor.kill()
    return bool(survivors)
