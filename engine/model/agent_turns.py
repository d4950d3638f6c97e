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
"""Bytes of one line; a longer one is named and passed over."""

MAX_TURN = 100_000
"""Characters of one turn that are remembered."""


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


def folder_line(raw: bytes) -> str:
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
