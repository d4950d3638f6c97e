"""A diff as files, hunks and rows of lines, and its files as a tree. Pure: read in a thread, nothing is drawn here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby, starmap, zip_longest
from os.path import commonpath, commonprefix
from pathlib import PurePath
from typing import NamedTuple

from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name

from clawpy_console.widgets.rows import Row
from clawpy_console.widgets.session import file_row
from engine.model import FileChange, FileDiff, FilePart

HEADER = re.compile(r"(?m)^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")
SIMILAR = 0.4
"""Two lines are the same line, changed, when so much of the longer one is in both."""


Mark = tuple[str, int]
"""A path with the number of a hunk, 0 for a file without hunks."""


class Line(NamedTuple):
    """A line of a file: `sign` is "+", "-" or " ", `old` and `new` count from 1, 0 where it is not in that file.
    `number` is its place in the hunk; `ended` is False where no newline follows."""

    sign: str
    old: int
    new: int
    text: str
    number: int
    ended: bool = True


class Pair(NamedTuple):
    """A line before and after; None where it was added or removed. Both are the same where nothing changed."""

    old: Line | None
    new: Line | None


@dataclass(eq=False)
class Hunk:
    """Lines of a file in a row, from the lines `old` and `new` on. They are read when they are asked for."""

    file: int
    number: int
    title: str
    old: int
    new: int
    text: str
    folded: bool = False

    @cached_property
    def signs(self) -> str:
        """The first character of each line: "-", "+" or " ", and "\\" after a line that has no newline at its end."""
        return "".join(line[:1] or " " for line in self.text.split("\n"))

    @cached_property
    def count(self) -> int:
        """Lines."""
        return len(self.signs) - self.signs.count("\\")

    @cached_property
    def lines(self) -> list[Line]:
        lines: list[Line] = []
        old, new = self.old, self.new
        for line in self.text.split("\n"):
            sign = line[:1] or " "
            if sign == "\\":
                lines[-1] = lines[-1]._replace(ended=False)
                continue
            lines.append(Line(sign, old if sign != "+" else 0, new if sign != "-" else 0, line[1:], len(lines)))
            old, new = old + (sign != "+"), new + (sign != "-")
        return lines

    @cached_property
    def height(self) -> int:
        """Rows that it takes side by side."""
        runs: list[str] = re.findall("[-+]+", self.signs.replace("\\", ""))
        return self.count - sum(min(run.count("-"), run.count("+")) for run in runs)

    @cached_property
    def pairs(self) -> list[Pair]:
        """Its lines side by side: removed lines beside those that were added in their place."""
        pairs: list[Pair] = []
        for same, run in groupby(self.lines, key=lambda line: line.sign == " "):
            lines = list(run)
            removed, added = ([line for line in lines if same or line.sign == sign] for sign in "-+")
            pairs += starmap(Pair, zip_longest(removed, added))
        return pairs


@dataclass
class DiffFile:
    """A changed file with its hunks; `notes` say what the hunks do not. `all_or_nothing`: it lands with all hunks or
    none; `landed`: number of further hunks that are landed already."""

    change: FileChange
    hunks: list[Hunk]
    notes: list[tuple[str, str]]
    all_or_nothing: bool
    folded: bool = False
    landed: int = 0

    @property
    def name(self) -> str:
        return f"{self.change.old_path} → {self.change.path}" if self.change.old_path else self.change.path

    @property
    def marks(self) -> set[Mark]:
        """What stands for it, and for each of its hunks, among what is marked."""
        return {(self.change.path, hunk.number) for hunk in self.hunks} or {(self.change.path, 0)}


def language_of(path: str) -> str:
    """What a file is highlighted as, by its name; "" for none. Loads what is needed for that, the first time."""
    name = PurePath(path).name
    return _language(PurePath(name).suffix or name)


@cache
def _language(ending: str) -> str:
    lexer = find_lexer_class_for_filename(ending if not ending.startswith(".") else f"a{ending}")
    return get_lexer_by_name(lexer.aliases[0]).aliases[0] if lexer is not None and lexer.aliases else ""


def read_files(changes: Sequence[FileChange], diffs: Iterable[FileDiff]) -> list[DiffFile]:
    """The files of a change set with their hunks, in the order of `changes`. Slow, for a thread."""
    diff_by_path = {diff.path: diff for diff in diffs}
    for change in changes:
        language_of(change.path)
    return [_file(number, change, diff_by_path.get(change.path)) for number, change in enumerate(changes)]


def _file(number: int, change: FileChange, diff: FileDiff | None) -> DiffFile:
    notes = [("wrong", f"✗ cannot be landed: {change.refused}")] if change.refused else []
    if change.note:
        notes.append(("wants", f"▲ {change.note}"))
    hunks = _hunks(number, diff) if diff is not None else []
    if change.status in ("added", "deleted", "renamed", "mode"):
        notes.append(("grey", {"mode": "only its mode changed"}.get(change.status, f"the file was {change.status}")))
    if not hunks and diff is not None and change.status not in ("renamed", "mode"):
        notes.append(("grey", "a binary file: its lines are not shown" if diff.binary else "no lines changed"))
    if diff is not None and diff.cut:
        notes.append(("wants", "the diff is too long: its end is not shown"))
    return DiffFile(change, hunks, notes, diff is None or diff.all_or_nothing, landed=len(diff.landed) if diff else 0)


def _hunks(file: int, diff: FileDiff) -> list[Hunk]:
    text = diff.hunks
    heads = list(HEADER.finditer(text))
    ends = [*(head.start() - 1 for head in heads[1:]), len(text.removesuffix("\n"))]
    return [
        Hunk(file, number, head[3], int(head[1]), int(head[2]), text[head.end() + 1 : end])
        for number, head, end in zip(diff.numbers, heads, ends, strict=False)
    ]


def changed_part(text: str, other: str) -> tuple[int, int]:
    """The part of `text` that differs from `other`, as start and end (exclusive); (0, 0) when they are not similar."""
    start = len(commonprefix((text, other)))  # noqa: RUF071 (characters are what it compares)
    end = len(commonprefix((text[start:][::-1], other[start:][::-1])))  # noqa: RUF071
    return (start, len(text) - end) if start + end >= SIMILAR * max(len(text), len(other)) else (0, 0)


def lines(files: Sequence[DiffFile]) -> dict[Mark, str]:
    """The lines that each mark stands on."""
    hunks = {(file.change.path, hunk.number): hunk.text for file in files for hunk in file.hunks}
    return hunks | {(file.change.path, 0): "" for file in files if not file.hunks}


def file_parts(files: Sequence[DiffFile], marked: set[Mark]) -> list[FilePart]:
    """What is marked, as it is landed."""
    file_parts = []
    for file in files:
        if here := file.marks & marked:
            hunks = () if file.all_or_nothing or here == file.marks else tuple(sorted(number for _, number in here))
            file_parts.append(FilePart(file.change.path, hunks))
    return file_parts


def mark_of(marks: set[Mark], marked: set[Mark]) -> str:
    """`●` all of these are marked, `◐` some, `○` none."""
    return "●" if marks <= marked else "◐" if marks & marked else "○"


def tree_rows(files: Sequence[DiffFile], marked: set[Mark]) -> list[Row]:
    """Folders and files as rows, a folder with one folder in it as one; the id of a folder ends in a slash."""
    rows: list[Row] = []
    _branch(files, "", 0, marked, rows)
    return rows


def _branch(files: Sequence[DiffFile], above: str, depth: int, marked: set[Mark], rows: list[Row]) -> None:
    groups: dict[str, list[DiffFile]] = {}
    for file in files:
        first, inside, _ = file.change.path[len(above) :].partition("/")
        groups.setdefault(first + inside, []).append(file)
    indent = "  " * depth
    for name, members in groups.items():
        mark = mark_of(set().union(*(member.marks for member in members)), marked) if marked else ""
        before = f"{indent}{mark}{' ' * bool(mark)}"
        if not name.endswith("/"):
            row = file_row(members[0].change)
            style = row.mark_style if row.mark in "✗▲" else "ink"
            rows.append(replace(row, text=f"{before}{row.mark} {name}", mark="", style=style))
            continue
        path = commonpath([member.change.path.rpartition("/")[0] for member in members]) + "/"
        added, removed = (sum(getattr(member.change, side) or 0 for member in members) for side in ("added", "removed"))
        rows.append(Row(path, f"{before}{path[len(above) :]}", "", f"+{added} -{removed}", "grey"))
        _branch(members, path, depth + 1, marked, rows)
