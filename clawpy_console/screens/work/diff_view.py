"""A diff of many files: highlighted, foldable, side by side where there is room; only what is seen is drawn."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from pygments.token import Token
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.highlight import HighlightTheme, highlight
from textual.message import Message
from textual.reactive import reactive
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.screens.work.diff_files import DiffFile, Hunk, Line, changed_part, language_of, mark_of
from clawpy_console.widgets.selecting import lit
from clawpy_console.widgets.toned import Toned
from engine.values import DiffComment

SIDE_BY_SIDE, LEAST = 160, 100
"""Columns of the terminal, and of the view, from which the files before and after stand side by side."""

BLOCK = 64
"""Lines that are highlighted at once."""

KEPT = 2000
"""Rows that are kept as they were drawn."""

SHIFT = 16
"""Columns that a long line is moved by."""


class Syntax(HighlightTheme):
    """Kinds of words in code, as tones of a `DiffView`."""

    STYLES = {
        Token.Comment: "comment", Token.Keyword: "keyword", Token.Operator.Word: "keyword",
        Token.Literal.String: "string", Token.Literal.Number: "string", Token.Name.Decorator: "keyword",
        Token.Name.Function: "name", Token.Name.Class: "name", Token.Name.Tag: "keyword",
    }  # fmt: skip


class Entry(NamedTuple):
    """A row of the view: a file, a note, a hunk, a line (`old` or `new`, beside it what became of it), a pair of lines
    side by side, or a row of a comment."""

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
        return [Entry("pair", hunk.file, hunk, old, new) for old, new in hunk.pairs]
    other = {}
    for old, new in hunk.pairs:
        if old is not None and new is not None and old is not new:
            other[old.number], other[new.number] = new, old
    rows = []
    for line in hunk.lines:
        old, new = (line, other.get(line.number)) if line.sign == "-" else (other.get(line.number), line)
        rows.append(Entry("line", hunk.file, hunk, old, new, tone=line.sign))
    return rows


class DiffView(Toned, can_focus=True):
    """Shows the files of a change set one below the other, with a cursor."""

    BINDINGS = bindings("rows", "diff", but="rows.open")
    TONES = {
        "ink": "$ink", "grey": "$grey", "faint": "$faint", "accent": "$accent", "wants": "$wants", "wrong": "$wrong",
        "lit": "on $lit", "file": "bold $ink on $lit", "+": "$good", "-": "$wrong", " ": "$faint",
        "added": "on $good 12%", "removed": "on $wrong 12%", "added part": "on $good 30%",
        "removed part": "on $wrong 30%", "comment": "italic $grey", "keyword": "$accent", "string": "$wants",
        "name": "bold $ink",
    }  # fmt: skip
    DEFAULT_CSS = "DiffView { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """The cursor stands in the file of `path` now."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

    class Marked(Message):
        """`marked` changed."""

    class Wanted(Message):
        """A comment on line `line` of `path` is wanted."""

        def __init__(self, path: str, line: int, old: bool) -> None:
            super().__init__()
            self.path, self.line, self.old = path, line, old

    class Removed(Message):
        """This comment is to be removed."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.files: Sequence[DiffFile] = ()
        self.marked: set[tuple[str, int]] = set()
        """What lands: paths with the number of a hunk, 0 for a file without hunks. Nothing: all of it lands."""
        self._blocks: list[tuple[Entry | Hunk, list[Entry]]] = []
        self._starts: list[int] = []  # the first row of each block
        self._end = 0  # the row after the last
        self._comments: tuple[DiffComment, ...] = ()
        self._says = ""
        self._split = False
        self._digits = 3
        self._left = 0  # columns that long lines are moved by
        self._width = 0
        self._tokens: dict[tuple[int, str, int], dict[int, list[tuple[str, str]]]] = {}
        self._strips: dict[tuple[int, bool], Strip] = {}  # rows as they were drawn, and whether the cursor was there

    @property
    def split(self) -> bool:
        """Whether it shows lines side by side."""
        return self.app.size.width >= SIDE_BY_SIDE and self.size.width >= LEAST

    @property
    def current(self) -> Entry | None:
        return self._entry(self.cursor) if self.cursor < self._end else None

    def _entry(self, row: int) -> Entry:
        place = bisect_right(self._starts, row) - 1
        block, rows = self._blocks[place]
        if isinstance(block, Entry):
            return block
        if not rows:
            rows += _rows(block, self._split)
        return rows[row - self._starts[place]]

    def say(self, text: str) -> None:
        """Show no files, but `text`."""
        self._says = text
        self.show(())

    def show(self, files: Sequence[DiffFile], comments: tuple[DiffComment, ...] = ()) -> None:
        """Show these files from the top, nothing marked."""
        self.files, self._comments, self.marked, self._left = files, comments, set(), 0
        hunks = [file.hunks[-1] for file in files if file.hunks]
        self._digits = max(3, len(str(max((max(one.old, one.new) + one.count for one in hunks), default=0))))
        self._tokens.clear()
        self._build(None)

    def comment(self, comments: tuple[DiffComment, ...]) -> None:
        """Show these comments below their lines."""
        if comments != self._comments:
            self._comments = comments
            self._build(self.current)

    def _build(self, at: Entry | None) -> None:
        """Make the rows anew, with the cursor on `at`."""
        told: dict[str, list[DiffComment]] = {}
        for one in self._comments:
            told.setdefault(one.path, []).append(one)
        self._split = self.split
        self._blocks, self._starts, self._end = [], [], 0
        self._strips.clear()
        for number, file in enumerate(self.files):
            self._add(Entry("file", number))
            if file.folded:
                continue
            for tone, text in file.notes:
                self._add(Entry("note", number, text=text, tone=tone))
            comments = told.get(file.change.path, [])
            for hunk in file.hunks:
                self._add(Entry("hunk", number, hunk))
                if not hunk.folded:
                    self._add(hunk, self._with_comments(_rows(hunk, self._split), comments) if comments else [])
            for one in comments:
                for row in self._comment_rows(one, number):
                    self._add(row)
        self.virtual_size = Size(self.scrollable_content_region.width, max(1, self._end))
        place = self._place(at) if at is not None else 0
        self.set_reactive(DiffView.cursor, place)
        self.scroll_to_region(Region(0, place, 1, 1), animate=False)
        self.refresh()

    def _add(self, block: Entry | Hunk, rows: Sequence[Entry] = ()) -> None:
        """Add a row, or the rows of a hunk, which are made when they are seen where there are no `rows`."""
        rows = list(rows)
        self._blocks.append((block, rows))
        self._starts.append(self._end)
        if isinstance(block, Entry):
            self._end += 1
        else:
            self._end += len(rows) or (block.height if self._split else block.count)

    def _place(self, at: Entry) -> int:
        """The row of `at`; the first when it is not there any more."""
        line = at.new or at.old
        for start, (block, rows) in zip(self._starts, self._blocks, strict=True):
            if isinstance(block, Entry):
                if _same(block, at):
                    return start
            elif block is at.hunk and at.kind != "hunk":
                rows = rows or _rows(block, self._split)
                here = (row for row, one in enumerate(rows, start) if _same(one, at) or line in (one.old, one.new))
                return next(here, start)
        return 0

    def _with_comments(self, rows: Iterable[Entry], comments: list[DiffComment]) -> list[Entry]:
        """Takes from `comments` those on these rows."""
        entries = []
        for entry in rows:
            entries.append(entry)
            if entry.hunk is None:
                continue
            for one in [one for one in comments if one.line == _number(entry, old=one.old)]:
                comments.remove(one)
                entries += self._comment_rows(one, entry.file, entry.hunk)
        return entries

    def _comment_rows(self, one: DiffComment, file: int, hunk: Hunk | None = None) -> list[Entry]:
        room = max(20, self._width - 2 * self._digits - 8)
        where = "" if hunk is not None else f"on line {one.line}{' before the change' if one.old else ''}: "
        text = f"{where}{one.text}{'  (sent)' if one.sent else ''}"
        pieces = chain.from_iterable(textwrap.wrap(line, room) for line in text.split("\n"))
        return [Entry("comment", file, hunk, text=piece, tone="wants", comment=one) for piece in pieces]

    # Drawing

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width == self._width:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)
            return
        at = self.current
        self._width = width
        self._build(at)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        number = y + self.scroll_offset.y
        base = self.visual_style.rich_style
        if number >= self._end:
            text = f"  {self._says}" if number == 0 else ""
            return Strip([Segment(words.fit(text, width), base + self.tone("faint"))])
        here = number == self.cursor and self.has_focus
        strip = self._strips.get((number, here))
        if strip is None:
            if len(self._strips) > KEPT:
                self._strips.clear()
            strip = self._drawn(self._entry(number), here, width, base).apply_offsets(0, number)
            self._strips[number, here] = strip
        if self.text_selection is not None and (span := self.text_selection.get_span(number)) is not None:
            start, end = span
            strip = lit(self, strip, start, strip.cell_length if end == -1 else end)
        return strip

    def _drawn(self, entry: Entry, here: bool, width: int, base: Style) -> Strip:
        lead = Segment("▸" if here else " ", base + self.tone("accent"))
        if entry.kind in ("line", "pair"):
            strips = self._sides(entry, width - 1, base + self.tone("lit") if here else base)
            return Strip.join([Strip([lead]), *strips])
        if entry.kind == "file":
            return self._file(self.files[entry.file], lead, width, base + self.tone("file"))
        style = base + self.tone("lit") if here else base
        if entry.kind == "hunk":
            return self._hunk(entry, lead, width, style)
        before = " " * (2 * self._digits + 2) + "┃ " if entry.kind == "comment" else "    "
        text = words.fit(before + entry.text, width - 1)
        return Strip([lead, Segment(text, style + self.tone(entry.tone))])

    def _file(self, file: DiffFile, lead: Segment, width: int, style: Style) -> Strip:
        change = file.change
        right = "binary " if change.added is None else f"+{change.added} -{change.removed} "
        fold = "▸" if file.folded else "▾"
        name = words.fit(f"{self._mark(file.marks)}{fold} {file.name}", width - 2 - len(right))
        return Strip([lead, Segment(name, style), Segment(f" {right}", style + self.tone("grey"))])

    def _hunk(self, entry: Entry, lead: Segment, width: int, style: Style) -> Strip:
        hunk, file = entry.hunk, self.files[entry.file]
        assert hunk is not None
        folded = f"  {words.count(hunk.count, 'line')}" if hunk.folded else ""
        mark = "" if file.whole else self._mark({(file.change.path, hunk.number)})
        text = f"  {mark}{'▸' if hunk.folded else '▾'} hunk {hunk.number} of {len(file.hunks)}{folded}  {hunk.title}"
        return Strip([lead, Segment(words.fit(text, width - 1), style + self.tone("faint"))])

    def _mark(self, marks: set[tuple[str, int]]) -> str:
        return f"{mark_of(marks, self.marked)} " if self.marked else ""

    def _sides(self, entry: Entry, width: int, base: Style) -> list[Strip]:
        hunk, digits = entry.hunk, self._digits
        assert hunk is not None
        if entry.kind == "line":
            line, other = (entry.old, entry.new) if entry.tone == "-" else (entry.new, entry.old)
            assert line is not None
            numbers = f"{line.old or '':>{digits}} {line.new or '':>{digits}} {line.sign} "
            code = self._code_of(hunk, line, other, width - len(numbers), base)
            return [Strip([Segment(numbers, base + self.tone(line.sign))]), code]
        strips: list[Strip] = []
        half = (width - 1) // 2
        for line, other, number in (
            (entry.old, entry.new, entry.old and entry.old.old),
            (entry.new, entry.old, entry.new and entry.new.new),
        ):
            if strips:
                strips.append(Strip([Segment("│", base + self.tone("faint"))]))
            room = half if not strips else width - 1 - half
            if line is None:
                strips.append(Strip.blank(room, base))
                continue
            gutter = f"{number:>{digits}} {line.sign} "
            strips.append(Strip([Segment(gutter, base + self.tone(line.sign))]))
            strips.append(self._code_of(hunk, line, None if line is other else other, room - len(gutter), base))
        return strips

    def _code_of(self, hunk: Hunk, line: Line, other: Line | None, room: int, base: Style) -> Strip:
        """The text of `line` in `room` cells; what `other`, the same line before or after, has not stands out."""
        room = max(1, room)
        ground = {"+": "added", "-": "removed"}.get(line.sign, "")
        few = self.app.current_theme.ansi  # sixteen colours: no ground is faint enough for text of any other
        style = base + self.tone(line.sign if few else ground) if ground else base
        start, end = changed_part(line.text, other.text) if other is not None else (0, 0)
        segments, place = [], 0
        for tone, text in self._highlighted(hunk, line):
            for begin, stop in ((0, start), (start, end), (end, len(line.text))):
                if piece := text[max(0, begin - place) : max(0, stop - place)]:
                    kind = style if few and ground else style + self.tone(tone or "ink")
                    part = Style(underline=True) if few else self.tone(f"{ground} part") if ground else Style()
                    segments.append(Segment(piece, kind + part if begin == start < end else kind))
            place += len(text)
        if line.number in hunk.unended:
            segments.append(Segment("  no newline at the end", style + self.tone("faint")))
        strip = Strip(segments)
        left = min(self._left, max(0, strip.cell_length - room))
        if strip.cell_length > left + room:
            more = Strip([Segment("…", style + self.tone("faint"))])
            strip = Strip.join([strip.crop(left, left + room - 1).extend_cell_length(room - 1, style), more])
        else:
            strip = strip.crop(left).extend_cell_length(room, style)
        return strip

    def _highlighted(self, hunk: Hunk, line: Line) -> list[tuple[str, str]]:
        """The words of `line`, each with its tone."""
        side, block = "-" if line.sign == "-" else "+", line.number // BLOCK
        key = (id(hunk), side, block)
        if key not in self._tokens:
            around = hunk.lines[block * BLOCK : (block + 1) * BLOCK]
            lines = [one for one in around if one.sign in (" ", side)]
            language = language_of(self.files[hunk.file].change.path)
            plain = [[("", one.text)] for one in lines]
            found = _words("\n".join(one.text for one in lines), language) if language else plain
            self._tokens[key] = {one.number: tokens for one, tokens in zip(lines, found, strict=True)}
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

    def watch_cursor(self, before: int, now: int) -> None:
        self.scroll_to_region(Region(0, now, 1, 1), animate=False)
        self.refresh_line(before)
        self.refresh_line(now)
        entry = self.current
        if entry is not None and (before >= self._end or self._entry(before).file != entry.file):
            self.post_message(self.Moved(self.files[entry.file].change.path))

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row < self._end:
            if row == self.cursor and self._entry(row).kind in ("file", "hunk"):
                self.action_fold()
            else:
                self.cursor = row

    def _go(self, row: int) -> None:
        self.cursor = max(0, min(row, self._end - 1))

    def action_up(self) -> None:
        self._go(self.cursor - 1)

    def action_down(self) -> None:
        self._go(self.cursor + 1)

    def action_page_up(self) -> None:
        self._go(self.cursor - self.size.height)

    def action_page_down(self) -> None:
        self._go(self.cursor + self.size.height)

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(self._end - 1)

    def action_seek(self, kind: str, by: int) -> None:
        """To the next row of `kind`, the one before with -1."""
        rows = [
            start
            for start, (block, _) in zip(self._starts, self._blocks, strict=True)
            if isinstance(block, Entry) and block.kind == kind and (start - self.cursor) * by > 0
        ]
        if rows:
            self._jump(rows[0] if by > 0 else rows[-1], 2)

    def go_to_file(self, path: str) -> None:
        """To the first file whose path begins so."""
        for start, (block, _) in zip(self._starts, self._blocks, strict=True):
            here = isinstance(block, Entry) and block.kind == "file" and self.files[block.file].change.path
            if here and here.startswith(path):
                self._jump(start, 0)
                break

    def _jump(self, row: int, above: int) -> None:
        """Put the cursor on `row`, with so many rows above it."""
        self.scroll_to(y=max(0, row - above), animate=False, immediate=True)
        self.cursor = row

    def action_shift(self, by: int) -> None:
        """Move long lines."""
        self._left = max(0, self._left + by * SHIFT)
        self._strips.clear()
        self.refresh()

    # Doing

    def action_fold(self) -> None:
        """Fold or unfold the hunk under the cursor; on a file all of it."""
        entry = self.current
        if entry is None:
            return
        if entry.hunk is not None:
            entry.hunk.folded = not entry.hunk.folded
            self._build(Entry("hunk", entry.file, entry.hunk))
        else:
            self.files[entry.file].folded = not self.files[entry.file].folded
            self._build(Entry("file", entry.file))

    def action_mark(self) -> None:
        """Mark the hunk under the cursor to be landed, or no longer; on a file all of it."""
        entry = self.current
        if entry is None:
            return
        file = self.files[entry.file]
        alone = entry.hunk is not None and not file.whole
        self.mark({(file.change.path, entry.hunk.number)} if alone and entry.hunk else file.marks)

    def mark(self, marks: set[tuple[str, int]]) -> None:
        """Mark these, or no longer where they are all marked."""
        self.marked = self.marked - marks if marks <= self.marked else self.marked | marks
        self._strips.clear()
        self.refresh()
        self.post_message(self.Marked())

    def action_comment(self) -> None:
        entry = self.current
        if entry is None or entry.hunk is None:
            return
        line = entry.new if entry.tone != "-" and entry.new is not None else entry.old
        if line is None:  # on a hunk: its first line that changed
            line = next((one for one in entry.hunk.lines if one.sign != " "), entry.hunk.lines[0])
        self.post_message(self.Wanted(self.files[entry.file].change.path, line.new or line.old, not line.new))

    def action_remove_comment(self) -> None:
        if (entry := self.current) is not None and entry.comment is not None:
            self.post_message(self.Removed(entry.comment.number))


def _same(one: Entry, other: Entry) -> bool:
    return (one.kind, one.file, one.old, one.new) == (other.kind, other.file, other.old, other.new) and (
        one.hunk is other.hunk and one.comment == other.comment
    )


def _number(entry: Entry, *, old: bool) -> int:
    """The line of the old or the new file that stands in this row; 0 for none."""
    if entry.kind == "line" and (entry.tone == "-") is not old and entry.tone != " ":
        return 0
    line = entry.old if old and entry.old is not None else entry.new
    return 0 if line is None else line.old if old else line.new


def _words(code: str, language: str) -> list[list[tuple[str, str]]]:
    """Code as lines of words, each with its tone."""
    content = highlight(code, language=language, theme=Syntax)
    lines: list[list[tuple[str, str]]] = [[]]
    place = 0
    spans = [(one.start, one.end, str(one.style)) for one in content.spans[1:]]  # the first is that of the whole
    for start, end, tone in [*spans, (len(code), len(code), "")]:
        for text, kind in ((code[place:start], ""), (code[start:end], tone)):
            first, *rest = text.split("\n")
            lines[-1].append((kind, first))
            lines += [[(kind, piece)] for piece in rest]
        place = end
    return lines
