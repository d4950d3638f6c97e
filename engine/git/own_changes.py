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
from engine.git.leftovers import LONGEST_LINE, look
from engine.git.mentions import Mention, stale_mentions
from engine.git.patch import LARGEST, Patch, own_patch
from engine.git.state import GitState
from engine.model.text import mark
from engine.plain_files import read_plain

MOST: Final = 100
"""So many leftovers are kept."""

MARKER: Final = "conflict marker"
TODOS: Final = frozenset({"TODO", "FIXME"})
_TOLD: Final = TODOS | {MARKER, "breakpoint", "debugger statement", "console.log", ".only", "dbg!", "debug print"}
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
    """What can be told of your own commits and uncommitted files. `lines`: (path, numbers of the added lines)."""

    mark: str = ""
    leftovers: tuple[LocatedLeftover, ...] = ()
    mentions: tuple[Mention, ...] = ()
    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()


def own_changes(git: Git, state: GitState, since: datetime) -> OwnChanges:
    """Look at what HEAD's branch and the working tree have and nobody else. A TODO counts when it was added after
    `since`. Raises `GitError`."""
    patch = own_patch(git, state)
    busy = bool(state.operation)  # half of a merge: only what counts as settled can hold a marker by mistake
    return OwnChanges(
        mark=patch.mark,
        leftovers=left_in(git, state, patch, since),
        mentions=() if busy else stale_mentions(git, patch),
        lines=() if busy else tuple((path, tuple(x.line for x in lines)) for path, lines in patch.lines_of.items()),
    )


def left_in(git: Git, state: GitState, patch: Patch, since: datetime) -> tuple[LocatedLeftover, ...]:
    """The leftovers among the added lines of `patch`, conflict markers first, at most `MOST`."""
    found: list[LocatedLeftover] = []
    for path, lines in patch.lines_of.items():
        if _OTHERS.search(path):
            continue
        hits = [(line, hit.kind) for line in lines for hit in look(path, line.text) if _counts(path, hit.kind)]
        if not hits:
            continue
        text = read(git, path)
        quoted = _quoted_lines(text) if path.endswith(".py") else _fenced_lines(text)
        stops = _python_stops(text) if path.endswith(".py") else None
        marked = any(kind == MARKER for _, kind in hits) and _is_conflict(path, text)
        for one, kind in hits:
            if kind == "breakpoint" and stops is not None and one.line not in stops:
                continue  # it is said in a comment or a string
            if one.line not in quoted and (kind != MARKER or (marked and one.text.startswith(_MARKERS[0]))):
                found.append(LocatedLeftover(kind, path, one.line, mark(one.text.strip())))
    if any(one.kind in TODOS for one in found):
        new = _added_since(git, state, patch, since)
        found = [one for one in found if one.kind not in TODOS or (one.path, one.line) in new]
    if state.operation:
        found = [one for one in found if one.kind == MARKER]
    return tuple(sorted(found, key=lambda one: (one.kind != MARKER, one.kind in TODOS, one.path, one.line)))[:MOST]


def _counts(path: str, kind: str) -> bool:
    if kind not in _TOLD or (kind == "debug print" and path.endswith(".py")):
        return False  # a Python program prints because that is what it does
    if path.endswith(DOCUMENTS):
        return kind == MARKER
    return kind != "dbg!" or not _TESTS.search(path)


def read(git: Git, path: str) -> str:
    """A file of the working tree as text, "" when it is none or too large."""
    try:
        return read_plain(git.folder / path, LARGEST, follow=False).decode(errors="replace")
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


