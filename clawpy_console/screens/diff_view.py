"""A diff of many files: highlighted, foldable, side by side where there is room; only rows in sight are drawn.

`Changes` shows one on the work screen. The rows are made by `diff`. `DiffPainter` draws them, and `DiffView` has the
cursor, folds and marks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console import formats
from clawpy_console.fields import TONES
from clawpy_console.formats import fit_to_width
from clawpy_console.keys import make_bindings
from clawpy_console.screens.diff import (
    CommentPlace,
    DiffEntry,
    DiffFile,
    DiffRows,
    Hunk,
    Line,
    LineRow,
    Mark,
    choose_mark_sign,
    find_changed_part,
    find_language,
    highlight_lines,
    split_tokens,
)
from clawpy_console.widgets import CursorView, make_selectable
from engine.model import DiffComment

MIN_SPLIT_TERMINAL_COLUMNS = 160
"""Minimum number of columns of the terminal for a file before and after side by side."""

MIN_SPLIT_VIEW_COLUMNS = 100
"""The same of the view."""

HIGHLIGHT_LINES = 64
"""Number of lines that are highlighted at once."""

MAX_DRAWN_ROWS = 2000
"""Maximum number of drawn rows that are kept."""

CHANGE_BY_SIGN = {"+": "added", "-": "removed"}
"""The change of a line, by its sign."""

SHIFT_COLUMNS = 16
"""Columns by which a key moves long lines."""

GUTTER_CELLS = 3
"""Cells around the sign between the numbers and the text of a line."""


class DiffPainter:
    """Draws the rows of a diff."""

    def __init__(self, get_style: Callable[[str], Style], is_ansi: Callable[[], bool]) -> None:
        """`get_style` gives the style of a name; `is_ansi` says whether the terminal has only 16 colours."""
        self._get_style = get_style
        self._is_ansi = is_ansi
        self.digits = 3
        """Cells of a line number."""
        self.shift = 0
        """Columns by which long lines are moved."""
        self._tokens: dict[tuple[Hunk, str, int], dict[int, list[tuple[str, str]]]] = {}  # see `_highlight_line`

    def begin(self, files: Sequence[DiffFile]) -> None:
        """Draw these files from now on, not shifted."""
        last_hunks = [file.hunks[-1] for file in files if file.hunks]
        last_line = max((max(hunk.old_start, hunk.new_start) + len(hunk.signs) for hunk in last_hunks), default=0)
        self.digits = max(3, len(str(last_line)))
        self.shift = 0
        self._tokens.clear()

    def move(self, by: int, rows: Iterable[LineRow], width: int, *, is_split: bool) -> None:
        """Shift long lines by a step to the left, or back with -1; no farther than to the end of the longest of the
        `rows` in sight."""
        longest = max((cell_len(line.text) for row in rows for line in row[:2] if line is not None), default=0)
        numbers = self.digits if is_split else 2 * self.digits + 1
        line_width = (width - 2) // 2 if is_split else width - 1
        end = max(0, longest + numbers + GUTTER_CELLS - line_width)
        self.shift = min(end, max(0, min(self.shift, end) + by * SHIFT_COLUMNS))

    def paint(self, entry: DiffEntry, width: int, base: Style, *, marked: set[Mark], has_cursor: bool = False) -> Strip:
        """A row in `width` cells: the head of a file or a hunk, a line, a comment or a note. `marked` are those that
        land."""
        cursor = Strip([Segment("▸" if has_cursor else " ", base + self._get_style("accent"))])
        width -= 1
        file = entry.file
        if entry.kind == "file":
            style = base + self._get_style("file")
            right = " binary " if file.change.added is None else f" +{file.change.added} -{file.change.removed} "
            name = f"{choose_mark_sign(file.marks, marked)}{'▸' if file.is_folded else '▾'} {file.name}"
            name = fit_to_width(name, width - len(right))
            return Strip.join([cursor, Strip([Segment(name, style), Segment(right, style + self._get_style("grey"))])])
        style = base + self._get_style("lit") if has_cursor else base
        if entry.kind == "line":
            return Strip.join([cursor, self._draw_line(entry, width, style)])
        if entry.hunk is not None and entry.kind == "hunk":
            text = _describe_hunk(file, entry.hunk, marked)
            tone = "faint"
        else:
            indent = " " * (2 * self.digits + 2) + "┃ " if entry.kind == "comment" else "    "
            text = indent + entry.text
            tone = entry.tone
        return Strip.join([cursor, Strip([Segment(fit_to_width(text, width), style + self._get_style(tone))])])

    def _draw_line(self, entry: DiffEntry, width: int, base: Style) -> Strip:
        """One line, or the line before and after the change side by side."""
        (old, new, sign), digits = entry.line_row, self.digits
        if sign:
            line, other = (old, new) if sign == "-" else (new, old)
            numbers = " ".join(f"{number or '':>{digits}}" for number in (line.old, line.new)) if line else ""
            return self._draw_side(entry, line, other, numbers, width, base)
        half = (width - 1) // 2
        before = self._draw_side(entry, old, new, f"{old.old if old else '':>{digits}}", half, base)
        after = self._draw_side(entry, new, old, f"{new.new if new else '':>{digits}}", width - 1 - half, base)
        return Strip.join([before, Strip([Segment("│", base + self._get_style("faint"))]), after])

    def _draw_side(
        self, entry: DiffEntry, line: Line | None, other: Line | None, numbers: str, width: int, base: Style
    ) -> Strip:
        """`line` after its `numbers`, in `width` cells; the part that differs from `other` stands out."""
        if line is None:
            return Strip.blank(width, base)
        gutter = Strip([Segment(f"{numbers} {line.sign} ", base + self._get_style(line.sign))])
        code, style = self._draw_code(entry, line, other, base)
        code_width = max(1, width - gutter.cell_length)
        offset = min(self.shift, max(0, code.cell_length - code_width))
        if code.cell_length > offset + code_width:
            ellipsis = Strip([Segment("…", style + self._get_style("faint"))])
            code = code.crop(offset, offset + code_width - 1).extend_cell_length(code_width - 1, style)
            return Strip.join([gutter, code, ellipsis])
        return Strip.join([gutter, code.crop(offset).extend_cell_length(code_width, style)])

    def _draw_code(self, entry: DiffEntry, line: Line, other: Line | None, base: Style) -> tuple[Strip, Style]:
        """The whole of `line`, highlighted, and the style of its background."""
        style, part_style = self._choose_line_styles(line, base)
        keeps_style = self._is_ansi() and line.sign in CHANGE_BY_SIGN
        changed_part = find_changed_part(line.text, other.text) if other not in (None, line) else (0, 0)
        segments = []
        for tone, text, has_changed in split_tokens(self._highlight_line(entry, line), *changed_part):
            token_style = style if keeps_style else style + self._get_style(tone or "ink")
            segments.append(Segment(text, token_style + part_style if has_changed else token_style))
        if not line.has_newline:
            segments.append(Segment("  no newline at the end", style + self._get_style("faint")))
        return Strip(segments), style

    def _choose_line_styles(self, line: Line, base: Style) -> tuple[Style, Style]:
        """The style of a line, and what the part that changed has more."""
        if line.sign not in CHANGE_BY_SIGN:
            return base, Style()
        if self._is_ansi():  # of 16 colours none is a background that all text can be read on
            return base + self._get_style(line.sign), Style(underline=True)
        change = CHANGE_BY_SIGN[line.sign]
        return base + self._get_style(change), self._get_style(f"{change} part")

    def _highlight_line(self, entry: DiffEntry, line: Line) -> list[tuple[str, str]]:
        """The tokens of `line`, each with its tone; highlighted with the lines around it, and kept."""
        hunk = entry.hunk
        side = "-" if line.sign == "-" else "+"
        block = line.number // HIGHLIGHT_LINES
        assert hunk is not None  # a line has one
        key = (hunk, side, block)
        if key not in self._tokens:
            around = hunk.lines[block * HIGHLIGHT_LINES : (block + 1) * HIGHLIGHT_LINES]
            lines = [other for other in around if other.sign in (" ", side)]
            tokens = highlight_lines([other.text for other in lines], find_language(entry.file.change.path))
            self._tokens[key] = {other.number: token for other, token in zip(lines, tokens, strict=True)}
        return self._tokens[key][line.number]


def _describe_hunk(file: DiffFile, hunk: Hunk, marked: set[Mark]) -> str:
    """The head of a hunk: its mark, its number and its place in the code."""
    folded = f"  {formats.count(len(hunk.lines), 'line')}" if hunk.is_folded else ""
    mark = "" if file.all_or_nothing else choose_mark_sign({(file.change.path, hunk.number)}, marked)
    number = f"hunk {hunk.number} of {len(file.hunks) + file.landed}"
    return f"  {mark}{'▸' if hunk.is_folded else '▾'} {number}{folded}  {hunk.title}"


class DiffView(CursorView, can_focus=True):
    """Shows the files of a change set one below the other, with a cursor."""

    BINDINGS = make_bindings("rows", "diff", without="rows.open")
    TONES = TONES["diff"]

    class Marked(Message):
        """The marks changed."""

    @dataclass
    class RemoveComment(Message):
        """The operator wants to remove the comment of this number."""

        number: int

    def __init__(self) -> None:
        super().__init__(id="diff")
        self.files: Sequence[DiffFile] = ()
        self.marked: set[Mark] = set()
        """The hunks that land; the whole change set lands while nothing is marked."""
        self.can_mark = True
        """Whether the change set can still be landed."""
        self._rows = DiffRows((), (), is_split=False, comment_width=0)
        self._comments: tuple[DiffComment, ...] = ()
        self._painter = DiffPainter(self.get_style, lambda: self.app.current_theme.ansi)
        self._width = 0
        self._strips: LRUCache[tuple[int, bool], Strip] = LRUCache(MAX_DRAWN_ROWS)  # by row, and whether with cursor

    @property
    def row_count(self) -> int:
        return len(self._rows)

    @property
    def is_split(self) -> bool:
        """Whether there is room to show lines side by side."""
        return self.app.size.width >= MIN_SPLIT_TERMINAL_COLUMNS and self.size.width >= MIN_SPLIT_VIEW_COLUMNS

    @property
    def current(self) -> DiffEntry | None:
        """The row under the cursor."""
        return self._rows[self.cursor] if self.cursor < self.row_count else None

    def show_message(self, text: str) -> None:
        """Show `text` in place of files."""
        self.empty = text
        self.show(())

    def show(
        self, files: Sequence[DiffFile], comments: tuple[DiffComment, ...] = (), marked: Collection[Mark] = ()
    ) -> None:
        """Show `files` from the top."""
        self.files = files
        self._comments = comments
        self.marked = set(marked)
        self._painter.begin(files)
        self._rebuild_rows(None)

    def show_comments(self, comments: tuple[DiffComment, ...]) -> None:
        """Show `comments` below their lines."""
        if comments != self._comments:
            self._comments = comments
            self._rebuild_rows(self.current)

    def _rebuild_rows(self, current: DiffEntry | None) -> None:
        """Make the rows anew, with the cursor on `current`, by default at the top."""
        self._rows = DiffRows(
            self.files,
            self._comments,
            is_split=self.is_split,
            comment_width=max(20, self._width - 2 * self._painter.digits - 8),
        )
        self._strips.clear()
        self.set_reactive(DiffView.cursor, self._rows.find(current) if current else 0)
        self.update_row_count()
        self.show_cursor()

    # Drawing

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            self._width = width
            self._rebuild_rows(self.current)

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        has_cursor = number == self.cursor and self.has_focus
        strip = self._strips.get((number, has_cursor))
        if strip is None or self.text_selection is not None:
            drawn = self._painter.paint(self._rows[number], width, base, marked=self.marked, has_cursor=has_cursor)
            strip = Strip(make_selectable(self, drawn, 0, number), width)
            if self.text_selection is None:
                self._strips[number, has_cursor] = strip
        return strip

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def _redraw(self) -> None:
        self._strips.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected rows as they are drawn."""
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self.row_count - 1
        width = self.scrollable_content_region.width
        rows = (
            self._painter.paint(self._rows[row], width, Style(), marked=self.marked).text
            for row in range(first, min(last + 1, self.row_count))
        )
        return selection.extract("\n".join([*[""] * first, *rows])), "\n"

    # Moving

    def action_open(self) -> None:
        """Fold or unfold the file or the hunk under the cursor."""
        if (entry := self.current) is not None and entry.kind in ("file", "hunk"):
            self.action_fold()

    def action_seek(self, kind: str, by: int) -> None:
        """Go to the next file or hunk, or with -1 to the previous one."""
        rows = [row for row, _ in self._rows.find_heads(kind) if (row - self.cursor) * by > 0]
        if rows:
            self._jump(rows[0] if by > 0 else rows[-1], 2)

    def go_to_file(self, path: str) -> None:
        """Go to the first file whose path begins with `path`."""
        for row, entry in self._rows.find_heads("file"):
            if entry.file.change.path.startswith(path):
                self._jump(row, 0)
                return

    def _jump(self, row: int, rows_above: int) -> None:
        """Put the cursor on `row`, and show `rows_above` rows above it."""
        self.scroll_to(y=max(0, row - rows_above), animate=False, immediate=True)
        self.cursor = row

    def action_shift(self, by: int) -> None:
        """Move long lines to the left, or back with -1; no farther than to the end of the longest line in sight."""
        top = self.scroll_offset.y
        rows = (self._rows[row].line_row for row in range(top, min(top + self.size.height, self.row_count)))
        self._painter.move(by, rows, self._width, is_split=self.is_split)
        self._redraw()

    # Folding, marking, commenting

    def action_fold(self) -> None:
        """Fold or unfold the hunk under the cursor; on a file all of it."""
        if (entry := self.current) is not None:
            foldable = entry.hunk or entry.file
            foldable.is_folded = not foldable.is_folded
            self._rebuild_rows(DiffEntry("hunk" if entry.hunk else "file", entry.file, entry.hunk))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can_mark if action == "mark" else super().check_action(action, parameters)

    def action_mark(self) -> None:
        """Mark the hunk under the cursor to be landed, or no longer; on a file all of it."""
        if (entry := self.current) is not None:
            file = entry.file
            hunk = entry.hunk
            self.toggle_marks(file.marks if hunk is None or file.all_or_nothing else {(file.change.path, hunk.number)})

    def toggle_marks(self, marks: set[Mark]) -> None:
        """Mark all of `marks`; unmark them where all of them are marked."""
        self.marked = self.marked - marks if marks <= self.marked else self.marked | marks
        self._redraw()
        self.post_message(self.Marked())

    @property
    def comment_place(self) -> CommentPlace | None:
        """The place of a comment on the row under the cursor. None where no lines are shown."""
        return entry.comment_place if (entry := self.current) else None

    def action_remove_comment(self) -> None:
        if (entry := self.current) is not None and entry.comment is not None:
            self.post_message(self.RemoveComment(entry.comment.number))
