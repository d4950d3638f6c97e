"""The working tree as `git status` sees it, and the small things that all reading of git shares."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import to_datetime
from engine.git.state import FileState

MAX_FILES: Final = 2_000
MAX_IN_FOLDER: Final = 300  # files named of one untracked folder

_LITTER_FOLDERS: Final = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".venv", "node_modules")
)
"""Folders that tools fill: where they are not ignored they are still no work of a person, and no activity."""


def is_litter(path: str) -> bool:
    """Whether `path` lies in a folder that tools fill, such as `.venv` or `node_modules`."""
    return not _LITTER_FOLDERS.isdisjoint(path.split("/"))


_BYPRODUCT: Final = re.compile(
    r"(?:^|/)(?:\.idea|\.vscode|\.direnv|dist|build|out|target|htmlcov|coverage|tmp|temp|logs?|[^/]*\.egg-info)/"
    r"|(?:^|/)(?:\.DS_Store|Thumbs\.db|\.coverage[^/]*|nohup\.out|core|tags|\.env[^/]*)$"
    r"|\.(?:log|tmp|temp|bak|orig|rej|swp|swo|pyc|pid|out|class|o)$|~$",
    re.I,
)


def is_byproduct(path: str) -> bool:
    """Whether an untracked file of this name is nobody's work: output, logs, editor backups, local settings."""
    return is_litter(path) or bool(_BYPRODUCT.search(path))


@frozen
class Status:
    """The output of `git status`."""

    head: str
    branch: str
    upstream: str
    files: tuple[FileState, ...]
    more_files: int


def read_status(git: Git) -> Status:
    """One `git status`, which writes nothing and does not enter submodules. Raises `GitError`."""
    records = git.items(
        "status", "--porcelain=v2", "--branch", "-z", "--no-ahead-behind", "--no-renames", "--untracked-files=normal"
    )
    header: dict[str, str] = {}
    files: list[FileState] = []
    omitted = 0
    for part in records:
        if part.startswith("# "):
            name, _, value = part[2:].partition(" ")
            header[name] = value
            continue
        for file in _file_states(git.folder, part):
            if len(files) < MAX_FILES:
                files.append(file)
            else:
                omitted += 1
    head, branch = header.get("branch.oid", ""), header.get("branch.head", "")
    return Status(
        head="" if head == "(initial)" else head,
        branch="" if branch == "(detached)" else branch,
        upstream=header.get("branch.upstream", ""),
        files=tuple(files),
        more_files=omitted,
    )


def _file_states(root: Path, part: str) -> Iterator[FileState]:
    """One record of `status --porcelain=v2`; an untracked folder gives the files in it."""
    kind = part[0]
    if kind == "?":
        path = part[2:]
        if is_litter(path):
            return
        inside = _files_below(root, path) if path.endswith("/") else (path,)
        yield from (FileState(name, untracked=True, modified_at=modified_at(root / name)) for name in inside)
    elif kind in "1u":
        fields = part.split(" ", 8 if kind == "1" else 10)
        index, tree, path = fields[1][0], fields[1][1], fields[-1]
        yield FileState(
            path,
            staged=kind == "1" and index != ".",
            modified=kind == "1" and tree != ".",
            deleted=kind == "1" and (tree == "D" or (index == "D" and tree == ".")),
            conflicted=kind == "u",
            modified_at=modified_at(root / path),
        )


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Files below an untracked folder, at most 300; a repository of its own stays one entry."""
    if (root / folder / ".git").exists():
        yield folder.rstrip("/")
        return
    yield from itertools.islice(_walk_files(root, root / folder), MAX_IN_FOLDER)


def _walk_files(root: Path, folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LITTER_FOLDERS)  # what os.walk then goes into
        for name in sorted(names):
            yield os.path.relpath(os.path.join(place, name), root)  # noqa: PTH118 (names that are no UTF-8 stay whole)


def modified_at(path: Path) -> datetime | None:
    """When a file was written; None when it is not there."""
    try:
        return to_datetime(path.lstat().st_mtime)
    except (OSError, ValueError):
        return None
