"""What tools take and give: command lines, results, findings; and how files of a project are read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from engine.model import CheckResult
from engine.plain_files import read_plain

MAX_FAILING = 200
"""So many failing ids are kept of one run; the counts are always whole."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that a tool asks for.

    `environment` is added to the session's; `codes` are the exit codes that mean the tool did its work (tests may
    still be red); `report` is a file the tool writes for machines, or None when its output is all there is; `makes`
    are files that the tool puts into the project when they are missing, and that a check must not leave there.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0, 1)
    report: Path | None = None
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a linter said. `line` counts from 1, 0 when the whole file is meant."""

    path: str
    line: int
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What a finished run left behind: its output, its exit code, the text of its report ("" without one) and the
    folder that its test ids are relative to. `tool` is the name that the result carries, `title` how the operator
    knows the command."""

    tool: str
    title: str
    output: str
    exit_code: int
    report: str
    folder: Path


def result(
    tool: str,
    *,
    passed: int,
    failed: int,
    skipped: int = 0,
    errors: int = 0,
    seconds: float = 0.0,
    failing: Iterable[str] = (),
    durations: Mapping[str, float] | None = None,
) -> CheckResult:
    """A `CheckResult` with its lists in order: failing as met, without repeats; durations slowest first."""
    slowest = sorted((durations or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    return CheckResult(
        tool=tool,
        passed=passed,
        failed=failed,
        skipped=skipped,
        errors=errors,
        seconds=round(seconds, 3),
        failing=tuple(dict.fromkeys(failing))[:MAX_FAILING],
        durations=tuple((name, round(value, 4)) for name, value in slowest),
    )


def uncounted(tool: str, title: str, exit_code: int) -> CheckResult:
    """The result of a command whose output names no tests: all that is known is how it ended."""
    red = exit_code != 0
    return replace(result(tool, passed=int(not red), failed=int(red), failing=[title] if red else []), counted=False)


def succeeds(argv: Sequence[str], limit: float = 10.0) -> bool:
    """Whether the operator's own program, asked in no folder of a project, ends with 0 within `limit` seconds.
    What is asked must read nothing of a project; see `python.has_module`, the only one that asks."""
    environment = {name: os.environ[name] for name in ("HOME", "PYENV_ROOT") if name in os.environ}
    environment["PATH"] = os.defpath
    try:
        done = subprocess.run(
            argv, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def read(file: Path, limit: int = 1_000_000) -> str:
    """A text file's first `limit` bytes as text, "" when it is not there, cannot be read or is not a regular file."""
    try:
        return read_plain(file, limit, cut=True).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def operand(path: str) -> str:
    """A path as a command's operand: one that begins with a dash cannot become an option."""
    return f"./{path}" if path.startswith("-") else path


def inside(path: str) -> bool:
    """Whether a path stays inside the project: relative, no `..`, not empty."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path
