"""Shows the reviewer what a change set changes (SPEC 3.9): a list of its files, and their hunks.

A file that needs attention has a note, and one that is never landed has the reason. Nothing lands that leads out of the
folder. Nor does a changed file with a configured filter: that program does not run, so that the bytes are unknown.

Hunks are sanitised and limited in size. They keep their numbers in the diff of the whole change set, even when some
landed.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from engine.execution.runners.toolchains import TEST_FILE
from engine.execution.trees import (
    ABSENT_MODE,
    EXECUTABLE_MODE,
    LINK_MODE,
    SUBMODULE_MODE,
    TreeChange,
    count_changed_lines,
    diff_trees,
    read_patches,
    scratch_index,
)
from engine.files import read_table
from engine.git import Git, join_nul, printable_path, split_nul
from engine.git.repository import is_git_name
from engine.model import LEFT_OUT, FileChange, FileDiff
from engine.text import sanitise

MAX_TARGET_CHARS = 200
"""Maximum number of characters of a link's target."""

# -- the list


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


def list_file_changes(git: Git, base: str, result: str) -> list[FileChange]:
    """Every file that differs, with renames and printable paths."""
    counts = count_changed_lines(git, base, result)
    files = diff_trees(git, base, result, renames=True)
    refused = find_unsupported(git, result, files)
    bare = _find_bare_repositories(git, result, files)
    return [
        FileChange(
            printable_path(file.path),
            file.status,
            *counts.get(file.path, (None, None)),
            old_path=printable_path(file.old_path),
            note=_make_review_note(git, file, in_bare=file.path in bare),
            refused=refused.get(file.path, ""),
        )
        for file in files
    ]


def list_left_out(worktree: Path, nested: Sequence[bytes], submodules: Sequence[bytes]) -> list[FileChange]:
    """What a session made in `worktree` that no tree has: `nested` repositories, and files in these `submodules`."""

    def make_row(path: bytes, reason: str) -> FileChange:
        place = printable_path(os.fsencode(worktree / os.fsdecode(path)))
        return FileChange(printable_path(path), LEFT_OUT, None, None, note=f"{reason}; not landed: see {place}")

    return [
        *(make_row(path, "a separate git repository") for path in nested),
        *(make_row(path + b"/", "files in a submodule") for path in submodules),
    ]


def _make_review_note(git: Git, file: TreeChange, *, in_bare: bool) -> str:
    """A note for the reviewer in one line; "" for an ordinary change of an ordinary file."""
    old, new = file.old_mode, file.new_mode
    notes = []
    if old == LINK_MODE != new and not file.is_removed:
        notes.append(f"was a link to {_read_link_target(git, file.old_oid)}")
    if new == LINK_MODE:
        notes.append(f"a link to {_read_link_target(git, file.new_oid)}")
    elif new == SUBMODULE_MODE:
        notes.append(f"a submodule at {file.new_oid[:10]}")
    elif new == EXECUTABLE_MODE and old in (ABSENT_MODE, LINK_MODE):
        notes.append("executable")
    elif new != old and EXECUTABLE_MODE in (new, old) and not file.is_removed:
        became = "now executable" if new == EXECUTABLE_MODE else "no longer executable"
        notes.append(f"mode {old[-3:]} → {new[-3:]}, {became}")
    if in_bare:
        notes.append("part of a bare git repository: git run in it obeys its configuration, which can start programs")
    if file.is_removed and TEST_FILE.search(os.fsdecode(file.path)):
        notes.append("a test file is deleted")
    paths = {file.path} if file.is_removed else file.paths
    notes += sorted({explain_automatic_use(os.fsdecode(path)) for path in paths} - {""})
    return "; ".join(notes)


def _read_link_target(git: Git, oid: str) -> str:
    target = printable_path(git.output("cat-file", "blob", oid))
    return target if len(target) <= MAX_TARGET_CHARS else f"{target[:MAX_TARGET_CHARS]}…"


def _find_bare_repositories(git: Git, tree: str, files: Sequence[TreeChange]) -> set[bytes]:
    """The paths of `files` that belong to a bare repository: its HEAD, its configuration, its hooks."""
    repository_file = re.compile(rb"(?s)(.*/|)(HEAD|config|hooks/[^/]+)")
    folder_of = {file.path: match[1] for file in files if (match := repository_file.fullmatch(file.path))}
    if not folder_of:
        return set()
    names = set(split_nul(git.output("ls-tree", "-r", "--name-only", "-z", tree)))
    return {path for path, folder in folder_of.items() if {folder + b"HEAD", folder + b"config"} <= names}


