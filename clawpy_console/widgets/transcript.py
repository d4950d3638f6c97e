"""The transcript of one session, followed while it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.message import Message

from clawpy_console.widgets.lines import LinesView
from engine.values import SessionView, TranscriptLine

Fetch = Callable[[str, int, int], Sequence[TranscriptLine]]
"""`fetch(session_id, after, limit)`: blocking, called in a thread."""

PAGE = 2000


class Transcript(LinesView):
    """Shows one session and pulls what is new when told so; one pull at a time."""

    class Grew(Message):
        """New lines are on screen."""

    def __init__(self, *, tail: int = 20_000, wrap: bool = True, id: str | None = None) -> None:
        super().__init__(cap=tail, empty="Nothing has run yet.", wrap=wrap, id=id)
        self._tail = tail
        self.session_id = ""
        self.last_line = ""
        self._seen = 0
        self._pulling = False
        self._again = False

    def follow(self, session: SessionView | None, fetch: Fetch | None) -> None:
        """Show `session` from its tail on; the same session again only pulls what is new."""
        if session is None:
            return
        if session.id != self.session_id:
            self.session_id = session.id
            self._seen = max(0, session.lines - self._tail)
            self.last_line = ""
            self.clear(empty="No output yet.")
        if fetch is not None:
            self.pull(fetch)

    def pull(self, fetch: Fetch) -> None:
        """Read the lines after the last one seen, off the event loop."""
        if self._pulling:
            self._again = True
            return
        self._pulling = True
        self.run_worker(self._pull(fetch), group="pull", exit_on_error=False)

    async def _pull(self, fetch: Fetch) -> None:
        try:
            while True:
                self._again = False
                session_id = self.session_id
                lines = await asyncio.to_thread(fetch, session_id, self._seen, PAGE)
                if session_id != self.session_id:
                    continue
                if lines:
                    self._seen = lines[-1].number
                    self.extend((_kind(line), line.text) for line in lines)
                    self.last_line = lines[-1].text
                    self.post_message(self.Grew())
                if len(lines) < PAGE and not self._again:
                    return
                await asyncio.sleep(0.05)
        finally:
            self._pulling = False


def _kind(line: TranscriptLine) -> str:
    if line.kind == "exit":
        return "exit" if line.text.startswith("exit 0") else "failed"
    return line.kind
