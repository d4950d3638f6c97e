"""A diff of many files: highlighted, foldable, side by side where there is room; only rows in sight are drawn."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console import formats
from clawpy_console.formats import fit_to_width
from clawpy_console.keys import bindings
from clawpy_console.screens.work.diff_files import (
    DiffFile,
    Hunk,
    Line,
    Mark,
    changed_part,
    highlight_lines,
    language_of,
    mark_sign,
)
from clawpy_console.widgets.rows import CursorView, selectable
from engine.model import DiffComment

MIN_SPLIT_TERMINAL, MIN_SPLIT_VIEW = 160, 100
"""Minimum number of columns of the terminal, and of the view, that show a file before and after side by side."""

HIGHLIGHT_LINES = 64
"""Number of lines that are highlighted at once."""

MAX_CACHED_ROWS = 2000
"""Maximum number of drawn rows that are cached."""

SHIFT_COLUMNS = 16
"""Columns by which a key moves long lines."""


class Entry(NamedTuple):
    """A row of the view."""

    kind: str
    """"file", "note", "hunk", "line" or "comment"."""
    file: int
    """The number of its file."""
    hunk: Hunk | None = None
    old: Line | None = None
    """The line before the change."""
    new: Line | None = None
    """The line after the change."""
    text: str = ""
    tone: str = ""
    """The tone of a text; the sign of a line, "" where both lines stand side by side."""
    comment: DiffComment | None = None


def _hunk_entries(hunk: Hunk, split: bool) -> list[Entry]:
    if split:
        return [Entry("line", hunk.file, hunk, old, new) for old, new in hunk.pairs]
    pairs = {line.number: pair for pair in hunk.pairs for line in pair if line is not None}
    return [Entry("line", hunk.file, hunk, *pairs[line.number], tone=line.sign) for line in hunk.lines]


class DiffView(CursorView, can_focus=True):
    """Shows the files of a change set one below the other, with a cursor."""

    BINDINGS = bindings("rows", "diff", but="rows.open")
    TONES = {
        "lit": "on $lit", "file": "bold $ink on $lit", "+": "$good", "-": "$wrong", " ": "$faint",
        "added": "on $good 12%", "removed": "on $wrong 12%", "added part": "on $good 30%",
        "removed part": "on $wrong 30%", "comment": "italic $grey", "keyword": "$accent", "string": "$wants",
        "name": "bold $ink",
    }  # fmt: skip

    class Marked(Message):
        """The marks changed."""

    @dataclass
    class RemoveComment(Message):
        """The operator wants to remove the comment of this number."""

        number: int

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.files: Sequence[DiffFile] = ()
        self.marked: set[Mark] = set()
        """The hunks that land; the whole change set lands while nothing is marked."""
        self._blocks: list[list[Entry] | Hunk] = []  # in their order; the rows of a hunk are made when it is in sight
        self._starts: list[int] = []  # the first row of each block
        self._heads: list[tuple[int, Entry]] = []  # the rows of files and hunks, with their numbers
        self._row_count = 0
        self._comments: tuple[DiffComment, ...] = ()
        self._split = False
        self._digits = 3  # cells of a line number
        self._shift = 0  # columns by which long lines are moved
        self._width = 0
        self._tokens: dict[tuple[int, str, int], dict[int, list[tuple[str, str]]]] = {}  # see `_highlighted`
        self._strips: dict[tuple[int, bool], Strip] = {}  # drawn rows, by number and whether the cursor was there

    @property
    def row_count(self) -> int:
        return self._row_count

    @property
    def split(self) -> bool:
        """Whether there is room to show lines side by side."""
        return self.app.size.width >= MIN_SPLIT_TERMINAL and self.size.width >= MIN_SPLIT_VIEW

    @property
    def current(self) -> Entry | None:
        """The row under the cursor."""
        return self._entry(self.cursor) if self.cursor < self._row_count else None

    @property
    def path(self) -> str:
        """The path of the file under the cursor, "" for none."""
        return self.files[entry.file].change.path if (entry := self.current) else ""

    def _entry(self, row: int) -> Entry:
        number = bisect_right(self._starts, row) - 1
        block = self._blocks[number]
        if isinstance(block, Hunk):
            block = self._blocks[number] = _hunk_entries(block, self._split)
        return block[row - self._starts[number]]

    def show_message(self, text: str) -> None:
        """Show `text` in place of files."""
        self.empty = text
        self.show(())

    def show(
        self,
        files: Sequence[DiffFile],
        comments: tuple[DiffComment, ...] = (),
        marked: Collection[Mark] = (),
    ) -> None:
        """Show `files` from the top."""
        self.files, self._comments, self.marked, self._shift = files, comments, set(marked), 0
        last_hunks = [file.hunks[-1] for file in files if file.hunks]
        last_line = max((max(hunk.old, hunk.new) + hunk.count for hunk in last_hunks), default=0)
        self._digits = max(3, len(str(last_line)))
        self._tokens.clear()
        self._rebuild_rows(None)

    def show_comments(self, comments: tuple[DiffComment, ...]) -> None:
        """Show `comments` below their lines."""
        if comments != self._comments:
            self._comments = comments
            self._rebuild_rows(self.current)

    def _rebuild_rows(self, current: Entry | None) -> None:
        """Make the rows anew, with the cursor on `current`, by default at the top."""
        self._split = self.split
        self._blocks, self._starts, self._heads, self._row_count = [], [], [], 0
        self._strips.clear()
        for number, file in enumerate(self.files):
            self._add_head(Entry("file", number))
            if file.folded:
                continue
            notes = [Entry("note", number, text=text, tone=tone) for tone, text in file.notes]
            self._add_block(notes, len(notes))
            comments = [comment for comment in self._comments if comment.path == file.change.path]
            for hunk in file.hunks:
                self._add_head(Entry("hunk", number, hunk))
                if hunk.folded:
                    continue
                if comments:
                    rows = self._with_comments(_hunk_entries(hunk, self._split), comments)
                    self._add_block(rows, len(rows))
                else:
                    self._add_block(hunk, hunk.height if self._split else hunk.count)
            remaining = [row for comment in comments for row in self._comment_entries(comment, number)]
            self._add_block(remaining, len(remaining))
        self.set_reactive(DiffView.cursor, self._row_of(current) if current else 0)
        self.update_row_count()
        self.show_cursor()

    def _add_head(self, head: Entry) -> None:
        self._heads.append((self._row_count, head))
        self._add_block([head], 1)

    def _add_block(self, block: list[Entry] | Hunk, height: int) -> None:
        if height:
            self._blocks.append(block)
            self._starts.append(self._row_count)
            self._row_count += height

    def _row_of(self, entry: Entry) -> int:
        """The number of the row of `entry`, else that of its hunk or file."""
        heads = [*self._heads, (self._row_count, entry)]
        number = next(
            number for number, (_, head) in enumerate(heads) if head.file == entry.file and head.hunk is entry.hunk
        )
        head_row, next_head_row = heads[number][0], heads[number + 1][0]
        if entry.kind in ("file", "hunk"):
            return head_row
        rows = range(head_row + 1, next_head_row)
        return next((row for row in rows if is_same_row(self._entry(row), entry)), head_row)

    def _with_comments(self, rows: Iterable[Entry], comments: list[DiffComment]) -> list[Entry]:
        """`rows` with the comments on them below each; these are removed from `comments`."""
        entries = []
        for entry in rows:
            entries.append(entry)
            for comment in [comment for comment in comments if _is_comment_on(comment, entry)]:
                comments.remove(comment)
                entries += self._comment_entries(comment, entry.file, entry.hunk)
        return entries

    def _comment_entries(self, comment: DiffComment, file: int, hunk: Hunk | None = None) -> list[Entry]:
        room = max(20, self._width - 2 * self._digits - 8)
        place = "" if hunk is not None else f"on line {comment.line}{' before the change' if comment.old else ''}: "
        text = f"{place}{comment.text}{'  (sent)' if comment.sent else ''}"
        pieces = chain.from_iterable(textwrap.wrap(line, room) for line in text.split("\n"))
        return [Entry("comment", file, hunk, text=piece, tone="wants", comment=comment) for piece in pieces]

    # Drawing

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width == self._width:
            self.show_cursor()
            return
        current = self.current
        self._width = width
        self._rebuild_rows(current)

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        has_cursor = number == self.cursor and self.has_focus
        strip = self._strips.get((number, has_cursor))
        if strip is None:
            if len(self._strips) > MAX_CACHED_ROWS:
                self._strips.clear()
            strip = self._draw_entry(self._entry(number), has_cursor, width, base).apply_offsets(0, number)
            self._strips[number, has_cursor] = strip
        return strip if self.text_selection is None else Strip(selectable(self, strip, 0, number), width)

    def _draw_entry(self, entry: Entry, has_cursor: bool, width: int, base: Style) -> Strip:
        cursor = Strip([Segment("▸" if has_cursor else " ", base + self.tone("accent"))])
        style = base
        if entry.kind == "file":
            style += self.tone("file")
        elif has_cursor:
            style += self.tone("lit")
        width -= 1
        if entry.kind == "line":
            return Strip.join([cursor, self._draw_line(entry, width, style)])
        if entry.kind == "file":
            return Strip.join([cursor, self._draw_file(self.files[entry.file], width, style)])
        if entry.hunk is not None and entry.kind == "hunk":
            text, tone = self._hunk_text(entry.hunk), "faint"
        else:
            indent = " " * (2 * self._digits + 2) + "┃ " if entry.kind == "comment" else "    "
            text, tone = indent + entry.text, entry.tone
        return Strip.join([cursor, Strip([Segment(fit_to_width(text, width), style + self.tone(tone))])])

    def _draw_file(self, file: DiffFile, width: int, style: Style) -> Strip:
        change = file.change
        right = " binary " if change.added is None else f" +{change.added} -{change.removed} "
        name = f"{self._mark_sign(file.marks)}{'▸' if file.folded else '▾'} {file.name}"
        name = fit_to_width(name, width - len(right))
        return Strip([Segment(name, style), Segment(right, style + self.tone("grey"))])

    def _hunk_text(self, hunk: Hunk) -> str:
        file = self.files[hunk.file]
        folded = f"  {formats.count(hunk.count, 'line')}" if hunk.folded else ""
        mark = "" if file.all_or_nothing else self._mark_sign({(file.change.path, hunk.number)})
        number = f"hunk {hunk.number} of {len(file.hunks) + file.landed}"
        return f"  {mark}{'▸' if hunk.folded else '▾'} {number}{folded}  {hunk.title}"

    def _mark_sign(self, marks: set[Mark]) -> str:
        return f"{mark_sign(marks, self.marked)} " if self.marked else ""

    def _draw_line(self, entry: Entry, width: int, base: Style) -> Strip:
        """One line, or the line before and after the change side by side."""
        hunk, old, new, digits = entry.hunk, entry.old, entry.new, self._digits
        assert hunk is not None
        if entry.tone:
            line, other = (old, new) if entry.tone == "-" else (new, old)
            assert line is not None
            numbers = f"{line.old or '':>{digits}} {line.new or '':>{digits}}"
            return self._draw_side(hunk, line, other, numbers, width, base)
        half = (width - 1) // 2
        return Strip.join(
            [
                self._draw_side(hunk, old, new, f"{old.old if old else '':>{digits}}", half, base),
                Strip([Segment("│", base + self.tone("faint"))]),
                self._draw_side(hunk, new, old, f"{new.new if new else '':>{digits}}", width - 1 - half, base),
            ]
        )

    def _draw_side(
        self, hunk: Hunk, line: Line | None, other: Line | None, numbers: str, width: int, base: Style
    ) -> Strip:
        """`line` after its `numbers`, in `width` cells; the part that differs from `other` stands out."""
        if line is None:
            return Strip.blank(width, base)
        gutter = Strip([Segment(f"{numbers} {line.sign} ", base + self.tone(line.sign))])
        code, style = self._draw_code(hunk, line, other, base)
        code_width = max(1, width - gutter.cell_length)
        offset = min(self._shift, max(0, code.cell_length - code_width))
        if code.cell_length > offset + code_width:
            ellipsis = Strip([Segment("…", style + self.tone("faint"))])
            code = code.crop(offset, offset + code_width - 1).extend_cell_length(code_width - 1, style)
            return Strip.join([gutter, code, ellipsis])
        return Strip.join([gutter, code.crop(offset).extend_cell_length(code_width, style)])

    def _draw_code(self, hunk: Hunk, line: Line, other: Line | None, base: Style) -> tuple[Strip, Style]:
        """The whole of `line`, highlighted, and the style of its background."""
        change = {"+": "added", "-": "removed"}.get(line.sign, "")
        is_ansi = self.app.current_theme.ansi  # of 16 colours none is a background that all text can be read on
        if not change:
            style, part_style = base, Style()
        elif is_ansi:
            style, part_style = base + self.tone(line.sign), Style(underline=True)
        else:
            style, part_style = base + self.tone(change), self.tone(f"{change} part")
        start, end = changed_part(line.text, other.text) if other not in (None, line) else (0, 0)
        segments, position = [], 0
        for tone, text in self._highlighted(hunk, line):
            token_style = style if is_ansi and change else style + self.tone(tone or "ink")
            for begin, stop in ((0, start), (start, end), (end, len(line.text))):
                if piece := text[max(0, begin - position) : max(0, stop - position)]:
                    segments.append(Segment(piece, token_style + part_style if begin == start < end else token_style))
            position += len(text)
        if not line.has_newline:
            segments.append(Segment("  no newline at the end", style + self.tone("faint")))
        return Strip(segments), style

    def _highlighted(self, hunk: Hunk, line: Line) -> list[tuple[str, str]]:
        """The tokens of `line`, each with its tone; highlighted with the lines around it, and cached."""
        side, block = "-" if line.sign == "-" else "+", line.number // HIGHLIGHT_LINES
        key = (id(hunk), side, block)
        if key not in self._tokens:
            block_lines = hunk.lines[block * HIGHLIGHT_LINES : (block + 1) * HIGHLIGHT_LINES]
            lines = [block_line for block_line in block_lines if block_line.sign in (" ", side)]
            language = language_of(self.files[hunk.file].change.path)
            if language:
                tokens_by_line = highlight_lines("\n".join(line.text for line in lines), language)
            else:
                tokens_by_line = [[("", line.text)] for line in lines]
            self._tokens[key] = {line.number: tokens for line, tokens in zip(lines, tokens_by_line, strict=True)}
        return self._tokens[key][line.number]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected rows as they are drawn."""
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self._row_count - 1
        width, rows = self.scrollable_content_region.width, range(first, min(last + 1, self._row_count))
        lines = [""] * first + [self._draw_entry(self._entry(row), False, width, Style()).text for row in rows]
        return selection.extract("\n".join(lines)), "\n"

    # Moving

    def action_open(self) -> None:
        """Fold or unfold the file or the hunk under the cursor."""
        if (entry := self.current) is not None and entry.kind in ("file", "hunk"):
            self.action_fold()

    def action_seek(self, kind: str, by: int) -> None:
        """Go to the next row of `kind`, or with -1 to the previous one."""
        rows = [row for row, head in self._heads[::by] if head.kind == kind and (row - self.cursor) * by > 0]
        if rows:
            self._jump(rows[0], 2)

    def go_to_file(self, path: str) -> None:
        """Go to the first file whose path begins with `path`."""
        for row, head in self._heads:
            if head.kind == "file" and self.files[head.file].change.path.startswith(path):
                self._jump(row, 0)
                break

    def _jump(self, row: int, rows_above: int) -> None:
        """Put the cursor on `row`, and show `rows_above` rows above it."""
        self.scroll_to(y=max(0, row - rows_above), animate=False, immediate=True)
        self.cursor = row

    def action_shift(self, by: int) -> None:
        """Move long lines to the left, or back with -1."""
        self._shift = max(0, self._shift + by * SHIFT_COLUMNS)
        self._strips.clear()
        self.refresh()

    # Doing

    def action_fold(self) -> None:
        """Fold or unfold the hunk under the cursor; on a file all of it."""
        entry = self.current
        if entry is not None:
            foldable = entry.hunk or self.files[entry.file]
            foldable.folded = not foldable.folded
            self._rebuild_rows(Entry("hunk" if entry.hunk else "file", entry.file, entry.hunk))

    def action_mark(self) -> None:
        """Mark the hunk under the cursor to be landed, or no longer; on a file all of it."""
        entry = self.current
        if entry is None:
            return
        file = self.files[entry.file]
        if entry.hunk is None or file.all_or_nothing:
            self.mark(file.marks)
        else:
            self.mark({(file.change.path, entry.hunk.number)})

    def mark(self, marks: set[Mark]) -> None:
        """Mark all of `marks`; unmark them where all of them are marked."""
        self.marked = self.marked - marks if marks <= self.marked else self.marked | marks
        self._strips.clear()
        self.refresh()
        self.post_message(self.Marked())

    @property
    def comment_at(self) -> tuple[str, int, bool] | None:
        """The place of a comment on the row under the cursor: path, line, whether that is a line before the change."""
        entry = self.current
        if entry is None or entry.hunk is None:
            return None
        line = entry.new if entry.tone != "-" and entry.new is not None else entry.old
        if line is None:  # on a hunk: its first line that changed
            line = next((line for line in entry.hunk.lines if line.sign != " "), entry.hunk.lines[0])
        return self.files[entry.file].change.path, line.new or line.old, not line.new

    def action_remove_comment(self) -> None:
        if (entry := self.current) is not None and entry.comment is not None:
            self.post_message(self.RemoveComment(entry.comment.number))


def is_same_row(entry: Entry, other: Entry) -> bool:
    """Whether two entries stand for the same row, side by side or not."""
    line = other.new or other.old
    return (entry.comment, entry.text) == (other.comment, other.text) and line in (None, entry.old, entry.new)


def _is_comment_on(comment: DiffComment, entry: Entry) -> bool:
    """Whether the line of `comment` is shown in the row of `entry`."""
    line = entry.old if comment.old else entry.new
    is_side_shown = entry.tone in ("", " ") or (entry.tone == "-") == comment.old
    return is_side_shown and line is not None and comment.line == (line.old if comment.old else line.new)
