"""Programs that tests run in processes of their own: git, Python, `clawpy`, and those that not every machine has."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest


@cache
def _is_reachable(host: str) -> bool:
    try:
        with socket.create_connection((host, 443), timeout=3):
            return True
    except OSError:
        return False


@cache
def _does_run(program: str) -> bool:
    if shutil.which(program) is None:
        return False
    argument = {"go": "version", "openssl": "version", "tmux": "-V"}.get(program, "--version")
    return subprocess.run([program, argument], capture_output=True).returncode == 0


def needs(*programs: str, host: str = ""):
    """Skip the test if a program does not run here, or if `host` does not answer.

    The program of a version manager may be installed, and have no version to run.
    """
    for program in programs:
        if not _does_run(program):
            pytest.skip(f"{program} does not run here")
    if host and not _is_reachable(host):
        pytest.skip(f"{host} does not answer here")


def run_git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; returns what it prints."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def run_git_that_stops(folder: Path, *arguments: str):
    """Run a command of git that stops at a conflict."""
    completed = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode, completed.stdout


def run_python(code: str, *arguments: object, **options: Any) -> str:
    """Run code in a new process; returns what it prints. `options` are those of `subprocess.run`."""
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, **options).stdout


def find_imported(statement: str, *modules: str) -> list[str]:
    """Which of these modules a new process has imported after a statement."""
    return run_python(f"{statement}\nimport sys\nprint(*[name for name in {modules} if name in sys.modules])").split()


def make_clawpy_command(home: Path, *words: str) -> list[str]:
    """The command line of `clawpy` in a home."""
    return [sys.executable, "-m", "clawpy_console", "--home", str(home), *words]


def _hear_signals():
    """Whoever runs the tests may ignore these, `nohup` for instance."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def run_beside(command: Sequence[str], folder: Path, out: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a folder beside the test. If it still runs at the end, it is killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, stdin=pipe, stdout=out, stderr=pipe, text=True, preexec_fn=_hear_signals
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def make_program(file: Path, body: str = "exit 1") -> Path:
    """Write a shell script that can be executed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def is_alive(pid: int) -> bool:
    """Whether a process runs: it neither ended nor waits to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
