"""Which rung of the sandbox ladder is in force on this machine (SPEC 3.8), and what each rung holds here, measured
by trying (SPEC 9.8).

Bubblewrap on Linux, then Landlock with seccomp; Seatbelt on macOS; none anywhere else. A rung is taken when a real
command was held by it here, never because a program was found.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.execution.sandbox.base import Confinement, NoSandbox, RungReport, Sandbox
from engine.execution.sandbox.bubblewrap import find_bubblewrap
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.seatbelt import Seatbelt

_HOMES = {"bubblewrap": "Linux", "landlock": "Linux", "seatbelt": "Darwin"}
_MENDS = {
    "bubblewrap": "install bubblewrap, for example `apt install bubblewrap` or `dnf install bubblewrap`",
    "seatbelt": "sandbox-exec comes with macOS; check that /usr/bin/sandbox-exec exists",
}


@functools.cache
def best_sandbox() -> Sandbox:
    """The highest rung that works on this machine, tried once a process."""
    return next((rung for rung in _candidates() if not rung.fault), NoSandbox())


def rungs() -> list[Sandbox]:
    """Every rung that works here, the best first; none last."""
    working: list[Sandbox] = [rung for rung in _candidates() if not rung.fault]
    return [*working, NoSandbox()]


@functools.cache
def _candidates() -> Sequence[Sandbox]:
    """The rungs of this platform."""
    if platform.system() == "Darwin":
        return (Seatbelt(),)
    if platform.system() != "Linux":
        return ()
    bubblewrap = find_bubblewrap()
    return (Landlock(),) if bubblewrap is None else (bubblewrap, Landlock())


def ladder_reports() -> list[RungReport]:
    """What is to be said of each rung on this machine, the best first."""
    system = platform.system()
    candidates = {rung.name: rung for rung in _candidates()}
    in_force = best_sandbox().name
    reports = []
    for name, system_name in _HOMES.items():
        rung = candidates.get(name)
        if rung is not None:
            reports.append(RungReport(name, not rung.fault, name == in_force, _lacks(rung), _fix(rung)))
        elif system == system_name:
            reports.append(RungReport(name, False, False, "it is not installed", _MENDS[name]))
        else:
            reports.append(RungReport(name, False, False, f"it is of {system_name}"))
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", True, in_force == "none", nothing)]


def _lacks(rung: Sandbox) -> str:
    if rung.fault:
        return f"it does not work: {rung.fault}"
    return "; ".join(rung.lacks)


def _fix(rung: Sandbox) -> str:
    """How to get a rung to work, as far as its words tell."""
    fault = rung.fault.lower()
    if not fault:
        return ""
    if rung.name == "landlock":
        return "use a kernel of version 5.13 or newer with Landlock, or install bubblewrap"
    if "namespace" in fault or "uid map" in fault or "not permitted" in fault or "permission denied" in fault:
        return (
            "allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or "
            "`user.max_user_namespaces=10000`; with AppArmor (Ubuntu) a profile for bwrap that has `userns,`"
        )
    return f"check that `{rung.name}` can run a command"


HELD, NOT_HELD, UNKNOWN = "held", "not held", "n.a."

TRIED = (
    "reading your home",
    "writing outside",
    "modes and times outside",
    "sockets of programs",
    "ports of this machine",
    "signals to processes",
    "the list of processes",
    "programs as their owner",
    "outliving the command",
)
"""What is tried, in the order in which it is told."""

_SCRIPT = """
import os, signal, socket, subprocess, sys
home, port, victim, token = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
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
        os.execv("/bin/sleep", ["sleep", "7." + token])
    os._exit(0)
os.wait()
print("done")
"""


@functools.cache
def measure() -> dict[str, dict[str, str]]:
    """For each rung that works here: what of `TRIED` is held. Under a second, tried once a process."""
    working = rungs()
    with ThreadPoolExecutor(len(working)) as pool:
        return {rung.name: result for rung, result in zip(working, pool.map(_measure, working), strict=True)}


def _measure(rung: Sandbox) -> dict[str, str]:
    unknown = dict.fromkeys(TRIED, UNKNOWN)
    with contextlib.suppress(OSError), ExitStack() as stack:
        outside = stack.enter_context(_folder())
        work = stack.enter_context(_folder())
        confinement = Confinement(work / "folder", work / "scratch", work / "caches")
        confinement.folder.mkdir()
        confinement.make()
        token = str(secrets.randbelow(10**12))
        (outside / "canary").write_text(f"canary {token}")
        (outside / "mode").touch(mode=0o600)
        listeners = [stack.enter_context(socket.socket(family)) for family in (socket.AF_UNIX, socket.AF_INET)]
        listeners[0].bind(str(outside / "socket"))
        listeners[1].bind(("127.0.0.1", 0))
        for listener in listeners:
            listener.listen()
            listener.setblocking(False)
        victim = stack.enter_context(_sleeper(token))
        port = listeners[1].getsockname()[1]
        argv = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(outside), str(port), str(victim.pid), token]
        try:
            completed = subprocess.run(
                rung.wrap(argv, confinement, cwd=confinement.folder),
                cwd=confinement.folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=10,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return unknown
        if "done" not in completed.stdout:
            return unknown
        broken = (
            f"canary {token}" in completed.stdout,
            (outside / "written").exists(),
            stat.S_IMODE((outside / "mode").stat().st_mode) != 0o600,
            _was_called(listeners[0]),
            _was_called(listeners[1]),
            victim.poll() is not None,
            "listed" in completed.stdout,
            bool((confinement.folder / "program").stat().st_mode & stat.S_ISUID),
            _kill_survivor(f"7.{token}"),
        )
        return {trial: NOT_HELD if escaped else HELD for trial, escaped in zip(TRIED, broken, strict=True)}
    return unknown


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder in the operator's home, or where there is room for one."""
    home = Path.home()
    folder = Path(tempfile.mkdtemp(prefix=".clawpy-try-", dir=home if os.access(home, os.W_OK) else None)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _sleeper(token: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", f"8.{token}"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _was_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _kill_survivor(seconds: str) -> bool:
    """Whether a process with this argument is left; it is ended."""
    import psutil

    any_left = False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:2] == [seconds]:
                _, alive = psutil.wait_procs([process], timeout=0.5)
                any_left = any_left or bool(alive)
                for survivor in alive:
                    survivor.send_signal(signal.SIGKILL)
    return any_left
