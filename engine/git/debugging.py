"""Statements that stop a program in a debugger or print what it does: where they stand, and a file without them.

Python is judged by its syntax tree, other languages by their lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.git.leftovers import MAX_LINE_LENGTH

_DEBUGGING_CALLS: Final = {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace"}
_DEBUGGER_MODULES: Final = {"pdb", "ipdb", "pudb"}
_DEBUGGING_STATEMENT: Final = re.compile(
    r"\s*(?:debugger\s*;?|console\.(?:log|debug|trace)\(.*\)\s*;?|dbg!\s*\(.*\)\s*;|println\(.*\)"
    r"|binding\.(?:pry|irb)|byebug|var_dump\(.*\)\s*;|(?:require )?IEx\.pry(?:\(\))?)\s*$"
)
_UNFINISHED_LINE: Final = re.compile(
    r"(?:=>|[(,=+&?:.\[]|\belse|\breturn)\s*$|^\s*(?:\} ?else )?(?:if|while|for)\b.*\)\s*$"
)
_CONTINUING_LINE: Final = re.compile(r"\s*(?:[.?,:)\]+*/&|=-]|else\b)")


def parse_python(text: str) -> ast.Module | None:
    """The syntax tree of a Python file; None when it does not parse."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def quoted_lines(tree: ast.Module | None) -> frozenset[int]:
    """The lines of a Python file that stand inside a string of several lines."""
    strings = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))] if tree else []
    return frozenset(
        number
        for node in strings
        if node.end_lineno is not None and node.end_lineno > node.lineno
        for number in range(node.lineno, node.end_lineno + 1)
    )


def breakpoint_lines(tree: ast.Module | None) -> frozenset[int] | None:
    """The lines of a Python file that really stop it in a debugger; None without a tree."""
    if tree is None:
        return None
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_debugging(node))


def statement_lines(path: str, text: str, lines: Sequence[int]) -> list[int]:
    """Those of `lines` that hold nothing but a debugging statement, and whose removal leaves a whole program.

    Python is judged by its syntax tree. Of other languages a line counts when it is balanced and stands between
    statements.
    """
    if path.endswith(".py"):
        return sorted(set(lines) & _removable_lines(text))
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


def _is_debugging(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in _DEBUGGING_CALLS
    return isinstance(node, ast.Import) and {name.name for name in node.names} <= _DEBUGGER_MODULES


def _statements(text: str) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Every statement with the block it stands in; none when the text does not parse."""
    tree = parse_python(text)
    for node in ast.walk(tree) if tree is not None else ():
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from ((block, statement) for statement in block if isinstance(statement, ast.stmt))


def _removable_lines(text: str) -> set[int]:
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


def _is_whole_statement(rows: list[str], index: int) -> bool:
    row = rows[index]
    if len(row) > MAX_LINE_LENGTH or not _DEBUGGING_STATEMENT.fullmatch(row) or not _is_balanced(row):
        return False
    before = next((line for line in reversed(rows[:index]) if line.strip()), "")
    after = next((line for line in rows[index + 1 :] if line.strip()), "")
    return not _UNFINISHED_LINE.search(before) and not _CONTINUING_LINE.match(after)


def _is_balanced(row: str) -> bool:
    """Whether brackets and quotes close on their own line."""
    bare = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`", "", row)
    return not re.search(r"[\"'`]", bare) and all(
        bare.count(left) == bare.count(right) for left, right in ("()", "[]", "{}")
    )
