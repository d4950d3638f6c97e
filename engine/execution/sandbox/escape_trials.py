"""Tries to escape from each sandbox that works here, for `clawpy doctor`: what it holds, measured and not promised
(SPEC 9.8)."""

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
"""What is tried, in the order in which it is told."""

_ATTEMPTS = """
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
    """For each rung that works here: what of `TRIALS` is held. Under a second, tried once a process."""
    working = rungs()
    with ThreadPoolExecutor(len(working)) as pool:
        return {rung.name: result for rung, result in zip(working, pool.map(_measure, working), strict=True)}


def _measure(rung: Sandbox) -> dict[str, str]:
    unknown = dict.fromkeys(TRIALS, UNKNOWN)
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
        argv = [sys.executable, "-I", "-S", "-c", _ATTEMPTS, str(outside), str(port), str(victim.pid), token]
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
        return {trial: NOT_HELD if escaped else HELD for trial, escaped in zip(TRIALS, broken, strict=True)}
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
