"""A server on loopback that behaves like ntfy, Discord's webhooks and plain JSON hooks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

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

    class Handler(BaseHTTPRequestHandler):
        owner: NotificationServer

        def do_POST(self):
            status = self.owner.status
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.owner.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            # Discord answers 204 to a webhook; ntfy the message with its id, or its own code of an error.
            discord = self.path.startswith("/api/webhooks/")
            reply = b"" if discord else json.dumps({"id": "a", "code": status * 100 + 1}).encode()
            send_reply(self, reply, status=204 if discord and status == 200 else status)

    @property
    def ntfy(self) -> str:
        return f"ntfy://127.0.0.1:{self.port}/clawpy"
