"""Describes a change of many of the operator's files: the state of every path before and after it (SPEC 3.9).

Both contents of a path are blobs in the repository. So a `Plan` can be carried out (`plan_execution`), rolled back
after a crash, and undone much later by `plan.reversed()`. Before each of these the present files are compared with the
plan, so that no later edit is lost.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from engine.frozen import frozen
from engine.storage.beneath import REPLACED, Beneath


class Kind(StrEnum):
    """The kind of entry at a path."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    OTHER = "other"
    """A socket or a device: never expected, never written."""


class Image(NamedTuple):
    """The state of a path."""

    kind: Kind
    blob: str = ""
    """The git blob id of its raw bytes, or of a link's target."""
    mode: int = 0
    """Its permission bits without setuid and setgid, which are neither read nor set."""

    @property
    def exists(self) -> bool:
        """Whether anything is at the path."""
        return self.kind != Kind.ABSENT


ABSENT = Image(Kind.ABSENT)


def is_spelled_exactly(root: Beneath, path: str) -> bool:
    """Whether the folder lists exactly this name, case included."""
    folder, _, name = path.rpartition("/")
    return root.is_folder(folder) and name in root.names(folder)


def read_image(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    """The image of `path`, without following a link there. Its bytes are also written to `copy`. As in git, a folder is
    absent. A file that is replaced or written meanwhile is `Kind.OTHER`."""
    status = root.lstat(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return ABSENT
    try:
        if stat.S_ISLNK(status.st_mode):
            target = root.readlink(path)
            if copy is not None:
                copy.write_bytes(target)
            return Image(Kind.LINK, compute_blob_id(target, algorithm))
        if not stat.S_ISREG(status.st_mode):
            return Image(Kind.OTHER)
        return _read_file_image(root, path, algorithm, copy)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in REPLACED:
            return Image(Kind.OTHER)
        raise


def _read_file_image(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    with os.fdopen(root.open_file(path), "rb") as source, (copy or Path(os.devnull)).open("wb") as sink:
        status = os.fstat(source.fileno())
        digest = hashlib.new(algorithm, b"blob %d\0" % status.st_size)
        read = 0
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            read += len(chunk)
            sink.write(chunk)
    return Image(Kind.FILE, digest.hexdigest(), status.st_mode & 0o777) if read == status.st_size else Image(Kind.OTHER)


def compute_blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """git's id of these bytes as a blob."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def find_obstacle(root: Beneath, path: str, removed: Collection[str]) -> str:
    """The path that keeps a file from being written at `path`, "" for none. That is a parent that is no real folder, or
    if `path` is a folder now, the first file in it. Paths among `removed` do not count."""
    obstacle = root.obstructed(path)
    if obstacle:
        return obstacle if obstacle not in removed else ""
    if not root.is_folder(path):
        return ""
    return next((inside for inside, folder in root.walk(path) if not folder and inside not in removed), "")


class Entry(NamedTuple):
    """The change of one path, which is relative to the top folder."""

    path: str
    before: Image
    after: Image


@frozen
class Plan:
    """A change of files."""

    token: str
    """Part of the names of its temporary files."""
    entries: tuple[Entry, ...]
    old_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders that are removed if they become empty."""
    new_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders to make."""
    algorithm: str = "sha1"
    folds_case: bool = False
    """On this file system `a` and `A` are one name."""

    def reversed(self) -> Plan:
        """The plan that undoes this one."""
        entries = tuple(Entry(path, after, before) for path, before, after in self.entries)
        return replace(self, entries=entries, old_folders=self.new_folders, new_folders=self.old_folders)

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON; paths that are no UTF-8 have surrogate escapes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan that `as_json` wrote."""
        entries = tuple(Entry(path, Image(*before), Image(*after)) for path, before, after in value["entries"])
        folders = {name: tuple(map(tuple, value[name])) for name in ("old_folders", "new_folders")}
        return cls(**{**value, **folders, "entries": entries})

    def observe_image(self, root: Beneath, path: str, copy: Path | None = None) -> Image:
        """The present image of `path`. Its bytes are also written to `copy`.

        Behind a parent that is a link or a file, it is absent. A file of another spelling is another file, even where
        the file system treats both as one (`folds_case`).
        """
        if self.folds_case and not is_spelled_exactly(root, path):
            return ABSENT
        return read_image(root, path, self.algorithm, copy)

    def with_removed_folders(self, root: Beneath) -> Plan:
        """The plan after it was carried out: its old folders are only those that were removed."""
        return replace(self, old_folders=tuple(item for item in self.old_folders if not root.is_folder(item[0])))

    @property
    def removed_paths(self) -> set[str]:
        """The paths that the plan removes."""
        return {entry.path for entry in self.entries if not entry.after.exists}


def find_changed(root: Beneath, *plans: Plan) -> list[str]:
    """The paths that are obstructed, or not as `plans` expect, which are carried out one after another."""
    changed = []
    images: dict[str, Image] = {}  # by path, after the earlier plans
    for plan in plans:
        removed = plan.removed_paths | {path for path, image in images.items() if not image.exists}
        for entry in plan.entries:
            if (images.get(entry.path) or plan.observe_image(root, entry.path)) != entry.before:
                changed.append(entry.path)
            elif entry.after.exists and (obstacle := find_obstacle(root, entry.path, removed)):
                changed.append(obstacle)
        images |= {entry.path: entry.after for entry in plan.entries}
    return list(dict.fromkeys(changed))
