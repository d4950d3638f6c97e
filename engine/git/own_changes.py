"""Finds what your own changes left behind (SPEC 2.11): debugging, conflict markers and TODOs that they added, and with
`stale_mentions` documentation that names what they removed.

Cards are offered about it, and flows show it and mend it. For example a commit leaves a `breakpoint()`. `leftovers`
recognises such a line; here it is decided whether it counts in its file. `inspection` keeps the answer until the files
change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime

from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git import Git
from engine.git.leftovers import (
    CONFLICT_MARKER,
    TODO_KINDS,
    find_breakpoint_lines,
    find_quoted_lines,
    parse_python,
    scan_line,
)
from engine.git.patch import MAX_FILE_BYTES, Patch, PatchLine, read_own_patch
from engine.git.stale_mentions import DOCUMENT_SUFFIXES, Mention, find_stale_mentions
from engine.git.state import GitState
from engine.text import compute_text_hash

MAX_LEFTOVERS = 100
"""Maximum number of leftovers that are kept."""

_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|specs?|__tests__|fixtures|testdata)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
"""Paths of tests, whose examples may look like conflicts or leftovers."""

_VENDORED_PATH = re.compile(r"(?:^|/)(?:vendor|third_party|dist|node_modules)/|\.min\.")
"""Paths of the code of others."""

_WHOLE_CONFLICT = re.compile(r"^<{7}(?=\s).*?^={7}(?=\s).*?^>{7}(?=\s)", re.MULTILINE | re.DOTALL)
"""A conflict with both sides. A single mark may be an underline or a quotation."""


@frozen
class LocatedLeftover:
    """A line that you added, and that probably should not stay."""

    kind: str
    path: str
    line: int
    """From 1."""
    text_hash: str = ""
    """The hash of its text, by which it is known when its line has another number."""

    @property
    def place(self) -> str:
        """`cart.py:12`, with the path as git has it."""
        return f"{self.path}:{self.line}"


@frozen
class OwnChanges:
    """The findings in your own commits and uncommitted files."""

    digest: str = ""
    """See `Patch.digest`."""
    leftovers: tuple[LocatedLeftover, ...] = ()
    mentions: tuple[Mention, ...] = ()
    added_lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The numbers of the added lines of each changed file, by its path."""


def find_own_changes(git: Git, state: GitState, since: datetime | None) -> OwnChanges:
    """The findings in your own commits and uncommitted files. A TODO counts if its file is not committed and was
    written after `since`, and not at all if that is None. Raises `GitError`."""
    patch = read_own_patch(git, state)
    leftovers = _find_own_leftovers(git, state, patch, since)
    if state.operation:  # during a merge or the like, nothing else is of interest
        return OwnChanges(patch.digest, leftovers)
    added_lines = {path: [line.line for line in lines] for path, lines in patch.lines_of.items()}
    return OwnChanges(patch.digest, leftovers, find_stale_mentions(git, patch), added_lines)


def _find_own_leftovers(git: Git, state: GitState, patch: Patch, since: datetime | None) -> tuple[LocatedLeftover, ...]:
    """At most `MAX_LEFTOVERS` leftovers among the added lines of `patch`, conflict markers first."""
    leftovers: list[LocatedLeftover] = []
    for path, lines in patch.lines_of.items():
        if not _VENDORED_PATH.search(path):
            leftovers += _find_leftovers_of_file(git, path, lines)
    recent_paths = {file.path for file in state.files if since and file.modified_at and file.modified_at >= since}
    leftovers = [item for item in leftovers if item.kind not in TODO_KINDS or item.path in recent_paths]
    if state.operation:
        leftovers = [leftover for leftover in leftovers if leftover.kind == CONFLICT_MARKER]
    leftovers.sort(key=lambda item: (item.kind != CONFLICT_MARKER, item.kind in TODO_KINDS, item.path, item.line))
    return tuple(leftovers[:MAX_LEFTOVERS])


def _find_leftovers_of_file(git: Git, path: str, lines: Sequence[PatchLine]) -> Iterator[LocatedLeftover]:
    """The leftovers among the added lines of one file. Those in comments and strings are left out."""
    matches = [
        (line, leftover.kind)
        for line in lines
        for leftover in scan_line(path, line.text)
        if not leftover.is_secret and _is_reported(path, leftover.kind)
    ]
    if not matches:
        return
    text, is_python = read_text(git, path), path.endswith(".py")
    tree = parse_python(text) if is_python else None
    quoted = find_quoted_lines(tree) if is_python else _find_fenced_lines(text)
    breakpoints, has_conflict = find_breakpoint_lines(tree), _has_conflict(path, text)
    for line, kind in matches:
        is_leftover = line.line not in quoted
        if kind in ("breakpoint", "debugger import") and breakpoints is not None:
            is_leftover &= line.line in breakpoints
        elif kind == CONFLICT_MARKER:
            is_leftover &= has_conflict and line.text.startswith("<<<<<<<")
        if is_leftover:
            yield LocatedLeftover(kind, path, line.line, compute_text_hash(line.text.strip()))


def _is_reported(path: str, kind: str) -> bool:
    """Whether a leftover of this kind is one in this file."""
    if kind == "debug print" and path.endswith(".py"):
        return False  # most Python programs print on purpose
    if path.endswith(DOCUMENT_SUFFIXES):
        return kind == CONFLICT_MARKER
    return kind != "dbg!" or not _TEST_PATH.search(path)


def read_text(git: Git, path: str) -> str:
    """A file of the working tree as text. "" if it cannot be read or is too large."""
    return read_plain_or_nothing(git.folder / path, MAX_FILE_BYTES, follow=False).decode(errors="replace")


def _find_fenced_lines(text: str) -> frozenset[int]:
    """The lines of a document that are between fences."""
    is_inside, numbers = False, []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_inside = not is_inside
        elif is_inside:
            numbers.append(number)
    return frozenset(numbers)


def _has_conflict(path: str, text: str) -> bool:
    """Whether a file has the three markers in their order. A document or a patch among tests quotes them."""
    is_quoted = _TEST_PATH.search(path) and path.endswith((*DOCUMENT_SUFFIXES, ".diff", ".patch", ".orig"))
    return not is_quoted and _WHOLE_CONFLICT.search(text) is not None
