"""A real model server as a child process, and a proxy before it that records what is asked."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.support.checks import wait_until

HERE = Path(__file__).parent
TOOLS_TEMPLATE = str(HERE / "tools.jinja")
"""A chat template that leads the model to call a tool."""

START_SECONDS = 120.0
"""How long the server may take to start on a busy machine."""


class Endpoint:
    """A server on loopback."""

    port: int

    @property
    def openai(self) -> str:
        """The base URL of a provider of kind "openai"."""
        return f"{self.anthropic}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL of a provider of kind "anthropic"."""
        return f"http://127.0.0.1:{self.port}"


class Smollm2(Endpoint):
    """Runs `serve.py` with its options on a free port, from `with` on. It ends with this process at the latest."""

    def __init__(self, **options: str):
        self.port = _find_free_port()
        self._command = [sys.executable, str(HERE / "serve.py"), str(self.port), "watch=stdin"]
        self._command += [f"{name}={value}" for name, value in options.items()]
        self._process: subprocess.Popen[str] | None = None

    def start(self):
        """Start it, on the same port each time, and wait until it answers."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        timer = threading.Timer(START_SECONDS, self.kill)
        timer.start()
        address = self._process.stdout.readline()
        timer.cancel()
        assert address.startswith("http"), f"the model server did not start: {' '.join(self._command)}"

    def kill(self):
        """End it at once, as a machine without memory would."""
        if self._process is not None:
            with self._process as process:
                process.kill()

    def is_busy(self) -> bool:
        """Whether it is computing an answer."""
        with urllib.request.urlopen(f"{self.anthropic}/slots", timeout=60) as answer:
            return any(slot["is_processing"] for slot in json.load(answer))

    def wait_until_idle(self):
        """Wait until it computes nothing: it noticed that the client is gone."""
        wait_until(lambda: not self.is_busy(), 60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object):
        self.kill()


class Proxy(Endpoint):
    """A TCP proxy on loopback in front of a server, from `with` on.

    `requests` are the JSON bodies that went through, `answers` is the number of pieces of answers.
    """

    def __init__(self, server: Smollm2):
        self.server = server
        self.requests: list[dict[str, Any]] = []
        self.answers = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object):
        for connection in (self._listener, *self._sockets):
            _close(connection)

    def _accept(self):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(("127.0.0.1", self.server.port))
                except OSError:
                    _close(client)
                    continue
                self._sockets.append(server)
                for forward in (self._forward_requests, self._forward_answers):
                    threading.Thread(target=forward, args=(client, server), name="proxy", daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket):
        """Forward requests to the server."""
        received = b""
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                received = self._note_requests(received + data)
                server.sendall(data)
        _close(server)

    def _note_requests(self, received: bytes) -> bytes:
        """Store the complete requests in `received`; returns the rest of it."""
        while b"\r\n\r\n" in received:
            head, _, rest = received.partition(b"\r\n\r\n")
            match = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            length = int(match[1]) if match else 0
            if len(rest) < length:
                break
            if length:
                self.requests.append(json.loads(rest[:length]))
            received = rest[length:]
        return received

    def _forward_answers(self, client: socket.socket, server: socket.socket):
        """Forward answers to the client."""
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                self.answers += 1
                client.sendall(data)
        _close(client)


def _close(connection: socket.socket):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
