"""Transcripts (SPEC 3.8): one append-only JSONL file a session, written in batches, read in pages, bounded in size.

A line that is on the screen once is on disk: readers read the file, also while the session runs. Text is made
harmless where it enters (STACK, Terminal), and what is secret in it is cut out there too (SPEC 11.1): who reads it
later, for a screen, a prompt or an export, has nothing to keep to himself. Memory stays flat however much a command
prints.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.model import TranscriptLine, sanitise
from engine.model.secrets import CUT, LONGEST, Redactor

LINE_CAP = 8_000
"""Characters of one line that are kept; bytes of a line without end that are held in memory."""

TOTAL_CAP = 200_000
"""Lines of output that are kept of one session; notes, errors and exits have 5,000 more."""

NOTES_CAP = TOTAL_CAP + 5_000

CUT_SAID = f"{CUT} replaces what is, or looks like, a key or a password; it is not stored anywhere"

_PAGE_MARK = 1_000
_INDEXES = 16


class LineSplitter:
    """Bytes of a program's output -> lines as a terminal would leave them: without escapes, after carriage returns,
    and without the secrets that `redactor` knows or finds, in however many chunks they came."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._pending = b""
        self._cut = 0

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes. A line without an end is cut at `LINE_CAP`, and says so."""
        data = self._pending + chunk
        complete, newline, rest = data.rpartition(b"\n")
        lines = self._clean(complete) if newline else []
        if newline and self._cut:
            lines[0] = self._marked(lines[0])
        if len(rest) > LINE_CAP:
            _, redraw, last = rest.rpartition(b"\r")
            if redraw and last:
                rest = last  # a progress bar: only its newest state counts
            if len(rest) > LINE_CAP:
                self._cut += len(rest) - LINE_CAP
                rest = rest[:LINE_CAP]
        self._pending = rest
        return lines

    def end(self) -> list[str]:
        """What is left when the output is over."""
        if not self._pending:
            return []
        lines = self._clean(self._pending)
        if self._cut:
            lines[-1] = self._marked(lines[-1])
        self._pending = b""
        return lines

    def _marked(self, line: str) -> str:
        cut, self._cut = self._cut, 0
        # Where it was cut a key may have been torn, which nothing recognises: the word that it would be in goes too.
        end = max(line.rfind(" ") + 1, len(line) - LONGEST)
        return f"{line[:end]}… [{cut:,} more bytes cut]"

    def _clean(self, data: bytes) -> list[str]:
        return self._redactor.lines(self._plain(data))

    @staticmethod
    def _plain(data: bytes) -> list[str]:
        text = data.decode(errors="replace")
        if "\r" in text:
            text = "\n".join(_after_return(line) for line in text.split("\n"))
        if "\x1b" in text:  # an escape that nothing ends does not reach into the next line
            return [sanitise(line) for line in text.split("\n")]
        return sanitise(text).split("\n")


def _after_return(line: str) -> str:
    """What a line shows after its carriage returns: the last piece that has anything in it."""
    return next((piece for piece in reversed(line.split("\r")) if piece), "")


class Tail:
    """The end of what a command printed, at most `kept` characters and a line."""

    def __init__(self, max_length: int) -> None:
        self._kept = max_length
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, lines: list[str]) -> None:
        """What was printed next."""
        self._lines.extend(lines)
        self._size += sum(map(len, lines)) + len(lines)
        while self._size > self._kept and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        """What is left of it."""
        return "".join(f"{line}\n" for line in self._lines)


class TranscriptWriter:
    """Writes one session's transcript. Thread-safe. Lines reach the file at `flush`, which somebody calls often.

    Raises OSError from `flush` and `close` when the disk is full; what was not written stays for another try, up to
    the caps.
    """

    def __init__(self, path: Path, clock: Clock, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        """`secrets`: values that are never written, besides what looks like one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._batch: list[str] = []
        self._recent: deque[str] = deque(maxlen=20)
        self._secrets = secrets
        self._redactors: dict[str, Redactor] = {}
        self._cut_said = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lines = _mend_tail(self._file)

    @property
    def lines(self) -> int:
        """How many lines were taken so far, flushed or not; also the number of the newest line."""
        return self._lines

    def append(self, kind: str, texts: list[str]) -> None:
        """Take lines of one kind (see `TranscriptLine`). Texts are harmless to a terminal already; what is secret in
        them is cut out here, which is said once."""
        at = self._clock.now().isoformat()
        with self._lock:
            for text in self._redactors.setdefault(kind, Redactor(self._secrets)).lines(texts):
                if self._lines >= (TOTAL_CAP if kind == "output" else NOTES_CAP):
                    return
                if len(text) > LINE_CAP:
                    text = f"{text[:LINE_CAP]} … [{len(text) - LINE_CAP:,} more characters cut]"
                before = self._lines
                self._take(at, kind, text)
                if CUT in text and not self._cut_said:
                    self._cut_said = True
                    self._take(at, "note", CUT_SAID)
                if before < TOTAL_CAP <= self._lines:
                    self._take(at, "note", f"the transcript keeps {TOTAL_CAP:,} lines of output; the rest is dropped")

    def _take(self, at: str, kind: str, text: str) -> None:
        self._lines += 1
        self._batch.append(json.dumps({"at": at, "kind": kind, "text": text}, ensure_ascii=False))
        self._recent.append(text)

    def flush(self) -> str:
        """Write what was taken since the last flush; returns its last few lines, "" when there was nothing."""
        with self._lock:
            if self._file < 0:
                self._batch.clear()  # words after the last one, of a thread that was not waited for
            if not self._batch:
                return ""
            data = ("\n".join(self._batch) + "\n").encode(errors="replace")
            start = os.lseek(self._file, 0, os.SEEK_END)
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                os.ftruncate(self._file, start)  # the whole batch comes again, never half of it
                raise
            self._batch.clear()
            recent = "\n".join(self._recent)
            self._recent.clear()
            return recent

    def close(self) -> None:
        """Flush, and put the file on disk for good. Safe to call twice."""
        # Under the lock: the number of a file that was closed may be another file's a moment later.
        with self._lock:
            if self._file < 0:
                return
            try:
                self.flush()
                os.fsync(self._file)
            finally:
                os.close(self._file)
                self._file = -1


