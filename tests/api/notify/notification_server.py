"""A server on loopback that behaves like ntfy, Discord's webhooks and plain JSON hooks."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass
class Post:
    """A request that the server received."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class NotificationServer:
    """The running server, which records each post."""

    status: int = 200
    """The status of its answers."""
    posts: list[Post] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    """While this is cleared, no post is answered."""
    arrived: threading.Event = field(default_factory=threading.Event)
    """Set at the first post."""

    def __enter__(self) -> NotificationServer:
        self.open.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                server.arrived.set()
                server.open.wait()
                # Discord answers 204 to a webhook; ntfy the message with its id, or its own code of an error.
                discord = self.path.startswith("/api/webhooks/")
                self.send_response(204 if discord and server.status == 200 else server.status)
                reply = b"" if discord else json.dumps({"id": "a", "code": server.status * 100 + 1}).encode()
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        self._http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http_server.daemon_threads = True
        threading.Thread(target=self._http_server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.open.set()
        self._http_server.shutdown()
        self._http_server.server_close()

    @property
    def port(self) -> int:
        return self._http_server.server_port

    @property
    def ntfy(self) -> str:
        return f"ntfy://127.0.0.1:{self.port}/clawpy"

    @property
    def json(self) -> str:
        return f"json://127.0.0.1:{self.port}/push"

    @property
    def texts(self) -> list[str]:
        return [post.body.get("message") or post.body.get("content") for post in self.posts]
