"""Serves the requests of the engine inside the model host. The package defines the messages.

It runs only in the model host, because importing it takes a second and 100 MB. Its HTTP clients limit the size of
answers and follow no redirects.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from engine.config import is_loopback_host
from engine.execution.runners.model import (
    UNREDACTED_FIELDS,
    Failure,
    FailureKind,
    Message,
    Model,
    decode_message,
    encode_message,
    make_failure_message,
    request_costs,
)
from engine.redaction import CUT, redact, redact_json

Send = Callable[[Message], None]

CALL_NOT_RUN = "This call was not carried out: the session ended before."
"""The result of a tool call that an interrupted session left without one."""

MAX_CHARACTERS_PER_TOKEN = 16
"""Maximum number of characters per token of an answer, on average. A model that writes more ignores its limit."""

CONNECT_S = 15.0
"""Seconds to reach a provider. The engine decides how long an answer may take."""

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of an answer of a provider."""

ALIVE_INTERVAL_S = 2.0
"""Minimum seconds between two messages `alive`, which report that bytes have come."""

MAX_PROVIDER_MESSAGE_CHARS = 600
"""Maximum number of characters of a provider's message that are passed on."""

_on_bytes: ContextVar[Callable[[bytes], None]] = ContextVar("on_bytes")
"""The function of the present task that is called with the bytes of its answer."""

_END_MARK = re.compile(rb'data:\s*\[DONE\]|"(?:finish|stop)_reason":\s*"|"type":\s*"message_stop"')
"""The marks that end a complete answer, in both protocols."""

_MAX_END_MARK_BYTES = 64
"""Bytes of a chunk that are searched again with the next one, because a mark may be divided between them."""

_FAILURE_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (exceptions.ModelAuthenticationError, FailureKind.AUTH),
    (exceptions.ModelQuotaExceededError, FailureKind.QUOTA),
    (exceptions.ModelRateLimitError, FailureKind.RATE),
    (exceptions.ModelContextWindowExceededError, FailureKind.CONTEXT),
    (exceptions.ModelNotFoundError, FailureKind.MODEL),
    (exceptions.ModelUnavailableError, FailureKind.SERVER),
    (exceptions.ModelServerError, FailureKind.SERVER),
    (exceptions.ModelConnectionError, FailureKind.CONNECTION),
    (exceptions.ModelRequestRejectedError, FailureKind.REFUSED),
)
"""The kind of failure for each error of the libraries. The first that fits is taken."""

_MAX_CAUSES = 10
"""Maximum number of errors in a chain of causes that are looked at."""

_CONTEXT_ERROR_TYPE = "exceed_context_size_error"
"""The error of llama.cpp for a conversation that is too long. The libraries know only those of other servers."""


def serve(input_lines: SimpleQueue[bytes], output_fd: int) -> None:
    """Answer the messages in `input_lines` for ever."""
    asyncio.run(_serve(input_lines, output_fd))


async def _serve(input_lines: SimpleQueue[bytes], output_fd: int) -> None:
    output = os.fdopen(output_fd, "wb")

    def send(message: Message) -> None:
        output.write(encode_message(message))
        output.flush()

    host = _Host(send)
    while True:
        message = decode_message(await asyncio.to_thread(input_lines.get))
        try:
            host.handle(message)
        except Exception as error:  # only this conversation fails
            failure = Failure(FailureKind.HOST, f"{type(error).__name__}: {error}")
            host.send_to(message.get("conversation"), make_failure_message(failure))


@dataclass
class _Host:
    """All conversations of this process, and a client for each model that they use."""

    send: Send
    _conversations: dict[str, _Conversation] = field(default_factory=dict)
    _models: dict[Model, PydanticModel] = field(default_factory=dict)

    def handle(self, message: Message) -> None:
        """Carry out a request of the engine."""
        name = message["conversation"]
        match message["request"]:
            case "open":
                self._open(name, message)
            case "ask":
                self._conversations[name].ask(message)
            case "cancel":
                conversation = self._conversations.pop(name, None)
                if conversation is not None:
                    conversation.cancel()
                else:
                    self.send_to(name, {"type": "cancelled"})
            case "close":
                self._conversations.pop(name, None)

    def send_to(self, name: str | None, message: Message) -> None:
        """Send the engine a message about the conversation `name`."""
        self.send({"conversation": name, **message})

    def _open(self, name: str, message: Message) -> None:
        model = Model(**message["model"])
        send, failure_kind = partial(self.send_to, name), FailureKind.HOST
        try:
            client = self._models.get(model) or self._models.setdefault(model, _make_client(model))
            failure_kind = FailureKind.HISTORY
            history: list[ModelMessage] = []
            if file := message["history"]:
                lines = filter(str.strip, Path(file).read_text(encoding="utf-8").splitlines())
                history = ModelMessagesTypeAdapter.validate_json(f"[{','.join(lines)}]")
        except Exception as error:
            send(make_failure_message(Failure(failure_kind, _make_failure(error, model.key).message)))
            return
        tools = [
            ToolDefinition(
                name=tool["name"], parameters_json_schema=tool["parameters"], description=tool["description"]
            )
            for tool in message["tools"]
        ]
        self._conversations[name] = _Conversation(model, client, message["instructions"], tools, history, send)
        window = client.profile.get("context_window")
        send({"type": "opened", "price": request_costs.find_highest_price(model), "window": window})


