"""The model runner (SPEC 3.8): an agent loop with a model of the operator, by the protocol of OpenAI or Anthropic.

Here is what the loop and the model host share: a model, the failure of a request, the messages on their pipe, and the
files from which the host takes up a conversation.

The loop, its limits and its tools run in the engine, in the thread of the session. The large libraries (pydantic-ai,
the clients of providers, prices) run in one helper process, the model host, and the engine talks to it over a pipe. So
neither importing them nor reading a stream can delay a screen. `host_server` runs only in the model host.

The messages are JSON objects, one a line. Every message names its `conversation`. A message to the host has a
`request`, and is answered with messages of these types:

    open    model, instructions, tools, history       -> opened or failed
    ask     texts, results, max_tokens, temperature   -> alive, text, thought …, then done or failed
    cancel                                            -> cancelled, always
    close

A message from the host has a `type`. The host adds a request and its answer to the conversation only with `done`. So
after `failed` the same request can be made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.files import read_table
from engine.frozen import frozen
from engine.redaction import redact_json

Message = dict[str, Any]
"""One message to the model host, or from it. The docstring of the module has its keys."""

TOKENS_PER_PRICE = 1_000_000
"""Number of tokens for which a price is named."""


# -- a model, and the failure of a request

FIRST_DELAY_S = 1.0
"""Seconds before the first retry; twice as many before each further one."""

MAX_DELAY_S = 60.0
"""Maximum number of seconds before a retry."""

MAX_RETRY_AFTER_S = 120.0
"""Maximum number of seconds that a provider may ask to wait. If it asks for more, the request is not sent again."""


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
    """The provider was not reached, or the connection was lost before the answer."""
    BROKEN_OFF = "broken-off"
    """The answer ended in the middle."""
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
    """The answer has more bytes than the host accepts, or more text than was allowed."""
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
    """Empty for a provider that needs none."""
    is_free: bool = False
    """Whether it costs nothing, whatever the public list says."""
    input_price: int | None = None
    """The price in the settings, which replaces the listed one: micro-dollars for a million tokens of prompt."""
    output_price: int | None = None
    """The same for an answer."""

    def __repr__(self) -> str:
        return f"Model({self.provider}:{self.name} at {self.base_url})"


_FAILURES = read_table(__file__, "failures.toml")
"""How often a request is sent again after each kind of failure, and what the operator is told."""


@frozen
class Failure:
    """The failure of a request."""

    kind: FailureKind
    message: str = ""
    """The provider's own message, without the key."""
    status: int | None = None
    """The HTTP status."""
    retry_after: float | None = None
    """The seconds that the provider asks to wait."""
    received: int = 0
    """The number of characters of the answer that came before the failure."""

    @property
    def is_of_provider(self) -> bool:
        """Whether the provider or the network failed, so that the same request may succeed later."""
        return "of_work" not in _FAILURES[self.kind]

    @property
    def may_be_billed(self) -> bool:
        """Whether a provider may charge for the request. It may charge for what came, and for some failures in any
        case."""
        return self.received > 0 or "billed" in _FAILURES[self.kind]

    def compute_retry_delay(self, tried: int, chance: float) -> float | None:
        """The seconds to wait before a request that failed `tried` times (from 1) is sent again; None if it is not.

        `chance` in [0, 1) spreads the retries of many sessions: the delay is between half and all of its full length.
        It is never shorter than the provider asked for.
        """
        requested = self.retry_after or 0.0
        if tried > _FAILURES[self.kind].get("retries", 0) or requested > MAX_RETRY_AFTER_S:
            return None
        delay: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (tried - 1))
        return max(requested, delay * (0.5 + chance / 2))

    def describe(self, model: Model) -> tuple[str, str]:
        """The problem and its fix, as texts for the operator."""
        status = f" ({self.status})" if self.status else ""
        detail = f": {self.message.rstrip('.')}" if self.message else ""
        row = _FAILURES[self.kind]
        names = {"provider": model.provider, "model": model.name, "address": model.base_url}
        return row["problem"].format(**names) + status + detail, row["fix"].format(**names)


# -- messages


def make_failure_message(failure: Failure) -> Message:
    """The message for a failure."""
    return {"type": "failed", **asdict(failure), "kind": failure.kind.value}


def read_failure(message: Message) -> Failure:
    """The failure in a message of `make_failure_message`."""
    values = {field.name: message[field.name] for field in fields(Failure)}
    return Failure(**values | {"kind": FailureKind(message["kind"])})


def encode_message(message: Message) -> bytes:
    """A message as one line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def decode_message(line: bytes) -> Message:
    """The message in a line. Raises ValueError for anything but a JSON object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


# -- stored conversations

FILE_SUFFIX = ".messages.jsonl"
"""The end of a conversation's file, after the id of its session."""

UNREDACTED_FIELDS = frozenset({"signature", "id", "tool_call_id", "provider_details", "kind", "part_kind", "timestamp"})
"""Fields that must be sent back to a provider unchanged. They are not searched for secrets."""


@frozen
class ConversationStore:
    """The conversations of one home, so that another session can continue one (SPEC 9.4). Each is a file with one
    message a line, in the form of the model host. Secrets are removed."""

    folder: Path
    """The folder of transcripts."""
    secrets: Callable[[], Iterable[str]]
    """Returns what is removed from a conversation when it is continued. A key may have been set since it was stored."""

    def get_file(self, session_id: str) -> Path:
        """The file of a session's conversation, whether it exists or not."""
        return self.folder / f"{session_id}{FILE_SUFFIX}"

    def has_messages(self, session_id: str) -> bool:
        """Whether a session has messages that can be continued."""
        file = self.get_file(session_id)
        return file.exists() and file.stat().st_size > 0

    def begin(self, session_id: str, *, continues: str = "") -> Path:
        """Create an empty conversation, or a copy of that of the session `continues`, which must have messages."""
        file = self.get_file(session_id)
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            if continues:
                copy.writelines(self._read_redacted_lines(self.get_file(continues)))
        return file

    def _read_redacted_lines(self, file: Path) -> Iterator[bytes]:
        secrets = tuple(self.secrets())
        with file.open("rb") as lines:
            for line in lines:
                try:
                    message = redact_json(json.loads(line), secrets, kept=UNREDACTED_FIELDS)
                except ValueError:
                    return  # a crash left the last message half-written
                yield (json.dumps(message, ensure_ascii=False) + "\n").encode(errors="replace")

    def add(self, session_id: str, messages: Sequence[str]) -> None:
        """Append messages to a session's conversation. Raises OSError."""
        with self.get_file(session_id).open("a", encoding="utf-8") as file:
            file.writelines(f"{message}\n" for message in messages)
