"""Finds the landed hunks of a change set, and makes a tree with some of its hunks (SPEC 3.9).

Hunks have the numbers of the whole change set's diff, even when some of them are landed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO

from engine.execution.snapshots import join_paths, printable_path, scratch_index
from engine.execution.staging import durable_environment
from engine.execution.tree_diff import ChangedFile, TreeChange, changed_files, diff_trees, read_patches
from engine.git import Git
from engine.model import FilePart, Refusal

_HEADER = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

Span = tuple[int, int, int, int]
"""The lines of a hunk: start and end in the old file, then in the new one, from 0, without the end."""


def parse_spans(patch: bytes) -> list[Span]:
    """The hunks of one file's patch."""
    return [_parse_span(match) for match in _HEADER.finditer(patch)]


def apply_hunks(old: bytes, new: bytes, hunks: Sequence[Span], chosen: Collection[int]) -> bytes:
    """`old` with the `chosen` hunks, numbered from 1, of `new`."""
    old_lines, new_lines = BytesIO(old).readlines(), BytesIO(new).readlines()
    lines: list[bytes] = []
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        lines += old_lines[position:start]
        lines += new_lines[new_start:new_end] if number in chosen else old_lines[start:end]
        position = end
    return b"".join([*lines, *old_lines[position:]])


def find_hunks(file: bytes, old: bytes, new: bytes, hunks: Sequence[Span]) -> frozenset[int] | None:
    """The numbers of the hunks with which `apply_hunks` makes `file`; None when there are none such."""
    lines, old_lines, new_lines = (BytesIO(text).readlines() for text in (file, old, new))
    chosen_by_line = {0: frozenset[int]()}  # by line of `file`: the hunks in the lines before it
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        without, applied = old_lines[position:end], old_lines[position:start] + new_lines[new_start:new_end]
        next_chosen: dict[int, frozenset[int]] = {}
        for line, chosen in chosen_by_line.items():
            if lines[line : line + len(without)] == without:
                next_chosen.setdefault(line + len(without), chosen)
            if lines[line : line + len(applied)] == applied:
                next_chosen.setdefault(line + len(applied), chosen | {number})
        chosen_by_line, position = next_chosen, end
    return next((chosen for line, chosen in chosen_by_line.items() if lines[line:] == old_lines[position:]), None)


def _parse_span(match: re.Match[bytes]) -> Span:
    start, count, new_start, new_count = (1 if text is None else int(text) for text in match.groups())
    first, new_first = start - (count > 0), new_start - (new_count > 0)
    return first, first + count, new_first, new_first + new_count


def find_landed_hunks(
    git: Git, file: ChangedFile, patch: bytes, remaining: Mapping[bytes, TreeChange]
) -> frozenset[int] | None:
    """The numbers of the landed hunks of `file`, None when they are unknown. `remaining` are the changes that are not
    landed, by path."""
    change = remaining.get(file.path)
    if change is None or change.is_added or change.old_oid == file.change.old_oid or file.patch_count > 1:
        return frozenset()
    oids = (change.old_oid, file.change.old_oid, file.change.new_oid)
    present, old, new = (git.output("cat-file", "blob", oid) for oid in oids)
    return find_hunks(present, old, new, parse_spans(patch))


def write_tree_with(git: Git, base: str, result: str, landed: str, parts: Sequence[FilePart]) -> str:
    """The tree `landed`, a part of the change from `base` to `result`, with `parts` of that change added. All its
    objects are on disk.

    Raises `Refusal`: `unknown_file`, `unknown_hunk`, `already_decided` when a part is landed already, `inseparable`
    when a file replaces one that is not among `parts`.
    """
    files = {printable_path(file.path): file for file in changed_files(git, base, result)}
    remaining = {change.path: change for change in diff_trees(git, landed, result)}
    waiting = [path for path, file in files.items() if remaining.keys() & {file.path, file.old_path}]
    patches = dict(read_patches(git, base, result)) if any(part.hunks for part in parts) else {}
    lines, chosen = [], set()
    for part in parts:
        file = files.get(part.path)
        if file is None:
            raise Refusal("unknown_file", f"it does not change {part.path}", f"one of: {join_paths(waiting)}")
        if part.path not in waiting:
            raise Refusal("already_decided", f"{part.path} is landed already", f"left: {join_paths(waiting)}")
        change = file.change
        chosen |= {path for path in (file.path, file.old_path) if path}
        mode, oid = change.new_mode, change.new_oid
        if part.hunks and (blob := _write_blob_with(git, file, patches[file], remaining, part)):
            mode, oid = change.old_mode, blob
        lines += [f"0 {'0' * len(base)}\t".encode() + path for path in (file.path, file.old_path) if path]
        if not change.is_removed:
            lines.append(f"{mode} {oid}\t".encode() + file.path)
    with scratch_index() as index:
        partial = git.over(git.folder, index)
        partial.output("read-tree", landed)
        partial.output(
            "update-index", "--replace", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines)
        )
        tree = partial.text("write-tree", "--missing-ok", environment=durable_environment(git))
    if unselected := {change.path for change in diff_trees(git, landed, tree)} - chosen:
        names = join_paths([printable_path(path) for path in sorted(unselected)])
        raise Refusal("inseparable", f"it takes the place of {names}", "land them together")
    return tree


def _write_blob_with(
    git: Git, file: ChangedFile, patch: bytes, remaining: Mapping[bytes, TreeChange], part: FilePart
) -> str:
    """Write the blob of the old file with these hunks and the landed ones; "" when they are all hunks."""
    hunks = parse_spans(patch) if file.patch_count == 1 else []
    unknown = [number for number in part.hunks if not 1 <= number <= len(hunks)]
    if unknown:
        has = f"its hunks are 1 to {len(hunks)}" if hunks else "it has none: land all of it"
        raise Refusal("unknown_hunk", f"{part.path} has no hunk {unknown[0]}", has)
    landed = find_landed_hunks(git, file, patch, remaining)
    if landed is None:
        raise Refusal("unknown_hunk", f"the hunks of {part.path} that are left have no numbers", "land all of it")
    if already_landed := sorted(landed.intersection(part.hunks)):
        remaining_hunks = ", ".join(str(number) for number in range(1, len(hunks) + 1) if number not in landed)
        raise Refusal(
            "already_decided",
            f"hunk {already_landed[0]} of {part.path} is landed already",
            f"hunks left: {remaining_hunks}",
        )
    chosen = landed.union(part.hunks)
    if len(chosen) == len(hunks):
        return ""
    old, new = (git.output("cat-file", "blob", oid) for oid in (file.change.old_oid, file.change.new_oid))
    return git.text(
        "hash-object", "-w", "--stdin", stdin=apply_hunks(old, new, hunks, chosen), environment=durable_environment(git)
    )
