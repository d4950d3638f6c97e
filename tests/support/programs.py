"""Programs that tests run: git, Python and `clawpy` in processes of their own."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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


MAVEN_WRAPPER = r"""#!/bin/sh
# Prints what Maven prints. Cart.java compiles if each `return` ends with a semicolon; -Dtest finds no test.
if grep -n 'return[^;]*$' Cart.java; then
  echo '[WARNING] Failed to create parent directories for tracking file x.lastUpdated'
  echo '[INFO] BUILD FAILURE'
  echo '[ERROR] COMPILATION ERROR : '
  echo "[ERROR] $PWD/Cart.java:[1,42] ';' expected"
  exit 1
fi
case "$*" in *-Dtest=*) echo '[INFO] BUILD SUCCESS'; exit 0;; esac
if grep -q 'a - b' Cart.java; then
  echo '[ERROR] CartTest.adds -- Time elapsed: 0.01 s <<< FAILURE!'
  echo '[ERROR] CartTest.more -- Time elapsed: 0.01 s <<< FAILURE!'
  echo '[ERROR] Tests run: 2, Failures: 2, Errors: 0, Skipped: 0'
  exit 1
fi
echo '[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0'
"""
"""A stand-in for Maven's wrapper, in a project with one class."""

MAVEN_PROJECT = {"pom.xml": "<project/>", "src/test/java/CartTest.java": "class CartTest {}\n"}
"""The files of that project besides the wrapper and its class."""


def make_java_class(statement: str) -> str:
    """The text of `Cart.java`, whose method has this statement."""
    return f"class Cart {{ static int total(int a, int b) {{\n{statement}\n}} }}\n"
