"""A diff of many files: highlighted, foldable, side by side where there is room; only what is seen is drawn."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from pygments.token import Token
from rich.segment import Segment
from rich.style import Style
from textual.highlight import HighlightTheme, highlight
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.screens.work.diff_files import DiffFile, Hunk, Line, Mark, changed_part, language_of, mark_of
from clawpy_console.widgets.row_view import CursorView, selectable
from engine.model import DiffComment

SIDE_BY_SIDE, LEAST = 160, 100
"""Columns of the terminal, and of the view, from which the files before and after stand side by side."""

HIGHLIGHT_LINES = 64
"""Lines that are highlighted at once."""

MAX_CACHED_ROWS = 2000
"""Rows that are kept as they were drawn."""

SHIFT_COLUMNS = 16
"""Columns that a long line is moved by."""


class Syntax(HighlightTheme):
    """Kinds of words in code, as tones of a `DiffView`."""

    STYLES = {
        Token.Comment: "comment", Token.Keyword: "keyword", Token.Operator.Word: "keyword",
        Token.Literal.String: "string", Token.Literal.Number: "string", Token.Name.Decorator: "keyword",
        Token.Name.Function: "name", Token.Name.Class: "name", Token.Name.Tag: "keyword",
    }  # fmt: skip


class Entry(NamedTuple):
    """A row of the view: a file, a note, a hunk, a line, or a row of a comment.

    A line has what it was (`old`) and what it became (`new`). Its `tone` is the sign of the one that is shown; it is ""
    where both are, side by side.
    """

    kind: str
    file: int
    hunk: Hunk | None = None
    old: Line | None = None
    new: Line | None = None
    text: str = ""
    tone: str = ""
    comment: DiffComment | None = None


def _rows(hunk: Hunk, split: bool) -> list[Entry]:
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
        """`marked` changed."""

    @dataclass
    class Removed(Message):
        """This comment is to be removed."""

        number: int

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.files: Sequence[DiffFile] = ()
        self.marked: set[Mark] = set()
        """What lands. Nothing: all of it lands."""
        self._blocks: list[list[Entry] | Hunk] = []  # rows one below the other; those of a hunk are made when seen
        self._starts: list[int] = []  # the first row of each block
        self._heads: list[tuple[int, Entry]] = []  # the rows of files and hunks
        self._end = 0  # the row after the last
        self._comments: tuple[DiffComment, ...] = ()
        self._split = False
        self._digits = 3
        self._shift = 0  # columns that long lines are moved by
        self._width = 0
        self._tokens: dict[tuple[int, str, int], dict[int, list[tuple[str, str]]]] = {}
        self._strips: dict[tuple[int, bool], Strip] = {}  # rows as they were drawn, and whether the cursor was there

    @property
    def height(self) -> int:
        return self._end

    @property
    def split(self) -> bool:
        """Whether it shows lines side by side."""
        return self.app.size.width >= SIDE_BY_SIDE and self.size.width >= LEAST

    @property
    def current(self) -> Entry | None:
        return self._entry(self.cursor) if self.cursor < self._end else None

    @property
    def path(self) -> str:
        """The file that the cursor stands in, "" for none."""
        return self.files[entry.file].change.path if (entry := self.current) else ""

    def _entry(self, row: int) -> Entry:
        place = bisect_right(self._starts, row) - 1
        block = self._blocks[place]
        if isinstance(block, Hunk):
            block = self._blocks[place] = _rows(block, self._split)
        return block[row - self._starts[place]]

    def say(self, text: str) -> None:
        """Show no files, but `text`."""
        self.empty = text
        self.show(())

    def show(
        self,
        files: Sequence[DiffFile],
        comments: tuple[DiffComment, ...] = (),
        marked: Collection[Mark] = (),
    ) -> None:
        """Show these files from the top, with these marks."""
        self.files, self._comments, self.marked, self._shift = files, comments, set(marked), 0
        last = (max(file.hunks[-1].old, file.hunks[-1].new) + file.hunks[-1].count for file in files if file.hunks)
        self._digits = max(3, len(str(max(last, default=0))))
        self._tokens.clear()
        self._build(None)

    def comment(self, comments: tuple[DiffComment, ...]) -> None:
        """Show these comments below their lines."""
        if comments != self._comments:
            self._comments = comments
            self._build(self.current)

    def _build(self, at: Entry | None) -> None:
        """Make the rows anew, with the cursor on `at`."""
        self._split = self.split
        self._blocks, self._starts, self._heads, self._end = [], [], [], 0
        self._strips.clear()
        for number, file in enumerate(self.files):
            self._add_head(Entry("file", number))
            if file.folded:
                continue
            notes = [Entry("note", number, text=text, tone=tone) for tone, text in file.notes]
            self._add(notes, len(notes))
            comments = [comment for comment in self._comments if comment.path == file.change.path]
            for hunk in file.hunks:
                self._add_head(Entry("hunk", number, hunk))
                if comments and not hunk.folded:
                    rows = self._with_comments(_rows(hunk, self._split), comments)
                    self._add(rows, len(rows))
                elif not hunk.folded:
                    self._add(hunk, hunk.height if self._split else hunk.count)
            remaining = [row for comment in comments for row in self._comment_rows(comment, number)]
            self._add(remaining, len(remaining))
        self.set_reactive(DiffView.cursor, self._row_of(at) if at else 0)
        self.resized()
        self.show_cursor()

    def _add_head(self, head: Entry) -> None:
        self._heads.append((self._end, head))
        self._add([head], 1)

    def _add(self, block: list[Entry] | Hunk, height: int) -> None:
        if height:
            self._blocks.append(block)
            self._starts.append(self._end)
            self._end += height

    def _row_of(self, at: Entry) -> int:
        """The row of `at`, else that of its hunk or file."""
        heads = [*self._heads, (self._end, at)]
        place = next(place for place, (_, head) in enumerate(heads) if head.file == at.file and head.hunk is at.hunk)
        below = range(heads[place][0] + 1, heads[place + 1][0]) if at.kind not in ("file", "hunk") else ()
        return next((row for row in below if is_same_row(self._entry(row), at)), heads[place][0])

    def _with_comments(self, rows: Iterable[Entry], comments: list[DiffComment]) -> list[Entry]:
        """Takes from `comments` those on these rows."""
        entries = []
        for entry in rows:
            entries.append(entry)
            for comment in [comment for comment in comments if _is_on(comment, entry)]:
                comments.remove(comment)
                entries += self._comment_rows(comment, entry.file, entry.hunk)
        return entries

    def _comment_rows(self, comment: DiffComment, file: int, hunk: Hunk | None = None) -> list[Entry]:
        room = max(20, self._width - 2 * self._digits - 8)
        where = "" if hunk is not None else f"on line {comment.line}{' before the change' if comment.old else ''}: "
        text = f"{where}{comment.text}{'  (sent)' if comment.sent else ''}"
        pieces = chain.from_iterable(textwrap.wrap(line, room) for line in text.split("\n"))
        return [Entry("comment", file, hunk, text=piece, tone="wants", comment=comment) for piece in pieces]

    # Drawing

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width == self._width:
            self.show_cursor()
            return
        at = self.current
        self._width = width
        self._build(at)

    def row(self, number: int, width: int, base: Style) -> Strip:
        here = number == self.cursor and self.has_focus
        strip = self._strips.get((number, here))
        if strip is None:
            if len(self._strips) > MAX_CACHED_ROWS:
                self._strips.clear()
            strip = self._drawn(self._entry(number), here, width, base).apply_offsets(0, number)
            self._strips[number, here] = strip
        return strip if self.text_selection is None else Strip(selectable(self, strip, 0, number), width)

    def _drawn(self, entry: Entry, here: bool, width: int, base: Style) -> Strip:
        lead = Strip([Segment("▸" if here else " ", base + self.tone("accent"))])
        style = base + self.tone("file" if entry.kind == "file" else "lit") if here or entry.kind == "file" else base
        width -= 1
        if entry.kind == "line":
            return Strip.join([lead, self._line(entry, width, style)])
        if entry.kind == "file":
            return Strip.join([lead, self._file(self.files[entry.file], width, style)])
        if entry.hunk is not None and entry.kind == "hunk":
            text, tone = self._hunk(entry.hunk), "faint"
        else:
            before = " " * (2 * self._digits + 2) + "┃ " if entry.kind == "comment" else "    "
            text, tone = before + entry.text, entry.tone
        return Strip.join([lead, Strip([Segment(words.fit_to_width(text, width), style + self.tone(tone))])])

    def _file(self, file: DiffFile, width: int, style: Style) -> Strip:
        change = file.change
        right = " binary " if change.added is None else f" +{change.added} -{change.removed} "
        name = f"{self._mark(file.marks)}{'▸' if file.folded else '▾'} {file.name}"
        name = words.fit_to_width(name, width - len(right))
        return Strip([Segment(name, style), Segment(right, style + self.tone("grey"))])

    def _hunk(self, hunk: Hunk) -> str:
        file = self.files[hunk.file]
        folded = f"  {words.count(hunk.count, 'line')}" if hunk.folded else ""
        mark = "" if file.all_or_nothing else self._mark({(file.change.path, hunk.number)})
        number = f"hunk {hunk.number} of {len(file.hunks) + file.landed}"
        return f"  {mark}{'▸' if hunk.folded else '▾'} {number}{folded}  {hunk.title}"

    def _mark(self, marks: set[Mark]) -> str:
        return f"{mark_of(marks, self.marked)} " if self.marked else ""

    def _line(self, entry: Entry, width: int, base: Style) -> Strip:
        """One line, or what it was and what it became side by side."""
        hunk, old, new, digits = entry.hunk, entry.old, entry.new, self._digits
        assert hunk is not None
        if entry.tone:
            line, other = (old, new) if entry.tone == "-" else (new, old)
            assert line is not None
            return self._side(hunk, line, other, f"{line.old or '':>{digits}} {line.new or '':>{digits}}", width, base)
        half = (width - 1) // 2
        return Strip.join(
            [
                self._side(hunk, old, new, f"{old.old if old else '':>{digits}}", half, base),
                Strip([Segment("│", base + self.tone("faint"))]),
                self._side(hunk, new, old, f"{new.new if new else '':>{digits}}", width - 1 - half, base),
            ]
        )

    def _side(self, hunk: Hunk, line: Line | None, other: Line | None, numbers: str, room: int, base: Style) -> Strip:
        """`line` after its `numbers`, in `room` cells. What it was or became is `other`: the difference stands out."""
        if line is None:
            return Strip.blank(room, base)
        gutter = Strip([Segment(f"{numbers} {line.sign} ", base + self.tone(line.sign))])
        room = max(1, room - gutter.cell_length)
        ground = {"+": "added", "-": "removed"}.get(line.sign, "")
        few = self.app.current_theme.ansi  # sixteen colours: no ground is faint enough for text of any other
        style = base + self.tone(line.sign if few else ground) if ground else base
        start, end = changed_part(line.text, other.text) if other not in (None, line) else (0, 0)
        segments, place = [], 0
        for tone, text in self._highlighted(hunk, line):
            for begin, stop in ((0, start), (start, end), (end, len(line.text))):
                if piece := text[max(0, begin - place) : max(0, stop - place)]:
                    kind = style if few and ground else style + self.tone(tone or "ink")
                    part = Style(underline=True) if few else self.tone(f"{ground} part") if ground else Style()
                    segments.append(Segment(piece, kind + part if begin == start < end else kind))
            place += len(text)
        if not line.ended:
            segments.append(Segment("  no newline at the end", style + self.tone("faint")))
        code = Strip(segments)
        offset = min(self._shift, max(0, code.cell_length - room))
        if code.cell_length > offset + room:
            more = Strip([Segment("…", style + self.tone("faint"))])
            code = Strip.join([code.crop(offset, offset + room - 1).extend_cell_length(room - 1, style), more])
        else:
            code = code.crop(offset).extend_cell_length(room, style)
        return Strip.join([gutter, code])

    def _highlighted(self, hunk: Hunk, line: Line) -> list[tuple[str, str]]:
        """The words of `line`, each with its tone."""
        side, block = "-" if line.sign == "-" else "+", line.number // HIGHLIGHT_LINES
        key = (id(hunk), side, block)
        if key not in self._tokens:
            around = hunk.lines[block * HIGHLIGHT_LINES : (block + 1) * HIGHLIGHT_LINES]
            lines = [around_line for around_line in around if around_line.sign in (" ", side)]
            language = language_of(self.files[hunk.file].change.path)
            plain = [[("", line.text)] for line in lines]
            tokens_by_line = _words("\n".join(line.text for line in lines), language) if language else plain
            self._tokens[key] = {line.number: tokens for line, tokens in zip(lines, tokens_by_line, strict=True)}
        return self._tokens[key][line.number]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is copied: rows as they are drawn."""
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self._end - 1
        width, rows = self.scrollable_content_region.width, range(first, min(last + 1, self._end))
        lines = [""] * first + [self._drawn(self._entry(row), False, width, Style()).text for row in rows]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # Moving

    def action_open(self) -> None:
        """What a click on the row under the cursor does."""
        if (entry := self.current) is not None and entry.kind in ("file", "hunk"):
            self.action_fold()

    def action_seek(self, kind: str, by: int) -> None:
        """To the next row of `kind`, the one before with -1."""
        rows = [row for row, head in self._heads[::by] if head.kind == kind and (row - self.cursor) * by > 0]
        if rows:
            self._jump(rows[0], 2)

    def go_to_file(self, path: str) -> None:
        """To the first file whose path begins so."""
        for row, head in self._heads:
            if head.kind == "file" and self.files[head.file].change.path.startswith(path):
                self._jump(row, 0)
                break

    def _jump(self, row: int, above: int) -> None:
        """Put the cursor on `row`, with so many rows above it."""
        self.scroll_to(y=max(0, row - above), animate=False, immediate=True)
        self.cursor = row

    def action_shift(self, by: int) -> None:
        """Move long lines."""
        self._shift = max(0, self._shift + by * SHIFT_COLUMNS)
        self._strips.clear()
        self.refresh()

    # Doing

    def action_fold(self) -> None:
        """Fold or unfold the hunk under the cursor; on a file all of it."""
        entry = self.current
        if entry is not None:
            folds = entry.hunk or self.files[entry.file]
            folds.folded = not folds.folded
            self._build(Entry("hunk" if entry.hunk else "file", entry.file, entry.hunk))

    def action_mark(self) -> None:
        """Mark the hunk under the cursor to be landed, or no longer; on a file all of it."""
        entry = self.current
        if entry is None:
            return
        file = self.files[entry.file]
        alone = entry.hunk is not None and not file.all_or_nothing
        self.mark({(file.change.path, entry.hunk.number)} if alone and entry.hunk else file.marks)

    def mark(self, marks: set[Mark]) -> None:
        """Mark these, or no longer where they are all marked."""
        self.marked = self.marked - marks if marks <= self.marked else self.marked | marks
        self._strips.clear()
        self.refresh()
        self.post_message(self.Marked())

    @property
    def comment_at(self) -> tuple[str, int, bool] | None:
        """Where a comment on what is under the cursor stands: path, line, and whether that is one before the change."""
        entry = self.current
        if entry is None or entry.hunk is None:
            return None
        line = entry.new if entry.tone != "-" and entry.new is not None else entry.old
        if line is None:  # on a hunk: its first line that changed
            line = next((line for line in entry.hunk.lines if line.sign != " "), entry.hunk.lines[0])
        return self.files[entry.file].change.path, line.new or line.old, not line.new

    def action_remove_comment(self) -> None:
        if (entry := self.current) is not None and entry.comment is not None:
            self.post_message(self.Removed(entry.comment.number))


def is_same_row(entry: Entry, other: Entry) -> bool:
    """Whether they stand for the same row, side by side or not."""
    line = other.new or other.old
    return (entry.comment, entry.text) == (other.comment, other.text) and line in (None, entry.old, entry.new)


def _is_on(comment: DiffComment, entry: Entry) -> bool:
    """Whether the line of `comment` is shown in the row of `entry`."""
    line = entry.old if comment.old else entry.new
    shown = entry.tone in ("", " ") or (entry.tone == "-") == comment.old
    return shown and line is not None and comment.line == (line.old if comment.old else line.new)


def _words(code: str, language: str) -> list[list[tuple[str, str]]]:
    """Code as lines of words, each with its tone."""
    content = highlight(code, language=language, theme=Syntax)
    lines: list[list[tuple[str, str]]] = [[]]
    place = 0
    spans = [(span.start, span.end, str(span.style)) for span in content.spans[1:]]  # the first is that of the whole
    for start, end, tone in [*spans, (len(code), len(code), "")]:
        for text, kind in ((code[place:start], ""), (code[start:end], tone)):
            first, *rest = text.split("\n")
            lines[-1].append((kind, first))
            lines += [[(kind, piece)] for piece in rest]
        place = end
    return lines
