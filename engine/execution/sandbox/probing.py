"""What each rung holds on this machine, measured by trying (SPEC 9.8): harmless attacks on things made for them.

Each is judged from outside: by a file that changed, a listener that was called, a process that died.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.execution.sandbox.base import Confinement, Sandbox
from engine.execution.sandbox.ladder import rungs

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
    found = rungs()
    with ThreadPoolExecutor(len(found)) as pool:
        return {rung.name: held for rung, held in zip(found, pool.map(_measured, found), strict=True)}


def _measured(rung: Sandbox) -> dict[str, str]:
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
        for one in listeners:
            one.listen()
            one.setblocking(False)
        victim = stack.enter_context(_sleeper(token))
        port = listeners[1].getsockname()[1]
        argv = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(outside), str(port), str(victim.pid), token]
        try:
            done = subprocess.run(
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
        if "done" not in done.stdout:
            return unknown
        broken = (
            f"canary {token}" in done.stdout,
            (outside / "written").exists(),
            stat.S_IMODE((outside / "mode").stat().st_mode) != 0o600,
            _called(listeners[0]),
            _called(listeners[1]),
            victim.poll() is not None,
            "listed" in done.stdout,
            bool((confinement.folder / "program").stat().st_mode & stat.S_ISUID),
            _survivor(f"7.{token}"),
        )
        return {what: NOT_HELD if one else HELD for what, one in zip(TRIED, broken, strict=True)}
    return unknown


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder in the operator's home, or where there is room for one."""
    home = Path.home()
    at = Path(tempfile.mkdtemp(prefix=".clawpy-try-", dir=home if os.access(home, os.W_OK) else None)).resolve()
    try:
        yield at
    finally:
        shutil.rmtree(at, ignore_errors=True)


@contextmanager
def _sleeper(token: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", f"8.{token}"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _survivor(seconds: str) -> bool:
    """Whether a process with this argument is left; it is ended."""
    import psutil

    found = False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:2] == [seconds]:
                _, alive = psutil.wait_procs([process], timeout=0.5)
                found = found or bool(alive)
                for one in alive:
                    one.send_signal(signal.SIGKILL)
    return found
