"""The server: it listens on loopback, stores what is asked, and answers with the replies of a test."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from types import ModuleType

from tests.support.model_server import anthropic_format, openai_format
from tests.support.model_server.messages import Reply, Request
from tests.support.web_server import LoopbackServer

_CHECK_SECONDS = 0.02
"""How often it is checked whether a client that waits has gone."""

_FORMATS: Mapping[str, ModuleType] = {"openai": openai_format, "anthropic": anthropic_format}

Answer = Callable[[Request], Reply]


class _Cut(Exception):
    """The connection is cut here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ModelServer

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        kind = "anthropic" if self.path.split("?")[0].endswith("/messages") else "openai"
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(kind, self.path, headers, json.loads(raw or b"{}"))
        reply = self.owner.take(request)
        try:
            self._answer(request, reply)
            request.answered.set()
        except _Cut:
            self.close_connection = True
        except OSError:
            request.gone.set()
            self.close_connection = True

    def _answer(self, request: Request, reply: Reply):
        if not reply.hold_after:
            self._hold(request, reply)
        if reply.drop_after == 0:
            self._cut()
        if reply.status != 200 or reply.body is not None:
            self._send_whole(reply, request.kind)
        elif request.body.get("stream"):
            self._stream(request, reply)
        else:
            data = json.dumps(_FORMATS[request.kind].make_message(reply, request)).encode()
            self._begin(200, "application/json", reply.headers, len(data))
            self.wfile.write(data)

    def _stream(self, request: Request, reply: Reply):
        events = list(_FORMATS[request.kind].make_events(reply, request))[: reply.end_after]
        self._begin(200, reply.content_type, reply.headers, None)
        for number, event in enumerate(events, 1):
            self._chunk(event)
            if number == reply.drop_after:
                self._cut()
            if number == reply.hold_after:
                self._hold(request, reply)
        self._chunk(b"")

    def _send_whole(self, reply: Reply, kind: str):
        body = reply.body
        if body is None:
            error = {"type": "error" if reply.status < 500 else "server_error", "message": reply.error}
            document = {"error": error}
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

    def _begin(self, status: int, content_type: str, headers: Mapping[str, str], length: int | None):
        self.send_response(status)
        self.send_header("content-type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def _chunk(self, data: bytes):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _hold(self, request: Request, reply: Reply):
        """Wait until the reply may go on. A client that leaves meanwhile is noticed."""
        if reply.hold is None:
            return
        while not reply.hold.wait(_CHECK_SECONDS):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("the client left")
            if self.owner.closing.is_set():
                self._cut()

    def _cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        raise _Cut


class ModelServer(LoopbackServer):
    """Listens on a free port of 127.0.0.1 from `with` on. Safe to script from any thread."""

    Handler = _Handler

    def __init__(self):
        self.requests: list[Request] = []
        self.answer: Answer | None = None
        """Decides each reply instead of the script."""

        self.closing = threading.Event()
        self._script: list[Reply] = []
        self._arrived = threading.Condition()

    @property
    def openai(self) -> str:
        """The base URL of a provider of kind "openai"."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL of a provider of kind "anthropic"."""
        return self.url

    def script(self, *replies: Reply | str):
        """Add replies; text stands for a reply that says it."""
        with self._arrived:
            self._script += [Reply(text=reply) if isinstance(reply, str) else reply for reply in replies]

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

    def __exit__(self, *error: object):
        """End the connections that wait, and listen no more."""
        self.closing.set()
        super().__exit__(*error)
