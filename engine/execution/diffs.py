"""What a change set changed, for the screen: a list of files, and their hunks, sanitised and bounded."""

from __future__ import annotations

import re

from engine.execution.snapshots import shown
from engine.git import Git
from engine.git.tree import split
from engine.values import FileChange, FileDiff, sanitise

HUNKS_KEPT = 100_000
"""Characters of unified diff shown for one file."""

BIG = "1m"
"""Files above this size are shown as binary."""

_OPTIONS = ("-c", f"core.bigFileThreshold={BIG}", "diff-tree", "-r", "--find-renames", "--no-ext-diff", "--no-textconv")
_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}


def file_changes(git: Git, base: str, result: str) -> tuple[FileChange, ...]:
    """Every file that differs, renames found; paths are made fit for showing."""
    counts = _counts(git, base, result)
    return tuple(
        FileChange(shown(path), status, *counts.get(path, (None, None)), old_path=shown(old_path))
        for path, status, old_path, _ in _files(git, base, result)
    )


def file_diffs(git: Git, base: str, result: str) -> list[FileDiff]:
    """Every file with its hunks."""
    counts = _counts(git, base, result)
    patch = git.output(*_OPTIONS, "-p", "--full-index", "--submodule=short", base, result, timeout=120)
    # Lines of a hunk begin with " ", "+", "-", "\" or "@": only headers can begin with this. One for each file, in
    # the order of the raw list; a file that became a link (or the reverse) has two.
    sections = re.split(rb"(?m)^(?=diff --git )", patch)[1:]
    diffs = []
    for path, status, old_path, sections_taken in _files(git, base, result):
        taken, sections = sections[:sections_taken], sections[sections_taken:]
        text = "".join(_hunks(section) for section in taken)
        binary = counts.get(path, (None, None)) == (None, None)
        diffs.append(
            FileDiff(shown(path), status, shown(old_path), binary, text[:HUNKS_KEPT], cut=len(text) > HUNKS_KEPT)
        )
    return diffs


def _files(git: Git, base: str, result: str) -> list[tuple[bytes, str, bytes, int]]:
    """(path, status, old path, number of sections in a patch) of each file, in git's order."""
    items = iter(split(git.output(*_OPTIONS, "--raw", "--full-index", "-z", base, result)))
    files = []
    for header in items:
        old_mode, new_mode, old_oid, new_oid, word = header.decode().removeprefix(":").split()
        letter = word[0]
        path = next(items)
        old_path = b""
        if letter in "RC":
            old_path, path = path, next(items)
        status = "mode" if letter == "M" and old_oid == new_oid and old_mode != new_mode else _STATUS[letter]
        files.append((path, status, old_path, 2 if letter == "T" else 1))
    return files


def _counts(git: Git, base: str, result: str) -> dict[bytes, tuple[int | None, int | None]]:
    """Lines added and removed by path, None for binary files."""
    items = iter(split(git.output(*_OPTIONS, "--numstat", "-z", base, result)))
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    for item in items:
        added, removed, path = item.split(b"\t", 2)
        if not path:  # a rename: the old and the new path follow
            next(items)
            path = next(items)
        counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts


def _hunks(section: bytes) -> str:
    """The hunks of one file's patch, without its header."""
    start = re.search(rb"(?m)^@@ ", section)
    return "" if start is None else sanitise(section[start.start() :].decode(errors="replace"))
