"""What your own work left behind (SPEC 2.11): debugging, conflict markers, documentation of what is gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.leftovers import MAX_LINE_LENGTH, scan_line
from engine.git.mentions import Mention, stale_mentions
from engine.git.patch import MAX_FILE_BYTES, Line, Patch, own_patch
from engine.git.state import GitState
from engine.model.text import text_hash
from engine.plain_files import read_plain

MAX_LEFTOVERS: Final = 100
"""Maximum number of leftovers that are kept."""

MARKER: Final = "conflict marker"
TODOS: Final = frozenset({"TODO", "FIXME"})
_REPORTED: Final = TODOS | {MARKER, "breakpoint", "debugger statement", "console.log", ".only", "dbg!", "debug print"}
DOCUMENTS: Final = (".md", ".markdown", ".rst", ".txt", ".adoc")
_TESTS: Final = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|fixtures|testdata)/|(?:^|/)test_|_test\.|\.(?:test|spec)\."
)
_OTHERS: Final = re.compile(r"(?:^|/)(?:vendor|third_party|dist|node_modules)/|\.min\.")
_MARKERS: Final = ("<<<<<<<", "=======", ">>>>>>>")


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


@dataclass(frozen=True)
class OwnChanges:
    """What was found in your own commits and uncommitted files. `lines`: (path, numbers of the added lines)."""

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
        if not _OTHERS.search(path):
            leftovers += _leftovers_of_file(git, path, lines)
    if any(leftover.kind in TODOS for leftover in leftovers):
        new = _added_since(git, state, patch, since)
        leftovers = [item for item in leftovers if item.kind not in TODOS or (item.path, item.line) in new]
    if state.operation:
        leftovers = [leftover for leftover in leftovers if leftover.kind == MARKER]
    leftovers.sort(key=lambda item: (item.kind != MARKER, item.kind in TODOS, item.path, item.line))
    return tuple(leftovers[:MAX_LEFTOVERS])


def _leftovers_of_file(git: Git, path: str, lines: Sequence[Line]) -> Iterator[LocatedLeftover]:
    """The leftovers among the added lines of one file that are no quotations."""
    matches = [(line, item.kind) for line in lines for item in scan_line(path, line.text) if _counts(path, item.kind)]
    if not matches:
        return
    text = read(git, path)
    quoted = _quoted_lines(text) if path.endswith(".py") else _fenced_lines(text)
    breakpoints = _python_breakpoints(text) if path.endswith(".py") else None
    has_conflict = any(kind == MARKER for _, kind in matches) and _is_conflict(path, text)
    for line, kind in matches:
        if kind == "breakpoint" and breakpoints is not None and line.line not in breakpoints:
            continue  # it stands in a comment or a string
        if line.line not in quoted and (kind != MARKER or (has_conflict and line.text.startswith(_MARKERS[0]))):
            yield LocatedLeftover(kind, path, line.line, text_hash(line.text.strip()))


def _counts(path: str, kind: str) -> bool:
    if kind not in _REPORTED or (kind == "debug print" and path.endswith(".py")):
        return False  # a Python program prints because that is what it does
    if path.endswith(DOCUMENTS):
        return kind == MARKER
    return kind != "dbg!" or not _TESTS.search(path)


def read(git: Git, path: str) -> str:
    """A file of the working tree as text, "" when it is none or too large."""
    try:
        return read_plain(git.folder / path, MAX_FILE_BYTES, follow=False).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _quoted_lines(text: str) -> frozenset[int]:
    """The lines of a Python file that stand inside a string of several lines; none when it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    strings = (node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr)))
    return frozenset(
        number
        for node in strings
        if node.end_lineno is not None and node.end_lineno > node.lineno
        for number in range(node.lineno, node.end_lineno + 1)
    )


