"""An operator whom commands in a sandbox attack: a home with secrets, a repository, an engine with two sessions."""

import atexit
import contextlib
import functools
import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.execution.sandbox import PRIVATE_FOLDERS, Confinement, Sandbox
from engine.execution.sandbox.host_paths import find_secret_places, link_tools, make_session_environment
from engine.files import remove_folder
from engine.home import Home
from tests.support import read_table
from tests.support.programs import run_git
from tests.support.repository import Repository

PRELUDE = """
import ctypes, errno, fcntl, json, os, signal, socket, struct, subprocess, sys, threading, time
P = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def attempt(f, *a, **k):
    try:
        print("ESCAPED", f(*a, **k), flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print("held", error, flush=True)
def read(path, size=200):
    with open(path, "rb") as file:
        content = file.read(size)
    if not content:
        raise OSError("empty")
    return content
def write(path, text="planted"):
    with open(path, "a") as file:
        file.write(text)
def plant(path):
    existed = os.path.lexists(path)
    open(path, "a").close()
    if not existed:
        os.unlink(path)
    return path
def syscall(number, *a):
    result = libc.syscall(number, *a)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def number(x86, arm):
    return arm if os.uname().machine == "aarch64" else x86
def run(*argv, **k):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20, **k).stdout
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(tuple(address) if isinstance(address, list) else address)
        client.send(b"hello")
        return address
print("begun", flush=True)
"""
"""The beginning of an attempt, which is Python code that runs in the real sandbox. In it `attempt(f)` prints
"ESCAPED" with what `f` returned, or "held" with the error that stopped it. Anything but an operating system's
refusal makes the attempt itself a fault of the test. `P` has the paths. An attempt that succeeds must do no
harm outside the home: a clock is set to what it shows, a signal is 0, a file of the machine's is opened and
nothing is written."""


@dataclass(frozen=True)
class Attempt:
    """The result of an attempt."""

    output: str
    errors: str
    exit_code: int

    @property
    def escapes(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("ESCAPED")]

    @property
    def held(self) -> int:
        """The number of parts that failed, as they have to."""
        return sum(line.startswith("held") for line in self.output.splitlines())


PYTHON = (sys.executable, "-I", "-S", "-c")
"""Runs Python code that nothing of the operator's can change."""


