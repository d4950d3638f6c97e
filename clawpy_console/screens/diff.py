"""A diff as files, hunks and rows, and its files as the rows of a tree. Nothing is drawn here.

`read_files` makes values of what the engine says, `DiffView` draws their rows, and `Changes` lists them as a tree.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, groupby, starmap, zip_longest
from os.path import commonpath, commonprefix
from pathlib import PurePath
from typing import NamedTuple

from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Token
from textual.highlight import HighlightTheme, highlight

from clawpy_console.widgets import Row
from clawpy_console.widgets.session import make_file_row
from engine.model import DiffComment, FileChange, FileDiff, FilePart

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
    is_folded: bool = False

    @cached_property
    def signs(self) -> str:
        """The sign of each line."""
        return "".join(line[:1] or " " for line in self.text.split("\n") if line[:1] != "\\")

    def count_rows(self, *, is_split: bool) -> int:
        """The number of its rows; counted without parsing the lines."""
        runs: list[str] = re.findall("[-+]+", self.signs) if is_split else []
        return len(self.signs) - sum(min(run.count("-"), run.count("+")) for run in runs)

    @cached_property
    def lines(self) -> list[Line]:
        lines: list[Line] = []
        old = self.old_start
        new = self.new_start
        for line in self.text.split("\n"):
            sign = line[:1] or " "
            if sign == "\\":
                lines[-1] = lines[-1]._replace(has_newline=False)
                continue
            lines.append(Line(sign, old if sign != "+" else 0, new if sign != "-" else 0, line[1:], len(lines)))
            old += sign != "+"
            new += sign != "-"
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
    is_folded: bool = False
    landed: int = 0
    """Number of hunks that landed already, and are not in `hunks`."""

    @property
    def name(self) -> str:
        return f"{self.change.old_path} → {self.change.path}" if self.change.old_path else self.change.path

    @property
    def marks(self) -> set[Mark]:
        """The marks of all its hunks, or of the file where it has none."""
        return {(self.change.path, hunk.number) for hunk in self.hunks} or {(self.change.path, 0)}


BEFORE_THE_CHANGE = " before the change"
"""Said after the number of a line that the change removes."""


class CommentPlace(NamedTuple):
    """The line that a comment is on."""

    path: str
    line: int
    """Its number, from 1."""
    is_before: bool
    """Whether it is counted in the file before the change."""

    @property
    def words(self) -> str:
        """`shop/cart.py:13 before the change`."""
        return f"{self.path}:{self.line}{BEFORE_THE_CHANGE if self.is_before else ''}"


class DiffEntry(NamedTuple):
    """A row of the diff."""

    kind: str
    """"file", "note", "hunk", "line" or "comment"."""
    file: DiffFile
    hunk: Hunk | None = None
    row_in_hunk: int = 0
    """The row of a line in its hunk, from 0; comments are not counted."""
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

    @property
    def comment_place(self) -> CommentPlace | None:
        """The place of a comment on this row. None where no lines are shown."""
        if not self.file.hunks:
            return None
        old, new, sign = self.line_row
        line = new if sign != "-" and new is not None else old
        if line is None:  # on a hunk or a file: the first line that changed
            lines = (self.hunk or self.file.hunks[0]).lines
            line = next((line for line in lines if line.sign != " "), lines[0])
        return CommentPlace(self.file.change.path, line.new or line.old, not line.new)

    def shows_line_of(self, comment: DiffComment) -> bool:
        """Whether the line that a comment is on is shown in this row."""
        old, new, sign = self.line_row
        line = old if comment.old else new
        is_side_shown = sign in ("", " ") or (sign == "-") == comment.old
        return is_side_shown and line is not None and comment.line == (line.old if comment.old else line.new)


class DiffRows:
    """The rows of a diff, made once for its files, its comments and what is folded.

    Lines that follow each other are kept as one run, so that a large diff opens fast.
    """

    def __init__(
        self, files: Sequence[DiffFile], comments: Sequence[DiffComment], *, is_split: bool, comment_width: int
    ) -> None:
        """`is_split`: whether lines stand side by side. `comment_width`: the cells of a line of a comment."""
        self._comments = comments
        self._comment_width = comment_width
        self._is_split = is_split
        self._starts: list[int] = []  # the first row of each run
        self._runs: list[DiffEntry] = []  # the entry of that row
        self._count = 0
        for file in files:
            self._add(DiffEntry("file", file))
            if not file.is_folded:
                self._add_content(file)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> DiffEntry:
        run = bisect_right(self._starts, row) - 1
        entry = self._runs[run]
        return entry._replace(row_in_hunk=entry.row_in_hunk + row - self._starts[run])

    def find_heads(self, kind: str) -> Iterator[tuple[int, DiffEntry]]:
        """The rows of this kind, such as "file" or "hunk", each with its entry; not for lines."""
        return ((row, entry) for row, entry in zip(self._starts, self._runs, strict=True) if entry.kind == kind)

    def find(self, entry: DiffEntry) -> int:
        """The row of `entry`, else that of its line, hunk or file. It may come from other rows of the same files."""
        ends = [*self._starts[1:], self._count]
        near = [
            row
            for start, run, end in zip(self._starts, self._runs, ends, strict=True)
            if (run.file, run.hunk) == (entry.file, entry.hunk)
            for row in range(start, end)
        ]
        line = entry.line_row.new or entry.line_row.old
        exact = (row for row in near if self[row] == entry)
        same_line = (row for row in near if line is not None and line in self[row].line_row[:2])
        return next(chain(exact, same_line, near))

    def _add(self, entry: DiffEntry, rows: int = 1) -> None:
        self._starts.append(self._count)
        self._runs.append(entry)
        self._count += rows

    def _add_content(self, file: DiffFile) -> None:
        """Add the rows below a file: its notes, its hunks, and the comments on lines that are not shown."""
        for tone, text in file.notes:
            self._add(DiffEntry("note", file, text=text, tone=tone))
        comments = [comment for comment in self._comments if comment.path == file.change.path]
        for hunk in file.hunks:
            self._add(DiffEntry("hunk", file, hunk))
            if not hunk.is_folded:
                comments = self._add_lines(file, hunk, comments)
        for comment in comments:
            self._add_comment(comment, file)

    def _add_lines(self, file: DiffFile, hunk: Hunk, comments: list[DiffComment]) -> list[DiffComment]:
        """Add the lines of a hunk, each with the comments on it below. Returns the other comments."""
        row_count = hunk.count_rows(is_split=self._is_split)
        start = 0
        for row in range(row_count if comments else 0):
            line = DiffEntry("line", file, hunk, row, self._is_split)
            if on_line := [comment for comment in comments if line.shows_line_of(comment)]:
                self._add(line._replace(row_in_hunk=start), row + 1 - start)
                start = row + 1
                comments = [comment for comment in comments if comment not in on_line]
            for comment in on_line:
                self._add_comment(comment, file, hunk)
        if start < row_count:
            self._add(DiffEntry("line", file, hunk, start, self._is_split), row_count - start)
        return comments

    def _add_comment(self, comment: DiffComment, file: DiffFile, hunk: Hunk | None = None) -> None:
        """Add the rows of a comment. One that stands in no hunk says to which line it belongs."""
        side = BEFORE_THE_CHANGE if comment.old else ""
        location = "" if hunk is not None else f"on line {comment.line}{side}: "
        text = f"{location}{comment.text}{'  (in a card)' if comment.sent else ''}"
        for line in text.split("\n"):
            for piece in textwrap.wrap(line, self._comment_width):
                self._add(DiffEntry("comment", file, hunk, text=piece, tone="wants", comment=comment))


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
        return DiffFile(change, [], notes, all_or_nothing=True)
    hunks = _read_hunks(diff)
    if not hunks and change.status not in ("renamed", "mode"):
        notes.append(("grey", "a binary file: its lines are not shown" if diff.binary else "no lines changed"))
    if diff.cut:
        notes.append(("wants", "the diff is too long: its end is not shown"))
    return DiffFile(change, hunks, notes, diff.all_or_nothing, landed=len(diff.landed))


HUNK_HEADER = re.compile(r"(?m)^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")
"""The head of a hunk: its first line before and after the change, and its title."""


def _read_hunks(diff: FileDiff) -> list[Hunk]:
    """The hunks of a diff that have not landed, with their numbers."""
    heads = list(HUNK_HEADER.finditer(diff.hunks))
    ends = [*(head.start() - 1 for head in heads[1:]), len(diff.hunks.removesuffix("\n"))]
    return [
        Hunk(number, head[3], int(head[1]), int(head[2]), diff.hunks[head.end() + 1 : end])
        for number, head, end in zip(diff.hunk_numbers, heads, ends, strict=False)
    ]


MIN_SIMILARITY = 0.4
"""Share of the longer of two lines that must be in both, for the differing part to be emphasised."""


def find_changed_part(text: str, other: str) -> tuple[int, int]:
    """The part of `text` that differs from `other`, as start and end (exclusive); (0, 0) when they are not similar."""
    prefix_length = len(commonprefix((text, other)))  # noqa: RUF071 (it compares characters)
    suffix_length = len(commonprefix((text[prefix_length:][::-1], other[prefix_length:][::-1])))  # noqa: RUF071
    if prefix_length + suffix_length < MIN_SIMILARITY * max(len(text), len(other)):
        return 0, 0
    return prefix_length, len(text) - suffix_length


def split_tokens(tokens: Iterable[tuple[str, str]], start: int, end: int) -> Iterator[tuple[str, str, bool]]:
    """The `tokens` of a line, cut where its part from `start` to `end` begins and ends: tone, text, and whether it is
    in that part."""
    position = 0
    for tone, text in tokens:
        first, last = (max(0, min(edge - position, len(text))) for edge in (start, end))
        for piece, is_inside in ((text[:first], False), (text[first:last], True), (text[last:], False)):
            if piece:
                yield tone, piece, is_inside
        position += len(text)


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
