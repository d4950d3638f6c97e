"""A web server on loopback: pages, redirects, and answers that never end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class WebServer:
    """Answers each path as a test told it, and remembers the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.headers.append(dict(self.headers))
                server.answers[self.path.split("?")[0]](self)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def page(
        self, path: str, body: str | bytes, content_type: str = "text/html; charset=utf-8", **headers: str
    ) -> None:
        def answer(request: BaseHTTPRequestHandler) -> None:
            data = body.encode() if isinstance(body, str) else body
            request.send_response(200)
            for name, value in {"Content-Type": content_type, "Content-Length": str(len(data)), **headers}.items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            request.wfile.write(data)

        self.answers[path] = answer

    def redirect(self, path: str, to: str) -> None:
        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(302)
            request.send_header("Location", to)
            request.end_headers()

        self.answers[path] = answer

    def send(self, path: str, pieces: Iterable[bytes]) -> None:
        """Answer with these bytes, one piece after the other, until the server is closed."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            for piece in pieces:
                request.wfile.write(piece)
                if self.over.is_set():
                    return

        self.answers[path] = answer

    def drip(self, path: str, beginning: bytes, drop: bytes, pause: float = 0.05) -> None:
        """Answer with a beginning, and then a drop after every pause, without end."""

        def drops() -> Iterator[bytes]:
            yield beginning
            while not self.over.wait(pause):
                yield drop

        self.send(path, drops())

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
