"""A diff as files, hunks and rows, and its files as the rows of a tree. Nothing is drawn here."""

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
from pygments.token import Token
from textual.highlight import HighlightTheme, highlight

from clawpy_console.widgets.rows import Row
from clawpy_console.widgets.session import make_file_row
from engine.model import DiffComment, FileChange, FileDiff, FilePart

HUNK_HEADER = re.compile(r"(?m)^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")

MIN_SIMILARITY = 0.4
"""Share of the longer of two lines that must be in both, for the differing part to be emphasised."""

Mark = tuple[str, int]
"""An item that can be marked to land: a path with the number of a hunk, 0 for a file without hunks."""


class Line(NamedTuple):
    """A line of a hunk."""

    sign: str
    """"+", "-" or " "."""
    old: int
    """Its number in the file before the change, from 1; 0 for an added line."""
    new: int
    """Its number in the file after the change, from 1; 0 for a removed line."""
    text: str
    number: int
    """Its number in the hunk, from 0."""
    has_newline: bool = True


class LineRow(NamedTuple):
    """One row of a hunk: a line, or with a split the line before and after the change side by side."""

    old: Line | None
    """The line before the change; where it is unchanged the same as `new`."""
    new: Line | None
    """The line after the change."""
    sign: str = ""
    """The sign of the line that is shown, "" where both are."""


@dataclass(eq=False)
class Hunk:
    """Consecutive lines of a file that changed together. Lines are parsed when they are first drawn."""

    number: int
    """The engine's number of the hunk, from 1."""
    title: str
    old_start: int
    """The number of its first line in the file before the change."""
    new_start: int
    """The number of its first line in the file after the change."""
    text: str
    folded: bool = False

    @cached_property
    def signs(self) -> str:
        """The sign of each line."""
        return "".join(line[:1] or " " for line in self.text.split("\n") if line[:1] != "\\")

    def count_rows(self, is_split: bool) -> int:
        """The number of its rows; counted without parsing the lines."""
        runs: list[str] = re.findall("[-+]+", self.signs) if is_split else []
        return len(self.signs) - sum(min(run.count("-"), run.count("+")) for run in runs)

    @cached_property
    def lines(self) -> list[Line]:
        lines: list[Line] = []
        old, new = self.old_start, self.new_start
        for line in self.text.split("\n"):
            sign = line[:1] or " "
            if sign == "\\":
                lines[-1] = lines[-1]._replace(has_newline=False)
                continue
            lines.append(Line(sign, old if sign != "+" else 0, new if sign != "-" else 0, line[1:], len(lines)))
            old, new = old + (sign != "+"), new + (sign != "-")
        return lines

    @cached_property
    def split_rows(self) -> list[LineRow]:
        """Its lines side by side: removed lines beside those that were added in their place."""
        rows: list[LineRow] = []
        for is_unchanged, run in groupby(self.lines, key=lambda line: line.sign == " "):
            lines = list(run)
            removed, added = ([line for line in lines if is_unchanged or line.sign == sign] for sign in "-+")
            rows += starmap(LineRow, zip_longest(removed, added))
        return rows

    @cached_property
    def unified_rows(self) -> list[LineRow]:
        """Its lines one below the other, each with the line in whose place it stands."""
        row_of = {line.number: row for row in self.split_rows for line in row[:2] if line is not None}
        return [row_of[line.number]._replace(sign=line.sign) for line in self.lines]


@dataclass(eq=False)
class DiffFile:
    """A changed file with its hunks."""

    change: FileChange
    hunks: list[Hunk]
    notes: list[tuple[str, str]]
    """Facts that the hunks do not show, as tone and text."""
    all_or_nothing: bool
    """Whether only all hunks together can land."""
    folded: bool = False
    landed: int = 0
    """Number of hunks that landed already, and are not in `hunks`."""

    @property
    def name(self) -> str:
        return f"{self.change.old_path} → {self.change.path}" if self.change.old_path else self.change.path

    @property
    def marks(self) -> set[Mark]:
        """The marks of all its hunks, or of the file where it has none."""
        return {(self.change.path, hunk.number) for hunk in self.hunks} or {(self.change.path, 0)}


