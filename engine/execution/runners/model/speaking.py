"""What a model says while it says it, as whole lines of the transcript (SPEC 9.2)."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.model.secrets import parting

LINE_MOST = 4_000
"""Characters of a line without end that are kept back; after so many it is written as it is."""

_SENTENCE_ENDS = re.compile(r"(?<=[^\W\d_]{2})[.!?]\s+")
"""After a word: "1." and "e.g." end no sentence."""


class Speaking:
    """Takes text in pieces, gives `write` whole lines; of a line that is not complete its whole sentences at `pause`,
    its rest at `end` or when the kind changes. No secret is torn by that: `clean` tells where one stands.

    A slow model pauses after each word. What it says is read by line: a word alone in a line says nothing."""

    def __init__(self, write: Callable[[str, str], None], clean: Callable[[str], str]) -> None:
        self._write = write
        self._clean = clean
        self._kind = ""
        self._rest = ""

    def take(self, kind: str, text: str) -> None:
        """More text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.end()
            self._kind = kind
        whole, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline and whole.strip():
            self._write(kind, whole)
        if len(self._rest) > LINE_MOST:
            self._part(parting(self._rest, self._clean))

    def pause(self) -> None:
        """Nothing came for a while."""
        for found in reversed(list(_SENTENCE_ENDS.finditer(self._rest))):
            if parting(self._rest, self._clean, most=found.end()) == found.end():
                self._part(found.end())
                return

    def _part(self, place: int) -> None:
        """Write what stands before `place`."""
        head, self._rest = self._rest[:place], self._rest[place:]
        if head.strip():
            self._write(self._kind, head)

    def end(self) -> None:
        """Nothing more will come."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)
