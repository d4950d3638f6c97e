"""A session's place for attacks on processes, and commands that run in it on one rung of the sandbox ladder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.execution.sandbox import Confinement, Sandbox, session_environment

PRELUDE = """
import ctypes, errno, fcntl, json, os, signal, socket, struct, subprocess, sys, time
P = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
def syscall(x86, arm, *a):
    result = libc.syscall(x86 if X86 else arm, *a)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


@dataclass(frozen=True)
class Inside:
    """Commands of one session on `rung`, in `root`/folder."""

    rung: Sandbox
    root: Path
    session: str = field(default_factory=lambda: f"sess_{uuid.uuid4().hex[:12]}")

    @property
    def confinement(self) -> Confinement:
        confinement = Confinement(self.root / "folder", self.root / "scratch", self.root / "caches")
        confinement.folder.mkdir(exist_ok=True)
        confinement.make()
        return confinement

    def wrapped(self, code: str, **variables: Any) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment of Python code in which `P` has what is `variables`."""
        confinement = self.confinement
        argv = [sys.executable, "-c", PRELUDE + code, json.dumps(variables)]
        environment = session_environment(confinement, self.rung, self.session)
        return self.rung.wrap(argv, confinement, cwd=confinement.folder), environment

    def run(self, code: str, *, timeout: float = 30, **variables: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        argv, environment = self.wrapped(code, **variables)
        return subprocess.run(
            argv,
            cwd=self.confinement.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            start_new_session=True,
        )


def sleepers(seconds: str) -> list[int]:
    """The processes of the machine that were started with this argument."""
    pids = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if seconds.encode() in words[1:2]:
                pids.append(int(entry.name))
    return pids


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition of real processes; fail when it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)
