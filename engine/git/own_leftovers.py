"""Finds debugging, conflict markers and TODOs that your own changes added (SPEC 2.11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from engine.files import read_plain_or_nothing
from engine.frozen import frozen
from engine.git import Git
from engine.git.leftovers import CONFLICT_MARKER, TODOS, breakpoint_lines, parse_python, quoted_lines, scan_line
from engine.git.patch import MAX_FILE_BYTES, Patch, PatchLine, own_patch
from engine.git.stale_mentions import DOCUMENTS
from engine.git.state import GitState
from engine.model.text import text_hash

MAX_LEFTOVERS: Final = 100
"""Maximum number of leftovers that are kept."""

_REPORTED_KINDS: Final = TODOS | {
    CONFLICT_MARKER,
    "breakpoint",
    "debugger statement",
    "console.log",
    ".only",
    "dbg!",
    "debug print",
}
_TEST_PATH: Final = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|fixtures|testdata)/|(?:^|/)test_|_test\.|\.(?:test|spec)\."
)
_VENDORED_PATH: Final = re.compile(r"(?:^|/)(?:vendor|third_party|dist|node_modules)/|\.min\.")
_CONFLICT: Final = re.compile(r"^<{7}(?=\s).*?^={7}(?=\s).*?^>{7}(?=\s)", re.MULTILINE | re.DOTALL)


@frozen
class LocatedLeftover:
    """A line that you added, and that probably should not stay."""

    kind: str
    path: str
    line: int
    """From 1."""
    text: str = ""
    """The hash of the line."""

    @property
    def place(self) -> str:
        """`cart.py:12`, with the path as git has it."""
        return f"{self.path}:{self.line}"


def find_own_leftovers(git: Git, state: GitState, patch: Patch, since: datetime) -> tuple[LocatedLeftover, ...]:
    """At most `MAX_LEFTOVERS` leftovers among the added lines of `patch`, conflict markers first."""
    leftovers: list[LocatedLeftover] = []
    for path, lines in patch.lines_of.items():
        if not _VENDORED_PATH.search(path):
            leftovers += _leftovers_of_file(git, path, lines)
    if any(leftover.kind in TODOS for leftover in leftovers):
        new = _added_since(git, state, patch, since)
        leftovers = [
            leftover for leftover in leftovers if leftover.kind not in TODOS or (leftover.path, leftover.line) in new
        ]
    if state.operation:
        leftovers = [leftover for leftover in leftovers if leftover.kind == CONFLICT_MARKER]
    leftovers.sort(key=lambda found: (found.kind != CONFLICT_MARKER, found.kind in TODOS, found.path, found.line))
    return tuple(leftovers[:MAX_LEFTOVERS])


def _leftovers_of_file(git: Git, path: str, lines: Sequence[PatchLine]) -> Iterator[LocatedLeftover]:
    """The leftovers among the added lines of one file. Those in comments and strings are left out."""
    matches = [
        (line, leftover.kind)
        for line in lines
        for leftover in scan_line(path, line.text)
        if _is_reported(path, leftover.kind)
    ]
    if not matches:
        return
    text = read_text(git, path)
    is_python = path.endswith(".py")
    tree = parse_python(text) if is_python else None
    quoted = quoted_lines(tree) if is_python else _fenced_lines(text)
    breakpoints = breakpoint_lines(tree)
    has_conflict = any(kind == CONFLICT_MARKER for _, kind in matches) and _has_conflict(path, text)
    for line, kind in matches:
        if kind == "breakpoint" and breakpoints is not None and line.line not in breakpoints:
            continue  # it is in a comment or a string
        if line.line not in quoted and (kind != CONFLICT_MARKER or (has_conflict and line.text.startswith("<<<<<<<"))):
            yield LocatedLeftover(kind, path, line.line, text_hash(line.text.strip()))


def _is_reported(path: str, kind: str) -> bool:
    if kind not in _REPORTED_KINDS or (kind == "debug print" and path.endswith(".py")):
        return False  # most Python programs print on purpose
    if path.endswith(DOCUMENTS):
        return kind == CONFLICT_MARKER
    return kind != "dbg!" or not _TEST_PATH.search(path)


def read_text(git: Git, path: str) -> str:
    """A file of the working tree as text. "" if it cannot be read or is too large."""
    return read_plain_or_nothing(git.folder / path, MAX_FILE_BYTES, follow=False).decode(errors="replace")


def _fenced_lines(text: str) -> frozenset[int]:
    """The lines of a document that are between fences."""
    is_inside, numbers = False, []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_inside = not is_inside
        elif is_inside:
            numbers.append(number)
    return frozenset(numbers)


def _has_conflict(path: str, text: str) -> bool:
    """Whether a file has the three markers in their order. Test data and documents with markers do not count."""
    is_quoted = _TEST_PATH.search(path) and path.endswith((*DOCUMENTS, ".diff", ".patch", ".orig"))
    return not is_quoted and _CONFLICT.search(text) is not None


def _added_since(git: Git, state: GitState, patch: Patch, since: datetime) -> set[tuple[str, int]]:
    """The path and number of each line that was added after `since`, by a later commit or in a file that was written
    later."""
    written = {file.path for file in state.files if file.modified_at is not None and file.modified_at >= since}
    newer = next((count for count, commit in enumerate(state.recent) if commit.at < since), len(state.recent))
    if patch.base and newer < len(state.recent) and patch.base != (base := state.recent[newer].id):
        own = {commit.id for commit in state.recent[: newer + 1]}
        patch = patch if patch.base in own else own_patch(git, state, base)
    uncommitted = {file.path for file in state.files}
    return {(line.path, line.line) for line in patch.added if line.path in written or line.path not in uncommitted}