class Victim:
    """The operator's home under a folder outside /tmp, attacked by commands of a session on `rung` that only checks, or
    that works in a worktree after `use_worktree`."""

    def __init__(self, root: Path, rung: Sandbox):
        self.rung = rung
        self.session_id = f"sess_{secrets.token_hex(6)}"
        """Of this victim alone: tests that end a session end every process of the machine with its mark."""
        self.user = root / "ann"
        self.project = self.user / "project"
        self.environment = {**os.environ, "HOME": str(self.user), "OPENAI_API_KEY": "sk-outside"}
        """The engine's environment, with a secret."""
        shutil.copytree(make_home_template(), self.user)
        self.home = Home.locate(self.user / ".clawpy")
        for folder in (self.home.config, self.home.data, self.home.logs, *self.other_sessions):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "keep.txt").write_text("PRIVATE")
        self.confinement = self.make_confinement(self.session_id)

    @property
    def other_sessions(self) -> tuple[Path, ...]:
        """Folders of another session and of another workspace."""
        cache = self.home.cache
        return cache / "worktrees" / "sess_2", cache / "scratch" / "sess_2", cache / "build" / "another"

    def make_confinement(self, session_id: str) -> Confinement:
        """The places of a session that checks: in a copy where the rung can lay nothing over the tree."""
        scratch = self.home.cache / "scratch" / session_id
        hidden = find_secret_places(self.home, self.environment)
        confinement = Confinement(self.project, scratch, scratch / "caches", tree=self.project, hidden=hidden)
        confinement.make()
        link_tools(confinement.home, self.environment)
        if not self.rung.can_overlay(confinement):
            copy = self.home.worktrees / session_id
            shutil.copytree(self.project, copy, symlinks=True, ignore=shutil.ignore_patterns("*.sock", "pipe"))
            return replace(confinement, folder=copy)
        return confinement

    def use_worktree(self):
        """Attack from a session that works in a worktree from now on."""
        worktree = self.home.worktrees / f"{self.session_id}_worktree"
        run_git(self.project, "worktree", "add", "-q", "--detach", str(worktree))
        self.confinement = replace(self.confinement, folder=worktree, readable=(self.project / ".git",))

    def write_file(self, name: str, text: str) -> Path:
        """Write a file in the operator's home."""
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message: str) -> str:
        """Commit what is in the project; the commit's id."""
        return Repository(self.project).commit(message)

    def start(
        self,
        argv: Sequence[str],
        confinement: Confinement | None = None,
        stdin: int = subprocess.DEVNULL,
        stderr: int = subprocess.STDOUT,
    ) -> subprocess.Popen[str]:
        """Start a command of the session."""
        confined = confinement or self.confinement
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HOME", str(self.user))
            wrapped = self.rung.wrap(argv, confined, cwd=confined.folder)
        return subprocess.Popen(
            wrapped,
            cwd=confined.folder,
            env=make_session_environment(confined, self.rung, self.session_id, self.environment),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(self, argv: Sequence[str], confinement: Confinement | None = None) -> str:
        """Run a command of the session to its end; what it printed."""
        return self.start(argv, confinement).communicate(timeout=60)[0]

    def run_python(self, code: str, *arguments: object, confinement: Confinement | None = None) -> str:
        """Run Python code in the session; what it printed."""
        return self.run([*PYTHON, code, *map(str, arguments)], confinement)

    def attempt(self, code: str, terminal: int | None = None, **paths: object) -> Attempt:
        """Make an attempt to its end, with a `terminal` for its input and errors."""
        variables = {
            "user": str(self.user),
            "project": str(self.project),
            "folder": str(self.confinement.folder),
            "scratch": str(self.confinement.files),
            "others": [str(path) for path in self.other_sessions],
            "home": [str(path) for path in (self.home.config, self.home.data, self.home.logs)],
            "engine": os.getpid(),
            "agent": str(self.home.agents / "gardener"),
        }
        argv = [sys.executable, "-c", PRELUDE + code, json.dumps(variables | paths)]
        stdin, stderr = (subprocess.DEVNULL, subprocess.PIPE) if terminal is None else (terminal, terminal)
        process = self.start(argv, stdin=stdin, stderr=stderr)
        output, errors = process.communicate(timeout=60)
        assert output.startswith("begun\n"), f"the attempt did not begin: {output}{errors}"
        return Attempt(output.removeprefix("begun\n"), errors or "", process.returncode)

    def assert_held(self, code: str, **paths: object):
        """Make an attempt that has to fail, each of its parts, and leaves the operator's files as they are."""
        before = self.read_file_states()
        attempt = self.attempt(code, **paths)
        assert attempt.exit_code == 0, f"the attempt itself is broken: {attempt.errors[-2000:]}"
        assert not attempt.escapes, attempt.output
        assert attempt.held, f"nothing was attempted: {attempt.output}"
        assert self.read_file_states() == before

    def read_file_states(self) -> dict[str, tuple[object, ...]]:
        """All of the operator's files, but for the engine's cache: mode, owner, time, links, bytes."""
        entries = {}
        for folder, folders, names in os.walk(self.user):
            if Path(folder) == self.home.cache:
                folders.clear()
                continue
            for name in (*folders, *names):
                path = Path(folder, name)
                status = path.lstat()
                is_file = stat.S_ISREG(status.st_mode)
                data = path.read_bytes() if is_file else bytes(path.readlink()) if path.is_symlink() else b""
                counted = (status.st_mtime_ns, status.st_nlink, status.st_ino) if is_file else ()
                entries[str(path)] = (status.st_mode, status.st_uid, *counted, data)
        return entries


@functools.cache
def make_home_template() -> Path:
    """The operator's home as every victim has it, made once."""
    home = Path(tempfile.mkdtemp(prefix="clawpy-attack-"))
    atexit.register(shutil.rmtree, home)
    for name, text in read_table(__file__)["files"].items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Repository(home / "project").commit("begin")
    python = home / "project/.venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return home


@contextlib.contextmanager
def folder_outside_tmp() -> Iterator[Path]:
    """A new folder outside /tmp, removed with all that commands left in it. Skips where there is no place for one."""
    for place in (Path.home(), Path.cwd(), Path("/srv")):
        if os.access(place, os.W_OK) and not any(
            place.resolve().is_relative_to(private) for private in PRIVATE_FOLDERS
        ):
            folder = Path(tempfile.mkdtemp(prefix=".clawpy-attack-", dir=place))
            try:
                yield folder
            finally:
                remove_folder(folder)
            return
    pytest.skip("no folder outside /tmp can be written")
