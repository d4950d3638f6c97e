"""Makes the diff of a change set for screens: files with notes for the reviewer, and their hunks, sanitised and limited
in size.
"""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from io import BytesIO
from pathlib import Path

from engine.execution import trees
from engine.execution.snapshots import join_paths, printable_path, scratch_index
from engine.execution.staging import durable_environment
from engine.execution.trees import (
    ABSENT,
    EXECUTABLE,
    GITLINK,
    LINK,
    ChangedFile,
    TreeChange,
    changed_files,
    diff_trees,
    line_counts,
    read_patches,
)
from engine.git import Git
from engine.model import FileChange, FileDiff, FilePart, Refusal, sanitise

# Finds the landed hunks of a change set, and makes a tree with some of its hunks (SPEC 3.9).
#
# Hunks have the numbers of the whole change set's diff, even when some of them are landed.


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


@cache
def load_auto_executed_files() -> dict[str, str]:
    """The explanations of files that are executed automatically, by pattern; see `auto_executed_files.toml`."""
    patterns: dict[str, str] = tomllib.loads(Path(__file__).with_name("auto_executed_files.toml").read_text())["files"]
    return patterns


def explain_automatic_use(path: str) -> str:
    """Which program runs or obeys the file at `path`, and when; "" for an ordinary file."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    for pattern, explanation in load_auto_executed_files().items():
        folded_pattern = pattern.casefold().replace("/**", "/*")
        if "/" in folded_pattern:
            matches = fnmatchcase(f"/{folded}", f"*/{folded_pattern}")
        else:
            matches = fnmatchcase(name, folded_pattern)
        if matches:
            return explanation
    return ""


MAX_HUNK_CHARACTERS = 100_000
"""Maximum number of characters of one file's hunks."""

MAX_LINE_CHARACTERS = 1_000
"""Maximum number of characters of one line of a diff."""

MAX_TARGET_CHARACTERS = 200
"""Maximum number of characters of a link's target."""

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_TOO_LONG = re.compile(rf"(?m)^(.{{{MAX_LINE_CHARACTERS}}})(.+)$")
_UNIX_LINE = re.compile(r"(?m)^[ +-].*(?<!\r)$")


def file_changes(git: Git, base: str, result: str, left_out: Sequence[bytes] = ()) -> tuple[FileChange, ...]:
    """Every file that differs, with renames; paths are printable. `left_out` are nested repositories, which are no part
    of the trees."""
    counts = line_counts(git, base, result)
    files = changed_files(git, base, result)
    refused = trees.find_refused(git, result, [file.change for file in files])
    bare = _find_bare_repositories(git, result, [file.path for file in files])
    changes = [
        FileChange(
            printable_path(file.path),
            file.status,
            *counts.get(file.path, (None, None)),
            old_path=printable_path(file.old_path),
            note=_review_note(git, file, in_bare=file.path in bare),
            refused=refused.get(file.path, ""),
        )
        for file in files
    ]
    nested = "a separate git repository; it is not landed with the changes"
    return (*changes, *(FileChange(printable_path(path), "left out", None, None, note=nested) for path in left_out))


def _review_note(git: Git, file: ChangedFile, *, in_bare: bool) -> str:
    """A note for the reviewer in one line, "" for an ordinary change of an ordinary file."""
    change = file.change
    notes = []
    if change.old_mode == LINK != change.new_mode and not change.is_removed:
        notes.append(f"was a link to {_link_target(git, change.old_oid)}")
    if change.new_mode == LINK:
        notes.append(f"a link to {_link_target(git, change.new_oid)}")
    elif change.new_mode == GITLINK:
        notes.append(f"a submodule at {change.new_oid[:10]}")
    elif change.new_mode == EXECUTABLE and change.old_mode in (ABSENT, LINK):
        notes.append("executable")
    elif (
        change.new_mode != change.old_mode
        and EXECUTABLE in (change.new_mode, change.old_mode)
        and not change.is_removed
    ):
        became = "now executable" if change.new_mode == EXECUTABLE else "no longer executable"
        notes.append(f"mode {change.old_mode[-3:]} → {change.new_mode[-3:]}, {became}")
    if in_bare:
        notes.append("part of a bare git repository: git run in it obeys its configuration, which can start programs")
    for path in (file.path, file.old_path) if not change.is_removed else (file.path,):
        explanation = explain_automatic_use(os.fsdecode(path))
        if explanation and explanation not in notes:
            notes.append(explanation)
    return "; ".join(notes)


