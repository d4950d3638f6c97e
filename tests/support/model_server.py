"""A provider of models on loopback: real HTTP, OpenAI chat completions and Anthropic messages, streamed or whole.

    with ModelServer() as server:
        server.script(calls("write", path="a.txt", content="hi"), Reply(text="Done."))
        ...                              # point a provider of kind "openai" at server.openai, "anthropic" at .anthropic
        assert server.requests[0].key == "sk-…"
        assert server.requests[1].tool_results == ["wrote a.txt"]

Replies are given in the order of the script, one a request; `server.answer` decides by the request instead. When the
script is over it says "Done.". Nothing sleeps: what hangs waits for its `hold` to be set, for its client to go away or
for the server to close.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Json = dict[str, Any]

_CHECK_SECONDS = 0.02
"""How often it is checked whether a client that waits has gone."""

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


def calls(name: str, **arguments: Any) -> Reply:
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


Answer = Callable[[Request], Reply]


class ModelServer:
    """Listens on a free port of 127.0.0.1 from `with` on. Safe to script from any thread."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Answer | None = None
        """Decides each reply instead of the script."""

        self.closing = threading.Event()
        self._script: list[Reply] = []
        self._arrived = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="model-server")

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai(self) -> str:
        """The base URL of a provider of kind "openai"."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL of a provider of kind "anthropic"."""
        return self.url

    def script(self, *replies: Reply | str) -> None:
        """Add replies; text stands for a reply that says it."""
        with self._arrived:
            self._script += [Reply(text=reply) if isinstance(reply, str) else reply for reply in replies]

    def reset(self) -> None:
        """Forget the script and the requests so far."""
        with self._arrived:
            self._script.clear()
            self.requests.clear()
        self.answer = None

    def wait(self, count: int, seconds: float = 10.0) -> Request:
        """Wait until `count` requests came, and return the last of them. Fails if they do not come."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.requests) >= count, seconds)
            assert arrived, f"{len(self.requests)} of {count} requests came"
            return self.requests[count - 1]

    def take(self, request: Request) -> Reply:
        """Store a request, and return what it is answered with."""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
            reply = self._script.pop(0) if self._script and self.answer is None else Reply(text="Done.")
        return self.answer(request) if self.answer is not None else reply

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections that wait, and listen no more. Safe to call again."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    owner: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing: clients may go away."""


