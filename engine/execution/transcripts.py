"""Records what happens in a session, without secrets: what it prints, and which tools it calls (SPEC 3.8, 5).

What programs and models print is split into lines, for transcripts and results. A transcript is a JSONL file of limited
size, to which batches are appended, and which is read in pages. Readers read the file even while the session runs, so
that a line on the screen is always on disk. Control characters and secrets are removed before a line is written
(SPEC 11.1), so that screens, prompts and exports can use it as it is. Memory does not grow with a command's output.

Tool calls and errors are recorded in the session's last transaction, for learning.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.events import Event
from engine.events.work import AgentErred, ToolsUsed
from engine.model import SessionView, TranscriptLine
from engine.redaction import CUT, MAX_KEY_CHARS, MIN_SECRET_CHARS, Redactor, redact
from engine.text import sanitise

# -- writing the file

MAX_OUTPUT_LINES = 200_000
"""Maximum number of lines of output of one session."""

MAX_LINES = MAX_OUTPUT_LINES + 5_000
"""Maximum number of all lines, with notes, errors and exits."""

CUT_NOTE = f"{CUT} replaces what is, or looks like, a key or a password; it is not stored anywhere"

MAX_LINE_CHARS = 8_000
"""Maximum number of characters of a stored line, and of bytes of an unfinished line of a program in memory."""


class TranscriptWriter:
    """Writes the transcript of one session. `flush`, which is called often, writes new lines to the file. Thread-safe.

    Text that streams in pieces is written in whole lines. `unfinished` is the kind and the text of its last line, which
    is not in the file; it is as old as the last flush.

    `flush` and `close` raise OSError when the disk is full. The lines are then kept for another try.
    """

    def __init__(self, path: Path, clock: Clock, secrets: Callable[[], Iterable[str]]) -> None:
        """`secrets` returns values that are never written, besides those that look secret."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.RLock()
        self._batch: list[str] = []
        self._recent: deque[str] = deque(maxlen=20)
        self._secrets = secrets
        self._streamed = StreamedText(self.append, secrets)
        self.unfinished = ("", "")
        self._redactors: dict[str, Redactor] = {}
        self._has_cut_note = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lines = _cut_partial_line(self._file)

    @property
    def lines(self) -> int:
        """The number of lines so far, flushed or not. It is also the number of the newest line."""
        return self._lines

    @property
    def unfinished_line(self) -> TranscriptLine | None:
        """The line that streams in and is not complete, None for none."""
        kind, text = self.unfinished
        return TranscriptLine(self._lines + 1, self._clock.now(), kind, text) if kind else None

    def stream(self, kind: str, text: str) -> None:
        """Add the next piece of a text that streams in."""
        with self._lock:
            self._streamed.add(kind, text)

    def end_stream(self) -> None:
        """Write the rest of the text that streamed in: it is complete."""
        with self._lock:
            self._streamed.flush()

    def append(self, kind: str, texts: list[str]) -> None:
        """Append lines of one kind (see `TranscriptLine`), which have no control characters. Secrets are removed here,
        with a note the first time."""
        at = self._clock.now().isoformat()
        with self._lock:
            for text in self._redactors.setdefault(kind, Redactor(self._secrets)).redact(texts):
                if self._lines >= (MAX_OUTPUT_LINES if kind == "output" else MAX_LINES):
                    return
                if len(text) > MAX_LINE_CHARS:
                    text = f"{text[:MAX_LINE_CHARS]} … [{len(text) - MAX_LINE_CHARS:,} more characters cut]"
                before = self._lines
                self._append_line(at, kind, text)
                if CUT in text and not self._has_cut_note:
                    self._has_cut_note = True
                    self._append_line(at, "note", CUT_NOTE)
                if before < MAX_OUTPUT_LINES <= self._lines:
                    self._append_line(
                        at, "note", f"the transcript keeps {MAX_OUTPUT_LINES:,} lines of output; the rest is dropped"
                    )

    def _append_line(self, at: str, kind: str, text: str) -> None:
        self._lines += 1
        self._batch.append(json.dumps({"at": at, "kind": kind, "text": text}, ensure_ascii=False))
        self._recent.append(text)

    def flush(self) -> str:
        """Write the lines since the last flush. Returns the last few of them, "" for none."""
        with self._lock:
            self.unfinished = self._streamed.unfinished
            if self._file < 0:
                self._batch.clear()  # lines of a thread that goes on after the session's end
            if not self._batch:
                return ""
            data = ("\n".join(self._batch) + "\n").encode(errors="replace")
            start = os.lseek(self._file, 0, os.SEEK_END)
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                os.ftruncate(self._file, start)  # the whole batch is written again, never half of it
                raise
            self._batch.clear()
            recent = "\n".join(self._recent)
            self._recent.clear()
            return recent

    def close(self) -> None:
        """Flush and sync the file. Safe to call twice."""
        # Under the lock, because a moment later the descriptor of a closed file may be another file's.
        with self._lock:
            if self._file < 0:
                return
            try:
                self.flush()
                os.fsync(self._file)
            finally:
                os.close(self._file)
                self._file = -1


