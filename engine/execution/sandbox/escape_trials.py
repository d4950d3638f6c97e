"""Tries to escape from each sandbox that works here, for `clawpy doctor` (SPEC 9.8)."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
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
from engine.execution.sandbox.ladder import find_rungs

HELD, NOT_HELD, UNKNOWN = "held", "not held", "n.a."

TRIALS = (
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
"""The escapes that are tried, in the order of the report."""

_PROGRAM = """
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
def measure_rungs() -> dict[str, dict[str, str]]:
    """The result of each of `TRIALS` by the name of each rung that works here. Under a second, tried once a process."""
    working = find_rungs()
    with ThreadPoolExecutor(len(working)) as pool:
        return {rung.name: result for rung, result in zip(working, pool.map(_measure_rung, working), strict=True)}


def _measure_rung(rung: Sandbox) -> dict[str, str]:
    """Start a program that tries to escape, and look at what it did to the places around it."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), ExitStack() as stack:
        outside = stack.enter_context(_temporary_folder())
        work = stack.enter_context(_temporary_folder())
        confinement = Confinement(work / "folder", work / "scratch", work / "caches")
        confinement.folder.mkdir()
        confinement.make()
        token = str(secrets.randbelow(10**12))
        (outside / "canary").write_text(f"canary {token}")
        (outside / "mode").touch(mode=0o600)
        unix_listener = stack.enter_context(_listen(socket.AF_UNIX, str(outside / "socket")))
        port_listener = stack.enter_context(_listen(socket.AF_INET, ("127.0.0.1", 0)))
        port = port_listener.getsockname()[1]
        victim = stack.enter_context(_start_sleeper(token))
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(outside), str(port), str(victim.pid), token]
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
        if "done" in completed.stdout:
            escapes = (
                f"canary {token}" in completed.stdout,
                (outside / "written").exists(),
                stat.S_IMODE((outside / "mode").stat().st_mode) != 0o600,
                _was_called(unix_listener),
                _was_called(port_listener),
                victim.poll() is not None,
                "listed" in completed.stdout,
                bool((confinement.folder / "program").stat().st_mode & stat.S_ISUID),
                _kill_survivors(f"7.{token}"),
            )
            return {trial: NOT_HELD if escaped else HELD for trial, escaped in zip(TRIALS, escapes, strict=True)}
    return dict.fromkeys(TRIALS, UNKNOWN)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A new folder in the operator's home, or where there is room for one."""
    home = Path.home()
    folder = Path(tempfile.mkdtemp(prefix=".clawpy-try-", dir=home if os.access(home, os.W_OK) else None)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _start_sleeper(token: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", f"8.{token}"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _listen(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener


def _was_called(listener: socket.socket) -> bool:
    """Whether a program connected to the listener."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _kill_survivors(seconds: str) -> bool:
    """Kill the processes with this argument that do not end by themselves. True when there were any."""
    import psutil

    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:2] == [seconds]:
                marked.append(process)
    _, survivors = psutil.wait_procs(marked, timeout=0.5)
    for survivor in survivors:
        with contextlib.suppress(psutil.Error):
            survivor.kill()
    return bool(survivors)
