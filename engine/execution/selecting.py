"""Part of a change set as a tree: its base with the files, or the hunks of files, that are to be landed (SPEC 3.9)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from io import BytesIO

from engine.execution import diffs, merging
from engine.execution.change_words import named
from engine.execution.diffs import ChangedFile
from engine.execution.snapshots import PlainGit, scratch_index, shown
from engine.execution.staging import durable
from engine.git import Git
from engine.values import FilePart, Refusal

_HUNK = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def tree_with(plain: PlainGit, base: str, result: str, parts: Sequence[FilePart]) -> str:
    """The tree `base` with `parts` of what leads from there to `result`. All its objects are on disk.

    Raises `Refusal`: `unknown_file`, `unknown_hunk`, `inseparable` when a file takes the place of one that is not
    among `parts`.
    """
    git = plain.git
    files = {shown(file.path): file for file in diffs.changed_files(git, base, result)}
    lines, chosen = [], set()
    for part in parts:
        file = files.get(part.path)
        if file is None:
            raise Refusal("unknown_file", f"it does not change {part.path}", f"one of: {named(list(files))}")
        change = file.change
        chosen |= {path for path in (file.path, file.old_path) if path}
        mode, oid = change.new_mode, change.new_oid
        if part.hunks and (kept := _with_hunks(git, base, result, file, part)):
            mode, oid = change.old_mode, kept
        lines += [f"0 {'0' * len(base)}\t".encode() + path for path in (file.path, file.old_path) if path]
        if not change.goes:
            lines.append(f"{mode} {oid}\t".encode() + file.path)
    with scratch_index() as index:
        partial = plain.work_tree(plain.folder, index)
        partial.output("read-tree", base)
        partial.output("update-index", "--replace", "-z", "--index-info", stdin=b"".join(one + b"\0" for one in lines))
        tree = partial.text("write-tree", "--missing-ok", environment=durable(git))
    if besides := {one.path for one in merging.differences(git, base, tree)} - chosen:
        names = named([shown(path) for path in sorted(besides)])
        raise Refusal("inseparable", f"it replaces {names}", "land them together")
    return tree


def _with_hunks(git: Git, base: str, result: str, file: ChangedFile, part: FilePart) -> str:
    """The blob of the old file with these hunks of its diff; "" when these are all."""
    patches = {file.path: section for file, section in diffs.sections(git, base, result) if file.sections == 1}
    section = patches.get(file.path, b"")
    hunks = [_span(found) for found in _HUNK.finditer(section)]
    wrong = [number for number in part.hunks if not 1 <= number <= len(hunks)]
    if wrong:
        has = f"its hunks are 1 to {len(hunks)}" if hunks else "it has no hunks: land the whole file"
        raise Refusal("unknown_hunk", f"{part.path} has no hunk {wrong[0]}", has)
    if len(set(part.hunks)) == len(hunks):
        return ""
    old, new = (git.output("cat-file", "blob", oid) for oid in (file.change.old_oid, file.change.new_oid))
    merged = with_hunks(old, new, hunks, part.hunks)
    return git.text("hash-object", "-w", "--stdin", stdin=merged, environment=durable(git))


Span = tuple[int, int, int, int]
"""Where a hunk begins and ends in the old file, and in the new one: lines from 0, the end not included."""


def with_hunks(old: bytes, new: bytes, hunks: Sequence[Span], chosen: Collection[int]) -> bytes:
    """`old` with the hunks of these numbers, from 1, as in `new`."""
    before, after = BytesIO(old).readlines(), BytesIO(new).readlines()
    lines: list[bytes] = []
    place = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        lines += before[place:start]
        lines += after[new_start:new_end] if number in chosen else before[start:end]
        place = end
    return b"".join([*lines, *before[place:]])


def _span(found: re.Match[bytes]) -> Span:
    start, count, new_start, new_count = (1 if text is None else int(text) for text in found.groups())
    first, new_first = start - (count > 0), new_start - (new_count > 0)
    return first, first + count, new_first, new_first + new_count