class DiffEntry(NamedTuple):
    """A row of the diff."""

    kind: str
    """"file", "note", "hunk", "line" or "comment"."""
    file: DiffFile
    hunk: Hunk | None = None
    row_in_hunk: int = 0
    """The row of a line in its hunk, from 0; comments are not counted."""
    start_row: int = 0
    """The row of the view at which the hunk's first line would stand if the comments above this line were moved up."""
    is_split: bool = False
    """Whether lines stand side by side."""
    text: str = ""
    tone: str = ""
    """The tone of the text."""
    comment: DiffComment | None = None

    @property
    def line_row(self) -> LineRow:
        """The line, or the two lines side by side; no lines for other kinds."""
        if self.hunk is None or self.kind != "line":
            return LineRow(None, None)
        return (self.hunk.split_rows if self.is_split else self.hunk.unified_rows)[self.row_in_hunk]


def read_files(changes: Sequence[FileChange], diffs: Iterable[FileDiff]) -> list[DiffFile]:
    """The files of a change set with their hunks, in the order of `changes`. Slow: call it in a thread."""
    diff_by_path = {diff.path: diff for diff in diffs}
    return [_read_file(change, diff_by_path.get(change.path)) for change in changes]


def _read_file(change: FileChange, diff: FileDiff | None) -> DiffFile:
    """A file with its hunks, and with notes about what its lines do not show."""
    find_language(change.path)  # loads the language here, not while it is drawn
    notes = [("wrong", f"✗ cannot be landed: {change.refused}")] if change.refused else []
    if change.note:
        notes.append(("wants", f"▲ {change.note}"))
    if change.status in ("added", "deleted", "renamed", "mode"):
        notes.append(("grey", "only its mode changed" if change.status == "mode" else f"the file was {change.status}"))
    if diff is None:
        return DiffFile(change, [], notes, True)
    hunks = _read_hunks(diff)
    if not hunks and change.status not in ("renamed", "mode"):
        notes.append(("grey", "a binary file: its lines are not shown" if diff.binary else "no lines changed"))
    if diff.cut:
        notes.append(("wants", "the diff is too long: its end is not shown"))
    return DiffFile(change, hunks, notes, diff.all_or_nothing, landed=len(diff.landed))


def _read_hunks(diff: FileDiff) -> list[Hunk]:
    """The hunks of a diff that have not landed, with their numbers."""
    heads = list(HUNK_HEADER.finditer(diff.hunks))
    ends = [*(head.start() - 1 for head in heads[1:]), len(diff.hunks.removesuffix("\n"))]
    return [
        Hunk(number, head[3], int(head[1]), int(head[2]), diff.hunks[head.end() + 1 : end])
        for number, head, end in zip(diff.numbers, heads, ends, strict=False)
    ]


def find_changed_part(text: str, other: str) -> tuple[int, int]:
    """The part of `text` that differs from `other`, as start and end (exclusive); (0, 0) when they are not similar."""
    prefix_length = len(commonprefix((text, other)))  # noqa: RUF071 (it compares characters)
    suffix_length = len(commonprefix((text[prefix_length:][::-1], other[prefix_length:][::-1])))  # noqa: RUF071
    if prefix_length + suffix_length < MIN_SIMILARITY * max(len(text), len(other)):
        return 0, 0
    return prefix_length, len(text) - suffix_length


def read_lines_by_mark(files: Sequence[DiffFile]) -> dict[Mark, str]:
    """The lines of what each mark stands for."""
    hunks = {(file.change.path, hunk.number): hunk.text for file in files for hunk in file.hunks}
    return hunks | {(file.change.path, 0): "" for file in files if not file.hunks}


