"""Reads the turns of a conversation from a line of a transcript of Claude Code or Codex. Pure.

Memory imports what was said there, and cards continue such a conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime

from engine.frozen import frozen

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum size of a line in bytes."""

MAX_TURN = 100_000
"""Maximum number of characters of a turn; the rest is cut."""


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


def read_turn(raw: bytes, name: str) -> Turn | None:
    """The turn in a line of a transcript of Claude Code or Codex, None for a line without one of a person or a model.
    `name` is the session of a line that names none. Raises ValueError for a line that cannot be read."""
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
    """The working folder that a line names, "" for none: each line of Claude Code, the first of Codex."""
    if not isinstance(line, dict):
        return ""
    payload = line.get("payload")
    fields = payload if line.get("type") in ("session_meta", "turn_context") and isinstance(payload, dict) else line
    folder = fields.get("cwd")
    return folder if isinstance(folder, str) else ""


def folder_line(raw: bytes) -> str:
    """The working folder in a line of metadata, as Codex writes it before the first turn; "" for any other line."""
    start = raw[:200]
    return folder_of(json.loads(raw)) if b"session_meta" in start or b"turn_context" in start else ""


def _text_parts(content: object) -> Iterator[str]:
    """The texts of a message, without tool calls, their results and thoughts."""
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
