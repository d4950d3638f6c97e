"""Finds programs of the operator, such as git, and never one that lies in a repository."""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path


def search_path(*without: Path) -> str:
    """The PATH without relative folders, and without folders that are inside one of `without`.

    Otherwise a `.` on the PATH, or the active environment of a project, would let a repository choose which `git` runs.
    """
    return _search_path(os.environ.get("PATH", os.defpath), without)


@lru_cache(maxsize=64)
def _search_path(path: str, without: tuple[Path, ...]) -> str:
    refused = [os.path.realpath(folder) for folder in without]
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in refused)
    ]
    return os.pathsep.join(folders)


def find_program(program: str, *without: Path) -> str | None:
    """The absolute path of `program` on `search_path(*without)`, None if it is not there."""
    return shutil.which(program, path=search_path(*without))
