"""The private socket on which verbs reach the engine that holds the home (SPEC 7.5).

A connection is one request, a line of JSON, and its answer, another: `{"verb", "arguments"}` → `{"ok": document}` or
`{"error": {...}}`. The socket has mode 0600 in a folder of mode 0700. After the verb `attach` the connection belongs to
a console.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from engine.home import Home
from engine.model import Refusal

log = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""The limits of the operating systems are 104 and 108 bytes."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024

IDLE_TIMEOUT_S = 60.0
"""Seconds that a client may send nothing, or not read its answer. The time that a verb takes does not count."""

SOCKET_NAME = "control.sock"

Document = dict[str, Any]
Dispatch = Callable[[str, Any], Document]
Attach = Callable[[socket.socket, Mapping[str, Any]], None]


class Unreachable(Exception):
    """Nobody answers at the address. `sent`: the request was sent, so it may have been carried out all the same."""

    def __init__(self, reason: str, *, sent: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent


class ControlServer(socketserver.ThreadingUnixStreamServer):
    """Serves the socket of one home, each client in a thread.

    `dispatch(verb, arguments)` carries a verb out and may raise `Refusal`; it is called from many threads at once.
    `attach(connection, terminal)` takes over the connection of a terminal; None where there are no consoles.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, home: Home, dispatch: Dispatch, attach: Attach | None = None) -> None:
        self.dispatch = dispatch
        self.attach = attach
        self._folder, self._is_temporary = _private_folder(home)
        self.address = str(self._folder / SOCKET_NAME)
        Path(self.address).unlink(missing_ok=True)  # a dead engine's: who has the home's lock is alone here
        super().__init__(self.address, _Request)
        Path(self.address).chmod(0o600)
        self._thread = threading.Thread(target=self.serve_forever, name="clawpy-control", daemon=True)

    def start(self) -> None:
        """Start to accept clients."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; verbs in progress run to their end. Safe to call twice."""
        if self._thread.is_alive():
            threading.Thread(target=self.shutdown, daemon=True).start()
            with contextlib.suppress(Unreachable, Refusal):
                ask(self.address, "", {}, timeout=1)  # wakes the accepting thread
            self._thread.join()
        self.server_close()
        Path(self.address).unlink(missing_ok=True)
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away or fell silent; there is nobody left to tell."""
        log.debug("a client of the control socket is gone", exc_info=True)


class _Request(socketserver.StreamRequestHandler):
    """One request and its answer; the connection of a console is handed on."""

    timeout = IDLE_TIMEOUT_S

    def handle(self) -> None:
        server, terminal = cast(ControlServer, self.server), None
        line = self.rfile.readline(MAX_REQUEST_BYTES + 1)
        if not line:
            return
        try:
            verb, arguments = _parse_request(line)
            if verb != "attach":
                answer = json.dumps({"ok": server.dispatch(verb, arguments)})
            elif server.attach is None:
                raise Refusal("no_console", "this engine was opened for one command", "try again")
            else:
                terminal, answer = arguments, json.dumps({"ok": {}})
        except Refusal as refusal:
            answer = json.dumps(refusal.document())
        except Exception as error:
            # The caller must hear of it, and the engine must go on.
            log.exception("a verb failed")
            message = f"{type(error).__name__}: {error}"
            answer = json.dumps(Refusal("internal", message, "this is a bug; see the log").document())
        self.wfile.write(answer.encode() + b"\n")
        if terminal is not None and server.attach is not None:
            self.connection.settimeout(None)
            server.attach(self.connection.dup(), terminal)


def ask(address: str, verb: str, arguments: Any, *, timeout: float | None = 60.0) -> Document:
    """Send a verb to the engine at `address`, and wait `timeout` seconds for its answer; None waits without limit.

    Raises `Unreachable` when nobody is there, the `Refusal` of the engine, or `Refusal` `no_answer`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2.0)
        try:
            client.connect(address)
        except (OSError, ValueError) as error:
            raise Unreachable(str(error)) from error
        client.settimeout(timeout)
        try:
            client.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            with client.makefile("rb") as reader:
                line = reader.readline(MAX_ANSWER_BYTES)
        except TimeoutError as error:
            raise Refusal(
                "no_answer",
                f"the engine that holds this home did not answer within {timeout:g} s",
                "`clawpy stop` stops its work without an answer; `clawpy doctor` names its process",
            ) from error
        except OSError as error:
            raise Unreachable(str(error), sent=True) from error
    if not line.endswith(b"\n"):
        raise Unreachable("the engine closed the connection before it answered", sent=True)
    answer = json.loads(line)
    if "error" in answer:
        raise Refusal(**answer["error"])
    return dict(answer["ok"])


def _parse_request(line: bytes) -> tuple[str, Any]:
    """The verb and the arguments of a request. Raises `Refusal`: `too_large`, `bad_request`."""
    if len(line) > MAX_REQUEST_BYTES:
        raise Refusal("too_large", f"a request may have at most {MAX_REQUEST_BYTES} bytes", "send less at once")
    try:
        request = json.loads(line)
        return request["verb"], request.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fix = '{"verb": "status", "arguments": {}}'
        raise Refusal("bad_request", "a request must be one line of JSON with a verb", fix) from error


def _private_folder(home: Home) -> tuple[Path, bool]:
    """A folder of mode 0700 for the socket, beside the home unless that path is too long; and whether it is removed
    with the engine. Raises `Refusal` `no_socket`."""
    beside = home.data / "run"
    try:
        if len(os.fsencode(beside / SOCKET_NAME)) > MAX_PATH_BYTES:
            return Path(tempfile.mkdtemp(prefix="clawpy-", dir=os.environ.get("XDG_RUNTIME_DIR"))), True
        beside.mkdir(mode=0o700, exist_ok=True)
        beside.chmod(0o700)
    except OSError as error:
        message = f"no socket can be created beside {home.data} nor elsewhere: {error.strerror or error}"
        raise Refusal("no_socket", message, "use a shorter --home") from error
    return beside, False
