"""The transcript of one session, followed while it grows. Progress that a program prints becomes one row with a bar."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from textual.message import Message

from clawpy_console.widgets.lines import LinesView
from clawpy_console.widgets.session import failure_lines
from engine.model import SessionView, TranscriptLine

BAR_CELLS = 16
"""Cells of a bar."""

# Not compiled here, which would delay the first frame; `re` caches what it compiles.
_PYTEST = r"(?:\S+ )?(?P<dots>[.FEsxX]+) *\[ *(?P<percent>\d+)%\]"
_PYTEST_VERBOSE = r"\S+::.* (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) *\[ *(?P<percent>\d+)%\]"
_CARGO_TESTS = r"running (?P<total>\d+) tests?"
_CARGO_TEST = r"test \S+ \.\.\. (?P<word>ok|FAILED|ignored)"
_PROGRESS_RATIO = r"(?:.*\s|\d+%)?[\[|][█▉▊▋▌▍▎▏▇━╸#=>.\- ]{3,}[\]|]:? *(?P<done>\d+)/(?P<total>\d+)(?!\S*/)"
# npm, pip, curl -#
_PROGRESS_PERCENT = r"(?=.*[█▉▊▋▌▍▎▏▇━#=>]{3})(?:.*?\s)?(?P<percent>\d{1,3}) ?%"
_PROBLEM = r"(?i)error|fail|fatal|fault|refus|denied|abort|panic|warn|exception"  # such a line is shown as it is
_FAILED_RESULTS = frozenset({"F", "E", "FAILED", "ERROR"})


class Progress:
    """Recognises progress in the lines of a program, which are read in their order."""

    def __init__(self) -> None:
        self._reset(0)

    def _reset(self, total: int) -> None:
        self._done = self._failed = 0
        self._total, self._percent = total, 0.0

    def progress_row(self, line: str) -> str | None:
        """The row in place of `line` and the lines of progress before it; None for a line without progress."""
        line = line.strip()
        if match := re.fullmatch(_CARGO_TESTS, line):
            self._reset(int(match["total"]))
            return None
        if match := re.fullmatch(_PYTEST, line):
            return self._count_tests(list(match["dots"]), float(match["percent"]))
        if match := re.fullmatch(_PYTEST_VERBOSE, line):
            return self._count_tests([match["word"]], float(match["percent"]))
        if self._total and (match := re.fullmatch(_CARGO_TEST, line)):
            return self._count_tests([match["word"]], 100 * (self._done + 1) / self._total)
        if re.search(_PROBLEM, line):
            return None
        if match := re.match(_PROGRESS_RATIO, line):
            done, total = int(match["done"]), max(1, int(match["total"]))
            return f"{progress_bar(100 * done / total)}  {done} of {total}"
        if match := re.match(_PROGRESS_PERCENT, line):
            return progress_bar(float(match["percent"]))
        return None

    def _count_tests(self, results: list[str], percent: float) -> str:
        if percent < self._percent:  # another run of the tests
            self._reset(self._total)
        self._percent = percent
        self._done += len(results)
        self._failed += sum(result in _FAILED_RESULTS for result in results)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{progress_bar(percent)}  {self._done}{f' of {self._total}' if self._total else ''} run{failed}"


def progress_bar(percent: float) -> str:
    """`━━━━────  50 %`; more than 100 is shown as 100."""
    percent = min(100.0, percent)
    filled = round(BAR_CELLS * percent / 100)
    return f"{'━' * filled}{'─' * (BAR_CELLS - filled)} {percent:3.0f} %"


Fetch = Callable[[str, int, int], Sequence[TranscriptLine]]
"""`fetch(session_id, after, limit)`: blocking, called in a thread."""

PAGE_LINES = 2000
"""Number of lines that are read at once."""

PULL_INTERVAL_S = 0.05
"""Seconds between two readings while a session writes."""


class Transcript(LinesView):
    """The output of one session. `pull` reads what is new; one reading at a time."""

    class Grew(Message):
        """New lines are on screen."""

    def __init__(self, *, max_lines: int = 20_000, id: str | None = None) -> None:
        super().__init__(max_lines=max_lines, empty="Nothing has run yet.", id=id)
        self.session_id = ""
        self.last_line = ""
        self._last_number = 0
        self._pulling = False
        self._pull_again = False
        self._progress = Progress()
        self._session: SessionView | None = None
        self._has_summary = False  # the failed tests stand at the end

    def follow(self, session: SessionView | None, fetch: Fetch | None) -> None:
        """Show the last lines of `session`; for the same session again, only read what is new."""
        if session is None:
            return
        self._session = session
        if session.id != self.session_id:
            self.session_id = session.id
            self._last_number = max(0, session.lines - self._max_lines)
            self.last_line = ""
            self._progress, self._has_summary = Progress(), False
            self.clear(empty="No output yet.")
        if fetch is not None:
            self.pull(fetch)

    def pull(self, fetch: Fetch) -> None:
        """Read the lines after the last one shown, off the event loop."""
        if self._pulling:
            self._pull_again = True
            return
        self._pulling = True
        self.run_worker(self._pull(fetch), group="pull", exit_on_error=False)

    async def _pull(self, fetch: Fetch) -> None:
        try:
            while True:
                self._pull_again = False
                session_id = self.session_id
                lines = await asyncio.to_thread(fetch, session_id, self._last_number, PAGE_LINES)
                if session_id != self.session_id:
                    continue
                if lines:
                    self._last_number = lines[-1].number
                    self._add_lines(lines)
                    self.last_line = lines[-1].text
                    self.post_message(self.Grew())
                if len(lines) < PAGE_LINES and not self._pull_again:
                    self._add_summary()
                    return
                await asyncio.sleep(PULL_INTERVAL_S)
        finally:
            self._pulling = False

    def _add_lines(self, lines: Sequence[TranscriptLine]) -> None:
        """Show `lines`; consecutive lines of progress become one row."""
        new_lines: list[tuple[str, str]] = []
        last_kind = self._lines[-1][0] if self._lines else ""
        for line in lines:
            row = self._progress.progress_row(line.text) if line.kind == "output" else None
            if row is None:
                new_lines.append((_line_kind(line), line.text))
            elif new_lines and new_lines[-1][0] == "progress":
                new_lines[-1] = ("progress", row)
            elif not new_lines and last_kind == "progress":
                self.replace_last(row)
            else:
                new_lines.append(("progress", row))
        self.extend(new_lines)

    def _add_summary(self) -> None:
        """At the end of a run whose tests failed, add the failures by cause."""
        session = self._session
        if session is None or self._has_summary or not session.state.over or self._last_number < session.lines:
            return
        self._has_summary = True
        self.extend(failure_lines(session))


def _line_kind(line: TranscriptLine) -> str:
    if line.kind == "exit":
        return "exit" if line.text.startswith("exit 0") else "failed"
    return line.kind
