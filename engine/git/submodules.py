"""Reads which paths a tree lists as submodules."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from engine.git.process import GitError, run_git
from engine.plain_files import read_plain

MODULES_FILE = ".gitmodules"
MAX_MODULES_BYTES = 1_000_000
"""Bytes of a list of submodules; a larger one counts as none."""


def submodule_paths(folder: Path) -> tuple[str, ...]:
    """The paths that the tree in `folder` lists as submodules; none where there is no list that git would read."""
    try:
        text = read_plain(folder / MODULES_FILE, MAX_MODULES_BYTES, follow=False)
    except (OSError, ValueError):
        return ()
    return _parse_modules(text)


@lru_cache(maxsize=64)
def _parse_modules(text: bytes) -> tuple[str, ...]:
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--get-regexp", r"^submodule\..*\.path$"]
    try:
        done = run_git(arguments, Path("/"), {"GIT_DIR": os.devnull}, stdin=text, timeout=10)
    except GitError:
        return ()
    entries = done.stdout.decode(errors="surrogateescape").split("\0")  # up to a fault, as far as it was read
    return tuple(dict.fromkeys(path for entry in entries if (path := entry.partition("\n")[2])))
