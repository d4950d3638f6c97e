"""Reads the operator's conversations with other agents (SPEC 2.1), and when one last grew (2.2). Opt-in: from the
folders of `[memory] transcripts`, which are only read.

Only files that grew of late are opened, and of those the ends; what was read is kept until the file grows again.
Conversations of our own sessions are not the operator's and are left out.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.clock import Clock
from engine.frozen import frozen
from engine.model import Thread
from engine.model.agent_turns import Turn, folder_of, read_turn
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
class _File:
    path: Path
    size: int
    at: datetime


@frozen
class _FileEnd:
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
        self._lock = threading.Lock()
        self._listed: tuple[float, Sequence[str], list[_File]] | None = None
        self._ends: dict[Path, tuple[_File, _FileEnd | None]] = {}
        self._workspaces: dict[str, str] = {}

    def latest(self, workspace: str) -> list[Thread]:
        """The conversations about `workspace` that grew within a day, the newest first."""
        secrets = tuple(self._secrets())
        return [
            Thread(
                session=end.last.session,
                agent=NAMES.get(end.last.agent, end.last.agent),
                workspace=workspace,
                about=redact(end.about, secrets),
                question=""
                if (unanswered := end.last.speaker == "user")
                else redact(final_question(end.last.text), secrets),
                unanswered=unanswered,
                at=min(end.last.at or file.at, file.at),
            )
            for file, end in self._operator_files()
            if self._workspace(end.folder) == workspace
        ]

    def grew(self) -> datetime | None:
        """When a conversation of the operator's last grew, None if none did within a day."""
        now = self._clock.now()
        return max((min(file.at, now) for file, _ in self._operator_files()), default=None)

    def _operator_files(self) -> Iterator[tuple[_File, _FileEnd]]:
        with self._lock:
            files = self._list()
            for file in files:
                end = self._read(file)
                if end is not None and not (end.folder and self._ours(end.folder)):
                    yield file, end

    def _workspace(self, folder: str) -> str:
        if folder not in self._workspaces:
            self._workspaces[folder] = self._workspace_of(folder) if folder else ""
        return self._workspaces[folder]

    def _list(self) -> list[_File]:
        """Files that grew of late, the newest first."""
        folders, now_s = tuple(self._folders()), self._clock.monotonic()
        if self._listed and self._listed[1] == folders and now_s - self._listed[0] < LISTING_MAX_AGE_S:
            return self._listed[2]
        now, files = self._clock.now(), list[_File]()
        for name in folders:
            for path, status in _transcripts(str(Path(name).expanduser())):
                at = datetime.fromtimestamp(status.st_mtime, UTC)
                if now - MAX_AGE < at <= now + MAX_CLOCK_SKEW:
                    files.append(_File(Path(path), status.st_size, at))
        files.sort(key=lambda file: file.at, reverse=True)
        del files[MAX_FILES:]
        self._ends = {file.path: self._ends[file.path] for file in files if file.path in self._ends}
        self._listed = (now_s, folders, files)
        return files

    def _read(self, file: _File) -> _FileEnd | None:
        cached = self._ends.get(file.path)
        if cached is None or cached[0] != file:
            try:
                end = read_end(file.path)
            except OSError as error:
                log.info("a transcript cannot be read: %s", error)
                end = None
            cached = self._ends[file.path] = (file, end)
        return cached[1]


def final_question(text: str) -> str:
    """The question that a text ends with, "" when it ends otherwise. Pure."""
    match = _QUESTION.search(text.rstrip())
    return "" if match is None else plain(match.group().strip().strip("*_`\"'([ "), MAX_LENGTH)


def read_end(path: Path) -> _FileEnd | None:
    """The end of a transcript, None for one without a turn. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read(TAIL_BYTES)
    lines = tail.split(b"\n")
    complete_lines = lines[1:] if size > TAIL_BYTES else lines  # the first is cut off
    turns = list(_turns(complete_lines, path.stem))
    if not turns:
        return None
    last = turns[-1]
    about = next((turn.text for turn in reversed(turns) if _is_topic(turn)), "")
    if not about:
        about = next((turn.text for turn in _turns(head.split(b"\n")[:-1], path.stem) if _is_topic(turn)), "")
    folder = next((turn.folder for turn in reversed(turns) if turn.folder), "") or _folder(head)
    return _FileEnd(folder, plain(about, MAX_LENGTH), last)


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


def _folder(head: bytes) -> str:
    for raw in head.split(b"\n")[:-1]:
        try:
            folder = folder_of(json.loads(raw))
        except (ValueError, RecursionError):
            continue
        if folder:
            return folder
    return ""


def _transcripts(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Files below `folder` that may be transcripts; what cannot be looked into is passed over."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name.endswith(".jsonl"):
                        yield entry.path, entry.stat()
        except OSError as error:
            log.info("transcripts: %s", error)
