"""Reads the operator's conversations with other agents from their transcripts (SPEC 2.1, 2.2). Opt-in: `[memory]
transcripts` names the folders, which are only read.

Only files that grew of late are opened, and of those the ends; what was read is kept until the file grows again.
Conversations of our own sessions are not the operator's and are left out.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from engine.clock import Clock
from engine.frozen import frozen
from engine.memory.agent_turns import Turn, folder_of, read_turn
from engine.model import Thread
from engine.model.secrets import redact
from engine.model.text import plain

log = logging.getLogger(__name__)

MAX_AGE = timedelta(hours=24)
"""A conversation that did not grow for so long is no thread any more."""

MAX_CLOCK_SKEW = timedelta(minutes=1)
"""A file dated further into the future than this was copied so: it says nothing of anyone's presence."""

HEAD_BYTES, TAIL_BYTES = 64 * 1024, 256 * 1024
"""Bytes of a file's beginning, where its folder stands, and of its end."""

MAX_FILES = 40
"""Files that are read, those that grew last."""

LISTING_MAX_AGE_S = 5.0
"""Folders are looked through again after so long: several workspaces ask at once."""

MAX_LENGTH = 300
"""Characters of a question or a topic."""

NAMES = {"claude-code": "Claude Code", "codex": "Codex"}

_QUESTION = re.compile(r"[^.!?？\n]*[?？][\s\"'`*_)\]]*$")
_MACHINE_TEXT = re.compile(r"<|\[Request interrupted|# AGENTS\.md|Caveat: ")


@frozen
class _TranscriptEnd:
    """The end of a transcript: what the operator wrote last, and the last turn; `folder` "" when it is unknown."""

    folder: str
    about: str
    last: Turn


class Threads:
    """Conversations in the folders that the settings name. From any thread."""

    def __init__(
        self,
        folders: Callable[[], Sequence[str]],
        clock: Clock,
        *,
        workspace_of: Callable[[str], str] = lambda folder: folder,
        ours: Callable[[str], bool] = lambda folder: False,
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`workspace_of(folder)`: the workspace that a folder belongs to; `ours(folder)`: whether a session of ours
        works there; `secrets`: values that are cut out."""
        self._folders = folders
        self._clock = clock
        self._workspace_of = workspace_of
        self._ours = ours
        self._secrets = secrets
        self._listing: tuple[float, Sequence[str], list[tuple[datetime, Path, int]]] | None = None

    def latest(self, workspace: str) -> list[Thread]:
        """The conversations about `workspace` that grew within a day, the newest first."""
        secrets = tuple(self._secrets())
        threads = []
        for at, end in self._conversations():
            if end.folder and self._workspace_of(end.folder) == workspace:
                last, unanswered = end.last, end.last.speaker == "user"
                thread = Thread(
                    last.session,
                    NAMES.get(last.agent, last.agent),
                    workspace,
                    redact(end.about, secrets),
                    question="" if unanswered else redact(final_question(last.text), secrets),
                    unanswered=unanswered,
                    at=min(last.at or at, at),
                )
                threads.append(thread)
        return threads

    def grew(self) -> datetime | None:
        """When a conversation of the operator's last grew, None if none did within a day."""
        return max((min(at, self._clock.now()) for at, _ in self._conversations()), default=None)

    def _conversations(self) -> Iterator[tuple[datetime, _TranscriptEnd]]:
        """When each of the operator's conversations grew, and its end, the newest first."""
        for at, path, size in self._list():
            end = _read_once(path, size, at)
            if end is not None and not (end.folder and self._ours(end.folder)):
                yield at, end

    def _list(self) -> list[tuple[datetime, Path, int]]:
        """Files that grew of late, the newest first: when, where, and their size."""
        folders, now_s = tuple(self._folders()), self._clock.monotonic()
        if self._listing and self._listing[1] == folders and now_s - self._listing[0] < LISTING_MAX_AGE_S:
            return self._listing[2]
        now, files = self._clock.now(), list[tuple[datetime, Path, int]]()
        for name in folders:
            for path, status in _transcripts(Path(name).expanduser()):
                at = datetime.fromtimestamp(status.st_mtime, UTC)
                if now - MAX_AGE < at <= now + MAX_CLOCK_SKEW:
                    files.append((at, path, status.st_size))
        self._listing = (now_s, folders, sorted(files, reverse=True)[:MAX_FILES])
        return self._listing[2]


@lru_cache(MAX_FILES)
def _read_once(path: Path, size: int, at: datetime) -> _TranscriptEnd | None:
    try:
        return read_end(path)
    except OSError as error:
        log.info("a transcript cannot be read: %s", error)
        return None


def final_question(text: str) -> str:
    """The question that a text ends with, "" when it ends otherwise. Pure."""
    match = _QUESTION.search(text.rstrip())
    return "" if match is None else plain(match.group().strip().strip("*_`\"'([ "), MAX_LENGTH)


def read_end(path: Path) -> _TranscriptEnd | None:
    """The end of a transcript, None for one without a turn. Raises OSError."""
    with path.open("rb") as file:
        lines = file.read(HEAD_BYTES).split(b"\n")[:-1]
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read(TAIL_BYTES).split(b"\n")
    lines = [*lines, *tail[1:]] if size > TAIL_BYTES else tail  # the first of a part is cut off
    turns = list(_turns(lines, path.stem))
    if not turns:
        return None
    about = next((turn.text for turn in reversed(turns) if _is_topic(turn)), "")
    folder = next((turn.folder for turn in reversed(turns) if turn.folder), "") or _folder(lines)
    return _TranscriptEnd(folder, plain(about, MAX_LENGTH), turns[-1])


def _is_topic(turn: Turn) -> bool:
    """Whether the operator wrote it, and not a program on the operator's behalf."""
    return turn.speaker == "user" and not _MACHINE_TEXT.match(turn.text)


def _turns(lines: Iterable[bytes], name: str) -> Iterator[Turn]:
    for raw in lines:
        try:
            turn = read_turn(raw, name)
        except ValueError:
            continue  # the import names it; a line that is being written is none yet
        if turn is not None:
            yield turn


def _folder(lines: Iterable[bytes]) -> str:
    """The folder that a line which is no turn names, as the first one of a transcript of Codex does."""
    for raw in lines:
        with contextlib.suppress(ValueError, RecursionError):
            if folder := folder_of(json.loads(raw)):
                return folder
    return ""


def _transcripts(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files below `folder` that may be transcripts; what cannot be read is passed over."""
    for place, _, names in os.walk(folder, onerror=lambda error: log.info("transcripts: %s", error)):
        for path in (Path(place, name) for name in names if name.endswith(".jsonl")):
            try:
                status = path.stat()
            except OSError as error:
                log.info("transcripts: %s", error)
            else:
                yield path, status
