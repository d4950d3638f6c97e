"""A session's place with everything around it that a hostile command might want, and attempts made from inside.

An attempt is Python code that runs in the real sandbox. In it `attempt(f)` prints "ESCAPED" with what `f` returned, or
"held" with the error that stopped it; anything but an operating system's refusal makes the attempt itself a fault of
the test. `P` has the paths. An attempt that succeeds must do no harm outside the jail: a clock is set to what it shows,
a signal is 0, a file of the machine's is opened and nothing is written.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.host_paths import secret_places, session_environment
from engine.home import Home

PRELUDE = """
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys, threading, time
P = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def attempt(f, *a, **k):
    try:
        print("ESCAPED", f(*a, **k), flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print("held", error, flush=True)
def read(path, size=200):
    with open(path, "rb") as file:
        found = file.read(size)
    if not found:
        raise OSError("empty")
    return found
def write(path, text="planted"):
    with open(path, "a") as file:
        file.write(text)
def plant(path):
    there = os.path.lexists(path)
    open(path, "a").close()
    if not there:
        os.unlink(path)
    return path
def syscall(number, *a):
    result = libc.syscall(number, *a)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def run(*argv, **k):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20, **k).stdout
def number(x86, arm):
    return arm if os.uname().machine == "aarch64" else x86
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(tuple(address) if isinstance(address, list) else address)
        one.send(b"hello")
        return address
"""


@dataclass(frozen=True)
class Tried:
    """What came of an attempt."""

    output: str
    errors: str
    exit_code: int

    @property
    def escapes(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("ESCAPED")]

    @property
    def held(self) -> int:
        return sum(line.startswith("held") for line in self.output.splitlines())


@dataclass
class Jail:
    """The operator's home under `root`, an engine with two sessions in it; attempts are made from the first one."""

    root: Path
    sandbox: Sandbox
    session_id: str = field(default_factory=lambda: f"sess_{secrets.token_hex(6)}")
    """Its own: tests that end a session end every process of this machine with its mark, a parallel jail's too."""
    user: Path = field(init=False)
    home: Home = field(init=False)
    project: Path = field(init=False)
    confinement: Confinement = field(init=False)

    def __post_init__(self) -> None:
        self.user = self.root / "user"
        for name, text in {
            ".ssh/id_ed25519": "PRIVATE KEY",
            ".bashrc": "# the operator's\n",
            ".gitconfig": "[user]\n\tname = Ann\n",
            ".netrc": "machine example.org password hunter2\n",
            ".config/systemd/user/ok.service": "",
            ".local/lib/python3/site-packages/there.py": "",
            ".local/bin/tool": "#!/bin/sh\n",
            "notes.txt": "the operator's notes\n",
            ".clawpy/data/agents/gardener/soul.md": "# Gardener\n",
        }.items():
            path = self.user / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.home = Home.locate(self.user / ".clawpy")
        self.project = self.user / "project"
        self.project.mkdir()
        self.git("init", "-q")
        (self.project / "code.py").write_text("print('hello')\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "begin")
        for folder in (self.home.config, self.home.data, self.home.logs, *self.others):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "keep.txt").write_text("PRIVATE")
        self.git("init", "-q", "--bare", str(self.user / "remote.git"))
        self.git("remote", "add", "origin", str(self.user / "remote.git"))
        worktree = self.home.worktrees / self.session_id
        self.git("worktree", "add", "-q", "--detach", str(worktree))
        scratch = self.home.cache / "scratch" / self.session_id
        self.confinement = Confinement(
            worktree,
            scratch,
            scratch / "caches",
            tree=self.project,
            readable=(self.project / ".git",),
            hidden=secret_places(self.home, {"HOME": str(self.user)}),
        )
        self.confinement.make()

    @property
    def others(self) -> tuple[Path, ...]:
        """What belongs to another session or workspace."""
        cache = self.home.cache
        return cache / "worktrees" / "sess_2", cache / "scratch" / "sess_2", cache / "build" / "another"

    @property
    def folder(self) -> Path:
        return self.confinement.folder

    def git(self, *arguments: str) -> str:
        """git as the operator runs it, outside."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.project, check=True, capture_output=True, text=True, env=self.operator
        )
        return done.stdout

    @property
    def operator(self) -> dict[str, str]:
        """The operator's environment, secrets in it."""
        return {**os.environ, "HOME": str(self.user), "OPENAI_API_KEY": "sk-outside"}

    def in_the_operators_tree(self) -> None:
        """Work there from now on, as flows do that only check. On a rung that cannot lay anything over the tree they
        work in a copy, and so does this."""
        if self.sandbox.can_overlay(replace(self.confinement, folder=self.project)):
            self.confinement = replace(self.confinement, folder=self.project)

    def state(self) -> dict[str, tuple[object, ...]]:
        """All of the operator's files but those of the engine's cache: mode, owner, time, bytes."""
        return {
            str(path): (status.st_mode, status.st_uid, status.st_mtime_ns, path.read_bytes())
            for path in self.user.rglob("*")
            if not path.is_relative_to(self.home.cache) and stat.S_ISREG((status := path.lstat()).st_mode)
        }

    def tries(self, code: str, stdin: int = subprocess.DEVNULL, **paths: object) -> Tried:
        """Make an attempt to its end."""
        variables: dict[str, object] = {
            "user": str(self.user),
            "project": str(self.project),
            "folder": str(self.folder),
            "scratch": str(self.confinement.files),
            "others": [str(path) for path in self.others],
            "home": [str(path) for path in (self.home.config, self.home.data, self.home.logs)],
            "engine": os.getpid(),
            "agent": str(self.home.agents / "gardener"),
        }
        argv = [sys.executable, "-c", PRELUDE + code, json.dumps(variables | paths)]
        done = subprocess.run(
            self.sandbox.wrap(argv, self.confinement, cwd=self.folder),
            cwd=self.folder,
            env=session_environment(self.confinement, self.sandbox, self.session_id, self.operator),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stdin if stdin != subprocess.DEVNULL else subprocess.PIPE,
            text=True,
            timeout=60,
            start_new_session=True,
        )
        return Tried(done.stdout, done.stderr or "", done.returncode)

    def holds(self, code: str, **paths: object) -> Tried:
        """Make an attempt that has to fail, each of its parts, and leaves the operator's files as they are."""
        before = self.state()
        tried = self.tries(code, **paths)
        assert tried.exit_code == 0, f"the attempt itself is broken: {tried.errors[-2000:]}"
        assert not tried.escapes, tried.output
        assert tried.held, f"nothing was attempted: {tried.output}"
        assert self.state() == before
        return tried
