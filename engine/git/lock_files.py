"""Lock files that do not fit their manifests: `package.json` asks for what `package-lock.json` does not have.

Only the two files are read; no tool is started and nothing is resolved. What cannot be compared for certain (a
constraint in a form that the tool rewrites, a manifest that is a program, an option that changes what is asked for) is
left out: a lock file that the tool itself calls up to date is never named here. One module for each family of tools.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from engine.frozen import frozen
from engine.git import lock_formats
from engine.git.lock_formats import FileStamps, LockPair, read_text, stamp
from engine.model import sanitise

MAX_NAMED: Final = 5
"""Differences of one lock file that are named; the rest is counted."""


@frozen
class LockMismatch:
    """One lock file that does not fit its manifest. `folder` is "" for the top, `tool` writes the lock file, and
    `differences` has one plain sentence each, at most `MAX_NAMED`; `more` counts the rest."""

    folder: str
    tool: str
    manifest: str
    lock: str
    differences: tuple[str, ...]
    more: int = 0

    @property
    def lock_path(self) -> str:
        """The lock file, relative to the top."""
        return f"{self.folder}/{self.lock}".removeprefix("/")


class LockFormat(NamedTuple):
    """Who writes the lock file, what the two files are called, and how they are compared: one sentence a difference."""

    tool: str
    manifest: str
    lock: str
    compare: Callable[[LockPair], Iterator[str]]


FORMATS: Final = (
    LockFormat("npm", "package.json", "package-lock.json", lock_formats.compare_npm),
    LockFormat("pnpm", "package.json", "pnpm-lock.yaml", lock_formats.compare_pnpm),
    LockFormat("yarn", "package.json", "yarn.lock", lock_formats.compare_yarn),
    LockFormat("uv", "pyproject.toml", "uv.lock", lock_formats.compare_uv),
    LockFormat("poetry", "pyproject.toml", "poetry.lock", lock_formats.compare_poetry),
    LockFormat("pdm", "pyproject.toml", "pdm.lock", lock_formats.compare_pdm),
    LockFormat("cargo", "Cargo.toml", "Cargo.lock", lock_formats.compare_cargo),
    LockFormat("go", "go.mod", "go.sum", lock_formats.compare_go),
    LockFormat("bundler", "Gemfile", "Gemfile.lock", lock_formats.compare_bundler),
    LockFormat("composer", "composer.json", "composer.lock", lock_formats.compare_composer),
)

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
"""The errors of parsing a file of an unexpected shape."""


class LockFileReader:
    """Compares lock files again only when a file that it read was written. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: dict[Path, tuple[tuple[str, ...], FileStamps, tuple[LockMismatch, ...]]] = {}

    def mismatches(self, root: Path, folders: Iterable[str], manifests: Iterable[str] = ()) -> tuple[LockMismatch, ...]:
        """See `find_mismatches`. `manifests`: the manifests of all packages, relative to `root`; a new one may be that
        of a new package of the workspace."""
        folders, manifests = tuple(folders), tuple(manifests)
        with self._lock:
            cached = self._cache.get(root)
        if cached and cached[0] == (*folders, *manifests) and all(stamp(file) == at for file, at in cached[1].items()):
            return cached[2]
        stamps = {file: stamp(file) for file in (root / name for name in manifests)}
        mismatches = find_mismatches(root, folders, stamps)
        with self._lock:
            self._cache[root] = ((*folders, *manifests), stamps, mismatches)
        return mismatches


def find_mismatches(
    root: Path, folders: Iterable[str] = ("",), stamps: FileStamps | None = None
) -> tuple[LockMismatch, ...]:
    """The lock files in `folders` (relative to `root`, "" for itself) that do not fit their manifests.

    Files that are absent or cannot be read, that lie elsewhere, and what is not understood, are passed over: it never
    raises. Costs the reading of both files, a few milliseconds for a lock file of a megabyte. What was read is noted in
    `stamps`.
    """
    stamps = {} if stamps is None else stamps
    top = root.resolve()
    mismatches = []
    for name in dict.fromkeys(folders):
        folder = root / name if name else root
        for tool, manifest, lock, compare in FORMATS:
            if not (folder / lock).is_file() or not folder.resolve().is_relative_to(top):
                continue
            manifest_text, lock_text = read_text(folder, manifest, stamps), read_text(folder, lock, stamps)
            if manifest_text is None or lock_text is None:
                continue
            pair = LockPair(folder, manifest_text, lock_text, manifest, lock, stamps)
            try:
                differences = list(dict.fromkeys(compare(pair)))
            except _UNREADABLE:
                continue  # half-written, or of a form that nobody knows yet
            if differences:
                shown = tuple(" ".join(sanitise(sentence).split()) for sentence in differences[:MAX_NAMED])
                mismatches.append(LockMismatch(name, tool, manifest, lock, shown, len(differences) - len(shown)))
    return tuple(mismatches)
