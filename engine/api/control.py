"""The private socket on which verbs reach the engine that holds the home (SPEC 7.5).

A connection is one request, a line of JSON, and its answer, another: `{"verb", "arguments"}` → `{"ok": document}` or
`{"error": {...}}`. The socket has mode 0600 in a folder of mode 0700, and the peer must be the same user. After the
verb `attach` the connection belongs to a console.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.home import Home
from engine.model import Refusal

log = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""The limits of the operating systems are 104 and 108 bytes."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
BACKLOG = 1024
"""Connections that may wait to be accepted; one more is refused by the system at once."""

IDLE_TIMEOUT_S = 60.0
"""Seconds that a client may send nothing, or not read its answer. The time that a verb takes does not count."""

ACCEPT_RETRY_S = 0.2
"""Seconds until the next attempt to accept a client after the machine had no resources for one."""

SOCKET_NAME = "control.sock"

Document = dict[str, Any]
Dispatch = Callable[[str, Any], Document]
Attach = Callable[[socket.socket, Mapping[str, Any]], None]


class Unreachable(Exception):
    """Nobody answers at the address. `sent`: the request was sent, so it may have been carried out all the same."""

    def __init__(self, reason: str, *, sent: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent


class ControlServer:
    """Serves the socket of one home, each client in a thread.

    `dispatch(verb, arguments)` carries a verb out and may raise `Refusal`; it is called from many threads at once.
    `attach(connection, terminal)` takes over the connection of a terminal; None where there are no consoles.
    """

    def __init__(self, home: Home, dispatch: Dispatch, attach: Attach | None = None) -> None:
        self._dispatch = dispatch
        self._attach = attach
        self._socket, self._path, self._has_own_folder = _bind(home)
        self._path.chmod(0o600)
        self._socket.listen(BACKLOG)
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="clawpy-control", daemon=True)

    @property
    def address(self) -> str:
        """The socket's path."""
        return str(self._path)

    def start(self) -> None:
        """Start to accept clients."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving. Verbs in progress run to their end, but nobody hears their answer. Safe to call twice."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            clients = list(self._clients)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.settimeout(1)
            last.connect(self.address)  # wakes the accepting thread, on every platform
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        if self._has_own_folder:
            shutil.rmtree(self._path.parent, ignore_errors=True)

    def _accept(self) -> None:
        has_failed = False
        while not self._closed.is_set():
            try:
                client, _ = self._socket.accept()
                has_failed = False
            except OSError:  # no file is left for it, for instance: without this thread no verb would ever be heard
                if not self._closed.is_set() and not has_failed:
                    log.exception("the control socket could not accept a client, it goes on trying")
                has_failed = True
                self._closed.wait(ACCEPT_RETRY_S)
                continue
            try:
                threading.Thread(target=self._serve, args=(client,), name="clawpy-control-client", daemon=True).start()
            except RuntimeError:  # the machine has no thread left
                log.exception("a client of the control socket was sent away")
                client.close()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.add(client)
        try:
            with client:
                if not self._closed.is_set() and _is_ours(client):
                    self._answer_request(client)
        except OSError:
            pass  # the client went away or fell silent; there is nobody left to tell
        finally:
            with self._lock:
                self._clients.discard(client)

    def _answer_request(self, client: socket.socket) -> None:
        """Read one request, and answer it, or hand the connection of a console on."""
        client.settimeout(IDLE_TIMEOUT_S)
        with client.makefile("rb") as reader:
            line = reader.readline(MAX_REQUEST_BYTES + 1)
        if not line:
            return
        terminal: dict[str, Any] | None = None
        try:
            verb, arguments = _parse_request(line)
            if verb == "attach":
                if self._attach is None:
                    raise Refusal("no_console", "this engine was opened for one command", "try again")
                terminal, document = _parse_terminal(arguments), {}
            else:
                document = self._dispatch(verb, arguments)
            answer = json.dumps({"ok": document})
        except Refusal as refusal:
            answer = json.dumps(refusal.document())
        except Exception as error:
            # The caller must hear of it, and the engine must go on.
            log.exception("a verb failed")
            message = f"{type(error).__name__}: {error}"
            answer = json.dumps(Refusal("internal", message, "this is a bug; see the log").document())
        client.sendall(answer.encode() + b"\n")
        if terminal is not None and self._attach is not None:
            client.settimeout(None)
            self._attach(client.dup(), terminal)


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


def _parse_terminal(arguments: Any) -> dict[str, Any]:
    """The terminal of a client that wants a console. Raises `Refusal` `bad_request` when something that a console needs
    is missing."""
    try:
        environment = {str(name): str(value) for name, value in arguments["environment"].items()}
        columns, rows = map(int, arguments["size"])
        workspaces = [str(argument) for argument in arguments["workspaces"]]
        return {
            "environment": environment,
            "size": (columns, rows),
            "workspaces": workspaces,
            "folder": str(arguments["folder"]),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fix = "use the `clawpy` that the engine was started with"
        raise Refusal("bad_request", "the attach request is not valid", fix) from error


def _is_ours(client: socket.socket) -> bool:
    try:
        return peer_user(client) in (None, os.geteuid())
    except OSError:
        return False


def peer_user(client: socket.socket) -> int | None:
    """The user id of the peer; None on a platform that does not tell, where the mode of the folder alone protects."""
    platform: str = sys.platform
    if platform == "linux":
        return int(struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
    if platform == "darwin":
        # LOCAL_PEERCRED (1) at level 0 gives a struct xucred of 76 bytes: version, user, groups.
        return int(struct.unpack_from("2I", client.getsockopt(0, 1, 76))[1])
    return None


def _bind(home: Home) -> tuple[socket.socket, Path, bool]:
    """A bound socket in a private folder, and whether that folder is removed with the engine. It is beside the home
    unless that path is too long or its file system has no sockets."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beside = home.data / "run" / SOCKET_NAME
    if len(os.fsencode(beside)) <= MAX_PATH_BYTES:
        try:
            beside.parent.mkdir(mode=0o700, exist_ok=True)
            beside.parent.chmod(0o700)
            beside.unlink(missing_ok=True)  # a dead engine's: who has the home's lock is alone here
            bound.bind(str(beside))
        except OSError as error:
            log.warning("no control socket at %s: %s", beside, error)
        else:
            return bound, beside, False
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if (
            not base
            or not Path(base).is_dir()
            or len(os.fsencode(base)) > MAX_PATH_BYTES - len(f"/clawpy-12345678/{SOCKET_NAME}")
        ):
            continue
        folder = Path(tempfile.mkdtemp(prefix="clawpy-", dir=base))  # 0700 by itself
        try:
            bound.bind(str(folder / SOCKET_NAME))
        except OSError as error:
            log.warning("no control socket in %s: %s", folder, error)
            folder.rmdir()
        else:
            return bound, folder / SOCKET_NAME, True
    bound.close()
    raise Refusal("no_socket", f"no socket can be created beside {home.data} nor elsewhere", "use a shorter --home")
