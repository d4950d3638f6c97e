"""What is asked of the model server, and what a test lets it answer, whichever protocol the client speaks."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True)
class Call:
    """A tool call. Arguments that are no valid JSON are given as a text."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)

    @property
    def halves(self) -> tuple[str, str]:
        """The arguments as a stream sends them."""
        middle = len(self.text) // 2
        return self.text[:middle], self.text[middle:]


@dataclass(frozen=True)
class Reply:
    """What one request is answered with."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    usage: tuple[int, int] | None = (100, 20)
    """Tokens of input and output; None leaves them out."""

    finish: str | None = None
    """Why it ended, in OpenAI's words: "stop", "length" or "content_filter". None: as it fits the content."""

    piece: int = 16
    """Characters of text in one event of a stream."""

    status: int = 200
    error: str = "the server says no"
    """The message of an answer with another status than 200."""

    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Callable[[], Iterable[bytes]] | None = None
    """Replaces the whole answer, in one piece or in many."""

    content_type: str = "text/event-stream"
    hold: threading.Event | None = None
    """It is waited for before the first byte, or after `hold_after` events of a stream."""

    hold_after: int = 0
    drop_after: int | None = None
    """The connection is cut after so many events of a stream, or at once for 0."""

    end_after: int | None = None
    """A stream ends after so many events, as if that were all."""

    @property
    def finish_reason(self) -> str:
        """Why it ended, in OpenAI's words."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    @property
    def calls_with_ids(self) -> list[Call]:
        return [replace(call, id=call.id or f"call_{number}") for number, call in enumerate(self.calls)]

    def split(self, text: str) -> Iterator[str]:
        """The pieces of a text of this reply, as a stream sends them."""
        return (text[at : at + self.piece] for at in range(0, len(text), self.piece))


def make_call(name: str, **arguments: Any) -> Reply:
    """A reply that calls one tool."""
    return Reply(calls=(Call(name, arguments),))


@dataclass
class Request:
    """What a client asked. `kind` is "openai" or "anthropic"; `gone` is set when it left before it had its answer."""

    kind: str
    path: str
    headers: dict[str, str]
    body: Json
    gone: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> str:
        """The key it came with, "" for none."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def max_tokens(self) -> int | None:
        """The most tokens it asked for, under whichever name."""
        limit = self.body.get("max_completion_tokens", self.body.get("max_tokens"))
        return None if limit is None else int(limit)

    @property
    def system(self) -> str:
        """The system prompt."""
        if self.kind == "anthropic":
            return _read_text(self.body.get("system", ""))
        return "\n".join(
            _read_text(message["content"]) for message in self.body["messages"] if message["role"] in _SYSTEM_ROLES
        )

    @property
    def users(self) -> list[str]:
        """The texts of the user, in order."""
        texts = [_read_text(message["content"]) for message in self.body["messages"] if message["role"] == "user"]
        return [text for text in texts if text]

    @property
    def tool_results(self) -> list[str]:
        """The results of tool calls, in order."""
        if self.kind == "openai":
            return [_read_text(message["content"]) for message in self.body["messages"] if message["role"] == "tool"]
        contents = [message["content"] for message in self.body["messages"]]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return [_read_text(block["content"]) for block in blocks if block["type"] == "tool_result"]

    @property
    def tools(self) -> list[str]:
        """The names of the tools it offers."""
        return [str((tool.get("function") or tool)["name"]) for tool in self.body.get("tools", ())]


def _read_text(content: Any) -> str:
    """The text of a message, which is one or in blocks."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")
    return str(content)
