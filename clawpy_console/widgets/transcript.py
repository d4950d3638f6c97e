"""A view of many styled lines, of which only those in sight are drawn; and the transcript of a session as such a view,
followed while it grows, and shown from where its result begins once it is over. In it, progress becomes a bar, and
failed tests are listed by cause.

Mission control and the work screen have a `Transcript` each. Prompts and the details of a permission are `LinesView`s.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Unpack

from rich._wrap import divide_line  # what Textual wraps its own texts with
from rich.segment import Segment
from rich.style import Style
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.worker import Worker

from clawpy_console import formats
from clawpy_console.fields import TONES, WORDS
from clawpy_console.formats import one_line
from clawpy_console.widgets import RowView, RowViewOptions, make_selectable
from engine.model import SessionView, TranscriptLine
from engine.wording import failures

if TYPE_CHECKING:
    from clawpy_console.console import Console


@lru_cache(maxsize=1024)
def find_row_starts(text: str, width: int) -> tuple[int, ...]:
    """The position in `text` at which each of its rows of `width` cells begins. Rows end between words, where they can.

    The spaces at a break stay at the end of the row, and may stand out.
    """
    if len(text) * 2 <= width or (len(text) <= width and text.isascii()):
        return (0,)
    return (0, *divide_line(text, width))


TRANSCRIPT_SIGNS = WORDS["line"]
"""The sign before a line of each kind, "" for all other kinds. All are equally wide; wrapped lines are indented."""

PARAGRAPH_KINDS = frozenset({"say", "thought"})
"""Kinds whose consecutive lines are one text: only the first line has its sign."""


class LinesView(RowView, can_focus=True):
    """Lines of a kind and a text; each kind is one of the `TONES`. Long lines wrap."""

    TONES = TONES["transcript"]
    DEFAULT_CSS = "LinesView { scrollbar-gutter: stable; }"

    def __init__(
        self,
        *,
        max_lines: int = 20_000,
        signs: Mapping[str, str] = TRANSCRIPT_SIGNS,
        follow_end: bool = True,
        **options: Unpack[RowViewOptions],
    ) -> None:
        """`max_lines`: older lines are dropped. `signs`: what stands before a line, by kind. `follow_end`: whether to
        scroll to what is added while the end is in sight."""
        super().__init__(**options)
        self._max_lines = max_lines
        self._signs = signs
        self._follow_end = follow_end
        self._width = self._visible_rows = 0  # the size that the rows were counted for
        self._lines: list[tuple[str, str]] = []
        self._first_rows = [
            0
        ]  # the first row of each line, and the row after the last; rows of dropped lines count too
        self._result_line: int | None = None  # where the result begins, None while there is none

    @property
    def row_count(self) -> int:
        return self._first_rows[-1] - self._first_rows[0]

    @property
    def is_at_end(self) -> bool:
        """True while the newest line is in sight."""
        return not self._width or self.scroll_offset.y + self._visible_rows >= self.virtual_size.height - 1

    def clear(self, *, empty: str | None = None) -> None:
        """Remove every line."""
        self._lines.clear()
        self._first_rows = [0]
        self._result_line = None
        self.empty = self.empty if empty is None else empty
        self._scroll(to_end=False, top=0)

    def extend(self, lines: Iterable[tuple[str, str]]) -> None:
        """Add lines at the end."""
        to_end = self._follow_end and self.is_at_end
        top = self._first_rows[0] + self.scroll_offset.y
        for kind, text in lines:
            self._lines.append((kind, text))
            self._first_rows.append(self._first_rows[-1] + len(self._find_row_starts(text)))
        excess = max(0, len(self._lines) - self._max_lines)
        del self._lines[:excess], self._first_rows[:excess]
        self._scroll(to_end=to_end, top=top - self._first_rows[0])

    def on_resize(self) -> None:
        to_end = self._follow_end and self.is_at_end
        top = self.scroll_offset.y
        line = self.find_line(top)
        width, self._visible_rows = self.scrollable_content_region.size
        if width != self._width:
            self._width = width
            self._first_rows = list(
                accumulate((len(self._find_row_starts(text)) for _, text in self._lines), initial=0)
            )
            top = self._first_rows[line]
        if to_end and self._result_line is not None and line <= self._result_line:
            self._show_result()
        else:
            self._scroll(to_end=to_end, top=top)

    def mark_result(self, kinds: Collection[str]) -> None:
        """The lines of these `kinds` at the end are the result, and no more lines follow. While the end is in sight,
        scroll to where the result begins; if all of it fits, the end stays in sight."""
        is_followed = self.is_at_end
        others = (number for number in range(len(self._lines), 0, -1) if self._lines[number - 1][0] not in kinds)
        self._result_line = next(others, 0)
        if is_followed:
            self._show_result()

    def _show_result(self) -> None:
        self._scroll(to_end=False, top=self._first_rows[self._result_line or 0] - self._first_rows[0])

    def _scroll(self, *, to_end: bool, top: int) -> None:
        """Scroll to the end of the lines, else to row `top`."""
        self.update_row_count()
        self.scroll_to(y=self.max_scroll_y if to_end else max(0, top), animate=False, force=True)

    def _find_row_starts(self, text: str) -> tuple[int, ...]:
        return find_row_starts(text, max(8, self._width - len(self._signs[""])))

    def find_line(self, row: int) -> int:
        """The number of the line that row `row` belongs to."""
        return bisect_right(self._first_rows, row + self._first_rows[0]) - 1

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        line = self.find_line(number)
        part = number + self._first_rows[0] - self._first_rows[line]
        kind, text = self._lines[line]
        base = self.choose_base_style(line, base)
        sign = self.choose_sign(line)
        start, end = (*self._find_row_starts(text), None)[part : part + 2]
        position = len(sign) + (start or 0)
        lead: Iterable[Segment] = self.make_lead_segments(line, part, base)
        if sign and not part:
            lead = make_selectable(self, lead, 0, line)
        else:  # it is not copied: a selection that begins there begins with the text
            begin = Style.from_meta({"offset": (position, line)})
            lead = [Segment(item, (style or base) + begin) for piece, style, _ in lead for item in piece]
        piece = Segment(text[start:end], base + self.choose_kind_style(kind))
        return Strip([*lead, *make_selectable(self, [piece], position, line)]).crop_extend(0, width, base)

    def choose_base_style(self, line: int, base: Style) -> Style:
        """The background style of a line."""
        return base

    def choose_sign(self, line: int) -> str:
        """The sign before a line, which is copied with it."""
        kind = self._lines[line][0]
        if kind in PARAGRAPH_KINDS and line and self._lines[line - 1][0] == kind:
            kind = ""
        return self._signs.get(kind, self._signs[""])

    def make_lead_segments(self, line: int, part: int, base: Style) -> list[Segment]:
        """The segments before row `part` of a line."""
        return [
            Segment(
                self._signs[""] if part else self.choose_sign(line), base + self.choose_kind_style(self._lines[line][0])
            )
        ]

    def choose_kind_style(self, kind: str) -> Style:
        """The style of the lines of a kind."""
        return self.get_style(kind if kind in self.TONES else "output")

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = [self.choose_sign(number) + text for number, (_, text) in enumerate(self._lines)]
        return selection.extract("\n".join(lines)), "\n"


def _make_failure_lines(session: SessionView) -> list[tuple[str, str]]:
    """The end of the output of a run whose tests failed: each cause with the number of its tests and the first of them.

    The engine groups failures that are alike. A bisect ends with its culprit, so it has no such lines.
    """
    check = session.check
    if check is None or not check.faults or session.facts.get("culprit"):
        return []
    signatures = session.facts.get("signatures") or {}
    groups: dict[str, list[str]] = {}  # the tests by the cause of their failure, "" where none is known
    for test in check.faults:
        groups.setdefault(signatures.get(test, ""), []).append(test)
    causes = f", {formats.count(len(groups), 'cause')}" if any(groups) else ""
    lines = [("", ""), ("failed", f"{failures(check.failed, check.errors)}{causes}")]
    for cause, tests in sorted(groups.items(), key=lambda pair: (not pair[0], -len(pair[1]))):
        message = one_line(session.facts.get("messages", {}).get(cause, cause))
        if not message:
            lines += [("error", one_line(test)) for test in tests]
            continue
        lines.append(("error", f"{formats.count(len(tests), 'test')}: {message}"))
        others = f"  and {len(tests) - 1} more like it" if len(tests) > 1 else ""
        if others or tests[0] not in message:
            lines.append(("same", f"  {one_line(tests[0])}{others}"))
    return lines


# Not compiled here, which would delay the first frame; `re` caches what it compiles.
_TESTS_PATTERN = (
    r"(?:(?:\S+ )?(?P<dots>[.FEsxX]+)|\S+::.* (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS))"
    r" *\[ *(?P<percent>\d+)%\]"
)
_BAR_PATTERN = r"(?=.*[█▉▊▋▌▍▎▏▇━#=>]{3})(?:.*?\s)?(?P<percent>\d{1,3}) ?%"  # pip, npm, curl -#, tqdm
# A line with such a word is shown as it is.
_PROBLEM_PATTERN = r"(?i)error|fail|fatal|fault|refus|denied|abort|panic|warn|exception"
_FAILED_RESULTS = frozenset({"F", "E", "FAILED", "ERROR"})


class Progress:
    """Recognises progress in the lines of a program, which are read in their order."""

    def __init__(self) -> None:
        self._done = self._failed = 0
        self._percent = 0.0

    def make_row(self, line: str) -> str | None:
        """The row in place of `line` and the lines of progress before it; None for a line without progress."""
        line = line.strip()
        if match := re.fullmatch(_TESTS_PATTERN, line):
            return self._count_tests(list(match["dots"] or ()) or [match["word"]], float(match["percent"]))
        match = None if re.search(_PROBLEM_PATTERN, line) else re.match(_BAR_PATTERN, line)
        return _draw_progress_bar(float(match["percent"])) if match else None

    def _count_tests(self, results: list[str], percent: float) -> str:
        if percent < self._percent:  # another run of the tests
            self._done = self._failed = 0
        self._percent = percent
        self._done += len(results)
        self._failed += sum(result in _FAILED_RESULTS for result in results)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{_draw_progress_bar(percent)}  {self._done} run{failed}"


PROGRESS_BAR_CELLS = 16
"""Cells of a bar."""


def _draw_progress_bar(percent: float) -> str:
    """`━━━━────  50 %`; more than 100 is shown as 100."""
    percent = min(100.0, percent)
    filled = round(PROGRESS_BAR_CELLS * percent / 100)
    return f"{'━' * filled}{'─' * (PROGRESS_BAR_CELLS - filled)} {percent:3.0f} %"


PAGE_LINES = 2000
"""Number of lines that are read at once."""

LAST_LINE_CHARS = 60
"""Number of characters at the end of a line that streams in which are its news, where only one row is shown."""

PULL_INTERVAL_S = 0.05
"""Seconds between two readings while a session writes."""

RESULT_KINDS = frozenset({"note", "say", "error", "failed", "same", ""})
"""Kinds of lines that say what came out. Output of commands is none of them."""


class Transcript(LinesView):
    """The output of one session. Progress that a program prints becomes one row with a bar."""

    app: Console

    class Grew(Message):
        """New lines are on screen."""

    def __init__(self, *, max_lines: int = 20_000, id: str) -> None:
        super().__init__(max_lines=max_lines, empty="Nothing has run yet.", id=id)
        self.session_id = ""
        self.last_line = ""
        self._last_number = 0
        self._is_pulling = self._has_more = False
        self._ends_unfinished = False  # the last row is a line that still streams in
        self._progress = Progress()
        self._session: SessionView | None = None
        self._has_summary = False  # the failed tests stand at the end

    def follow(self, session: SessionView | None) -> None:
        """Show the last lines of `session`; for the same session again, only read what is new."""
        if session is None:
            return
        self._session = session
        if session.id != self.session_id:
            self.session_id = session.id
            self.last_line = ""
            self._last_number = max(0, session.lines - self._max_lines)
            self._progress = Progress()
            self._has_summary = False
            self._ends_unfinished = False
            self.clear()
        is_readable = self.app.engine is not None or not session.lines
        self.empty = "No output yet." if is_readable else "Its output is shown once the engine is open."
        self.pull()

    def pull(self) -> None:
        """Read the lines after the last one shown, off the event loop; one reading at a time."""
        self._has_more = True
        if self.app.engine is not None and not self._is_pulling:
            self._is_pulling = True
            _: Worker[None] = self.run_worker(self._pull, group="pull", exit_on_error=False)

    async def _pull(self) -> None:
        """Read page after page until there is nothing new; then add the summary of a run that is over."""
        try:
            while self._has_more and (engine := self.app.engine) is not None:
                self._has_more, session_id = False, self.session_id
                lines = await asyncio.to_thread(
                    engine.sessions.read_transcript, session_id, after=self._last_number, limit=PAGE_LINES
                )
                if session_id != self.session_id:
                    self._has_more = True
                    continue
                self._has_more |= len(lines) == PAGE_LINES
                unfinished = None if self._has_more else engine.sessions.read_unfinished_line(session_id)
                if lines or unfinished or self._ends_unfinished:
                    self._add_lines(lines, unfinished)
                    self.post_message(self.Grew())
                if self._has_more:
                    await asyncio.sleep(PULL_INTERVAL_S)
                else:
                    self._add_summary()
        finally:
            self._is_pulling = False

    def _add_lines(self, lines: Sequence[TranscriptLine], unfinished: TranscriptLine | None) -> None:
        """Show `lines`, then the line that is not complete; consecutive lines of progress become one row."""
        if lines:
            self._last_number = lines[-1].number
            self.last_line = lines[-1].text
        if unfinished:
            self.last_line = unfinished.text[-LAST_LINE_CHARS:]
        new_lines = self._remove_open_lines()
        self._ends_unfinished = unfinished is not None
        for line in lines:
            if line.kind == "command":
                self._progress = Progress()
            row = self._progress.make_row(line.text) if line.kind == "output" else None
            if row is not None and new_lines and new_lines[-1][0] == "progress":
                new_lines.pop()
            has_failed = line.kind == "exit" and not line.text.startswith("exit 0")  # the command before
            kind = "failed" if has_failed else line.kind
            new_lines.append((kind, line.text) if row is None else ("progress", row))
        if unfinished is not None:
            new_lines.append((unfinished.kind, unfinished.text))
        self.extend(new_lines)

    def _remove_open_lines(self) -> list[tuple[str, str]]:
        """Remove what the next lines go on with: an unfinished line, and a row of progress, which is returned."""
        if self._ends_unfinished:
            self._remove_last_line()
        is_progress = bool(self._lines) and self._lines[-1][0] == "progress"
        return [self._remove_last_line()] if is_progress else []

    def _remove_last_line(self) -> tuple[str, str]:
        self._first_rows.pop()
        return self._lines.pop()

    def _add_summary(self) -> None:
        """At the end of a run, add the failures of tests by cause, and show where the result begins."""
        session = self._session
        if session is None or self._has_summary or not session.state.is_over or self._last_number < session.lines:
            return
        self._has_summary = True
        self.extend(_make_failure_lines(session))
        self.mark_result(RESULT_KINDS)