def _link_target(git: Git, oid: str) -> str:
    target = printable_path(git.output("cat-file", "blob", oid))
    return target if len(target) <= MAX_TARGET_CHARACTERS else f"{target[:MAX_TARGET_CHARACTERS]}…"


def _find_bare_repositories(git: Git, tree: str, paths: Sequence[bytes]) -> set[bytes]:
    """The `paths` that make a folder a bare repository: its HEAD, its configuration, its hooks."""
    parents = {}
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        if name in (b"HEAD", b"config"):
            parents[path] = folder
        elif folder == b"hooks" or folder.endswith(b"/hooks"):
            parents[path] = folder.rpartition(b"/")[0]
    if not parents:
        return set()
    queries = b"".join(
        b"%s:%s\0" % (tree.encode(), folder + b"/" + name if folder else name)
        for folder in parents.values()
        for name in (b"HEAD", b"config")
    )
    answer = git.output("cat-file", "--batch-check=%(objecttype)", "-z", stdin=queries).split(b"\n")
    exists = [line == b"blob" for line in answer if line]
    return {path for number, path in enumerate(parents) if all(exists[2 * number : 2 * number + 2])}


def file_diffs(git: Git, base: str, result: str, landed: str = "") -> list[FileDiff]:
    """Every file with its hunks, without those that are in the tree `landed`, which is a part of the change."""
    remaining = {change.path: change for change in diff_trees(git, landed or base, result)}
    diffs = []
    for file, section in read_patches(git, base, result):
        if not remaining.keys() & {file.path, file.old_path}:
            continue
        landed_numbers = find_landed_hunks(git, file, section, remaining)
        text = _format_hunks(section, landed_numbers or frozenset())
        binary = not text and re.search(rb"(?m)^Binary files ", section) is not None
        cut = len(text) > MAX_HUNK_CHARACTERS
        paths = printable_path(file.path), file.status, printable_path(file.old_path)
        all_or_nothing = cut or file.patch_count > 1 or landed_numbers is None
        numbers = tuple(sorted(landed_numbers or ()))
        diffs.append(
            FileDiff(*paths, binary, text[:MAX_HUNK_CHARACTERS], cut=cut, all_or_nothing=all_or_nothing, landed=numbers)
        )
    return diffs


def _format_hunks(section: bytes, without: Collection[int]) -> str:
    """The hunks of a file's patch, except for the numbers in `without`, and without headers. A line that is too long is
    cut, with a note."""
    parts = [re.split(rb"(?m)^(?=@@ )", part)[1:] for part in re.split(rb"(?m)^(?=diff --git )", section)]
    hunks = itertools.chain.from_iterable(parts)
    text = b"".join(hunk for number, hunk in enumerate(hunks, 1) if number not in without).decode(errors="replace")
    if "\r" in text and not _UNIX_LINE.search(text):
        text = text.replace("\r\n", "\n")  # line endings are shown only where they differ
    text = printable_text(text)
    if max(map(len, text.split("\n"))) > MAX_LINE_CHARACTERS:
        text = _TOO_LONG.sub(lambda match: f"{match[1]} … {len(match[2]):,} more characters in this line", text)
    return text


def printable_text(text: str) -> str:
    """Text of files for screens: invisible characters, and those that change the direction of text, are named."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text.expandtabs(4)  # the usual case; the rest is slow
    return sanitise(_INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text))
