"""What a model says while it says it, as whole lines of the transcript (SPEC 9.2)."""

from __future__ import annotations

from collections.abc import Callable

LINE_MOST = 4_000
"""Characters of a line without end that are kept back; after so many it is written as it is."""


class Speaking:
    """Takes text in pieces, gives `write` whole lines; the rest of a line at `pause` or when the kind changes."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._kind = ""
        self._rest = ""

    def take(self, kind: str, text: str) -> None:
        """More text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.pause()
            self._kind = kind
        whole, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline and whole.strip():
            self._write(kind, whole)
        if len(self._rest) > LINE_MOST:
            self.pause()

    def pause(self) -> None:
        """Nothing came for a while, or nothing more will."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)
