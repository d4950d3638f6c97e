"""Imports into layer C: the conversations of Claude Code and Codex (opt-in, `[memory] transcripts`), whose turns are
remembered with their source, and lines of JSON (`clawpy remember`). Files are only read.

Each turn has an id of its own, so that reading a file again adds nothing. The position in each file is stored, so that
a file that grew is read from there. Cards continue such a conversation, and read its turns here too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from engine.clock import in_utc
from engine.frozen import frozen
from engine.memory.captures import Remember
from engine.memory.store import MemoryStore, check_memory
from engine.model import NewMemory, Refusal, Retention
from engine.redaction import redact
from engine.storage import state
from engine.storage.database import Database
from engine.text import hex_hash, sanitise

IMPORTED_TAG = "imported"
"""The tag of turns that came from a transcript."""

TURNS_PER_BATCH = 200
"""Turns that are remembered at once."""

MAX_PAIRED_TURNS = 20_000
"""Number of the newest turns that are searched for replies to agents."""

MAX_REPORTED_PROBLEMS = 3
"""Number of problems of an import that are reported in words; the others are counted."""

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum size of a line in bytes."""

MAX_TURN_CHARS = 100_000
"""Maximum number of characters of a turn; the rest is cut."""

_TIME_FORMATS = (
    "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y", "%d %B, %Y",
    "%d %B %Y", "%B %d, %Y",
)  # fmt: skip
"""Forms in which chats are exported, besides ISO 8601."""

_UNIX_TIME = re.compile(r"(?:\d{9,10}|\d{13})(?:\.\d+)?")
"""Matches a number of seconds or milliseconds since 1970."""

_OTHER_NUMBER = re.compile(r"(?!\d{8}$)[\d.]+")
"""Matches a number that is no date such as 20230508, which ISO 8601 writes so, either."""

MIN_MILLISECONDS = 10**11
"""A number above this is milliseconds since 1970; as seconds it would be after the year 5000."""


@dataclass
class _Position:
    """How far a file was read: bytes, lines, and the working folder that was named last."""

    offset: int = 0
    line: int = 0
    folder: str = ""


