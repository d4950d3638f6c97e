"""Transcripts of other agents (opt-in, `[memory] transcripts`): their turns are remembered in layer C, with where they
came from. Files are only read.

Each turn has an id of its own, so that reading a file again adds nothing; what was read up to is kept, so that a file
that grew is read on from there.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlmodel import col

from engine.frozen import frozen
from engine.memory.captures import Remember
from engine.memory.tables import MemoryRow
from engine.model import NewMemory, Refusal, sanitise
from engine.model.secrets import redact
from engine.storage import state
from engine.storage.database import Database

IMPORTED = "imported"
"""The tag of turns that came from a transcript."""

BATCH = 200
_START = {"offset": 0, "line": 0, "folder": ""}
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Bytes of one line; a longer one is named and passed over."""

MAX_TURN = 100_000
"""Characters of one turn that are remembered."""

MAX_REPORTED = 3
"""Problems of an import that are reported; the others are counted."""


@frozen
class Turn:
    """One turn of a conversation: who said what, when, in which session and folder."""

    id: str
    speaker: str
    text: str
    at: datetime | None
    session: str
    folder: str
    agent: str


class Importer:
    """Reads transcripts of the folders that the settings name."""

    def __init__(
        self,
        database: Database,
        remember: Remember,
        folders: Callable[[], Sequence[str]],
        *,
        workspace_of: Callable[[str], str] = lambda folder: folder,
        ours: Callable[[str], bool] = lambda folder: False,
        secrets: Callable[[], Iterable[str]] = tuple,
        report: Callable[[str, str], None] = lambda where, words: None,
    ) -> None:
        """`workspace_of(folder)`: the workspace that a folder belongs to; `ours(folder)`: whether a session of ours
        worked there, whose words are kept elsewhere and are not the operator's; `report(where, words)` tells of what
        could not be read."""
        self._report = report
        self._last_problems: list[str] = []
        self._database = database
        self._remember = remember
        self._folders = folders
        self._workspace_of = workspace_of
        self._ours = ours
        self._secrets = secrets

    def run(self) -> int:
        """Read what is new; returns how many turns. Raises nothing that a file can cause: what could not be read is
        reported when it is not the same as before."""
        turns = 0
        problems: list[str] = []
        for name in self._folders():
            folder = Path(name).expanduser()
            if not folder.is_dir():
                problems.append(f"{folder} is not a folder")
            for path in sorted(folder.rglob("*.jsonl")):
                try:
                    turns += self._import_file(path, problems)
                except (OSError, Refusal) as error:
                    problems.append(f"{path}: {error}")
        if problems and problems != self._last_problems:
            more = len(problems) - MAX_REPORTED
            text = "; ".join(problems[:MAX_REPORTED]) + (f"; and {more} more" if more > 0 else "")
            self._report("transcripts", sanitise(text))
        self._last_problems = problems
        return turns

    def _import_file(self, path: Path, problems: list[str]) -> int:
        """Remember the turns that a file has grown by. Returns how many; adds what could not be read to `problems`."""
        key = "memory.import." + hashlib.sha256(str(path).encode(errors="replace")).hexdigest()[:24]
        with self._database.read() as session:
            progress = state.get(session, key, _START)
        size = path.stat().st_size
        if size < progress["offset"]:
            progress = _START  # another file of the same name
        if size == progress["offset"]:
            return 0
        progress = dict(progress)
        memories = self._read_memories(path, progress, problems)
        turns = 0
        while batch := list(itertools.islice(memories, BATCH)):
            self._remember(batch)
            turns += len(batch)
        self._database.write(lambda tx: state.put(tx, key, progress))
        return turns

    def _read_memories(self, path: Path, progress: dict[str, Any], problems: list[str]) -> Iterator[NewMemory]:
        """The turns of a file from `progress` on, which goes along."""
        secrets, workspace_of = tuple(self._secrets()), functools.cache(self._workspace_of)
        with path.open("rb") as file:
            file.seek(progress["offset"])
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # it is being written
                progress["line"] += 1
                progress["offset"] += len(raw)
                try:
                    turn = read_turn(raw, path.stem)
                except ValueError as error:
                    problems.append(f"{path.name} line {progress['line']}: {error}")
                    continue
                progress["folder"] = _folder_line(raw) or progress["folder"]
                place = (turn and turn.folder) or progress["folder"]
                if turn is not None and not (place and self._ours(place)):
                    workspace = workspace_of(place) if place else ""
                    yield _memory(turn, workspace, f"{path}:{progress['line']}", secrets)


