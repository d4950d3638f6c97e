"""A session's place for attacks on processes, and commands that run in it on one rung of the sandbox ladder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.host_paths import session_environment

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

    def wrap(self, code: str, **variables: Any) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment of Python code in which `P` holds the `variables`."""
        confinement = self.confinement
        argv = [sys.executable, "-c", PRELUDE + code, json.dumps(variables)]
        environment = session_environment(confinement, self.rung, self.session)
        return self.rung.wrap(argv, confinement, cwd=confinement.folder), environment

    def run(self, code: str, *, timeout: float = 30, **variables: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        argv, environment = self.wrap(code, **variables)
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


def unique_seconds() -> str:
    """An argument for `sleep` by which `sleepers` finds the processes of one test."""
    return f"4711{os.getpid()}.{time.time_ns() % 10**9}"
