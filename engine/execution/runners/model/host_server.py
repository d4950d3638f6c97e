"""Conversations with models, inside the model host: opened, asked, cancelled, closed as `host_protocol` says.

Runs in the model host only: importing this takes a second and 100 MB.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

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
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from engine.execution.runners.model import host_http, host_protocol, prices
from engine.execution.runners.model.conversation_store import UNREDACTED_FIELDS
from engine.execution.runners.model.host_http import failure_of
from engine.execution.runners.model.host_protocol import Failure, Kind, Message
from engine.model.secrets import CUT, redact_json

CALL_NOT_RUN = "This call was not carried out: the session ended before."

MAX_CHARACTERS_PER_TOKEN = 16
"""The most characters a model writes with a token on average; one that writes more ignores its limit."""

Send = Callable[[Message], None]


def serve(lines: SimpleQueue[bytes], wake: Callable[[Callable[[], object]], None], answers: int) -> None:
    """Answer the messages in `lines` for ever. `wake` is given the function to call when a line arrives."""
    asyncio.run(_serve(lines, wake, answers))


async def _serve(lines: SimpleQueue[bytes], wake: Callable[[Callable[[], object]], None], answers: int) -> None:
    loop = asyncio.get_running_loop()
    host = _Host(partial(_write, answers))

    def take() -> None:
        while True:
            try:
                line = lines.get_nowait()
            except Empty:
                return
            message = host_protocol.decode(line)
            try:
                host.take(message)
            except Exception as error:  # of one conversation; the others go on
                failure = Failure(Kind.HOST, f"{type(error).__name__}: {error}")
                _write(answers, {"c": message.get("c"), **host_protocol.failure_message(failure)})

    wake(lambda: loop.call_soon_threadsafe(take))
    take()
    await asyncio.Event().wait()


def _write(answers: int, message: Message) -> None:
    data = memoryview(host_protocol.encode(message))
    while data:
        data = data[os.write(answers, data) :]


class _Host:
    """All conversations of this process, and one client for each provider they speak to."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._conversations: dict[str, _Conversation] = {}
        self._models: dict[host_protocol.Model, PydanticModel] = {}

    def take(self, message: Message) -> None:
        """Carry out a message of the engine."""
        match message["do"]:
            case "open":
                self._open(message)
            case "ask":
                conversation = self._conversations.get(message["c"])
                if conversation is None:
                    self._say(
                        message["c"], host_protocol.failure_message(Failure(Kind.GONE, "the conversation is not open"))
                    )
                else:
                    conversation.ask(message)
            case "cancel":
                conversation = self._conversations.pop(message["c"], None)
                if conversation is None:
                    self._send({"c": message["c"], "is": "cancelled"})
                else:
                    conversation.cancel()
            case "close":
                self._conversations.pop(message["c"], None)

    def _open(self, message: Message) -> None:
        name, model = message["c"], host_protocol.Model(**message["model"])
        try:
            client = self._models.get(model) or self._models.setdefault(model, _client_of(model))
            history = _read_history(Path(message["history"])) if message["history"] else []
        except Exception as error:
            failure = Failure(Kind.HISTORY if message["history"] else Kind.HOST, failure_of(error, model.key).message)
            self._say(name, host_protocol.failure_message(failure))
            return
        tools = [
            ToolDefinition(
                name=tool["name"], parameters_json_schema=tool["parameters"], description=tool["description"]
            )
            for tool in message["tools"]
        ]
        send = partial(self._say, name)
        self._conversations[name] = _Conversation(model, client, message["instructions"], tools, history, send)
        window = client.profile.get("context_window")
        send({"is": "opened", "price": prices.price_of(model), "window": window, "messages": len(history)})

    def _say(self, name: str, message: Message) -> None:
        self._send({"c": name, **message})


def _client_of(model: host_protocol.Model) -> PydanticModel:
    """A client of a provider. Tries again are the engine's affair: it counts and pays them."""
    return _anthropic_model(model) if model.kind == "anthropic" else _openai_model(model)


# Each protocol's libraries take a second to load: only what is spoken is.


def _anthropic_model(model: host_protocol.Model) -> PydanticModel:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    http = host_http.make_client(model.base_url)
    client = AsyncAnthropic(api_key=model.key or "none", base_url=model.base_url, http_client=http, max_retries=0)
    return AnthropicModel(model.name, provider=AnthropicProvider(anthropic_client=client))


def _openai_model(model: host_protocol.Model) -> PydanticModel:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    http = host_http.make_client(model.base_url)
    client = AsyncOpenAI(api_key=model.key or "none", base_url=model.base_url, http_client=http, max_retries=0)
    # OpenAI itself wants the new name of the limit; those who speak its protocol mostly know the old one only.
    itself = model.base_url.startswith("https://api.openai.com/")
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=itself)
    return OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=client), profile=profile)


def _read_history(file: Path) -> list[ModelMessage]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return ModelMessagesTypeAdapter.validate_json(f"[{','.join(lines)}]")


