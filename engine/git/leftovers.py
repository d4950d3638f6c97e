"""Finds and removes leftovers, which are lines that you added and that should not stay (SPEC 2.11): debugging, conflict
markers and TODOs.

`scan_line` recognises a line, also for `push_problems`. The added lines of your own work are then judged in their file.
A debugging statement is removed only if that cannot break the program.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath

from engine.files import read_plain_or_nothing, read_table
from engine.frozen import frozen
from engine.git import Git
from engine.git.patch import MAX_FILE_BYTES, Patch, PatchLine
from engine.git.secrets import MAX_LINE_CHARS, find_secret_kind
from engine.git.stale_mentions import DOCUMENT_SUFFIXES
from engine.git.state import GitState
from engine.text import compute_text_hash
from engine.wording import count, join_names

# -- recognising a line

CONFLICT_MARKER = "conflict marker"
"""The kind of a line with a conflict marker."""

TODO_KINDS = frozenset({"TODO", "FIXME"})
"""The kinds of lines that name something to do."""

SECRET_KIND = "likely secret"
"""The kind of a line with a secret, before the kind of the secret."""


@frozen
class UnwantedLine:
    """Why a line should not stay or be pushed. A secret matters even if a later commit removes the line."""

    kind: str
    is_secret: bool = False
    is_for_reviews_only: bool = False
    """Whether it counts only in a review of commits, because it is often meant."""


@frozen
class _DebuggingPattern:
    """A row of `leftovers.toml`, which explains the fields."""

    kind: str
    suffixes: tuple[str, ...]
    """The endings of the files that may have it."""
    pattern: re.Pattern[str]
    prints: bool = False
    is_usual: bool = False
    is_usual_in_tests: bool = False
    is_code: bool = False

    def matches(self, path: str, line: str) -> bool:
        """Whether a line of a file is such debugging."""
        is_found = path.endswith(self.suffixes) and self.pattern.search(line) is not None
        return is_found and not (self.prints and _may_print(path))


_TABLE = read_table(__file__, "leftovers.toml")
_DEBUGGING_PATTERNS = [
    _DebuggingPattern(**row | {"suffixes": tuple(row["suffixes"]), "pattern": re.compile(row["pattern"])})
    for row in _TABLE["debugging"]
]

_CONFLICT_MARKER = re.compile(r"^(?:<{7}|>{7})(?: |$)|^\|{7} ")
"""The lines around the two sides of a conflict, and the one before the common version."""

_TODO_COMMENT = re.compile(r"(?:#|//|/\*|\*|--|<!--|;)\s*(TODO|FIXME)\b")
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
"""Paths of tests."""

_EXAMPLE_PATH = re.compile(rf"{_TEST_PATH.pattern}|(?:^|/)(?:specs|fixtures|testdata)/")
"""Paths of tests and their data, whose examples may look like conflicts or leftovers."""


def scan_line(path: str, line: str, after: str = "") -> list[UnwantedLine]:
    """The problems of an added line of a file. `after` is the line that follows it."""
    line = line[:MAX_LINE_CHARS]
    kind = find_secret_kind(path, line, after)
    problems = [UnwantedLine(f"{SECRET_KIND}: {kind}", is_secret=True)] if kind else []
    if _CONFLICT_MARKER.match(line):
        problems.append(UnwantedLine(CONFLICT_MARKER))
    is_example = _EXAMPLE_PATH.search(path) is not None
    for debugging in _DEBUGGING_PATTERNS:
        if debugging.matches(path, line):
            is_often_meant = debugging.is_usual or (debugging.is_usual_in_tests and is_example)
            problems.append(UnwantedLine(debugging.kind, is_for_reviews_only=is_often_meant))
    if match := _TODO_COMMENT.search(line):
        problems.append(UnwantedLine(match[1]))
    return problems


def _may_print(path: str) -> bool:
    """Whether the program or test at this path prints on purpose."""
    pure_path = PurePosixPath(path)
    is_program = (
        not {*pure_path.parts[:-1]}.isdisjoint(_TABLE["printing_folders"]) or pure_path.stem in _TABLE["printing_files"]
    )
    return is_program or bool(_TEST_PATH.search(path))


def count_kinds(kinds: Iterable[str]) -> str:
    """How many leftovers there are of each kind, the most frequent first: ``3 breakpoints and 1 `console.log` ``."""
    code_kinds = {debugging.kind for debugging in _DEBUGGING_PATTERNS if debugging.is_code}
    numbers = Counter(kinds).most_common()
    return join_names([f"{number} `{kind}`" if kind in code_kinds else count(number, kind) for kind, number in numbers])


# -- the leftovers in your own work

MAX_LEFTOVERS = 100
"""Maximum number of leftovers that are kept."""

_VENDORED_PATH = re.compile(r"(?:^|/)(?:vendor|third_party|dist|node_modules)/|\.min\.")
"""Paths of the code of others."""

_WHOLE_CONFLICT = re.compile(r"^<{7}(?=\s).*?^={7}(?=\s).*?^>{7}(?=\s)", re.MULTILINE | re.DOTALL)
"""A conflict with both sides. A single mark may be an underline or a quotation."""


@frozen
class Leftover:
    """A line that you added, and that probably should not stay."""

    kind: str
    path: str
    line: int
    """From 1."""
    text_hash: str = ""
    """The hash of its text, by which it is known when its line has another number."""
    is_committed: bool = False
    """Whether HEAD has such a line in the file."""

    @property
    def place(self) -> str:
        """`cart.py:12`, with the path as git has it."""
        return f"{self.path}:{self.line}"


def find_own_leftovers(git: Git, state: GitState, patch: Patch, since: datetime | None) -> tuple[Leftover, ...]:
    """At most `MAX_LEFTOVERS` leftovers among the added lines of `patch`, conflict markers first.

    TODOs count in files that were changed after `since`; None leaves all of them out. During an operation of git, such
    as a merge, only conflict markers count.
    """
    leftovers: list[Leftover] = []
    for path, lines in patch.lines_of.items():
        if not _VENDORED_PATH.search(path):
            leftovers += _find_leftovers_of_file(git, path, lines)
    recent_paths = {file.path for file in state.files if since and file.modified_at and file.modified_at >= since}
    leftovers = [item for item in leftovers if item.kind not in TODO_KINDS or item.path in recent_paths]
    if state.operation:
        leftovers = [leftover for leftover in leftovers if leftover.kind == CONFLICT_MARKER]
    leftovers.sort(key=lambda item: (item.kind != CONFLICT_MARKER, item.kind in TODO_KINDS, item.path, item.line))
    return tuple(_mark_committed(git, state, leftovers[:MAX_LEFTOVERS]))


def _mark_committed(git: Git, state: GitState, leftovers: Iterable[Leftover]) -> Iterator[Leftover]:
    """The same leftovers, with those that HEAD has, too. Only files that your commits changed are read there."""
    own_files = set(state.own_files)
    hashes: dict[str, set[str]] = {}
    for leftover in leftovers:
        path = leftover.path
        if path in own_files and path not in hashes:
            text = git.text("show", f"{state.head}:{path}", allowed=(0, 128))
            hashes[path] = {compute_text_hash(line.strip()) for line in text.split("\n")}
        yield replace(leftover, is_committed=leftover.text_hash in hashes.get(path, ()))


def _find_leftovers_of_file(git: Git, path: str, lines: Sequence[PatchLine]) -> Iterator[Leftover]:
    """The leftovers among the added lines of one file."""
    matches = [
        (line, problem.kind)
        for line in lines
        for problem in scan_line(path, line.text)
        if not (problem.is_secret or problem.is_for_reviews_only)
        and (problem.kind == CONFLICT_MARKER or not path.endswith(DOCUMENT_SUFFIXES))
    ]
    if matches:
        surroundings = _read_surroundings(git, path)
        for line, kind in matches:
            if surroundings.confirm(line, kind):
                yield Leftover(kind, path, line.line, compute_text_hash(line.text.strip()))


@frozen
class _Surroundings:
    """What the whole text of a file says about its lines."""

    quoted_lines: frozenset[int]
    """The lines in strings of several lines, or between the fences of a document."""
    breakpoint_lines: frozenset[int] | None
    """The lines that start a debugger; None if only the lines themselves tell."""
    has_conflict: bool

    def confirm(self, line: PatchLine, kind: str) -> bool:
        """Whether a line that looks like a leftover of this kind is one."""
        if line.line in self.quoted_lines:
            return False
        if kind == CONFLICT_MARKER:
            return self.has_conflict and line.text.startswith("<<<<<<<")
        if kind in ("breakpoint", "debugger import") and self.breakpoint_lines is not None:
            return line.line in self.breakpoint_lines
        return True


def _read_surroundings(git: Git, path: str) -> _Surroundings:
    """Read a file of the working tree, to judge its lines."""
    text, is_python = read_working_file(git, path), path.endswith(".py")
    tree = _parse_python(text) if is_python else None
    quoted_lines = _find_quoted_lines(tree) if is_python else _find_fenced_lines(text)
    return _Surroundings(quoted_lines, _find_breakpoint_lines(tree), _has_conflict(path, text))


def read_working_file(git: Git, path: str) -> str:
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
    is_quoted = _EXAMPLE_PATH.search(path) and path.endswith((*DOCUMENT_SUFFIXES, ".diff", ".patch", ".orig"))
    return not is_quoted and _WHOLE_CONFLICT.search(text) is not None


# -- statements that only debug

_DEBUGGING_CALLS = {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace"}
_DEBUGGER_MODULES = {"pdb", "ipdb", "pudb"}
"""Calls and imports of Python that only debug. Python is judged by its syntax tree, other languages by their lines."""

_DEBUGGING_STATEMENT = re.compile(
    r"\s*(?:debugger\s*;?|console\.(?:log|debug|trace)…\s*;?|(?:dbg!\s*|var_dump)…\s*;|println…"
    r"|binding\.(?:pry|irb)|byebug|(?:require )?IEx\.pry…?)\s*"
)
"""Matches a line without strings, and with a `…` for each pair of brackets."""

_UNFINISHED_LINE = re.compile(r"(?:=>|[(,=+&?:.\[]|\belse|\breturn)\s*$|^\s*(?:\} ?else )?(?:if|while|for)\b.*\)\s*$")
_CONTINUING_LINE = re.compile(r"\s*(?:[.?,:)\]+*/&|=-]|else\b)")
"""A line that goes on in the next one, and a line that continues the one before. Between such lines nothing is removed,
because the rest would be another statement."""


_LONE_RETURN = re.compile(r"\r(?!\n)")
"""A character that ends a line for Python, but not for git."""


def _parse_python(text: str) -> ast.Module | None:
    """The syntax tree of a Python file; None if it cannot be parsed, or if git counts its lines otherwise."""
    if _LONE_RETURN.search(text):
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _find_quoted_lines(tree: ast.Module | None) -> frozenset[int]:
    """The lines of a Python file that belong to a string of several lines."""
    strings = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))] if tree else []
    return frozenset(
        number
        for node in strings
        if node.end_lineno is not None and node.end_lineno > node.lineno
        for number in range(node.lineno, node.end_lineno + 1)
    )


def _find_breakpoint_lines(tree: ast.Module | None) -> frozenset[int] | None:
    """The lines of a Python file that start a debugger, and are not in a string; None without a tree."""
    if tree is None:
        return None
    return frozenset(
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_debugging_statement(node)
    )


def find_removable_lines(path: str, text: str, lines: Sequence[int]) -> list[int]:
    """Those of `lines` that contain only a debugging statement, and can be removed without breaking the program.

    For Python the syntax tree decides. In other languages, the brackets and quotes of the line must be balanced, and
    the line must be between two statements.
    """
    if path.endswith(".py"):
        return sorted(set(lines) & _find_removable_python_lines(text))
    rows = text.split("\n")
    return [
        number for number in sorted(set(lines)) if 0 < number <= len(rows) and _is_whole_statement(rows, number - 1)
    ]


def remove_lines(path: str, text: str, lines: Sequence[int]) -> str:
    """Remove `lines` of `find_removable_lines` from `text`. A Python block that would be empty gets a `pass`.
    Raises `SyntaxError` if the result is not valid Python."""
    removed = set(lines)
    passes = _find_emptied_blocks(text, removed) if path.endswith(".py") else {}
    rows = enumerate(text.split("\n"), 1)
    kept = (passes.get(number, row) for number, row in rows if number in passes or number not in removed)
    after = "\n".join(kept)
    if path.endswith(".py"):
        ast.parse(after)
    return after


def _is_debugging_statement(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in _DEBUGGING_CALLS
    return isinstance(node, ast.Import) and {name.name for name in node.names} <= _DEBUGGER_MODULES


def _walk_statements(text: str) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """(block, statement) of every statement; nothing if the text cannot be parsed."""
    tree = _parse_python(text)
    for node in ast.walk(tree) if tree is not None else ():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from ((block, statement) for statement in block if isinstance(statement, ast.stmt))


def _find_removable_python_lines(text: str) -> set[int]:
    """The lines of a Python file with nothing but a debugging statement and without a comment."""
    removable: set[int] = set()
    needed: set[int] = set()
    rows = text.split("\n")
    for _, node in _walk_statements(text):
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not _is_debugging_statement(node):
            if len(span) == 1 or not hasattr(node, "body"):
                needed.update(span)
            else:
                needed.add(node.lineno)  # the statements in its block are judged separately
        elif len(span) == 1 and "#" not in rows[node.lineno - 1]:
            removable.add(node.lineno)
    return removable - needed


def _find_emptied_blocks(text: str, lines: set[int]) -> dict[int, str]:
    """For each block that would lose all its statements, the line of its first statement with `pass` instead."""
    rows = text.split("\n")
    return {
        node.lineno: rows[node.lineno - 1].encode()[: node.col_offset].decode() + "pass"
        for block, node in _walk_statements(text)
        if block[0] is node and all(statement.lineno in lines for statement in block)
    }


def _is_whole_statement(rows: list[str], index: int) -> bool:
    """Whether a line is a debugging statement, between two other statements."""
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`", "", rows[index][: MAX_LINE_CHARS + 1])
    while (shorter := re.sub(r"[(\[{][^()\[\]{}\"'`]*[)\]}]", "…", bare)) != bare:
        bare = shorter
    if len(rows[index]) > MAX_LINE_CHARS or not _DEBUGGING_STATEMENT.fullmatch(bare):
        return False
    before = next((line for line in reversed(rows[:index]) if line.strip()), "")
    after = next((line for line in rows[index + 1 :] if line.strip()), "")
    return not _UNFINISHED_LINE.search(before) and not _CONTINUING_LINE.match(after)
