"""Reads the list of submodules of a working tree."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from engine.files import read_plain_or_nothing
from engine.git.process import GitError, run_git

MODULES_FILE = ".gitmodules"
MAX_MODULES_BYTES = 1_000_000
"""Maximum size of a list of submodules. A larger one counts as none."""


def submodule_paths(folder: Path) -> tuple[str, ...]:
    """The paths that the tree in `folder` lists as submodules; () if git cannot read the list."""
    text = read_plain_or_nothing(folder / MODULES_FILE, MAX_MODULES_BYTES, follow=False)
    return _parse_modules(text) if text else ()


@lru_cache(maxsize=64)
def _parse_modules(text: bytes) -> tuple[str, ...]:
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--get-regexp", r"^submodule\..*\.path$"]
    try:
        done = run_git(arguments, Path("/"), {"GIT_DIR": os.devnull}, stdin=text, timeout=10)
    except GitError:
        return ()
    entries = done.stdout.decode(errors="surrogateescape").split("\0")  # if the list has an error, the part before it
    return tuple(dict.fromkeys(path for entry in entries if (path := entry.partition("\n")[2])))
