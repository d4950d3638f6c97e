"""Disks that fill up or cannot be written."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mount a disk at `folder`. Yields a function that mounts it again with other options, for example "ro". Skips the
    test if no disk can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")

    def remount(options: str):
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True, capture_output=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def fill_disk(folder: Path) -> Path:
    """Use up all space of a disk. Returns the file that uses it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for piece in (65536, 4096, 1):
            try:
                while True:
                    out.write(b"\0" * piece)
            except OSError:
                continue
    return filler