def _mend_tail(file: int) -> int:
    """Cut off a line that a crash left half-written; returns how many whole lines there are."""
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
    """Reads pages by line number, from a sparse index of offsets that grows with the file. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Path, _Index] = OrderedDict()

    def page(self, path: Path, *, after: int = 0, limit: int = 2_000) -> list[TranscriptLine]:
        """At most `limit` lines whose number is greater than `after` (numbers count from 1). A line that is not
        complete yet is left for later; a file that is not there has no lines."""
        if limit <= 0 or not path.is_file():
            return []
        after = max(0, after)
        with path.open("rb") as file:
            with self._lock:
                index = self._indexes.setdefault(path, _Index())
                self._indexes.move_to_end(path)
                if len(self._indexes) > _INDEXES:
                    self._indexes.popitem(last=False)
                number, offset = index.nearest(file.fileno(), after)
            file.seek(offset)
            page_lines: list[TranscriptLine] = []
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                number += 1
                if number > after:
                    entry = json.loads(raw)
                    at = datetime.fromisoformat(entry["at"])
                    page_lines.append(TranscriptLine(number, at, entry["kind"], entry["text"]))
                    if len(page_lines) == limit:
                        break
            return page_lines


class _Index:
    """The offset behind every thousandth line of one file, as far as it was looked at."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._offsets = [0]
        self._lines = 0
        self._indexed_size = 0
        self._file = 0

    def nearest(self, file: int, after: int) -> tuple[int, int]:
        """The last known line at or before `after`, and the offset behind it."""
        status = os.fstat(file)
        if status.st_ino != self._file or status.st_size < self._indexed_size:
            self._start()  # not the file it was
            self._file = status.st_ino
        while self._lines < after and (chunk := os.pread(file, 1 << 20, self._indexed_size)):
            position = -1
            while (position := chunk.find(b"\n", position + 1)) >= 0:
                self._lines += 1
                if self._lines % _PAGE_MARK == 0:
                    self._offsets.append(self._indexed_size + position + 1)
            self._indexed_size += len(chunk)
        mark = min(after // _PAGE_MARK, len(self._offsets) - 1)
        return mark * _PAGE_MARK, self._offsets[mark]
