"""Defines the messages between the engine and its model host: JSON objects, one a line, over a pipe of their own.

Every message names its `conversation`. To the host, by `request`:

    open    model, instructions, tools, history       -> opened or failed
    ask     texts, results, max_tokens, temperature   -> alive, text, thought …, then done or failed
    cancel                                            -> cancelled, always
    close

From the host, by `type`. What the host keeps of a conversation grows only with `done`: after `failed` the same
request can be made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.frozen import frozen
from engine.model import Refusal
from engine.model.secrets import redact_json

Message = dict[str, Any]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Bytes of one answer of a provider; one that is longer is broken off."""

ALIVE_SECONDS = 2.0
"""Seconds after which a message `alive` reports that bytes came meanwhile."""


class FailureKind(StrEnum):
    """The kinds of failures of a request to a model."""

    AUTH = "auth"
    """The key was refused."""
    QUOTA = "quota"
    """The account has no money left."""
    RATE = "rate"
    """Too many requests."""
    SERVER = "server"
    """The provider failed."""
    CONNECTION = "connection"
    """The provider was not reached, or the connection was cut off."""
    SILENT = "silent"
    """No byte came for too long."""
    GONE = "gone"
    """The model host ended."""
    MODEL = "model"
    """There is no such model."""
    CONTEXT = "context"
    """The conversation is longer than the model reads."""
    REFUSED = "refused"
    """The provider rejects the request as wrong."""
    REDIRECT = "redirect"
    """The address redirects to another one."""
    RUBBISH = "rubbish"
    """The answer has an unknown form."""
    TOO_BIG = "too-big"
    """The answer is longer than `MAX_ANSWER_BYTES`, or than was allowed."""
    HISTORY = "history"
    """The conversation to continue cannot be read."""
    HOST = "host"
    """The model host cannot work."""


@frozen
class Model:
    """A model, and how it is reached."""

    provider: str
    name: str
    kind: str
    """The protocol: "openai" or "anthropic"."""
    base_url: str
    key: str = ""
    """Empty for a provider that takes none."""

    def __repr__(self) -> str:
        return f"Model({self.provider}:{self.name} at {self.base_url})"


@frozen
class Failure:
    """The failure of a request."""

    kind: FailureKind
    message: str = ""
    """The provider's own message, without the key."""
    status: int | None = None
    """The status of HTTP."""
    retry_after: float | None = None
    """Seconds that the provider asks to wait."""
    received: int = 0
    """Characters of an answer that came before."""


def failure_message(failure: Failure) -> Message:
    """The message of a failure."""
    return {"type": "failed", **asdict(failure), "kind": failure.kind.value}


def failure_of(message: Message) -> Failure:
    """The inverse of `failure_message`."""
    values = {field.name: message[field.name] for field in fields(Failure)}
    return Failure(**values | {"kind": FailureKind(message["kind"])})


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises ValueError for anything but an object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


# -- Stored conversations: a message a line, as the host dumped it, secrets cut out (SPEC 9.4) ----------------------


FILE_SUFFIX = ".messages.jsonl"

UNREDACTED_FIELDS = frozenset({"signature", "id", "tool_call_id", "provider_details", "kind", "part_kind", "timestamp"})
"""Fields that a provider wants back unchanged; no secret is looked for there."""


class ConversationStore:
    """The conversations of one home."""

    def __init__(self, folder: Path, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        """`folder` holds the transcripts. `secrets` are cut out of a conversation that is continued: a key may have
        been set since it was stored."""
        self._folder = folder
        self._secrets = secrets

    def file(self, session_id: str) -> Path:
        """The file of a session's conversation, whether it exists or not."""
        return self._folder / f"{session_id}{FILE_SUFFIX}"

    def has_messages(self, session_id: str) -> bool:
        """Whether there is anything to continue."""
        try:
            return self.file(session_id).stat().st_size > 0
        except OSError:
            return False

    def begin(self, session_id: str, *, continues: str = "") -> Path:
        """Create an empty conversation, or a copy of the one that it `continues`, which stays as it is.

        Raises `Refusal` `no_conversation` when there is none to continue."""
        file = self.file(session_id)
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            if continues:
                try:
                    copy.writelines(self._redacted_lines(self.file(continues)))
                except FileNotFoundError as error:
                    raise Refusal(
                        "no_conversation",
                        f"no conversation of {continues} is stored",
                        "start again with a new card",
                    ) from error
        return file

    def _redacted_lines(self, file: Path) -> Iterator[bytes]:
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
