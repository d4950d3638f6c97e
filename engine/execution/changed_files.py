"""Lists the files of a change set for the reviewer, with a note on each file that needs attention (SPEC 3.9)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

from engine.execution.tree_diffs import (
    ABSENT,
    EXECUTABLE,
    GITLINK,
    LINK,
    TreeChange,
    count_changed_lines,
    find_changed_files,
    find_unsupported,
)
from engine.execution.trees import printable_path
from engine.files import read_table
from engine.git import Git
from engine.git.command import split_nul
from engine.model import FileChange

MAX_TARGET_CHARACTERS = 200
"""Maximum number of characters of a link's target."""


@cache
def load_auto_executed_files() -> dict[str, str]:
    """The patterns of files that programs run by themselves, each with an explanation (`auto_executed_files.toml`)."""
    patterns = read_table(__file__, "auto_executed_files.toml")["files"]
    return {pattern.casefold().replace("/**", "/*"): explanation for pattern, explanation in patterns.items()}


def explain_automatic_use(path: str) -> str:
    """Which program runs or obeys the file at `path` by itself, and when. "" for an ordinary file."""
    folded = f"/{path.casefold()}"
    name = folded.rpartition("/")[2]
    for pattern, explanation in load_auto_executed_files().items():
        if fnmatchcase(folded, f"*/{pattern}") if "/" in pattern else fnmatchcase(name, pattern):
            return explanation
    return ""


def list_file_changes(git: Git, base: str, result: str, left_out: Sequence[bytes] = ()) -> tuple[FileChange, ...]:
    """Every file that differs, with renames and printable paths. `left_out` are nested repositories, which are in none
    of the trees."""
    counts = count_changed_lines(git, base, result)
    files = find_changed_files(git, base, result)
    refused = find_unsupported(git, result, files)
    bare = _find_bare_repositories(git, result, files)
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


def _review_note(git: Git, file: TreeChange, *, in_bare: bool) -> str:
    """A note for the reviewer in one line; "" for an ordinary change of an ordinary file."""
    old, new = file.old_mode, file.new_mode
    notes = []
    if old == LINK != new and not file.is_removed:
        notes.append(f"was a link to {_link_target(git, file.old_oid)}")
    if new == LINK:
        notes.append(f"a link to {_link_target(git, file.new_oid)}")
    elif new == GITLINK:
        notes.append(f"a submodule at {file.new_oid[:10]}")
    elif new == EXECUTABLE and old in (ABSENT, LINK):
        notes.append("executable")
    elif new != old and EXECUTABLE in (new, old) and not file.is_removed:
        became = "now executable" if new == EXECUTABLE else "no longer executable"
        notes.append(f"mode {old[-3:]} → {new[-3:]}, {became}")
    if in_bare:
        notes.append("part of a bare git repository: git run in it obeys its configuration, which can start programs")
    paths = {file.path} if file.is_removed else file.paths
    notes += sorted({explain_automatic_use(os.fsdecode(path)) for path in paths} - {""})
    return "; ".join(notes)


def _link_target(git: Git, oid: str) -> str:
    target = printable_path(git.output("cat-file", "blob", oid))
    return target if len(target) <= MAX_TARGET_CHARACTERS else f"{target[:MAX_TARGET_CHARACTERS]}…"


def _find_bare_repositories(git: Git, tree: str, files: Sequence[TreeChange]) -> set[bytes]:
    """The paths of `files` that belong to a bare repository: its HEAD, its configuration, its hooks."""
    repository_file = re.compile(rb"(?s)(.*/|)(HEAD|config|hooks/[^/]+)")
    folder_of = {file.path: match[1] for file in files if (match := repository_file.fullmatch(file.path))}
    if not folder_of:
        return set()
    names = set(split_nul(git.output("ls-tree", "-r", "--name-only", "-z", tree)))
    return {path for path, folder in folder_of.items() if {folder + b"HEAD", folder + b"config"} <= names}
