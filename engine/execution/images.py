"""What stands at a path of a working tree: looked at without following a link, described by git's own blob ids."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """What stands at a path."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    OTHER = "other"  # a socket, a device: never expected, never written


@dataclass(frozen=True, slots=True)
class Image:
    """What is at a path: its kind, the git blob id of its raw bytes (of its target, for a link), permission bits."""

    kind: Kind
    blob: str = ""
    mode: int = 0

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Image:
        """The image that `dataclasses.asdict` made JSON of."""
        return cls(Kind(value["kind"]), value["blob"], value["mode"])


ABSENT = Image(Kind.ABSENT)


def observe(root: Path, path: str, *, algorithm: str = "sha1", folds_case: bool = False) -> Image:
    """What stands at `path` now. Behind a parent that is no real folder (a link, a file) there is nothing, and a file
    of another spelling is another file, also where the file system takes both for one (`folds_case`)."""
    if obstructed(root, path):
        return ABSENT
    image = image_of(root / path, algorithm)
    if folds_case and image != ABSENT and not spelled_so(root / path):
        return ABSENT
    return image


def spelled_so(place: Path) -> bool:
    """True when its folder lists this very name, upper and lower case told apart."""
    return any(other.name == place.name for other in place.parent.iterdir())


def target_of(link: Path) -> bytes:
    """The target of a symbolic link, byte for byte (`Path.readlink` tidies it)."""
    return os.readlink(os.fsencode(link))  # noqa: PTH115


def image_of(file: Path, algorithm: str = "sha1") -> Image:
    """What stands at an absolute path, its last component not followed. A folder is, for git too, no file: absent."""
    try:
        status = file.lstat()
        if stat.S_ISDIR(status.st_mode):
            return ABSENT
        if stat.S_ISLNK(status.st_mode):
            return Image(Kind.LINK, blob_id(target_of(file), algorithm))
        if not stat.S_ISREG(status.st_mode):
            return Image(Kind.OTHER)
        with file.open("rb") as source:
            status = os.fstat(source.fileno())
            digest = hashlib.new(algorithm, b"blob %d\0" % status.st_size)
            while chunk := source.read(1 << 20):
                digest.update(chunk)
        return Image(Kind.FILE, digest.hexdigest(), stat.S_IMODE(status.st_mode))
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """git's id of these bytes as a blob."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def parents(path: str) -> list[str]:
    """The folders above a relative path, the topmost first; the root itself is not among them."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def obstructed(root: Path, path: str) -> str:
    """The topmost parent of `path` that is there and is no real folder, or ""."""
    for parent in parents(path):
        try:
            if not stat.S_ISDIR((root / parent).lstat().st_mode):
                return parent
        except FileNotFoundError:
            return ""
    return ""


def in_front(root: Path, path: str, going: Collection[str]) -> str:
    """What would keep a file from being written at `path`: a parent that is no real folder, or, where the path is a
    folder now, the first thing in it; unless it is among `going`. "" when nothing does."""
    if (front := obstructed(root, path)) and front not in going:
        return front
    place = root / path
    if front or place.is_symlink() or not place.is_dir():
        return ""
    for folder, folders, files in os.walk(place):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in [*files, *links]:
            inside = os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118 - relative to the root as text
            if inside not in going:
                return inside
    return ""