def reply_pairs(database: Database, *, limit: int = 20_000) -> list[tuple[str, str]]:
    """What an agent said in an imported conversation and what the operator said to it next, the oldest first; of the
    newest `limit` turns."""
    with database.read() as session:
        rows = session.execute(
            sqlalchemy.select(MemoryRow.session, MemoryRow.speaker, MemoryRow.text)  # type: ignore[call-overload]
            .where(sqlalchemy.cast(MemoryRow.tags, sqlalchemy.String).contains(f'"{IMPORTED}"'))
            .where(col(MemoryRow.forgotten).is_(False))
            .order_by(col(MemoryRow.seq).desc())
            .limit(limit)
        ).all()
    replies: dict[str, str] = {}
    pairs = []
    for conversation, speaker, text in reversed(rows):
        reply = replies.pop(conversation, "")
        if speaker == "assistant":
            replies[conversation] = text
        elif speaker == "user" and reply:
            pairs.append((reply, text))
    return pairs


def read_turn(raw: bytes, name: str) -> Turn | None:
    """A line of a transcript of Claude Code or Codex; None for one that is no turn of a person or a model. `name` is
    the session when the line does not say. Raises ValueError that says what is wrong. Pure."""
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    if not raw.strip():
        return None
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(line, dict):
        raise ValueError("not a JSON object")
    kind = line.get("type")
    if kind in ("user", "assistant") and "message" in line:
        if line.get("isMeta") or line.get("isSidechain"):
            return None
        message, agent = line["message"], "claude-code"
    elif kind == "response_item" and isinstance(line.get("payload"), dict):
        message, agent = line["payload"], "codex"
        if message.get("type") != "message":
            return None
    else:
        return None
    if not isinstance(message, dict):
        raise ValueError("message is not an object")
    speaker = message.get("role", kind)
    if speaker not in ("user", "assistant"):
        return None
    text = "\n".join(_text_parts(message.get("content"))).strip()
    if not text:
        return None
    session = str(line.get("sessionId") or name)
    own_id = line.get("uuid") or message.get("id")
    identity = str(own_id) if own_id else hashlib.sha256(raw).hexdigest()[:24]
    return Turn(
        f"{agent}:{session}:{identity}"[:500],
        speaker,
        text[:MAX_TURN],
        _parse_time(line.get("timestamp")),
        f"{agent}:{session}"[:500],
        str(line.get("cwd") or ""),
        agent,
    )


def folder_of(line: object) -> str:
    """The folder that a line of a transcript says it was made in, "" when it says none: each line of Claude Code, the
    first of Codex. Pure."""
    if not isinstance(line, dict):
        return ""
    payload = line.get("payload")
    fields = payload if line.get("type") in ("session_meta", "turn_context") and isinstance(payload, dict) else line
    folder = fields.get("cwd")
    return folder if isinstance(folder, str) else ""


def _folder_line(raw: bytes) -> str:
    """The folder in a line that is there for such things, as Codex writes them before the first turn."""
    start = raw[:200]
    return folder_of(json.loads(raw)) if b"session_meta" in start or b"turn_context" in start else ""


def _text_parts(content: object) -> Iterator[str]:
    """What was said: neither tool calls, nor what they gave, nor thoughts."""
    if isinstance(content, str):
        yield content
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text"):
            text = part.get("text")
            if isinstance(text, str):
                yield text


def _parse_time(stamp: object) -> datetime | None:
    if stamp is None:
        return None
    try:
        parsed = datetime.fromisoformat(str(stamp))
    except ValueError as error:
        raise ValueError(f"timestamp {str(stamp)[:40]!r} is not a time") from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _memory(turn: Turn, workspace: str, source: str, secrets: tuple[str, ...]) -> NewMemory:
    return NewMemory(
        redact(turn.text, secrets),
        kind="turn",
        speaker=turn.speaker,
        at=turn.at,
        session=turn.session,
        agent=turn.agent,
        workspace=workspace,
        source=source[-1_000:],
        tags=(IMPORTED, turn.agent),
        ref=turn.id,
    )
