"""Finds what your own work left behind (SPEC 2.11): debugging, conflict markers, documentation of what is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.debugging import breakpoint_lines, parse_python, quoted_lines
from engine.git.leftovers import scan_line
from engine.git.mentions import DOCUMENTS, Mention, stale_mentions
from engine.git.patch import MAX_FILE_BYTES, Patch, PatchLine, own_patch
from engine.git.state import GitState
from engine.model.text import text_hash
from engine.plain_files import read_plain

MAX_LEFTOVERS: Final = 100
"""Maximum number of leftovers that are kept."""

CONFLICT_MARKER: Final = "conflict marker"
TODOS: Final = frozenset({"TODO", "FIXME"})
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
_CONFLICT_MARKERS: Final = ("<<<<<<<", "=======", ">>>>>>>")


@frozen
class LocatedLeftover:
    """Something that you added and hardly meant to leave in. `line` counts from 1; `text` is the hash of the line."""

    kind: str
    path: str
    line: int
    text: str = ""

    @property
    def place(self) -> str:
        """`cart.py:12`, with the path as git has it."""
        return f"{self.path}:{self.line}"


@frozen
class OwnChanges:
    """The findings in your own commits and uncommitted files. `lines`: (path, numbers of the added lines)."""

    mark: str = ""
    leftovers: tuple[LocatedLeftover, ...] = ()
    mentions: tuple[Mention, ...] = ()
    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()


def own_changes(git: Git, state: GitState, since: datetime) -> OwnChanges:
    """Read what only HEAD's branch and the working tree have. A TODO counts when it was added after
    `since`. Raises `GitError`."""
    patch = own_patch(git, state)
    is_busy = bool(state.operation)  # half of a merge: only what counts as settled can hold a marker by mistake
    return OwnChanges(
        mark=patch.mark,
        leftovers=find_leftovers(git, state, patch, since),
        mentions=() if is_busy else stale_mentions(git, patch),
        lines=()
        if is_busy
        else tuple((path, tuple(line.line for line in lines)) for path, lines in patch.lines_of.items()),
    )


def find_leftovers(git: Git, state: GitState, patch: Patch, since: datetime) -> tuple[LocatedLeftover, ...]:
    """The leftovers among the added lines of `patch`, conflict markers first, at most `MAX_LEFTOVERS`."""
    leftovers: list[LocatedLeftover] = []
    for path, lines in patch.lines_of.items():
        if not _VENDORED_PATH.search(path):
            leftovers += _leftovers_of_file(git, path, lines)
    if any(leftover.kind in TODOS for leftover in leftovers):
        new = _added_since(git, state, patch, since)
        leftovers = [item for item in leftovers if item.kind not in TODOS or (item.path, item.line) in new]
    if state.operation:
        leftovers = [leftover for leftover in leftovers if leftover.kind == CONFLICT_MARKER]
    leftovers.sort(key=lambda item: (item.kind != CONFLICT_MARKER, item.kind in TODOS, item.path, item.line))
    return tuple(leftovers[:MAX_LEFTOVERS])


def _leftovers_of_file(git: Git, path: str, lines: Sequence[PatchLine]) -> Iterator[LocatedLeftover]:
    """The leftovers among the added lines of one file that are no quotations."""
    matches = [
        (line, item.kind) for line in lines for item in scan_line(path, line.text) if _is_reported(path, item.kind)
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
            continue  # it stands in a comment or a string
        if line.line not in quoted and (
            kind != CONFLICT_MARKER or (has_conflict and line.text.startswith(_CONFLICT_MARKERS[0]))
        ):
            yield LocatedLeftover(kind, path, line.line, text_hash(line.text.strip()))


def _is_reported(path: str, kind: str) -> bool:
    if kind not in _REPORTED_KINDS or (kind == "debug print" and path.endswith(".py")):
        return False  # a Python program prints because that is what it does
    if path.endswith(DOCUMENTS):
        return kind == CONFLICT_MARKER
    return kind != "dbg!" or not _TEST_PATH.search(path)


def read_text(git: Git, path: str) -> str:
    """A file of the working tree as text, "" when it is none or too large."""
    try:
        return read_plain(git.folder / path, MAX_FILE_BYTES, follow=False).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _fenced_lines(text: str) -> frozenset[int]:
    """The lines of a document that stand between fences."""
    is_inside, numbers = False, []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_inside = not is_inside
        elif is_inside:
            numbers.append(number)
    return frozenset(numbers)


def _has_conflict(path: str, text: str) -> bool:
    """Whether the three markers stand in their order, in a file in which they are no text of their own."""
    markers = [
        line[:7] for line in text.split("\n") if line.startswith(_CONFLICT_MARKERS) and line[7:8] in ("", " ", "\r")
    ]
    matched = 0
    for marker in markers:
        matched += matched < 3 and marker == _CONFLICT_MARKERS[matched]
    if matched < 3:
        return False
    return not (_TEST_PATH.search(path) and path.endswith((*DOCUMENTS, ".diff", ".patch", ".orig")))


def _added_since(git: Git, state: GitState, patch: Patch, since: datetime) -> set[tuple[str, int]]:
    """Path and line of what was added after `since`: by later commits, or to files that were written later."""
    written = {file.path for file in state.files if file.modified_at is not None and file.modified_at >= since}
    newer = next((count for count, commit in enumerate(state.recent) if commit.at < since), len(state.recent))
    if patch.base and newer < len(state.recent) and patch.base != (base := state.recent[newer].id):
        own = {commit.id for commit in state.recent[: newer + 1]}
        patch = patch if patch.base in own else own_patch(git, state, base)
    uncommitted = {file.path for file in state.files}
    return {(line.path, line.line) for line in patch.added if line.path in written or line.path not in uncommitted}