def _make_client(model: Model) -> PydanticModel:
    """Make a client of a provider. It never retries, because the engine retries itself and counts each request.

    The libraries of a protocol take a second to load. So they are imported only when they are needed.
    """
    options: dict[str, Any] = {
        "api_key": model.key or "none",
        "base_url": model.base_url,
        "http_client": _make_http_client(model.base_url),
        "max_retries": 0,
    }
    if model.kind == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(model.name, provider=AnthropicProvider(anthropic_client=AsyncAnthropic(**options)))

    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    # OpenAI itself needs the new name of the limit; most other servers of its protocol know only the old one.
    is_openai = model.base_url.startswith("https://api.openai.com/")
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=is_openai)
    return OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=AsyncOpenAI(**options)), profile=profile)


def _read_event(event: Any) -> tuple[str, str]:
    """The message type and the text of an event of the stream. An event that is not shown is `alive`."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return "text", text
        case PartStartEvent(part=ThinkingPart(content=text)):
            return "thought", text
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
            return "thought", text
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
            return "alive", text
    return "alive", ""


@dataclass
class _Conversation:
    """One conversation with a model. Each answer is added to its messages."""

    model: Model
    client: PydanticModel
    instructions: str
    tools: list[ToolDefinition]
    messages: list[ModelMessage]
    send: Send
    _request_task: asyncio.Task[None] | None = field(default=None, init=False)
    _received: int = field(default=0, init=False)
    """The number of characters of the answer so far."""
    _sent_at: float = field(default=0.0, init=False)

    def ask(self, message: Message) -> None:
        """Begin a request."""
        self._request_task = asyncio.create_task(self._ask(message))

    def cancel(self) -> None:
        """Cancel the request and report that it is cancelled."""
        task, self._request_task = self._request_task, None
        if task is None or task.done():
            self.send({"type": "cancelled"})
            return
        task.add_done_callback(lambda _: self.send({"type": "cancelled"}))
        task.cancel()

    async def _ask(self, message: Message) -> None:
        request = ModelRequest(parts=self._make_request_parts(message), instructions=self.instructions or None)
        self._received = 0
        try:
            response = await self._stream_answer(request, message)
        except Exception as error:
            failure = _make_failure(error, self.model.key, received=self._received)
            self.send(make_failure_message(failure))
            return
        self.messages += [request, response]
        self.send(self._make_answer(request, response))

    async def _stream_answer(self, request: ModelRequest, message: Message) -> ModelResponse:
        parameters = ModelRequestParameters(function_tools=self.tools, allow_text_output=True)
        max_tokens, temperature = message["max_tokens"], message["temperature"]
        settings = ModelSettings(max_tokens=max_tokens)
        if temperature is not None:
            settings["temperature"] = temperature
        max_characters = max(65_536, max_tokens * MAX_CHARACTERS_PER_TOKEN)
        ending = _EndDetector()

        def on_bytes(chunk: bytes) -> None:
            ending.add(chunk)
            self._send_piece("alive", "")

        _on_bytes.set(on_bytes)
        async with model_request_stream(
            self.client, [*self.messages, request], model_settings=settings, model_request_parameters=parameters
        ) as streamed:
            async for event in streamed:
                self._send_piece(*_read_event(event))
                if self._received > max_characters:
                    raise _UnusableAnswer(FailureKind.TOO_BIG, f"more than {max_characters:,} characters")
            if not ending.is_seen:
                raise _UnusableAnswer(FailureKind.BROKEN_OFF)
            return streamed.get()

    def _send_piece(self, kind: str, text: str) -> None:
        """Send the engine a piece of the answer. A message `alive` is sent at most every `ALIVE_INTERVAL_S`."""
        self._received += len(text)
        now = time.monotonic()
        if kind == "alive" and now - self._sent_at < ALIVE_INTERVAL_S:
            return
        if kind == "alive" or text:
            self._sent_at = now
            self.send({"type": kind, "text": text})

    def _make_request_parts(self, message: Message) -> list[ModelRequestPart]:
        """The parts of the next request. If the conversation was interrupted, results for its unanswered calls come
        first."""
        results = message["results"]
        answered = {result["id"] for result in results}
        parts: list[ModelRequestPart] = []
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelResponse):
            parts += [
                ToolReturnPart(call.tool_name, CALL_NOT_RUN, call.tool_call_id)
                for call in last.tool_calls
                if call.tool_call_id not in answered
            ]
        parts += [ToolReturnPart(result["name"], result["text"], result["id"]) for result in results]
        return [*parts, *(UserPromptPart(text) for text in message["texts"])]

    def _remove_key(self, text: str) -> str:
        """The text of a provider without our key, so that the key is not stored (SPEC 11.1)."""
        return text.replace(self.model.key, CUT) if self.model.key else text

    def _make_answer(self, request: ModelRequest, response: ModelResponse) -> Message:
        usage = response.usage
        is_reported = usage.input_tokens > 0 or usage.output_tokens > 0
        return {
            "type": "done",
            "text": self._remove_key("".join(part.content for part in response.parts if isinstance(part, TextPart))),
            "calls": [
                {
                    "id": call.tool_call_id,
                    "name": call.tool_name,
                    "arguments": self._remove_key(
                        call.args if isinstance(call.args, str) else json.dumps(call.args or {})
                    ),
                }
                for call in response.tool_calls
            ],
            "input": usage.input_tokens if is_reported else None,
            "output": usage.output_tokens if is_reported else None,
            "cost": request_costs.compute_cost(usage, self.model) if is_reported else None,
            "finish": response.finish_reason or "",
            "messages": [_format_redacted_line(message, self.model.key) for message in (request, response)],
        }


def _format_redacted_line(message: ModelMessage, key: str) -> str:
    """The message as a line of JSON, without secrets (SPEC 11.1)."""
    (document,) = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    return json.dumps(redact_json(document, (key,) if key else (), kept=UNREDACTED_FIELDS), ensure_ascii=False)


class _UnusableAnswer(Exception):
    """The answer cannot be used, although the libraries would accept it."""

    def __init__(self, kind: FailureKind, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class _EndDetector:
    """Watches a stream for the marks that end an answer. In the text of an answer these marks are escaped."""

    def __init__(self) -> None:
        self.is_seen = False
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Search the next bytes of the stream."""
        if not self.is_seen:
            data = self._rest + chunk
            self.is_seen = _END_MARK.search(data) is not None
            self._rest = data[-_MAX_END_MARK_BYTES:]


