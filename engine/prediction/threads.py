"""Reads the operator's conversations with other agents from their transcripts (SPEC 2.1, 2.2). Opt-in: `[memory]
transcripts` names the folders, which are only read.

Only the ends of files that grew recently are read, and kept until the file grows again. Conversations of our own
sessions are left out, because they are not the operator's.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from engine.clock import Clock
from engine.frozen import frozen
from engine.memory.importing import Turn, find_folder, find_turn, parse_line
from engine.prediction.signals import MAX_CLOCK_DIFFERENCE, Thread
from engine.redaction import redact
from engine.text import plain

log = logging.getLogger(__name__)

MAX_THREAD_AGE = timedelta(hours=24)
"""A conversation that did not grow for this long is not a thread any more."""

HEAD_BYTES = 64 * 1024
"""Number of bytes that are read at the beginning of a file, which names the folder."""

TAIL_BYTES = 256 * 1024
"""Number of bytes that are read at its end."""

MAX_FILES = 40
"""Maximum number of files that are read: those that grew last."""

MAX_QUESTION_CHARS = 300
"""Maximum number of characters of a question or a topic."""

AGENT_NAMES = {"claude-code": "Claude Code", "codex": "Codex"}
"""The names of agents for people."""

_FINAL_QUESTION = re.compile(r"[^.!?？\n]*[?？][\s\"'`*_)\]]*$")
"""Matches a question at the end of a text."""

_MACHINE_TEXT = re.compile(r"<|\[Request interrupted|# AGENTS\.md|Caveat: ")
"""Matches a turn that a program wrote on the operator's behalf."""


@frozen
class _TranscriptEnd:
    """The end of a transcript: what the operator wrote last (`about`), and the last turn. `folder` is "" if unknown."""

    folder: str
    about: str
    last: Turn


class _GrownFile(NamedTuple):
    """A file that grew recently."""

    grown_at: datetime
    path: Path
    size: int


class Threads:
    """Reads the conversations in the folders that the settings name. Thread-safe."""

    def __init__(
        self,
        folders: Callable[[], Sequence[str]],
        clock: Clock,
        *,
        find_workspace: Callable[[str], str] = lambda folder: folder,
        is_own_folder: Callable[[str], bool],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        """`find_workspace(folder)` is the workspace that a folder belongs to. `is_own_folder(folder)` says whether one
        of our sessions works there. `secrets` are values that are cut out."""
        self._folders = folders
        self._clock = clock
        self._find_workspace = find_workspace
        self._is_own_folder = is_own_folder
        self._secrets = secrets

    def read_newest(self, workspace: str) -> list[Thread]:
        """The conversations about `workspace` that grew within a day, the newest first."""
        secrets = tuple(self._secrets())
        threads = []
        for at, end in self._read_conversations():
            if end.folder and self._find_workspace(end.folder) == workspace:
                last, unanswered = end.last, end.last.speaker == "user"
                thread = Thread(
                    last.session,
                    AGENT_NAMES.get(last.agent, last.agent),
                    workspace,
                    redact(end.about, secrets),
                    question="" if unanswered else redact(find_final_question(last.text), secrets),
                    unanswered=unanswered,
                    at=min(last.at or at, at),
                )
                threads.append(thread)
        return threads

    def find_last_growth(self) -> datetime | None:
        """When a conversation of the operator grew last, None if none grew within a day."""
        return max((min(at, self._clock.now()) for at, _ in self._read_conversations()), default=None)

    def _read_conversations(self) -> Iterator[tuple[datetime, _TranscriptEnd]]:
        """The operator's conversations, the newest first, as (when the file grew, the end of the transcript)."""
        for file in self._find_grown_files():
            end = _read_once(file)
            if end is not None and not (end.folder and self._is_own_folder(end.folder)):
                yield file.grown_at, end

    def _find_grown_files(self) -> list[_GrownFile]:
        """The files that grew recently, the newest first."""
        now, files = self._clock.now(), list[_GrownFile]()
        for path in itertools.chain.from_iterable(map(_find_transcripts, self._folders())):
            try:
                status = path.stat()
            except OSError as error:
                log.info("transcripts: %s", error)
                continue
            at = datetime.fromtimestamp(status.st_mtime, UTC)
            if now - MAX_THREAD_AGE < at <= now + MAX_CLOCK_DIFFERENCE:
                files.append(_GrownFile(at, path, status.st_size))
        return sorted(files, reverse=True)[:MAX_FILES]


@lru_cache(MAX_FILES)
def _read_once(file: _GrownFile) -> _TranscriptEnd | None:
    """The end of a transcript, None for one that cannot be read. It is kept until the file has another size or
    time."""
    try:
        return _read_end(file.path)
    except OSError as error:
        log.info("a transcript cannot be read: %s", error)
        return None


def find_final_question(text: str) -> str:
    """The question that a text ends with, "" if it does not end with one. Pure."""
    match = _FINAL_QUESTION.search(text.rstrip())
    return "" if match is None else plain(match.group().strip().strip("*_`\"'([ "), MAX_QUESTION_CHARS)


def _read_end(path: Path) -> _TranscriptEnd | None:
    """The end of a transcript, None for one without a turn. Raises OSError."""
    with path.open("rb") as file:
        lines = file.read(HEAD_BYTES).split(b"\n")[:-1]
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read(TAIL_BYTES).split(b"\n")
    lines = [*lines, *tail[1:]] if size > TAIL_BYTES else tail  # the first of a part is cut off
    turns = list(_read_turns(lines, path.stem))
    if not turns:
        return None
    by_operator = (turn.text for turn in reversed(turns) if turn.speaker == "user")
    about = next((text for text in by_operator if not _MACHINE_TEXT.match(text)), "")
    folder = next((turn.folder for turn in reversed(turns) if turn.folder), "") or _find_named_folder(lines)
    return _TranscriptEnd(folder, plain(about, MAX_QUESTION_CHARS), turns[-1])


def _read_turns(lines: Iterable[bytes], name: str) -> Iterator[Turn]:
    """The turns in the lines of the transcript `name`."""
    for raw in lines:
        try:
            turn = find_turn(parse_line(raw), raw, name)
        except ValueError:
            continue  # the import of transcripts reports it, or it is still being written
        if turn is not None:
            yield turn


def _find_named_folder(lines: Iterable[bytes]) -> str:
    """The folder that is named in a line without a turn, as in the first line of a transcript of Codex. "" for none."""
    for raw in lines:
        with contextlib.suppress(ValueError):
            if folder := find_folder(parse_line(raw)):
                return folder
    return ""


def _find_transcripts(folder: str) -> Iterator[Path]:
    """The files below a folder that may be transcripts. A folder that cannot be read is logged and left out."""
    for parent, _, names in os.walk(
        Path(folder).expanduser(), onerror=lambda error: log.info("transcripts: %s", error)
    ):
        yield from (Path(parent, name) for name in names if name.endswith(".jsonl"))
