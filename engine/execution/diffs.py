"""Makes the diff of a change set for screens: files with notes for the reviewer, and their hunks, sanitised and limited
in size."""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from engine.execution import merging
from engine.execution.hunks import find_landed_hunks
from engine.execution.snapshots import printable_path
from engine.execution.tree_diff import (
    ABSENT,
    EXECUTABLE,
    GITLINK,
    LINK,
    ChangedFile,
    changed_files,
    diff_trees,
    line_counts,
    read_patches,
)
from engine.git import Git
from engine.model import FileChange, FileDiff, sanitise


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
    refused = merging.find_refused(git, result, [file.change for file in files])
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
