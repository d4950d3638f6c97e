"""Progress that a program prints line after line, as one row with a bar and numbers. Pure."""

from __future__ import annotations

import re

BAR = 16
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
            return f"{bar(100 * done / total)}  {done} of {total}"
        if match := re.match(_DRAWN, line):
            return bar(float(match["percent"]))
        return None

    def _ran(self, results: list[str], percent: float) -> str:
        if percent < self._percent:  # another run of the tests
            self._begin(self._total)
        self._percent = percent
        self._done += len(results)
        self._failed += sum(one in _FAILED for one in results)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{bar(percent)}  {self._done}{f' of {self._total}' if self._total else ''} run{failed}"


def bar(percent: float) -> str:
    """`━━━━────  50 %`; what is beyond 100 counts as 100."""
    percent = min(100.0, percent)
    full = round(BAR * percent / 100)
    return f"{'━' * full}{'─' * (BAR - full)} {percent:3.0f} %"
