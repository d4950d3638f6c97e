"""Compares the lock file of Go with its manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.git.lock_files.pair import LockPair, describe


def compare_go(pair: LockPair) -> Iterator[str]:
    parents = [pair.folder, *pair.folder.parents]
    if (
        any((folder / "go.work").exists() for folder in parents[:6])
        or (pair.folder / "vendor" / "modules.txt").exists()
    ):
        return
    text = re.sub(r"//[^\n]*", "", pair.manifest)
    lines = [line.split() for line in _go_lines(text, "require")]
    replaced: dict[tuple[str, str], list[str]] = {}
    for line in _go_lines(text, "replace"):
        left, _, right = line.partition("=>")
        module, version = (*left.split(), "")[:2]
        replaced[module, version] = right.split()
    sums = {tuple(line.split()[:2]) for line in pair.lock.splitlines() if line.strip()}
    versions: dict[str, set[str]] = {}
    for module, version in sums:
        versions.setdefault(module, set()).add(version.removesuffix("/go.mod"))
    for module, version in (line for line in lines if len(line) == 2):
        replacement = replaced.get((module, version)) or replaced.get((module, ""))
        if replacement is not None:
            if len(replacement) != 2:
                continue  # a folder
            module, version = replacement
        if (module, f"{version}/go.mod") not in sums and (module, version) not in sums:
            present = versions.get(module)
            yield pair.differing(module, version, describe(present)) if present else pair.missing(module, version)


def _go_lines(text: str, word: str) -> Iterator[str]:
    """The text after the directive `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())