class _Cut(Exception):
    """The connection is cut here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        kind = "anthropic" if self.path.split("?")[0].endswith("/messages") else "openai"
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(kind, self.path, headers, json.loads(raw or b"{}"))
        reply = self.server.owner.take(request)
        try:
            self._answer(request, reply)
            request.answered.set()
        except _Cut:
            self.close_connection = True
        except OSError:
            request.gone.set()
            self.close_connection = True

    def _answer(self, request: Request, reply: Reply) -> None:
        if not reply.hold_after:
            self._hold(request, reply)
        if reply.drop_after == 0:
            self._cut()
        if reply.status != 200 or reply.body is not None:
            self._send_whole(reply, request.kind)
        elif request.body.get("stream"):
            make_events = _make_openai_events if request.kind == "openai" else _make_anthropic_events
            events = list(make_events(reply, request))[: reply.end_after]
            self._begin(200, reply.content_type, reply.headers, None)
            for number, event in enumerate(events, 1):
                self._chunk(event)
                if number == reply.drop_after:
                    self._cut()
                if number == reply.hold_after:
                    self._hold(request, reply)
            self._chunk(b"")
        else:
            make_message = _make_openai_whole if request.kind == "openai" else _make_anthropic_whole
            data = json.dumps(make_message(reply, request)).encode()
            self._begin(200, "application/json", reply.headers, len(data))
            self.wfile.write(data)

    def _send_whole(self, reply: Reply, kind: str) -> None:
        body = reply.body
        if body is None:
            error = {"type": "error" if reply.status < 500 else "server_error", "message": reply.error}
            document: Json = {"error": error}
            body = json.dumps({"type": "error", **document} if kind == "anthropic" else document).encode()
        if isinstance(body, bytes):
            content_type = reply.content_type if reply.body is not None else "application/json"
            self._begin(reply.status, content_type, reply.headers, len(body))
            self.wfile.write(body)
            return
        self._begin(reply.status, reply.content_type, reply.headers, None)
        for piece in body():
            self._chunk(piece)
        self._chunk(b"")

    def _begin(self, status: int, content_type: str, headers: Mapping[str, str], length: int | None) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _hold(self, request: Request, reply: Reply) -> None:
        """Wait until the reply may go on. A client that leaves meanwhile is noticed."""
        if reply.hold is None:
            return
        while not reply.hold.wait(_CHECK_SECONDS):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("the client left")
            if self.server.owner.closing.is_set():
                self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        raise _Cut


def _split_text(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _make_call_id(call: Call, number: int) -> str:
    return call.id or f"call_{number}"


# OpenAI chat completions


def _make_openai_usage(reply: Reply) -> Json | None:
    if reply.usage is None:
        return None
    sent, written = reply.usage
    return {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}


def _make_openai_call(call: Call, number: int) -> Json:
    return {
        "id": _make_call_id(call, number),
        "type": "function",
        "function": {"name": call.name, "arguments": call.text},
    }


def _make_openai_whole(reply: Reply, request: Request) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_make_openai_call(call, number) for number, call in enumerate(reply.calls)]
    whole: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
    }
    if usage := _make_openai_usage(reply):
        whole["usage"] = usage
    return whole


def _make_openai_events(reply: Reply, request: Request) -> Iterator[bytes]:
    def event(delta: Json | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.model}
        return b"data: " + json.dumps({**chunk, "choices": choices, **more}).encode() + b"\n\n"

    yield event({"role": "assistant", "content": ""})
    for piece in _split_text(reply.thought, reply.piece):
        yield event({"reasoning_content": piece})
    for piece in _split_text(reply.text, reply.piece):
        yield event({"content": piece})
    for number, call in enumerate(reply.calls):
        whole = _make_openai_call(call, number)
        half = len(call.text) // 2
        first = {**whole, "index": number, "function": {"name": call.name, "arguments": call.text[:half]}}
        yield event({"tool_calls": [first]})
        yield event({"tool_calls": [{"index": number, "function": {"arguments": call.text[half:]}}]})
    yield event({}, _finish(reply))
    if usage := _make_openai_usage(reply):
        yield event(None, usage=usage)
    yield b"data: [DONE]\n\n"


# Anthropic messages

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def _make_anthropic_blocks(reply: Reply) -> Iterator[tuple[Json, list[Json]]]:
    """Each block as it starts, and its deltas."""
    if reply.thought:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _split_text(reply.thought, reply.piece)]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _split_text(reply.text, reply.piece)]
        yield {"type": "text", "text": ""}, deltas
    for number, call in enumerate(reply.calls):
        half = len(call.text) // 2
        halves = [{"type": "input_json_delta", "partial_json": part} for part in (call.text[:half], call.text[half:])]
        yield {"type": "tool_use", "id": _make_call_id(call, number), "name": call.name, "input": {}}, halves


def _make_anthropic_message(reply: Reply, request: Request) -> Json:
    input_tokens, output_tokens = reply.usage or (0, 0)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
    }


def _make_anthropic_whole(reply: Reply, request: Request) -> Json:
    content: list[Json] = []
    if reply.thought:
        content.append({"type": "thinking", "thinking": reply.thought, "signature": ""})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for number, call in enumerate(reply.calls):
        arguments = call.arguments if not isinstance(call.arguments, str) else {"text": call.arguments}
        content.append({"type": "tool_use", "id": _make_call_id(call, number), "name": call.name, "input": arguments})
    stop = _STOP_REASONS[_finish(reply)]
    return {**_make_anthropic_message(reply, request), "content": content, "stop_reason": stop}


def _make_anthropic_events(reply: Reply, request: Request) -> Iterator[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()

    message = _make_anthropic_message(reply, request)
    message["usage"]["output_tokens"] = 0
    yield event("message_start", message=message)
    for index, (block, deltas) in enumerate(_make_anthropic_blocks(reply)):
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": _STOP_REASONS[_finish(reply)], "stop_sequence": None}
    output_tokens = 0 if reply.usage is None else reply.usage[1]
    yield event("message_delta", delta=stop, usage={"output_tokens": output_tokens})
    yield event("message_stop")
