"""What the engine and its model host tell each other: JSON objects, one a line, over a pipe that nobody else has.

Every message names its conversation, `c`. To the host, by `do`:

    open    model, instructions, tools, history     -> opened or failed
    ask     say, results, max_tokens, temperature              -> alive, text, thought …, then done or failed
    cancel                                          -> cancelled, always
    close

From the host, by `is`. What the host keeps of a conversation grows only with `done`: after `failed` the same
request can be made again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any

from engine.frozen import frozen

Message = dict[str, Any]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Bytes of one answer of a provider; one that is longer is broken off."""

BATCH_SECONDS = 0.05
"""Seconds in which pieces of text are gathered into one message."""

ALIVE_SECONDS = 2.0
"""Seconds after which a message `alive` tells of bytes that came meanwhile."""


class Kind(StrEnum):
    """What went wrong with a request."""

    AUTH = "auth"  # the key was refused
    QUOTA = "quota"  # the account has no money left
    RATE = "rate"  # too many requests
    SERVER = "server"  # the provider failed
    CONNECTION = "connection"  # not reached, or cut off
    SILENT = "silent"  # no byte for too long
    GONE = "gone"  # the model host ended
    MODEL = "model"  # there is no such model
    CONTEXT = "context"  # the conversation is longer than the model reads
    REFUSED = "refused"  # the provider takes the request for wrong
    REDIRECT = "redirect"  # the address sends elsewhere
    RUBBISH = "rubbish"  # an answer in no form that is known
    TOO_BIG = "too-big"  # more than `MAX_ANSWER_BYTES`, or than was allowed
    HISTORY = "history"  # the conversation that is to go on cannot be read
    HOST = "host"  # the model host cannot work


@frozen
class Model:
    """Which model, and how it is reached. `kind` is "openai" or "anthropic"; `key` is "" for a provider without."""

    provider: str
    name: str
    kind: str
    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return f"Model({self.provider}:{self.name} at {self.base_url})"


@frozen
class Failure:
    """Why a request failed. `message` in the provider's words, without the key; `retry_after` in seconds, as it asked
    for; `received` characters of an answer came before."""

    kind: Kind
    message: str = ""
    status: int | None = None
    retry_after: float | None = None
    received: int = 0


def failure_message(failure: Failure) -> Message:
    """The message that tells of a failure."""
    return {"is": "failed", **asdict(failure), "kind": failure.kind.value}


def failure_of(message: Message) -> Failure:
    """The inverse of `failure_message`."""
    fields_of_failure = {field.name: message[field.name] for field in fields(Failure)}
    return Failure(**{**fields_of_failure, "kind": Kind(fields_of_failure["kind"])})


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises ValueError for anything but an object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message
