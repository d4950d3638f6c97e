"""Splits what programs and models print into lines without secrets, for transcripts and results (SPEC 3.8).

Memory does not grow with a command's output.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from engine.model import sanitise
from engine.model.secrets import MAX_KEY_LENGTH, Redactor, parting

MAX_LINE = 8_000
"""Maximum number of characters of a stored line, and of bytes of an unfinished line in memory."""


class LineSplitter:
    """Splits the output of a program into lines, as a terminal would show them but without escapes. Secrets that
    `redactor` knows or recognises are removed, even if one is split between two chunks."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._pending = b""
        self._cut = 0

    def split(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes. A line longer than `MAX_LINE` is cut, with a note."""
        data = self._pending + chunk
        complete, newline, rest = data.rpartition(b"\n")
        lines = self._clean(complete) if newline else []
        if newline and self._cut:
            lines[0] = self._mark_cut(lines[0])
        if len(rest) > MAX_LINE:
            _, redraw, last = rest.rpartition(b"\r")
            if redraw and last:
                rest = last  # a progress bar: only its newest state counts
            if len(rest) > MAX_LINE:
                self._cut += len(rest) - MAX_LINE
                rest = rest[:MAX_LINE]
        self._pending = rest
        return lines

    def end(self) -> list[str]:
        """The last lines at the end of the output."""
        if not self._pending:
            return []
        lines = self._clean(self._pending)
        if self._cut:
            lines[-1] = self._mark_cut(lines[-1])
        self._pending = b""
        return lines

    def _mark_cut(self, line: str) -> str:
        cut, self._cut = self._cut, 0
        # A key that the cut divides is not recognised. So the last word is removed as well.
        end = max(line.rfind(" ") + 1, len(line) - MAX_KEY_LENGTH)
        return f"{line[:end]}… [{cut:,} more bytes cut]"

    def _clean(self, data: bytes) -> list[str]:
        return self._redactor.lines(self._plain(data))

    @staticmethod
    def _plain(data: bytes) -> list[str]:
        text = data.decode(errors="replace")
        if "\r" in text:
            text = "\n".join(_visible_text(line) for line in text.split("\n"))
        if "\x1b" in text:  # line by line, so that an escape without an end does not reach into the next line
            return [sanitise(line) for line in text.split("\n")]
        return sanitise(text).split("\n")


def _visible_text(line: str) -> str:
    """The visible text of a line with carriage returns: its last piece that is not empty."""
    return next((piece for piece in reversed(line.split("\r")) if piece), "")


MAX_PENDING = 4_000
"""Maximum number of characters of an incomplete line that wait. A longer one is written as it is."""

_SENTENCE_ENDS = re.compile(r"(?<=[^\W\d_]{2})[.!?]\s+")
"""The end of a sentence. The word before it must end with two letters, so that "1." and "e.g." do not match."""


class StreamedText:
    """Receives text in pieces, and passes whole lines to `write`.

    A slow model pauses after each word, but a single word on a line is hard to read. So `write_sentences` passes on
    only the whole sentences of an incomplete line. The rest of the line follows at `flush`, or when the kind changes. A
    text is never split inside a secret; `clean`, which removes secrets, shows where they are.
    """

    def __init__(
        self, write: Callable[[str, str], None], clean: Callable[[str], str], *, max_line: int = MAX_PENDING
    ) -> None:
        self._write = write
        self._clean = clean
        self._max_line = max_line
        self._kind = ""
        self._rest = ""

    def add(self, kind: str, text: str) -> None:
        """Add text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        whole, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline and whole.strip():
            self._write(kind, whole)
        while len(self._rest) > self._max_line and (cut := parting(self._rest, self._clean, limit=self._max_line)):
            self._write_until(cut)

    def write_sentences(self) -> None:
        """Write the whole sentences so far, because no text came for a while."""
        for end in reversed(list(_SENTENCE_ENDS.finditer(self._rest))):
            if parting(self._rest, self._clean, limit=end.end()) == end.end():
                self._write_until(end.end())
                return

    def _write_until(self, place: int) -> None:
        """Write the text before `place`."""
        head, self._rest = self._rest[:place], self._rest[place:]
        if head.strip():
            self._write(self._kind, head)

    def flush(self) -> None:
        """Write the rest, because the text is complete."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)


class Tail:
    """The end of a command's output: about `max_length` characters of whole lines."""

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, lines: list[str]) -> None:
        """Add the next lines."""
        self._lines.extend(lines)
        self._size += sum(map(len, lines)) + len(lines)
        while self._size > self._max_length and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        """The lines that are kept."""
        return "".join(f"{line}\n" for line in self._lines)