class Importer:
    """Imports the transcripts in the folders that the settings name."""

    def __init__(
        self,
        database: Database,
        remember: Remember,
        folders: Callable[[], Sequence[str]],
        *,
        find_workspace: Callable[[str], str],
        is_own_folder: Callable[[str], bool],
        secrets: Callable[[], Iterable[str]],
        report: Callable[[str, str], None],
    ) -> None:
        """`find_workspace(folder)` returns the workspace of a folder. `is_own_folder(folder)`: a session of this engine
        worked there, and has a transcript of its own. `report(where, words)` is called if something cannot be read."""
        self._report = report
        self._last_problems: list[str] = []
        self._database = database
        self._remember = remember
        self._folders = folders
        self._find_workspace = find_workspace
        self._is_own_folder = is_own_folder
        self._secrets = secrets

    def run(self) -> int:
        """Import what is new; returns the number of turns. A file causes no exception: what cannot be read is reported,
        unless it is the same as the last time."""
        turns = 0
        problems: list[str] = []
        for folder in (Path(name).expanduser() for name in self._folders()):
            if not folder.is_dir():
                problems.append(f"{folder} is not a folder")
            for path in sorted(folder.rglob("*.jsonl")):
                try:
                    turns += self._import_file(path, problems)
                except (OSError, Refusal) as error:
                    problems.append(f"{path}: {error}")
        if problems and problems != self._last_problems:
            reported = problems[:MAX_REPORTED_PROBLEMS]
            if len(problems) > MAX_REPORTED_PROBLEMS:
                reported.append(f"and {len(problems) - MAX_REPORTED_PROBLEMS} more")
            self._report("transcripts", sanitise("; ".join(reported)))
        self._last_problems = problems
        return turns

    def _import_file(self, path: Path, problems: list[str]) -> int:
        """Remember the new turns of a file, and return their number. Adds what cannot be read to `problems`."""
        key = "memory.import." + hex_hash(str(path), 24)
        with self._database.read() as session:
            position = _Position(**state.get(session, key, {}))
        size = path.stat().st_size
        if size < position.offset:
            position = _Position()  # another file of the same name
        if size == position.offset:
            return 0
        memories = self._read_memories(path, position, problems)  # advances `position` while it is consumed
        turns = 0
        while batch := list(itertools.islice(memories, TURNS_PER_BATCH)):
            self._remember(batch)
            turns += len(batch)
        self._database.write(lambda tx: state.put(tx, key, asdict(position)))
        return turns

    def _read_memories(self, path: Path, position: _Position, problems: list[str]) -> Iterator[NewMemory]:
        """The turns of a file from `position` on, which is updated with each line."""
        secrets, find_workspace = tuple(self._secrets()), cache(self._find_workspace)
        with path.open("rb") as file:
            file.seek(position.offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # it is being written
                position.line += 1
                position.offset += len(raw)
                try:
                    line = parse_line(raw)
                    turn = find_turn(line, raw, path.stem)
                except ValueError as error:
                    problems.append(f"{path.name} line {position.line}: {error}")
                    continue
                if line.get("type") in _METADATA_TYPES:  # of Codex, whose turns name no folder
                    position.folder = find_folder(line) or position.folder
                if turn is None:
                    continue
                folder = turn.folder or position.folder
                if not (folder and self._is_own_folder(folder)):
                    workspace = find_workspace(folder) if folder else ""
                    yield _to_memory(turn, workspace, f"{path}:{position.line}", secrets)


def load_reply_pairs(memories: MemoryStore) -> list[tuple[str, str]]:
    """Pairs of what an agent said in an imported conversation and the operator's reply, oldest first, among the newest
    `MAX_PAIRED_TURNS` turns."""
    condition = "WHERE instr(tags, ?) AND NOT forgotten ORDER BY seq DESC LIMIT ?"
    replies: dict[str, str] = {}
    pairs = []
    for turn in reversed(memories.load(condition, (f'"{IMPORTED_TAG}"', MAX_PAIRED_TURNS))):
        reply = replies.pop(turn.session, "")
        if turn.speaker == "assistant":
            replies[turn.session] = turn.text
        elif turn.speaker == "user" and reply:
            pairs.append((reply, turn.text))
    return pairs


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


def _to_memory(turn: Turn, workspace: str, source: str, secrets: tuple[str, ...]) -> NewMemory:
    """A turn as it is remembered in layer C, without the secrets."""
    return NewMemory(
        redact(turn.text, secrets),
        kind="turn",
        speaker=turn.speaker,
        at=turn.at,
        session=turn.session,
        agent=turn.agent,
        workspace=workspace,
        source=source[-1_000:],
        tags=(IMPORTED_TAG, turn.agent),
        ref=turn.id,
    )


def find_turn(line: dict[str, Any], raw: bytes, name: str) -> Turn | None:
    """The turn in a line of a transcript of Claude Code or Codex, None for a line without one of a person or a model.
    `raw` is the line as it is written, by which a turn without an id is known again. `name` is the session of a line
    that names none. Raises ValueError for a line that cannot be read."""
    agent_and_message = _find_message(line)
    if agent_and_message is None:
        return None
    agent, message = agent_and_message
    if not isinstance(message, dict):
        raise ValueError("message is not an object")
    speaker = message.get("role", line["type"])
    text = "\n".join(_extract_texts(message.get("content"))).strip()
    if speaker not in ("user", "assistant") or not text:
        return None
    session = str(line.get("sessionId") or name)
    own_id = line.get("uuid") or message.get("id")
    identity = str(own_id) if own_id else hashlib.sha256(raw).hexdigest()[:24]
    return Turn(
        f"{agent}:{session}:{identity}"[:500],
        speaker,
        text[:MAX_TURN_CHARS],
        _parse_timestamp(line.get("timestamp")),
        f"{agent}:{session}"[:500],
        str(line.get("cwd") or ""),
        agent,
    )


def parse_line(raw: bytes) -> dict[str, Any]:
    """The object in a line, empty for an empty line. Raises ValueError for a line that cannot be read."""
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    if not raw.strip():
        return {}
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(line, dict):
        raise ValueError("not a JSON object")
    return line


def _find_message(line: dict[str, Any]) -> tuple[str, object] | None:
    """The agent that writes such a line, and the message in it; None for a line without a message of a conversation."""
    match line:
        case {"type": "user" | "assistant", "message": message}:
            is_aside = line.get("isMeta") or line.get("isSidechain")
            return None if is_aside else ("claude-code", message)
        case {"type": "response_item", "payload": {"type": "message"} as message}:
            return "codex", message
    return None


_METADATA_TYPES = ("session_meta", "turn_context")
"""The types of lines that Codex writes before turns, with the working folder of the next ones."""


def find_folder(line: dict[str, Any]) -> str:
    """The working folder that a line names, "" for none: each line of Claude Code, the first of Codex."""
    payload = line.get("payload")
    fields = payload if line.get("type") in _METADATA_TYPES and isinstance(payload, dict) else line
    folder = fields.get("cwd")
    return folder if isinstance(folder, str) else ""


def _extract_texts(content: object) -> Iterator[str]:
    """The texts of a message, without tool calls, their results and thoughts."""
    if isinstance(content, str):
        yield content
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text"):
            text = part.get("text")
            if isinstance(text, str):
                yield text


def _parse_timestamp(stamp: object) -> datetime | None:
    """A time in ISO 8601, in one of `_TIME_FORMATS`, as mails are dated, or in seconds or milliseconds since 1970;
    without a zone it is in UTC. Raises ValueError."""
    if stamp in (None, ""):
        return None
    text = str(stamp).strip()
    with suppress(ValueError, OverflowError, OSError):
        if _UNIX_TIME.fullmatch(text):
            seconds = float(text)
            return datetime.fromtimestamp(seconds / 1000 if seconds > MIN_MILLISECONDS else seconds, UTC)
        if _OTHER_NUMBER.fullmatch(text):
            raise ValueError
        formats: list[Callable[[str], datetime]] = [partial(_parse_format, form) for form in _TIME_FORMATS]
        for parse in (datetime.fromisoformat, *formats, parsedate_to_datetime):
            with suppress(ValueError):
                return in_utc(parse(text))
    raise ValueError(f"timestamp {text[:40]!r} is not a time such as 2026-01-05T14:12:30Z")


def _parse_format(form: str, text: str) -> datetime:
    return datetime.strptime(text, form)  # noqa: DTZ007 (the zone is added by the caller)


# -- lines of JSON


class LineProblem(NamedTuple):
    """Why the line with this number was skipped, or `kept` without its time."""

    line: int
    message: str
    kept: bool = False


def read_json_lines(lines: Sequence[str], *, first: int, source: str) -> tuple[list[NewMemory], list[LineProblem]]:
    """The memories in the lines of a file, and their problems. `first` is the number of the first line, `source` the
    name of the file. Empty lines are no problem."""
    items, problems = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            fields = parse_line(line.encode(errors="replace"))
            memory = check_memory(_make_memory(fields, f"{source}:{number}" if source else ""))
            try:
                memory = replace(memory, at=_parse_timestamp(fields.get("timestamp")))
            except ValueError as error:
                problems.append(LineProblem(number, f"{error}; stored without its time", kept=True))
            items.append(memory)
        except (Refusal, ValueError) as error:
            message = error.message if isinstance(error, Refusal) else str(error)
            problems.append(LineProblem(number, message[:300]))
    return items, problems


def _make_memory(fields: dict[str, Any], source: str) -> NewMemory:
    """The memory in the fields of a line, without its time. Raises ValueError."""
    if not isinstance(fields.get("text"), str):
        raise ValueError('a line must be an object with "text"')
    speaker, session, agent, ref = (_get_string(fields, name) for name in ("speaker", "session", "agent", "id"))
    return NewMemory(
        fields["text"],
        speaker=speaker,
        session=session,
        agent=agent,
        source=source,
        retention=Retention.FOREVER,
        ref=ref,
    )


def _get_string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'"{name}" must be a string')
    return str(value)
