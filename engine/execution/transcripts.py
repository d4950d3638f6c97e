"""Writes and reads the transcripts of sessions (SPEC 3.8).

A transcript is a JSONL file of limited size, to which batches are appended, and which is read in pages. Readers read
the file even while the session runs, so that a line on the screen is always on disk. Control characters and secrets are
removed before a line is written (SPEC 11.1), so that screens, prompts and exports can use it as it is.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.execution.output_lines import MAX_LINE
from engine.model import TranscriptLine
from engine.model.secrets import CUT, Redactor

MAX_OUTPUT_LINES = 200_000
"""Maximum number of lines of output of one session."""

MAX_LINES = MAX_OUTPUT_LINES + 5_000
"""Maximum number of all lines, with notes, errors and exits."""

CUT_NOTE = f"{CUT} replaces what is, or looks like, a key or a password; it is not stored anywhere"

_MAX_REMEMBERED = 64  # files whose last page is remembered


class TranscriptWriter:
    """Writes the transcript of one session. `flush`, which is called often, writes new lines to the file. Thread-safe.

    `flush` and `close` raise OSError when the disk is full. The lines are then kept for another try.
    """

    def __init__(self, path: Path, clock: Clock, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        """`secrets` returns values that are never written, besides those that look secret."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.RLock()
        self._batch: list[str] = []
        self._recent: deque[str] = deque(maxlen=20)
        self._secrets = secrets
        self._redactors: dict[str, Redactor] = {}
        self._cut_said = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lines = _cut_partial_line(self._file)

    @property
    def lines(self) -> int:
        """The number of lines so far, flushed or not. It is also the number of the newest line."""
        return self._lines

    def append(self, kind: str, texts: list[str]) -> None:
        """Append lines of one kind (see `TranscriptLine`), which have no control characters. Secrets are removed here,
        with a note the first time."""
        at = self._clock.now().isoformat()
        with self._lock:
            for text in self._redactors.setdefault(kind, Redactor(self._secrets)).lines(texts):
                if self._lines >= (MAX_OUTPUT_LINES if kind == "output" else MAX_LINES):
                    return
                if len(text) > MAX_LINE:
                    text = f"{text[:MAX_LINE]} … [{len(text) - MAX_LINE:,} more characters cut]"
                before = self._lines
                self._append_line(at, kind, text)
                if CUT in text and not self._cut_said:
                    self._cut_said = True
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


class TranscriptReader:
    """Reads pages by line number. It remembers where the last page of each file ended, because the next one usually
    begins there. Thread-safe."""

    def __init__(self) -> None:
        self._ends: dict[Path, tuple[int, int]] = {}

    def page(self, path: Path, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines after the line number `after`, counted from 1. None if the file does not exist. An
        incomplete last line is left out."""
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
        if len(self._ends) >= _MAX_REMEMBERED:
            self._ends.clear()
        self._ends[path] = number, offset
        return page_lines