class _BoundedStream(httpx2.AsyncByteStream):
    """A stream that fails after `MAX_ANSWER_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        report = _on_bytes.get()
        async for chunk in self._inner:
            received += len(chunk)
            if received > MAX_ANSWER_BYTES:
                raise _UnusableAnswer(FailureKind.TOO_BIG, f"more than {MAX_ANSWER_BYTES:,} bytes")
            report(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        # Its real size would not be known.
        raise _UnusableAnswer(FailureKind.RUBBISH, "it is compressed, though that was not asked for")
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(stream)


def _make_http_client(base_url: str) -> httpx2.AsyncClient:
    """Make a client for one provider. Proxies come from the environment. For an address of this machine none is
    used."""
    host = urlsplit(base_url).hostname or ""
    return httpx2.AsyncClient(
        follow_redirects=False,  # the key would be sent to the other address
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bound_response]},
        trust_env=not is_loopback_host(host),
    )


def _make_failure(error: BaseException, key: str, *, received: int = 0) -> Failure:
    """The failure for an error. `key` is removed from its message."""
    chain = list(_walk_exception_chain(error))
    codes = (getattr(cause, "status_code", None) for cause in chain)
    status = next((code for code in codes if isinstance(code, int)), None)
    retry_after = next((cause.retry_after for cause in chain if isinstance(cause, exceptions.ModelAPIError)), None)
    message = redact(_read_error_message(error), [key])[:MAX_PROVIDER_MESSAGE_CHARS]
    kind = _classify(chain, status)
    if kind is FailureKind.CONNECTION and received:
        kind = FailureKind.BROKEN_OFF
    return Failure(kind, message, status, retry_after, received)


def _classify(chain: list[BaseException], status: int | None) -> FailureKind:
    """The kind of a failure, from an error with its causes (`chain`) and the HTTP status of the answer."""
    unusable = next((cause.kind for cause in chain if isinstance(cause, _UnusableAnswer)), None)
    if unusable is not None:
        return unusable
    if status is not None and 300 <= status < 400:
        return FailureKind.REDIRECT
    if status == 413 or any(_read_error_body(cause).get("type") == _CONTEXT_ERROR_TYPE for cause in chain):
        return FailureKind.CONTEXT
    kinds = (kind for cause in chain for error, kind in _FAILURE_KINDS if isinstance(cause, error))
    if kind := next(kinds, None):
        return kind
    if status is not None:  # the libraries do not classify it
        return FailureKind.SERVER if status in (408, 409) else FailureKind.REFUSED
    is_connection = any(isinstance(cause, (httpx2.TransportError, ConnectionError)) for cause in chain)
    return FailureKind.CONNECTION if is_connection else FailureKind.RUBBISH


def _read_error_message(error: BaseException) -> str:
    message = _read_error_body(error).get("message")
    return " ".join((message if isinstance(message, str) and message.strip() else str(error)).split())


def _read_error_body(error: BaseException) -> dict[str, object]:
    """The error in the body of the provider's answer. If the body is only a text, that is the message."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return inner if isinstance(inner, dict) else {"message": inner}


def _walk_exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, at most `_MAX_CAUSES` in all."""
    for _ in range(_MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
