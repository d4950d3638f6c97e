"""Reading files that somebody else may have put there."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_plain(path: Path, most: int, *, follow: bool = True, cut: bool = False) -> bytes:
    """What is in a plain file of at most `most` bytes; a pipe in its place is not waited for.

    With `follow` False a link at `path` itself is refused; with `cut` the first `most` bytes of a larger file are
    enough. Raises OSError, and ValueError when it is larger or no plain file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is no plain file")
        if found.st_size > most and not cut:
            raise ValueError(f"is larger than {most} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
