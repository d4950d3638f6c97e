"""A manifest with its lock file, and the comparison that most package managers share.

Nothing outside the folder is read, by a name or through a link, and nothing large.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.frozen import frozen
from engine.plain_files import read_plain

MAX_BYTES: Final = 32_000_000
"""A larger manifest or lock file is taken for up to date."""
MAX_MEMBERS: Final = 300
"""Packages of one workspace that are looked at."""
MAX_MEMBER_BYTES: Final = 1_000_000
"""A larger manifest of a workspace's package is passed over."""

FileStamps = dict[Path, tuple[int, int]]
"""When the files that were read had been written (nanoseconds), and how large they were; zeros where there was none."""

Requirements = dict[str, set[str] | None]
"""Constraints by package name; None where the constraint cannot be compared."""


@frozen
class LockPair:
    """A manifest and its lock file, as text, and the folder they lie in. What is read is noted in `stamps`."""

    folder: Path
    manifest: str
    lock: str
    manifest_name: str
    lock_name: str
    stamps: FileStamps

    def missing(self, name: str, constraint: str = "", manifest: str = "") -> str:
        required = f"{name} {constraint}".strip()
        return f"{manifest or self.manifest_name} asks for {required}, but {self.lock_name} does not have it"

    def differing(self, name: str, required: str, locked: str, manifest: str = "") -> str:
        return f"{manifest or self.manifest_name} asks for {name} {required}, but {self.lock_name} has {locked}"

    def left_over(self, name: str, manifest: str = "") -> str:
        return f"{self.lock_name} has {name}, but {manifest or self.manifest_name} no longer asks for it"

    def changed(self) -> str:
        return f"what {self.manifest_name} asks for has changed since {self.lock_name} was written"

    def member_manifests(self, paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """Path, text and name of the manifests of a workspace's packages; the name is "" for the one beside the lock
        file. What is absent, not below the folder, no plain file or too large is left out."""
        for path in itertools.islice(paths, MAX_MEMBERS):
            name = f"{path}/{self.manifest_name}"
            if path in ("", "."):
                yield path, self.manifest, ""
            elif not path.startswith(".."):
                text = read_text(self.folder, name, self.stamps, MAX_MEMBER_BYTES)
                if text is not None:
                    yield path, text, name

    def workspace_folders(self, patterns: Iterable[str]) -> list[str] | None:
        """The folders that the patterns of a workspace name, as far as they exist; None when a pattern is not
        understood for certain, or they are too many."""
        folders: dict[str, None] = {}
        for pattern in patterns:
            pattern = pattern.removeprefix("./").rstrip("/")
            if re.search(r"\*\*|[!{\[]|^/|\.\.", pattern):
                return None
            for folder in self.folder.glob(pattern) if pattern else ():
                if folder.is_dir() and not folder.is_symlink():
                    folders[folder.relative_to(self.folder).as_posix()] = None
                    if len(folders) > MAX_MEMBERS:
                        return None
        return list(folders)

    def compare(
        self, required: Requirements, locked: Requirements, manifest: str = "", ignored: Collection[str] = frozenset()
    ) -> Iterator[str]:
        """A sentence for each difference, but for the names `ignored`; a constraint of None on either side fits any."""
        for name, wanted in required.items():
            if name in ignored:
                continue
            if name not in locked:
                yield self.missing(name, describe(wanted), manifest)
            elif wanted is not None and (present := locked[name]) is not None and wanted != present:
                yield self.differing(name, describe(wanted), describe(present), manifest)
        for name in locked:
            if name not in required and name not in ignored:
                yield self.left_over(name, manifest)


def describe(constraints: set[str] | None) -> str:
    """Constraints in words."""
    return " and ".join(sorted(constraint or "any version" for constraint in constraints)) if constraints else ""


def read_text(folder: Path, name: str, stamps: FileStamps, max_bytes: int = MAX_BYTES) -> str | None:
    """A file below the folder; None for one that lies elsewhere, by its name or through a link."""
    try:
        stamps[folder / name] = stamp(folder / name)
        file = (folder / name).resolve(strict=True)
        return read_plain(file, max_bytes, follow=False).decode() if file.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # a loop of links raises RuntimeError before Python 3.13
        return None


def stamp(file: Path) -> tuple[int, int]:
    """When a file was written and how large it is; zeros when it does not exist."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_mtime_ns, status.st_size
