"""Where the submodules of a tree are, as git itself reads `.gitmodules`."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from engine.git.process import GitError, call
from engine.plain_files import read_plain

FILE = ".gitmodules"
LARGEST = 1_000_000
"""Bytes of a list of submodules; a larger one counts as none."""


def submodule_paths(folder: Path) -> tuple[str, ...]:
    """The paths that the tree in `folder` lists as submodules; none where there is no list that git would read."""
    try:
        text = read_plain(folder / FILE, LARGEST, follow=False)
    except (OSError, ValueError):
        return ()
    return _listed(text)


@lru_cache(maxsize=64)
def _listed(text: bytes) -> tuple[str, ...]:
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--get-regexp", r"^submodule\..*\.path$"]
    try:
        done = call(arguments, Path("/"), {"GIT_DIR": os.devnull}, stdin=text, timeout=10)
    except GitError:
        return ()
    entries = done.stdout.decode(errors="surrogateescape").split("\0")  # up to a fault, as far as it was read
    return tuple(dict.fromkeys(path for entry in entries if (path := entry.partition("\n")[2])))
