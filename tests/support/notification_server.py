"""A server on loopback that behaves like ntfy, Discord's webhooks and plain JSON hooks."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from tests.support.web_server import LoopbackServer, send_reply


@dataclass
class Post:
    """A request that the server received."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class NotificationServer(LoopbackServer):
    """The running server, which records each post."""

    status: int = 200
    """The status of its answers."""
    posts: list[Post] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    """While this is cleared, no post is answered."""

    class Handler(BaseHTTPRequestHandler):
        owner: NotificationServer

        def do_POST(self):
            status = self.owner.status
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.owner.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.owner.open.wait()
            # Discord answers 204 to a webhook; ntfy the message with its id, or its own code of an error.
            discord = self.path.startswith("/api/webhooks/")
            reply = b"" if discord else json.dumps({"id": "a", "code": status * 100 + 1}).encode()
            send_reply(self, reply, status=204 if discord and status == 200 else status)

    def __enter__(self) -> Self:
        self.open.set()
        return super().__enter__()

    def __exit__(self, *error: object):
        self.open.set()
        super().__exit__()

    @property
    def ntfy(self) -> str:
        return f"ntfy://127.0.0.1:{self.port}/clawpy"

    @property
    def json(self) -> str:
        return f"json://127.0.0.1:{self.port}/push"
