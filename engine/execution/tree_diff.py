"""Reads the difference of two git trees from `git diff-tree`: changed paths, renames, line counts and patches."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from engine.execution import snapshots
from engine.frozen import frozen
from engine.git import Git
from engine.git.nul_lists import split_nul

GITLINK = "160000"
LINK = "120000"
ABSENT = "000000"
EXECUTABLE = "100755"

MAX_TEXT_SIZE = "1m"
"""Files above this size are shown as binary."""

_OPTIONS = (
    "-c",
    f"core.bigFileThreshold={MAX_TEXT_SIZE}",
    "diff-tree",
    "-r",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
)
_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}


@frozen
class TreeChange:
    """One path in which two trees differ. Modes are git's, "000000" where the path is absent."""

    path: bytes
    old_mode: str
    new_mode: str
    old_oid: str
    new_oid: str

    @property
    def is_added(self) -> bool:
        return self.old_mode == ABSENT

    @property
    def is_removed(self) -> bool:
        return self.new_mode == ABSENT


@frozen
class ChangedFile:
    """One file in the output of `diff-tree`."""

    change: TreeChange
    """Of a rename, both sides under the new path."""
    status: str
    old_path: bytes
    patch_count: int
    """The number of its patches in a diff."""

    @property
    def path(self) -> bytes:
        return self.change.path


def diff_trees(git: Git, old: str, new: str) -> list[TreeChange]:
    """Every path in which the tree `new` differs from `old`, a rename being a deletion and an addition."""
    changes = []
    items = split_nul(git.output("diff-tree", "-r", "--raw", "--no-renames", "--full-index", "-z", old, new))
    for header, path in zip(items[0::2], items[1::2], strict=True):
        old_mode, new_mode, old_oid, new_oid, _ = header.decode().removeprefix(":").split()
        changes.append(TreeChange(path, old_mode, new_mode, old_oid, new_oid))
    return changes


def changed_files(git: Git, base: str, result: str) -> list[ChangedFile]:
    """The files that differ, in git's order."""
    return _parse_raw(git.output(*_OPTIONS, "--raw", "--full-index", "-z", base, result))


def _parse_raw(output: bytes) -> list[ChangedFile]:
    items = iter(split_nul(output))
    files = []
    for header in items:
        old_mode, new_mode, old_oid, new_oid, status_letter = header.decode().removeprefix(":").split()
        letter = status_letter[0]
        path = next(items)
        old_path = b""
        if letter in "RC":
            old_path, path = path, next(items)
        status = "mode" if letter == "M" and old_oid == new_oid and old_mode != new_mode else _STATUS[letter]
        change = TreeChange(path, old_mode, new_mode, old_oid, new_oid)
        files.append(ChangedFile(change, status, old_path, 2 if letter == "T" else 1))
    return files


def read_patches(git: Git, base: str, result: str) -> list[tuple[ChangedFile, bytes]]:
    """The files that differ, each with its patch; a file that became a link, or the reverse, has two patches."""
    options = ("--raw", "-p", "--full-index", "--submodule=short", "-z", base, result)
    raw, _, patch = git.output(*_OPTIONS, *options, timeout=120).partition(b"\0\0")
    # Lines of a hunk begin with " ", "+", "-", "\" or "@": only headers can begin with this. They come in the order
    # of the raw list.
    patches = iter(re.split(rb"(?m)^(?=diff --git )", patch)[1:])
    return [(file, b"".join(itertools.islice(patches, file.patch_count))) for file in _parse_raw(raw)]


def line_counts(git: Git, base: str, result: str) -> dict[bytes, tuple[int | None, int | None]]:
    """Lines added and removed by path, None for binary files."""
    items = iter(split_nul(git.output(*_OPTIONS, "--numstat", "-z", base, result)))
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    for item in items:
        added, removed, path = item.split(b"\t", 2)
        if not path:  # a rename: the old and the new path follow
            next(items)
            path = next(items)
        counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts


def apply_patch(workspace: Path, base: str, result: str) -> str:
    """The patch from one tree to another for `git apply`; "" when git no longer has a tree, or when the patch is not
    UTF-8."""
    git = Git(workspace).pin()
    if snapshots.missing_objects(git, base, result):
        return ""
    try:
        return git.output(*_OPTIONS[2:], "-p", "--binary", "--full-index", base, result, timeout=120).decode()
    except UnicodeDecodeError:
        return ""
