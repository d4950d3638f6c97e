"""What stands at a path of a working tree: looked at without following a link, described by git's own blob ids."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.storage.beneath import REPLACED, Beneath


class Kind(StrEnum):
    """What stands at a path."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    OTHER = "other"  # a socket, a device: never expected, never written


@dataclass(frozen=True, slots=True)
class Image:
    """What is at a path: its kind, the git blob id of its raw bytes (of its target, for a link), permission bits. Those
    that change whose rights a program gets (setuid, setgid) are neither seen nor set."""

    kind: Kind
    blob: str = ""
    mode: int = 0

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Image:
        """The image that `dataclasses.asdict` made JSON of."""
        return cls(Kind(value["kind"]), value["blob"], value["mode"])


ABSENT = Image(Kind.ABSENT)


def observe(
    root: Beneath, path: str, *, algorithm: str = "sha1", folds_case: bool = False, copy: Path | None = None
) -> Image:
    """What stands at `path` now. Behind a parent that is no real folder (a link, a file) there is nothing, and a file
    of another spelling is another file, also where the file system takes both for one (`folds_case`)."""
    if folds_case and not spelled_so(root, path):
        return ABSENT
    return image_of(root, path, algorithm, copy)


def spelled_so(root: Beneath, path: str) -> bool:
    """True when its folder lists this very name, upper and lower case told apart."""
    above, _, name = path.rpartition("/")
    return root.is_folder(above) and name in root.names(above)


def image_of(root: Beneath, path: str, algorithm: str = "sha1", copy: Path | None = None) -> Image:
    """What stands at `path`, its last component not followed; the bytes that it describes go to `copy` too. A folder
    is, for git too, no file: absent. What is being replaced or written meanwhile is `Kind.OTHER`."""
    status = root.lstat(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return ABSENT
    try:
        if stat.S_ISLNK(status.st_mode):
            target = root.readlink(path)
            if copy is not None:
                copy.write_bytes(target)
            return Image(Kind.LINK, blob_id(target, algorithm))
        if not stat.S_ISREG(status.st_mode):
            return Image(Kind.OTHER)
        with contextlib.ExitStack() as files:
            source = files.enter_context(os.fdopen(root.open_file(path), "rb"))
            sink = files.enter_context(copy.open("wb")) if copy is not None else None
            status = os.fstat(source.fileno())
            digest = hashlib.new(algorithm, b"blob %d\0" % status.st_size)
            read = 0
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                read += len(chunk)
                if sink is not None:
                    sink.write(chunk)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in REPLACED:
            return Image(Kind.OTHER)
        raise
    return Image(Kind.FILE, digest.hexdigest(), status.st_mode & 0o777) if read == status.st_size else Image(Kind.OTHER)


def blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """git's id of these bytes as a blob."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def in_front(root: Beneath, path: str, going: Collection[str]) -> str:
    """What would keep a file from being written at `path`: a parent that is no real folder, or, where the path is a
    folder now, the first thing in it; unless it is among `going`. "" when nothing does."""
    if front := root.obstructed(path):
        return front if front not in going else ""
    if not root.is_folder(path):
        return ""
    return next((inside for inside, folder in root.walk(path) if not folder and inside not in going), "")