def _python_breakpoints(text: str) -> frozenset[int] | None:
    """The lines of a Python file that really stop it in a debugger; None when it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_debugging(node))


def _fenced_lines(text: str) -> frozenset[int]:
    """The lines of a document that stand between fences."""
    is_inside, numbers = False, []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_inside = not is_inside
        elif is_inside:
            numbers.append(number)
    return frozenset(numbers)


def _is_conflict(path: str, text: str) -> bool:
    """Whether the three markers stand in their order, in a file in which they are no text of their own."""
    markers = [line[:7] for line in text.split("\n") if line.startswith(_MARKERS) and line[7:8] in ("", " ", "\r")]
    matched = 0
    for marker in markers:
        matched += matched < 3 and marker == _MARKERS[matched]
    if matched < 3:
        return False
    return not (_TESTS.search(path) and path.endswith((*DOCUMENTS, ".diff", ".patch", ".orig")))


def _added_since(git: Git, state: GitState, patch: Patch, since: datetime) -> set[tuple[str, int]]:
    """Path and line of what was added after `since`: by later commits, or to files that were written later."""
    written = {file.path for file in state.files if file.modified_at is not None and file.modified_at >= since}
    newer = next((count for count, commit in enumerate(state.recent) if commit.at < since), len(state.recent))
    if patch.base and newer < len(state.recent) and patch.base != (base := state.recent[newer].id):
        own = {commit.id for commit in state.recent[: newer + 1]}
        patch = patch if patch.base in own else own_patch(git, state, base)
    uncommitted = {file.path for file in state.files}
    return {(line.path, line.line) for line in patch.added if line.path in written or line.path not in uncommitted}


def statement_lines(path: str, text: str, lines: Sequence[int]) -> list[int]:
    """Those of `lines` that hold nothing but a debugging statement, and whose removal leaves a whole program.

    Python is judged by its syntax tree. Of other languages a line counts when it is balanced and stands between
    statements.
    """
    if path.endswith(".py"):
        return sorted(set(lines) & _python_statements(text))
    rows = text.split("\n")
    return [
        number for number in sorted(set(lines)) if 0 < number <= len(rows) and _is_whole_statement(rows, number - 1)
    ]


def without_lines(path: str, text: str, lines: Sequence[int]) -> str:
    """`text` without these lines, as `statement_lines` gave them. A block of Python that would be empty gets a `pass`.
    Raises `SyntaxError` when Python would not parse any more."""
    rows = text.split("\n")
    empty = _emptied_blocks(text, set(lines)) if path.endswith(".py") else {}
    for number in lines:
        if number in empty:
            rows[number - 1] = empty[number]
    removed = {number for number in lines if number not in empty}
    after = "\n".join(row for number, row in enumerate(rows, 1) if number not in removed)
    if path.endswith(".py"):
        ast.parse(after)
    return after


_PYTHON_CALLS: Final = {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace"}
_PYTHON_MODULES: Final = {"pdb", "ipdb", "pudb"}


def _is_debugging(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in _PYTHON_CALLS
    return isinstance(node, ast.Import) and {name.name for name in node.names} <= _PYTHON_MODULES


def _statements(text: str) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Every statement with the block it stands in; none when the text does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from ((block, statement) for statement in block if isinstance(statement, ast.stmt))


def _python_statements(text: str) -> set[int]:
    removable: set[int] = set()
    needed: set[int] = set()
    rows = text.split("\n")
    for _, node in _statements(text):
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not _is_debugging(node):
            if len(span) == 1 or not hasattr(node, "body"):
                needed.update(span)
            else:
                needed.add(node.lineno)  # `if x: breakpoint()` begins there, the block is looked at by itself
        elif len(span) == 1 and "#" not in rows[node.lineno - 1]:
            removable.add(node.lineno)
    return removable - needed


def _emptied_blocks(text: str, lines: set[int]) -> dict[int, str]:
    """For each block that loses all it has, its first line and the `pass` that takes its place."""
    replacements: dict[int, str] = {}
    for block, node in _statements(text):
        if block[0] is node and all(statement.lineno in lines for statement in block):
            replacements[node.lineno] = " " * node.col_offset + "pass"
    return replacements


_STATEMENT: Final = re.compile(
    r"\s*(?:debugger\s*;?|console\.(?:log|debug|trace)\(.*\)\s*;?|dbg!\s*\(.*\)\s*;|println\(.*\)"
    r"|binding\.(?:pry|irb)|byebug|var_dump\(.*\)\s*;|(?:require )?IEx\.pry(?:\(\))?)\s*$"
)
_UNFINISHED: Final = re.compile(r"(?:=>|[(,=+&?:.\[]|\belse|\breturn)\s*$|^\s*(?:\} ?else )?(?:if|while|for)\b.*\)\s*$")
_CONTINUES: Final = re.compile(r"\s*(?:[.?,:)\]+*/&|=-]|else\b)")


def _is_whole_statement(rows: list[str], index: int) -> bool:
    row = rows[index]
    if len(row) > MAX_LINE_LENGTH or not _STATEMENT.fullmatch(row) or not _is_balanced(row):
        return False
    before = next((line for line in reversed(rows[:index]) if line.strip()), "")
    after = next((line for line in rows[index + 1 :] if line.strip()), "")
    return not _UNFINISHED.search(before) and not _CONTINUES.match(after)


def _is_balanced(row: str) -> bool:
    """Whether brackets and quotes close on their own line."""
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`", "", row)
    return not re.search(r"[\"'`]", bare) and all(
        bare.count(left) == bare.count(right) for left, right in ("()", "[]", "{}")
    )
