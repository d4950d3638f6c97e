"""Stores the conversations of sessions with models, so that another session can continue one (SPEC 9.4).

Each conversation is a file with one message a line, in the form of the model host. Secrets are removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from engine.redaction import redact_json

FILE_SUFFIX = ".messages.jsonl"
"""The end of a conversation's file, after the id of its session."""

UNREDACTED_FIELDS = frozenset({"signature", "id", "tool_call_id", "provider_details", "kind", "part_kind", "timestamp"})
"""Fields that must be sent back to a provider unchanged. They are not searched for secrets."""


class ConversationStore:
    """The conversations of one home."""

    def __init__(self, folder: Path, secrets: Callable[[], Iterable[str]]) -> None:
        """`folder` is the folder of transcripts. `secrets` are removed from a conversation when it is continued,
        because a key may have been set since it was stored."""
        self._folder = folder
        self._secrets = secrets

    def file(self, session_id: str) -> Path:
        """The file of a session's conversation, whether it exists or not."""
        return self._folder / f"{session_id}{FILE_SUFFIX}"

    def has_messages(self, session_id: str) -> bool:
        """Whether a session has messages that can be continued."""
        file = self.file(session_id)
        return file.exists() and file.stat().st_size > 0

    def begin(self, session_id: str, *, continues: str = "") -> Path:
        """Create an empty conversation, or a copy of that of the session `continues`, which must have messages."""
        file = self.file(session_id)
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            if continues:
                copy.writelines(self._read_redacted_lines(self.file(continues)))
        return file

    def _read_redacted_lines(self, file: Path) -> Iterator[bytes]:
        secrets = tuple(self._secrets())
        with file.open("rb") as lines:
            for line in lines:
                try:
                    message = redact_json(json.loads(line), secrets, kept=UNREDACTED_FIELDS)
                except ValueError:
                    return  # a crash left the last message half-written
                yield (json.dumps(message, ensure_ascii=False) + "\n").encode(errors="replace")

    def add(self, session_id: str, messages: Sequence[str]) -> None:
        """Append messages to a session's conversation. Raises OSError."""
        with self.file(session_id).open("a", encoding="utf-8") as file:
            file.writelines(f"{message}\n" for message in messages)
