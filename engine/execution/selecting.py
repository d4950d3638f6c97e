"""Part of a change set as a tree: its base with the files, or the hunks of files, that are to be landed (SPEC 3.9).

Hunks are numbered as in the diff of the whole change set, whatever of it is landed already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.execution import diffs, merging
from engine.execution.diffs import ChangedFile, spans, with_hunks
from engine.execution.merging import TreeChange
from engine.execution.snapshots import PlainGit, named, scratch_index, shown
from engine.execution.staging import durable
from engine.git import Git
from engine.model import FilePart, Refusal


def tree_with(plain: PlainGit, base: str, result: str, landed: str, parts: Sequence[FilePart]) -> str:
    """The tree `landed`, which has a part of what leads from `base` to `result`, with `parts` of that too. All its
    objects are on disk.

    Raises `Refusal`: `unknown_file`, `unknown_hunk`, `already_decided` when it is landed already, `inseparable` when a
    file takes the place of one that is not among `parts`.
    """
    git = plain.git
    files = {shown(file.path): file for file in diffs.changed_files(git, base, result)}
    remaining = {change.path: change for change in merging.differences(git, landed, result)}
    waiting = [path for path, file in files.items() if remaining.keys() & {file.path, file.old_path}]
    patches = dict(diffs.sections(git, base, result)) if any(part.hunks for part in parts) else {}
    lines, chosen = [], set()
    for part in parts:
        file = files.get(part.path)
        if file is None:
            raise Refusal("unknown_file", f"it does not change {part.path}", f"one of: {named(waiting)}")
        if part.path not in waiting:
            raise Refusal("already_decided", f"{part.path} is landed already", f"left: {named(waiting)}")
        change = file.change
        chosen |= {path for path in (file.path, file.old_path) if path}
        mode, oid = change.new_mode, change.new_oid
        if part.hunks and (blob := _with_hunks(git, file, patches[file], remaining, part)):
            mode, oid = change.old_mode, blob
        lines += [f"0 {'0' * len(base)}\t".encode() + path for path in (file.path, file.old_path) if path]
        if not change.goes:
            lines.append(f"{mode} {oid}\t".encode() + file.path)
    with scratch_index() as index:
        partial = plain.work_tree(plain.folder, index)
        partial.output("read-tree", landed)
        partial.output(
            "update-index", "--replace", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines)
        )
        tree = partial.text("write-tree", "--missing-ok", environment=durable(git))
    if unselected := {change.path for change in merging.differences(git, landed, tree)} - chosen:
        names = named([shown(path) for path in sorted(unselected)])
        raise Refusal("inseparable", f"it takes the place of {names}", "land them together")
    return tree


def _with_hunks(
    git: Git, file: ChangedFile, patch: bytes, remaining: Mapping[bytes, TreeChange], part: FilePart
) -> str:
    """The blob of the old file with these hunks of its diff and those that are landed; "" when these are all."""
    hunks = spans(patch) if file.sections == 1 else []
    unknown = [number for number in part.hunks if not 1 <= number <= len(hunks)]
    if unknown:
        has = f"its hunks are 1 to {len(hunks)}" if hunks else "it has none: land all of it"
        raise Refusal("unknown_hunk", f"{part.path} has no hunk {unknown[0]}", has)
    landed = diffs.landed_hunks(git, file, patch, remaining)
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
    return git.text("hash-object", "-w", "--stdin", stdin=with_hunks(old, new, hunks, chosen), environment=durable(git))
