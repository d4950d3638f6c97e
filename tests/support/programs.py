"""Programs that tests run: git, Python and `clawpy` in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def run_git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; returns what it prints."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def run_git_that_stops(folder: Path, *arguments: str) -> None:
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
