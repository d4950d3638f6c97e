"""The transcript of one session, followed while it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.message import Message

from clawpy_console.widgets.lines import LinesView
from clawpy_console.widgets.progress import Progress
from clawpy_console.widgets.session import failure_lines
from engine.model import SessionView, TranscriptLine

Fetch = Callable[[str, int, int], Sequence[TranscriptLine]]
"""`fetch(session_id, after, limit)`: blocking, called in a thread."""

PAGE = 2000


class Transcript(LinesView):
    """Shows one session and pulls what is new when told so; one pull at a time."""

    class Grew(Message):
        """New lines are on screen."""

    def __init__(self, *, tail: int = 20_000, id: str | None = None) -> None:
        super().__init__(cap=tail, empty="Nothing has run yet.", id=id)
        self._tail = tail
        self.session_id = ""
        self.last_line = ""
        self._seen = 0
        self._pulling = False
        self._again = False
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
            self._seen = max(0, session.lines - self._tail)
            self.last_line = ""
            self._progress, self._concluded = Progress(), False
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
                    self._add(lines)
                    self.last_line = lines[-1].text
                    self.post_message(self.Grew())
                if len(lines) < PAGE and not self._again:
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
        if session is None or self._concluded or not session.state.over or self._seen < session.lines:
            return
        self._concluded = True
        self.extend(failure_lines(session))


def _kind(line: TranscriptLine) -> str:
    if line.kind == "exit":
        return "exit" if line.text.startswith("exit 0") else "failed"
    return line.kind
