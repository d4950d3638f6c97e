"""Writes text that comes in pieces into the transcript, in whole lines and sentences (SPEC 9.2)."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.model.secrets import parting

MAX_LINE = 4_000
"""Characters of an incomplete line that are kept back; a longer one is written as it is."""

_SENTENCE_ENDS = re.compile(r"(?<=[^\W\d_]{2})[.!?]\s+")
"""After a word: "1." and "e.g." end no sentence."""


class StreamedText:
    """Receives text in pieces and passes whole lines to `write`: of an incomplete line its whole sentences at
    `write_sentences`, its rest at `flush` or when the kind changes. No secret is split: `clean` tells where one is.

    A slow model pauses after each word, and a single word on a line is hard to read."""

    def __init__(
        self, write: Callable[[str, str], None], clean: Callable[[str], str], *, max_line: int = MAX_LINE
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
        """Write the whole sentences so far: no text came for a while."""
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
        """Write the rest: the text is complete."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)