def select_parts(files: Sequence[DiffFile], marked: set[Mark]) -> list[FilePart]:
    """The parts of `files` that are marked, as the engine lands them."""
    parts = []
    for file in files:
        if marks := file.marks & marked:
            is_whole = file.all_or_nothing or marks == file.marks
            parts.append(FilePart(file.change.path, () if is_whole else tuple(sorted(number for _, number in marks))))
    return parts


def choose_mark_sign(marks: set[Mark], marked: set[Mark]) -> str:
    """`● ` when all of `marks` are marked, `◐ ` when some are, `○ ` when none is; "" while nothing is marked."""
    if not marked:
        return ""
    if marks <= marked:
        return "● "
    return "◐ " if marks & marked else "○ "


def make_tree_rows(files: Sequence[DiffFile], marked: set[Mark], folder: str = "", depth: int = 0) -> list[Row]:
    """Folders and files in `folder` ("" or with a slash at its end) as rows: a folder with one folder in it is one
    row. The id of a folder ends in a slash."""
    groups: dict[str, list[DiffFile]] = {}
    for file in files:
        name, slash, _ = file.change.path[len(folder) :].partition("/")
        groups.setdefault(name + slash, []).append(file)
    rows: list[Row] = []
    for name, members in groups.items():
        lead = "  " * depth + choose_mark_sign(set().union(*(member.marks for member in members)), marked)
        if not name.endswith("/"):
            row = make_file_row(members[0].change)
            style = row.mark_style if row.mark in "✗▲" else "ink"
            rows.append(replace(row, text=f"{lead}{row.mark} {name}", mark="", style=style))
            continue
        path = commonpath([member.change.path.rpartition("/")[0] for member in members]) + "/"
        added = sum(member.change.added or 0 for member in members)
        removed = sum(member.change.removed or 0 for member in members)
        rows.append(Row(path, f"{lead}{path[len(folder) :]}", "", f"+{added} -{removed}", "grey"))
        rows += make_tree_rows(members, marked, path, depth + 1)
    return rows


# Syntax


class SyntaxTheme(HighlightTheme):
    """The tones of a `DiffView` for the tokens of code."""

    STYLES = {
        Token.Comment: "comment", Token.Keyword: "keyword", Token.Operator.Word: "keyword",
        Token.Literal.String: "string", Token.Literal.Number: "string", Token.Name.Decorator: "keyword",
        Token.Name.Function: "name", Token.Name.Class: "name", Token.Name.Tag: "keyword",
    }  # fmt: skip


def find_language(path: str) -> str:
    """The language that a file is highlighted in, by its name; "" for none. The first call for a language loads it."""
    name = PurePath(path).name
    return _find_language(PurePath(name).suffix or name)


@cache
def _find_language(ending: str) -> str:
    lexer = find_lexer_class_for_filename(ending if not ending.startswith(".") else f"a{ending}")
    return get_lexer_by_name(lexer.aliases[0]).aliases[0] if lexer is not None and lexer.aliases else ""


def highlight_lines(texts: Sequence[str], language: str) -> list[list[tuple[str, str]]]:
    """Lines of code as tokens, each with its tone."""
    if not language:
        return [[("", text)] for text in texts]
    code = "\n".join(texts)
    content = highlight(code, language=language, theme=SyntaxTheme)
    lines: list[list[tuple[str, str]]] = [[]]
    position = 0
    spans = [(span.start, span.end, str(span.style)) for span in content.spans[1:]]  # the first covers all of the code
    for start, end, span_tone in [*spans, (len(code), len(code), "")]:
        for text, tone in ((code[position:start], ""), (code[start:end], span_tone)):
            end_of_line, *next_lines = text.split("\n")
            lines[-1].append((tone, end_of_line))
            lines += [[(tone, line)] for line in next_lines]
        position = end
    return lines
