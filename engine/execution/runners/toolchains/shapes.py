"""What tools take and give: command lines, results, findings; and how files of a project are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from engine.plain_files import read_plain


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
