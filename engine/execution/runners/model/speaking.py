"""What a model says while it says it, as whole lines of the transcript (SPEC 9.2)."""

from __future__ import annotations

from collections.abc import Callable

from engine.values.secrets import parting

LINE_MOST = 4_000
"""Characters of a line without end that are kept back; after so many it is written as it is."""


class Speaking:
    """Takes text in pieces, gives `write` whole lines; what is settled of a line at `pause`, its rest at `end` or when
    the kind changes. No secret is torn by that: `clean` tells where one stands."""

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
            self.pause()

    def pause(self) -> None:
        """Nothing came for a while."""
        place = parting(self._rest, self._clean)
        head, self._rest = self._rest[:place], self._rest[place:]
        if head.strip():
            self._write(self._kind, head)

    def end(self) -> None:
        """Nothing more will come."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)