@dataclass
class _Conversation:
    """One conversation with a model; its messages grow with each answer."""

    model: host_protocol.Model
    client: PydanticModel
    instructions: str
    tools: list[ToolDefinition]
    messages: list[ModelMessage]
    send: Send
    _asking: asyncio.Task[None] | None = field(default=None, init=False)

    def ask(self, message: Message) -> None:
        """Begin a request."""
        self._asking = asyncio.create_task(self._ask(message))

    def cancel(self) -> None:
        """Cancel the request and report that it is cancelled."""
        task, self._asking = self._asking, None
        if task is None or task.done():
            self.send({"is": "cancelled"})
            return
        task.add_done_callback(lambda _: self.send({"is": "cancelled"}))
        task.cancel()

    async def _ask(self, message: Message) -> None:
        request = ModelRequest(parts=self._parts(message), instructions=self.instructions or None)
        stream = _StreamOutput(self.send)
        host_http.on_bytes.set(stream.beat)
        try:
            response = await self._request(request, message, stream)
        except Exception as error:
            stream.flush()
            failure = failure_of(error, self.model.key, received=stream.received)
            self.send(host_protocol.failure_message(failure))
            return
        stream.flush()
        self.messages += [request, response]
        self.send(self._answer(request, response))

    async def _request(self, request: ModelRequest, message: Message, stream: _StreamOutput) -> ModelResponse:
        parameters = ModelRequestParameters(function_tools=self.tools, allow_text_output=True)
        max_tokens, temperature = message["max_tokens"], message["temperature"]
        settings = ModelSettings(max_tokens=max_tokens)
        if temperature is not None:
            settings["temperature"] = temperature
        limit = max(65_536, max_tokens * MAX_CHARACTERS_PER_TOKEN)
        async with model_request_stream(
            self.client, [*self.messages, request], model_settings=settings, model_request_parameters=parameters
        ) as streamed:
            async for event in streamed:
                stream.take(event)
                if stream.received > limit:
                    raise host_http.AnswerTooBig
            if not stream.ending.is_seen:
                raise host_http.AnswerCutShort("the answer ended in the middle")
            return streamed.get()

    def _parts(self, message: Message) -> list[ModelRequestPart]:
        """The parts of the next request. Calls that were never answered, in a conversation that was cut, come first."""
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
        return [*parts, *(UserPromptPart(text) for text in message["say"])]

    def _without_key(self, text: str) -> str:
        """No provider tells us our own key and has it written down (SPEC 11.1)."""
        return text.replace(self.model.key, CUT) if self.model.key else text

    def _answer(self, request: ModelRequest, response: ModelResponse) -> Message:
        usage = response.usage
        is_reported = usage.input_tokens > 0 or usage.output_tokens > 0
        return {
            "is": "done",
            "text": self._without_key("".join(part.content for part in response.parts if isinstance(part, TextPart))),
            "calls": [
                {"id": call.tool_call_id, "name": call.tool_name, "arguments": self._without_key(_arguments(call))}
                for call in response.tool_calls
            ],
            "input": usage.input_tokens if is_reported else None,
            "output": usage.output_tokens if is_reported else None,
            "cost": prices.cost_of(usage, self.model) if is_reported else None,
            "finish": response.finish_reason or "",
            "messages": [_redacted_line(message, self.model.key) for message in (request, response)],
        }


class _StreamOutput:
    """Collects the text of a stream, and sends at most one message every `host_protocol.BATCH_SECONDS` seconds."""

    def __init__(self, send: Send) -> None:
        self.received = 0
        self.ending = host_http.EndDetector()
        self._send = send
        self._kind = ""
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    def take(self, event: Any) -> None:
        """One event of the stream."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._add("text", text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                self._add("thought", text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                self._add("thought", text)
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
                self.received += len(text)

    def beat(self, chunk: bytes) -> None:
        """Report at most every `ALIVE_SECONDS` that bytes came, if only to keep the connection open."""
        self.ending.take(chunk)
        if time.monotonic() - self._sent_at >= host_protocol.ALIVE_SECONDS:
            self._emit({"is": "alive"})

    def flush(self) -> None:
        """Send what is gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            text, self._waiting = "".join(self._waiting), []
            self._emit({"is": self._kind, "text": text})

    def _add(self, kind: str, text: str) -> None:
        if not text:
            return
        self.received += len(text)
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._waiting.append(text)
        since = time.monotonic() - self._sent_at
        if since >= host_protocol.BATCH_SECONDS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(host_protocol.BATCH_SECONDS - since, self.flush)

    def _emit(self, message: Message) -> None:
        self._sent_at = time.monotonic()
        self._send(message)


def _arguments(call: ToolCallPart) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(call.args or {})


def _redacted_line(message: ModelMessage, key: str) -> str:
    """The message as a line of JSON, without secrets (SPEC 11.1)."""
    (document,) = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    return json.dumps(redact_json(document, (key,) if key else (), kept=UNREDACTED_FIELDS), ensure_ascii=False)