# -- what is never landed


def find_unsupported(git: Git, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """The paths that are never landed among `changes`, which lead to `tree`, each with the reason. They are submodules,
    names that lead out of the folder or into git's own, links that lead out, and files with a configured filter."""
    reasons = {change.path: reason for change in changes if (reason := _explain_refusal(change))}
    links = [change for change in changes if change.path not in reasons and change.new_mode == LINK_MODE]
    for path, target in _find_links_leading_out(git, tree, links):
        reasons[path] = f"a link that points outside the project, to {printable_path(target)}"
    if git.repository.filters:
        remaining_paths = [change.path for change in changes if change.path not in reasons]
        for path, name in _find_files_with_filter(git, tree, remaining_paths):
            reasons[path] = f"uses the filter program {name.decode(errors='replace')!r}, which is not run"
    return reasons


def _explain_refusal(change: TreeChange) -> str:
    """Why a path is never landed, whatever is there; "" if it may be."""
    names = os.fsdecode(change.path).split("/")
    if any(name in ("", ".", "..") for name in names):
        return "its path leads outside the project"
    if any(is_git_name(name) for name in names):
        return "on some machines its name means git's own folder, whose contents are executed"
    if SUBMODULE_MODE in (change.old_mode, change.new_mode):
        return "a submodule; update it with git itself"
    return ""


def _find_files_with_filter(git: Git, tree: str, paths: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Those of `paths` that have a configured filter by the attributes of `tree`, each with the filter's name."""
    with scratch_index() as index:
        staged = git.over(git.folder, index)
        staged.output("read-tree", tree)
        answer = split_nul(staged.output("check-attr", "--cached", "-z", "--stdin", "filter", stdin=join_nul(paths)))
    for path, name in zip(answer[0::3], answer[2::3], strict=True):
        if name.decode(errors="surrogateescape") in git.repository.filters:
            yield path, name


def _find_links_leading_out(git: Git, tree: str, links: Sequence[TreeChange]) -> Iterator[tuple[bytes, bytes]]:
    """The links that lead out of the tree, by themselves or through other links, each with the place where it ends."""
    if not links:
        return
    queries = b"".join(b"%s:%s\0" % (tree.encode(), link.path) for link in links)
    answer = BytesIO(git.output("cat-file", "--batch-check", "--follow-symlinks", "-z", stdin=queries))
    for link in links:
        fields = answer.readline().split()
        # A link out of the tree is "symlink 11\n/etc/passwd". One that leads nowhere in the tree is "dangling
        # 45\nTREE:path", "loop" or "notdir".
        target_outside = b""
        if fields[0] in (b"symlink", b"dangling", b"loop", b"notdir"):
            target_outside = answer.read(int(fields[1]) + 1)[:-1]
        target = git.output("cat-file", "blob", link.new_oid)
        if fields[0] == b"symlink":
            yield link.path, target_outside
        elif leads_out(link.path, target):
            yield link.path, target  # git stopped at a name that is not in the tree, before the path led out of it


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether the target of a link at this path is absolute, or has more `..` than folders to leave."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return end.split(b"/")[0] in (b"", b"..")


# -- hunks

_HEADER = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
"""The head of a hunk in a patch of git."""


class HunkSpan(NamedTuple):
    """The lines of a hunk in the old and in the new file, counted from 0, without the end."""

    start: int
    end: int
    new_start: int
    new_end: int


def parse_spans(patch: bytes) -> list[HunkSpan]:
    """The hunks of one file's patch."""
    spans = []
    for match in _HEADER.finditer(patch):
        start, count, new_start, new_count = (1 if text is None else int(text) for text in match.groups())
        first, new_first = start - (count > 0), new_start - (new_count > 0)
        spans.append(HunkSpan(first, first + count, new_first, new_first + new_count))
    return spans


def apply_hunks(old: bytes, new: bytes, hunks: Sequence[HunkSpan], selected_numbers: Collection[int]) -> bytes:
    """`old` with those hunks of `new` whose numbers, counted from 1, are in `selected_numbers`."""
    old_lines, new_lines = BytesIO(old).readlines(), BytesIO(new).readlines()
    lines: list[bytes] = []
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        lines += old_lines[position:start]
        lines += new_lines[new_start:new_end] if number in selected_numbers else old_lines[start:end]
        position = end
    return b"".join([*lines, *old_lines[position:]])


def find_hunks(file: bytes, old: bytes, new: bytes, hunks: Sequence[HunkSpan]) -> frozenset[int] | None:
    """The numbers of the hunks with which `apply_hunks` makes `file`. None when no hunks make it."""
    lines, old_lines, new_lines = (BytesIO(text).readlines() for text in (file, old, new))
    # From hunk to hunk, each reading of the lines so far is continued with and without the next hunk, if that fits. Two
    # readings that end at the same line have the same future, so the first one stands for both.
    chosen_by_line = {0: frozenset[int]()}  # by line of `file`: the hunks in the lines before it
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        without, applied = old_lines[position:end], old_lines[position:start] + new_lines[new_start:new_end]
        pieces = ((without, frozenset[int]()), (applied, frozenset((number,))))
        next_chosen: dict[int, frozenset[int]] = {}
        for (line, chosen), (piece, applied_number) in itertools.product(chosen_by_line.items(), pieces):
            if lines[line : line + len(piece)] == piece:
                next_chosen.setdefault(line + len(piece), chosen | applied_number)
        chosen_by_line, position = next_chosen, end
    return next((chosen for line, chosen in chosen_by_line.items() if lines[line:] == old_lines[position:]), None)


def find_landed_hunks(
    git: Git, file: TreeChange, patch: bytes, remaining: Mapping[bytes, TreeChange]
) -> frozenset[int] | None:
    """The numbers of the landed hunks of `file`, or None when they are unknown. `remaining` has the changes that are
    not landed, by path."""
    change = remaining.get(file.path)
    if change is None or change.is_added or change.old_oid == file.old_oid or file.patch_count > 1:
        return frozenset()
    present, old, new = (git.output("cat-file", "blob", oid) for oid in (change.old_oid, file.old_oid, file.new_oid))
    return find_hunks(present, old, new, parse_spans(patch))


# -- the diff

MAX_HUNK_CHARS = 100_000
"""Maximum number of characters of one file's hunks."""

MAX_HUNK_LINE_CHARS = 1_000
"""Maximum number of characters of one line of a diff."""

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that are not seen, or that change the direction of text."""
_TOO_LONG = re.compile(rf"(?m)^(.{{{MAX_HUNK_LINE_CHARS}}})(.+)$")
"""A line with more characters than are shown."""
_UNIX_LINE = re.compile(r"(?m)^[ +-].*(?<!\r)$")
"""A line of a hunk that does not end as on Windows."""


def make_file_diffs(git: Git, base: str, result: str, landed: str) -> list[FileDiff]:
    """Every file with its hunks. Left out are those in the tree `landed`, which has a part of the change."""
    remaining = {change.path: change for change in diff_trees(git, landed, result)}
    diffs = []
    for file, patch in read_patches(git, base, result):
        if not remaining.keys() & file.paths:
            continue
        landed_numbers = find_landed_hunks(git, file, patch, remaining)
        text = _format_hunks(patch, landed_numbers or frozenset())
        cut = len(text) > MAX_HUNK_CHARS
        diffs.append(
            FileDiff(
                printable_path(file.path),
                file.status,
                printable_path(file.old_path),
                binary=not text and re.search(rb"(?m)^Binary files ", patch) is not None,
                hunks=text[:MAX_HUNK_CHARS],
                cut=cut,
                all_or_nothing=cut or file.patch_count > 1 or landed_numbers is None,
                landed=tuple(sorted(landed_numbers or ())),
            )
        )
    return diffs


def _format_hunks(patch: bytes, landed_numbers: Collection[int]) -> str:
    """The hunks of a file's patch without headers, except those with `landed_numbers`. A line that is too long is
    cut, with a note."""
    parts = [re.split(rb"(?m)^(?=@@ )", part)[1:] for part in re.split(rb"(?m)^(?=diff --git )", patch)]
    hunks = itertools.chain.from_iterable(parts)
    shown = b"".join(hunk for number, hunk in enumerate(hunks, 1) if number not in landed_numbers)
    text = shown.decode(errors="replace")
    if "\r" in text and not _UNIX_LINE.search(text):
        text = text.replace("\r\n", "\n")  # line endings are shown only where they differ
    note = "{} … {:,} more characters in this line"
    return _TOO_LONG.sub(lambda match: note.format(match[1], len(match[2])), printable_text(text))


def printable_text(text: str) -> str:
    """Text of files for screens. Invisible characters, and those that change the direction of text, are named."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text.expandtabs(4)  # the usual case; the rest is slow
    return sanitise(_INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text))