def _cut_partial_line(file: int) -> int:
    """Cut off a line that a crash left half-written. Returns the number of whole lines."""
    lines = size = complete_size = 0
    while chunk := os.pread(file, 1 << 20, size):
        lines += chunk.count(b"\n")
        last = chunk.rfind(b"\n")
        if last >= 0:
            complete_size = size + last + 1
        size += len(chunk)
    if complete_size != size:
        os.ftruncate(file, complete_size)
    return lines


# -- reading it in pages

_MAX_REMEMBERED_PAGES = 64
"""Maximum number of files of which the end of the last page is remembered."""


class TranscriptReader:
    """Reads pages by line number. It remembers where the last page of each file ended, because the next one usually
    begins there. Thread-safe."""

    def __init__(self) -> None:
        self._ends: dict[Path, tuple[int, int]] = {}
        """(number of the last line, offset of the next byte) where the last page of each file ended."""

    def read_page(self, path: Path, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines after the line number `after`, counted from 1; none if the file does not exist.
        An incomplete last line is left out."""
        if limit <= 0 or not path.is_file():
            return []
        number, offset = self._ends.get(path, (0, 0))
        if after < number:
            number = offset = 0
        page_lines: list[TranscriptLine] = []
        with path.open("rb") as file:
            file.seek(offset)
            for raw in file:
                if not raw.endswith(b"\n") or len(page_lines) == limit:
                    break
                number, offset = number + 1, offset + len(raw)
                if number > after:
                    entry = json.loads(raw)
                    at = datetime.fromisoformat(entry["at"])
                    page_lines.append(TranscriptLine(number, at, entry["kind"], entry["text"]))
        if len(self._ends) >= _MAX_REMEMBERED_PAGES:
            self._ends.clear()
        self._ends[path] = number, offset
        return page_lines


class Transcripts:
    """The transcripts of one home, in files by session."""

    def __init__(self, folder: Path, clock: Clock, secrets: Callable[[], Iterable[str]]) -> None:
        """`secrets` are as for `TranscriptWriter`."""
        self._folder = folder
        self._clock = clock
        self._secrets = secrets
        self._reader = TranscriptReader()

    def open(self, session_id: str) -> TranscriptWriter:
        """The transcript of a session, to be continued."""
        return TranscriptWriter(self._get_path(session_id), self._clock, self._secrets)

    def read(self, session_id: str, *, after: int, limit: int) -> list[TranscriptLine]:
        """A page of the transcript of a session; see `TranscriptReader.read_page`."""
        return self._reader.read_page(self._get_path(session_id), after=after, limit=limit)

    def _get_path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.jsonl"


# -- what programs print


class LineSplitter:
    """Splits the output of a program into lines, as a terminal would show them but without escapes. Secrets that
    `redactor` knows or recognises are removed, even if one is split between two chunks. A line of more than `max_bytes`
    is cut, with a note."""

    def __init__(self, redactor: Redactor | None = None, max_bytes: int = MAX_LINE_CHARS) -> None:
        self._redactor = redactor or Redactor()
        self._max_bytes = max_bytes
        self._pending = b""
        self._cut = 0

    @property
    def pending(self) -> str:
        """The last line so far, which is not complete."""
        return self._pending.decode(errors="replace")

    def split(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes."""
        data = self._pending + chunk
        complete, newline, rest = data.rpartition(b"\n")
        lines = self._clean(complete) if newline else []
        if newline and self._cut:
            lines[0] = self._mark_cut(lines[0])
        if len(rest) > self._max_bytes:
            _, redraw, last = rest.rpartition(b"\r")
            if redraw and last:
                rest = last  # a progress bar: only its newest state counts
            if len(rest) > self._max_bytes:
                self._cut += len(rest) - self._max_bytes
                rest = rest[: self._max_bytes]
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
        """A line that was cut, with a note that says so."""
        cut, self._cut = self._cut, 0
        # A key that the cut divides is not recognised. So the last word is removed as well.
        end = max(line.rfind(" ") + 1, len(line) - MAX_KEY_CHARS)
        return f"{line[:end]}… [{cut:,} more bytes cut]"

    def _clean(self, data: bytes) -> list[str]:
        """The lines of `data` as a terminal shows them, without secrets."""
        return self._redactor.redact(_select_visible_lines(data))


def _select_visible_lines(data: bytes) -> list[str]:
    """The lines that a terminal would show, without escapes."""
    text = data.decode(errors="replace")
    if "\r" in text:
        # Of a line with carriage returns, its last piece that is not empty is visible.
        text = "\n".join(next(filter(None, reversed(line.split("\r"))), "") for line in text.split("\n"))
    if "\x1b" in text:  # line by line, so that an escape without an end does not reach into the next line
        return [sanitise(line) for line in text.split("\n")]
    return sanitise(text).split("\n")


# -- text that streams in

_LAST_WORD = re.compile(rf"(?<![!-~])(?:{re.escape(CUT)}|[!-~])+$")
"""The last word of an incomplete line, which may be the beginning of a key. `CUT` is part of a word. What is looked
behind makes the search read each word once."""


class StreamedText:
    """Receives text in pieces, and passes whole lines to `write`, unless they are all blank.

    The rest of a line follows at `flush`, or when the kind changes; until then it is `unfinished`. No part of one of
    `secrets` is passed on or shown, not even of one that is cut or incomplete.
    """

    def __init__(self, write: Callable[[str, list[str]], None], secrets: Callable[[], Iterable[str]]) -> None:
        self._write = write
        self._secrets = secrets
        self._kind = ""
        self._splitter = LineSplitter(Redactor(secrets), 4 * MAX_LINE_CHARS)  # a character has up to four bytes

    def add(self, kind: str, text: str) -> None:
        """Add text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pass_on(self._splitter.split(text.encode(errors="replace")))

    @property
    def unfinished(self) -> tuple[str, str]:
        """The kind and the text of the last line so far, without its last word; ("", "") for none."""
        text, secrets = self._splitter.pending, tuple(self._secrets())
        begun = redact(text[: _find_open_secret(text, secrets)], secrets)
        shown = sanitise(_LAST_WORD.sub("", begun)).rstrip()
        return (self._kind, shown) if shown else ("", "")

    def flush(self) -> None:
        """Write the rest, because the text is complete."""
        self._pass_on(self._splitter.end())

    def _pass_on(self, lines: list[str]) -> None:
        if any(map(str.strip, lines)):
            self._write(self._kind, lines)


def _find_open_secret(text: str, secrets: Iterable[str]) -> int:
    """The index in a growing text at which one of `secrets` begins that may be incomplete; else the text's length."""
    begun = [
        length
        for secret in secrets
        if len(secret) >= MIN_SECRET_CHARS
        for length in range(1, min(len(secret), len(text)) + 1)
        if text.endswith(secret[:length])
    ]
    return len(text) - max(begun, default=0)


# -- tool calls and errors

MAX_CALLS = 500
"""Maximum number of recorded tool calls of one session."""

MAX_ERRORS = 50
"""Maximum number of recorded errors of one session. The same error is recorded once."""

MAX_ERROR_CHARS = 500
"""Maximum number of characters of an error."""


class ToolJournal:
    """The tool calls and errors of one session. Thread-safe. `secrets` returns values that are never recorded, besides
    those that look secret."""

    def __init__(self, secrets: Callable[[], Iterable[str]]) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._calls: list[str] = []
        self._errors: dict[tuple[str, str], None] = {}

    def note_call(self, call: str) -> None:
        """Note a tool call, in the form of `ToolsUsed`."""
        with self._lock:
            if len(self._calls) < MAX_CALLS:
                self._calls.append(call)

    def note_error(self, tool: str, message: str) -> None:
        """Note an error of a tool call that the agent did not intend. `tool` may also be its model or program."""
        error = sanitise(tool)[:60], redact(sanitise(message), self._secrets())[:MAX_ERROR_CHARS]
        with self._lock:
            if len(self._errors) < MAX_ERRORS:
                self._errors[error] = None

    def make_events(self, view: SessionView) -> Sequence[Event]:
        """The events to record."""
        with self._lock:
            calls, errors = tuple(self._calls), tuple(self._errors)
        events: list[Event] = [
            AgentErred(subject=view.id, workspace=view.workspace, agent=view.agent, tool=tool, message=message)
            for tool, message in errors
        ]
        if calls:
            events.append(ToolsUsed(subject=view.id, workspace=view.workspace, agent=view.agent, calls=calls))
        return events
