"""What the operator and other agents talk about now (SPEC 2.1), and when that last grew (2.2). Opt-in: read from the
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
from engine.memory.importing import Turn, folder_of, read_turn
from engine.model import Thread, sanitise
from engine.model.secrets import redact

log = logging.getLogger(__name__)

RECENT = timedelta(hours=24)
"""A conversation that did not grow for so long is no thread any more."""

AHEAD = timedelta(minutes=1)
"""A file dated further into the future than this was copied so: it says nothing of anyone's presence."""

HEAD, TAIL = 64 * 1024, 256 * 1024
"""Bytes of a file's beginning, where its folder stands, and of its end."""

FILES = 40
"""So many files, those that grew last."""

FRESH_SECONDS = 5.0
"""Folders are looked through again after so long: several workspaces ask at once."""

LONGEST = 300
"""Characters of a question or a topic."""

NAMES = {"claude-code": "Claude Code", "codex": "Codex"}

_QUESTION = re.compile(r"[^.!?？\n]*[?？][\s\"'`*_)\]]*$")
_NO_TOPIC = re.compile(r"<|\[Request interrupted|# AGENTS\.md|Caveat: ")


@frozen
class _File:
    path: Path
    size: int
    at: datetime


@frozen
class _Said:
    """What the end of a file says: what the operator wrote last, and the last turn; `folder` "" when it is unknown."""

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
        self._said: dict[Path, tuple[_File, _Said | None]] = {}
        self._workspaces: dict[str, str] = {}

    def latest(self, workspace: str) -> list[Thread]:
        """The conversations about `workspace` that grew within a day, the newest first."""
        known = tuple(self._secrets())
        return [
            Thread(
                session=said.last.session,
                agent=NAMES.get(said.last.agent, said.last.agent),
                workspace=workspace,
                about=redact(said.about, known),
                question="" if (unanswered := said.last.speaker == "user") else redact(question(said.last.text), known),
                unanswered=unanswered,
                at=min(said.last.at or file.at, file.at),
            )
            for file, said in self._operators()
            if self._workspace(said.folder) == workspace
        ]

    def grew(self) -> datetime | None:
        """When a conversation of the operator's last grew, None if none did within a day."""
        now = self._clock.now()
        return max((min(file.at, now) for file, _ in self._operators()), default=None)

    def _operators(self) -> Iterator[tuple[_File, _Said]]:
        with self._lock:
            files = self._list()
            for file in files:
                said = self._read(file)
                if said is not None and not (said.folder and self._ours(said.folder)):
                    yield file, said

    def _workspace(self, folder: str) -> str:
        if folder not in self._workspaces:
            self._workspaces[folder] = self._workspace_of(folder) if folder else ""
        return self._workspaces[folder]

    def _list(self) -> list[_File]:
        """Files that grew of late, the newest first."""
        folders, asked_at = tuple(self._folders()), self._clock.monotonic()
        if self._listed and self._listed[1] == folders and asked_at - self._listed[0] < FRESH_SECONDS:
            return self._listed[2]
        now, found = self._clock.now(), list[_File]()
        for name in folders:
            for path, status in _transcripts(str(Path(name).expanduser())):
                at = datetime.fromtimestamp(status.st_mtime, UTC)
                if now - RECENT < at <= now + AHEAD:
                    found.append(_File(Path(path), status.st_size, at))
        found.sort(key=lambda file: file.at, reverse=True)
        del found[FILES:]
        self._said = {file.path: self._said[file.path] for file in found if file.path in self._said}
        self._listed = (asked_at, folders, found)
        return found

    def _read(self, file: _File) -> _Said | None:
        known = self._said.get(file.path)
        if known is None or known[0] != file:
            try:
                said = read_end(file.path)
            except OSError as error:
                log.info("a transcript cannot be read: %s", error)
                said = None
            known = self._said[file.path] = (file, said)
        return known[1]


def question(text: str) -> str:
    """The question that a text ends with, "" when it ends otherwise. Pure."""
    found = _QUESTION.search(text.rstrip())
    return "" if found is None else _short(found.group().strip().strip("*_`\"'([ "))


def read_end(path: Path) -> _Said | None:
    """What a transcript was last about; None for one without a turn. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        tail = file.read(TAIL)
    ends = tail.split(b"\n")
    whole = ends[1:] if size > TAIL else ends  # the first is cut off
    turns = list(_turns(whole, path.stem))
    if not turns:
        return None
    last = turns[-1]
    about = next((turn.text for turn in reversed(turns) if _topic(turn)), "")
    if not about:
        about = next((turn.text for turn in _turns(head.split(b"\n")[:-1], path.stem) if _topic(turn)), "")
    folder = next((turn.folder for turn in reversed(turns) if turn.folder), "") or _folder(head)
    return _Said(folder, _short(about), last)


def _topic(turn: Turn) -> bool:
    """Whether the operator wrote it, and no program for him."""
    return turn.speaker == "user" and not _NO_TOPIC.match(turn.text)


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


def _short(text: str) -> str:
    return " ".join(sanitise(text).split())[:LONGEST]


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