def _python_stops(text: str) -> frozenset[int] | None:
    """The lines of a Python file that really stop it in a debugger; None when it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_debugging(node))


def _fenced_lines(text: str) -> frozenset[int]:
    """The lines of a document that stand between fences."""
    inside, found = False, []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside:
            found.append(number)
    return frozenset(found)


def _is_conflict(path: str, text: str) -> bool:
    """Whether the three markers stand in their order, in a file in which they are no text of their own."""
    rows = [line[:7] for line in text.split("\n") if line.startswith(_MARKERS) and line[7:8] in ("", " ", "\r")]
    wanted = 0
    for row in rows:
        wanted += wanted < 3 and row == _MARKERS[wanted]
    if wanted < 3:
        return False
    return not (_TESTS.search(path) and path.endswith((*DOCUMENTS, ".diff", ".patch", ".orig")))


def _added_since(git: Git, state: GitState, patch: Patch, since: datetime) -> set[tuple[str, int]]:
    """Path and line of what was added after `since`: by later commits, or to files that were written later."""
    written = {file.path for file in state.files if file.modified_at is not None and file.modified_at >= since}
    later = next((number for number, commit in enumerate(state.recent) if commit.at < since), len(state.recent))
    if patch.base and later < len(state.recent) and patch.base != (day := state.recent[later].id):
        own = {commit.id for commit in state.recent[: later + 1]}
        patch = patch if patch.base in own else own_patch(git, state, day)
    uncommitted = {file.path for file in state.files}
    return {(one.path, one.line) for one in patch.added if one.path in written or one.path not in uncommitted}


def statement_lines(path: str, text: str, lines: Sequence[int]) -> list[int]:
    """Those of `lines` that hold nothing but a debugging statement, and whose removal leaves a whole program.

    Python is judged by its syntax tree. Of other languages a line counts when it is balanced and stands between
    statements.
    """
    if path.endswith(".py"):
        return sorted(set(lines) & _python_statements(text))
    rows = text.split("\n")
    return [number for number in sorted(set(lines)) if 0 < number <= len(rows) and _alone(rows, number - 1)]


def without_lines(path: str, text: str, lines: Sequence[int]) -> str:
    """`text` without these lines, as `statement_lines` gave them. A block of Python that would be empty gets a `pass`.
    Raises `SyntaxError` when Python would not parse any more."""
    rows = text.split("\n")
    empty = _emptied(text, set(lines)) if path.endswith(".py") else {}
    for number in lines:
        if number in empty:
            rows[number - 1] = empty[number]
    gone = {number for number in lines if number not in empty}
    after = "\n".join(row for number, row in enumerate(rows, 1) if number not in gone)
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
                yield from ((block, one) for one in block if isinstance(one, ast.stmt))


def _python_statements(text: str) -> set[int]:
    good: set[int] = set()
    bad: set[int] = set()
    rows = text.split("\n")
    for _, node in _statements(text):
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not _is_debugging(node):
            if len(span) == 1 or not hasattr(node, "body"):
                bad.update(span)
            else:
                bad.add(node.lineno)  # `if x: breakpoint()` begins there, the block is looked at by itself
        elif len(span) == 1 and "#" not in rows[node.lineno - 1]:
            good.add(node.lineno)
    return good - bad


def _emptied(text: str, lines: set[int]) -> dict[int, str]:
    """For each block that loses all it has, its first line and the `pass` that takes its place."""
    found: dict[int, str] = {}
    for block, node in _statements(text):
        if block[0] is node and all(one.lineno in lines for one in block):
            found[node.lineno] = " " * node.col_offset + "pass"
    return found


_ALONE: Final = re.compile(
    r"\s*(?:debugger\s*;?|console\.(?:log|debug|trace)\(.*\)\s*;?|dbg!\s*\(.*\)\s*;|println\(.*\)"
    r"|binding\.(?:pry|irb)|byebug|var_dump\(.*\)\s*;|(?:require )?IEx\.pry(?:\(\))?)\s*$"
)
_HANGS: Final = re.compile(r"(?:=>|[(,=+&?:.\[]|\belse|\breturn)\s*$|^\s*(?:\} ?else )?(?:if|while|for)\b.*\)\s*$")
_GOES_ON: Final = re.compile(r"\s*(?:[.?,:)\]+*/&|=-]|else\b)")


def _alone(rows: list[str], index: int) -> bool:
    row = rows[index]
    if len(row) > LONGEST_LINE or not _ALONE.fullmatch(row) or not _balanced(row):
        return False
    before = next((one for one in reversed(rows[:index]) if one.strip()), "")
    after = next((one for one in rows[index + 1 :] if one.strip()), "")
    return not _HANGS.search(before) and not _GOES_ON.match(after)


def _balanced(row: str) -> bool:
    """Whether brackets and quotes close on their own line."""
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`", "", row)
    return not re.search(r"[\"'`]", bare) and all(bare.count(a) == bare.count(b) for a, b in ("()", "[]", "{}"))
