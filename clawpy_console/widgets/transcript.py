"""The transcript of one session, followed while it grows; progress that its program prints is one row with a bar."""

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

# As text: to compile them takes longer than the first frame may wait, and `re` keeps what it compiled.
_PYTEST = r"(?:\S+ )?(?P<dots>[.FEsxX]+) *\[ *(?P<percent>\d+)%\]"
_PYTEST_VERBOSE = r"\S+::.* (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) *\[ *(?P<percent>\d+)%\]"
_CARGO_TESTS = r"running (?P<total>\d+) tests?"
_CARGO_TEST = r"test \S+ \.\.\. (?P<word>ok|FAILED|ignored)"
_OF = r"(?:.*\s|\d+%)?[\[|][█▉▊▋▌▍▎▏▇━╸#=>.\- ]{3,}[\]|]:? *(?P<done>\d+)/(?P<total>\d+)(?!\S*/)"  # cargo build, tqdm
_DRAWN = r"(?=.*[█▉▊▋▌▍▎▏▇━#=>]{3})(?:.*?\s)?(?P<percent>\d{1,3}) ?%"  # npm, pip, curl -#
_TROUBLE = r"(?i)error|fail|fatal|fault|refus|denied|abort|panic|warn|exception"  # such a line is shown as it is
_FAILED = frozenset({"F", "E", "FAILED", "ERROR"})


class Progress:
    """Reads the lines of a program in their order, and remembers how far it is."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, total: int) -> None:
        self._done = self._failed = 0
        self._total, self._percent = total, 0.0

    def row(self, line: str) -> str | None:
        """The row that stands for `line` and for the lines of progress before it; None for a line that tells none."""
        line = line.strip()
        if match := re.fullmatch(_CARGO_TESTS, line):
            self._begin(int(match["total"]))
            return None
        if match := re.fullmatch(_PYTEST, line):
            return self._ran(list(match["dots"]), float(match["percent"]))
        if match := re.fullmatch(_PYTEST_VERBOSE, line):
            return self._ran([match["word"]], float(match["percent"]))
        if self._total and (match := re.fullmatch(_CARGO_TEST, line)):
            return self._ran([match["word"]], 100 * (self._done + 1) / self._total)
        if re.search(_TROUBLE, line):
            return None
        if match := re.match(_OF, line):
            done, total = int(match["done"]), max(1, int(match["total"]))
            return f"{progress_bar(100 * done / total)}  {done} of {total}"
        if match := re.match(_DRAWN, line):
            return progress_bar(float(match["percent"]))
        return None

    def _ran(self, results: list[str], percent: float) -> str:
        if percent < self._percent:  # another run of the tests
            self._begin(self._total)
        self._percent = percent
        self._done += len(results)
        self._failed += sum(result in _FAILED for result in results)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{progress_bar(percent)}  {self._done}{f' of {self._total}' if self._total else ''} run{failed}"


def progress_bar(percent: float) -> str:
    """`━━━━────  50 %`; what is beyond 100 counts as 100."""
    percent = min(100.0, percent)
    full = round(BAR_CELLS * percent / 100)
    return f"{'━' * full}{'─' * (BAR_CELLS - full)} {percent:3.0f} %"


Fetch = Callable[[str, int, int], Sequence[TranscriptLine]]
"""`fetch(session_id, after, limit)`: blocking, called in a thread."""

PAGE_LINES = 2000


class Transcript(LinesView):
    """Shows one session and pulls what is new when told so; one pull at a time."""

    class Grew(Message):
        """New lines are on screen."""

    def __init__(self, *, tail: int = 20_000, id: str | None = None) -> None:
        super().__init__(cap=tail, empty="Nothing has run yet.", id=id)
        self._tail = tail
        self.session_id = ""
        self.last_line = ""
        self._last_number = 0
        self._pulling = False
        self._pull_again = False
        self._progress = Progress()
        self._session: SessionView | None = None
        self._concluded = False  # the failures of the session stand at the end

    def follow(self, session: SessionView | None, fetch: Fetch | None) -> None:
        """Show `session` from its tail on; the same session again only pulls what is new."""
        if session is None:
            return
        self._session = session
        if session.id != self.session_id:
            self.session_id = session.id
            self._last_number = max(0, session.lines - self._tail)
            self.last_line = ""
            self._progress, self._concluded = Progress(), False
            self.clear(empty="No output yet.")
        if fetch is not None:
            self.pull(fetch)

    def pull(self, fetch: Fetch) -> None:
        """Read the lines after the last one seen, off the event loop."""
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
                    self._add(lines)
                    self.last_line = lines[-1].text
                    self.post_message(self.Grew())
                if len(lines) < PAGE_LINES and not self._pull_again:
                    self._conclude()
                    return
                await asyncio.sleep(0.05)
        finally:
            self._pulling = False

    def _add(self, lines: Sequence[TranscriptLine]) -> None:
        """Show `lines`; those in a row that tell of progress are one row, which moves."""
        shown: list[tuple[str, str]] = []
        last = self._lines[-1][0] if self._lines else ""
        for line in lines:
            row = self._progress.row(line.text) if line.kind == "output" else None
            if row is None:
                shown.append((_kind(line), line.text))
            elif shown and shown[-1][0] == "progress":
                shown[-1] = ("progress", row)
            elif not shown and last == "progress":
                self.replace_last(row)
            else:
                shown.append(("progress", row))
        self.extend(shown)

    def _conclude(self) -> None:
        """At the end of a run whose tests failed: the failures by cause."""
        session = self._session
        if session is None or self._concluded or not session.state.over or self._last_number < session.lines:
            return
        self._concluded = True
        self.extend(failure_lines(session))


def _kind(line: TranscriptLine) -> str:
    if line.kind == "exit":
        return "exit" if line.text.startswith("exit 0") else "failed"
    return line.kind
