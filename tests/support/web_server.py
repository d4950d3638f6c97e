"""Servers on loopback: the base of all that speak HTTP, and a web server with pages, redirects and endless answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Answer = Callable[[BaseHTTPRequestHandler], None]


def send_reply(
    request: BaseHTTPRequestHandler, body: bytes, headers: Mapping[str, str] | None = None, status: int = 200
):
    """Answer a request."""
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class LoopbackServer:
    """Listens on a free port of 127.0.0.1 from `with` on. `Handler` answers requests; its `owner` is this server."""

    Handler: type[BaseHTTPRequestHandler]

    def __enter__(self) -> Self:
        handler = type("Handler", (self.Handler,), {"owner": self, "log_message": lambda *_: None})
        self._http = _HttpServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object):
        self._http.shutdown()
        self._http.server_close()

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class WebServer(LoopbackServer):
    """Answers each path as a test told it, and remembers the requests. It listens from the beginning."""

    class Handler(BaseHTTPRequestHandler):
        owner: WebServer

        def do_GET(self):
            self.owner.paths.append(self.path)
            self.owner.headers.append(dict(self.headers))
            self.owner.answers[self.path.split("?")[0]](self)

    def __init__(self):
        self.answers: dict[str, Answer] = {}
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        self.__enter__()

    def page(self, path: str, body: str | bytes, content_type: str = "text/html; charset=utf-8", **headers: str):
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = lambda request: send_reply(request, data, {"Content-Type": content_type, **named})

    def redirect(self, path: str, to: str):
        self.answers[path] = lambda request: send_reply(request, b"", {"Location": to}, 302)

    def send(self, path: str, pieces: Iterable[bytes]):
        """Answer with these bytes, one piece after the other, until the server is closed."""

        def answer(request: BaseHTTPRequestHandler):
            for piece in pieces:
                request.wfile.write(piece)
                if self.over.is_set():
                    return

        self.answers[path] = answer

    def drip(self, path: str, beginning: bytes, drop: bytes, pause: float = 0.05):
        """Answer with a beginning, and then a drop after every pause, without end."""

        def drops() -> Iterator[bytes]:
            yield beginning
            while not self.over.wait(pause):
                yield drop

        self.send(path, drops())

    def close(self):
        self.over.set()
        self.__exit__()
