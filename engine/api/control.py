"""The private socket on which verbs reach the engine that holds the home (SPEC 7.5): its server, and those who ask.

A connection has one request and one answer, each a line of JSON: `{"verb", "arguments"}`, then `{"ok": document}` or
`{"error": {...}}`. The socket has mode 0600, in a folder of mode 0700. After the verb `attach`, the connection belongs
to a console.

`Engine` has a `ControlServer`. `call` carries out one verb for the command line and MCP, `connect` several; if no
engine holds the home, they open one for that (SPEC 9.8). `stop` stops whatever the state of the engine is.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.home import Home
from engine.lock import find_version_problem, is_free, make_held_refusal, read_holder
from engine.model import Refusal
from engine.safety import STOPPED, request_stop
from engine.wording import count

if TYPE_CHECKING:
    from engine.api.operations import ApiServices

log = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""Maximum length of the socket's path. Operating systems allow 104 or 108 bytes."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024

IDLE_TIMEOUT_S = 60.0
"""Seconds that a client may wait before it sends its request or reads its answer. The time of the verb does not
count."""

POLL_S = 5.0
"""Seconds after which the server looks whether it is to end, if no client connects: a wake-up costs power."""

SOCKET_NAME = "control.sock"

CONNECT_TIMEOUT_S = 10.0
"""Seconds to wait for an engine that holds the home but does not listen yet, or no longer listens."""

VERB_TIMEOUTS_S = {"predict": 300.0, "recall": 300.0, "land": 300.0, "branch": 300.0, "doctor": 120.0, "notify": 120.0}
"""Seconds that slow verbs may take."""

DEFAULT_VERB_TIMEOUT_S = 60.0

REPEATABLE_VERBS = frozenset({"cards", "work", "status", "predict", "recall"})
"""Verbs that may be sent again if the answer was lost. No other verb may be carried out twice (SPEC 11.3)."""

OFFLINE_VERBS = frozenset({"check", "doctor", "key"})
"""Verbs that need no engine. They work even if the home is broken, or if its engine hangs."""

STOP_TIMEOUT_S = 1.0
"""Seconds that the engine has to answer a stop. After that, its sessions are ended from here."""

Document = dict[str, Any]
Dispatch = Callable[[str, Any], Document]
Opener = Callable[..., Any]
Ask = Callable[[str, Mapping[str, Any]], Document]
TakeOver = Callable[[socket.socket], None]
"""Takes over the connection of a console."""
Attach = Callable[[Any], TakeOver]
"""Checks the description of a client's terminal, and returns what takes over its connection. Raises `Refusal`."""


class Unreachable(Exception):
    """Raised if no engine answers at the address. If the request `was_sent` before, it may have been carried out."""

    def __init__(self, reason: str, *, was_sent: bool = False) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class ControlServer(socketserver.ThreadingUnixStreamServer):
    """Serves the socket of one home, each client in a thread.

    `dispatch(verb, arguments)` carries out a verb and may raise `Refusal`. Several threads call it at once. `attach`
    gets the arguments of the verb `attach`; it is None for an engine without consoles.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, home: Home, dispatch: Dispatch, attach: Attach | None = None) -> None:
        self.dispatch = dispatch
        self.attach = attach
        self._folder, self._is_temporary = _make_private_folder(home)
        try:
            self._bind()
        except OSError as error:  # a file system without sockets
            if self._is_temporary:
                raise _make_no_socket_refusal(error) from error
            self._folder, self._is_temporary = _make_temporary_folder(), True
            self._bind()
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="clawpy-control", daemon=True)

    def _bind(self) -> None:
        self.address = str(self._folder / SOCKET_NAME)
        # A socket that is there belonged to a dead engine, because only the engine with the home's lock gets here.
        Path(self.address).unlink(missing_ok=True)
        super().__init__(self.address, _Request)
        Path(self.address).chmod(0o600)

    def shutdown_request(self, request: Any) -> None:
        """Close only our descriptor. A console goes on with its copy of the connection."""
        self.close_request(request)

    def start(self) -> None:
        """Begin to accept clients."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; verbs in progress run to their end. Safe to call twice."""
        if self._thread.is_alive():
            threading.Thread(target=self.shutdown, daemon=True).start()
            while self._thread.is_alive():  # a connection wakes it before the end of `POLL_S`
                with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
                    client.connect(self.address)
                self._thread.join(0.01)
        self.server_close()
        Path(self.address).unlink(missing_ok=True)
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client disconnected or timed out."""
        log.debug("a client of the control socket is gone", exc_info=True)


class _Request(socketserver.StreamRequestHandler):
    """Handles one request. The connection of a console is passed to `attach`."""

    timeout = IDLE_TIMEOUT_S

    def handle(self) -> None:
        line = self.rfile.readline(MAX_REQUEST_BYTES + 1)
        if not line:
            return
        answer, take_over = self._answer(line)
        self.wfile.write(answer.encode() + b"\n")
        if take_over is not None:
            self.connection.settimeout(None)
            take_over(self.connection.dup())

    def _answer(self, line: bytes) -> tuple[str, TakeOver | None]:
        """The answer to a request, and what takes over the connection of a console."""
        server = cast(ControlServer, self.server)
        try:
            verb, arguments = _parse_request(line)
            if verb != "attach":
                return json.dumps({"ok": server.dispatch(verb, arguments)}), None
            if server.attach is None:
                raise Refusal("no_console", "this engine was opened for one command", "try again")
            return json.dumps({"ok": {}}), server.attach(arguments)
        except Refusal as refusal:
            return json.dumps(refusal.document()), None
        except Exception as error:
            # The caller gets the error, and the engine goes on.
            log.exception("a verb failed")
            message = f"{type(error).__name__}: {error}"
            return json.dumps(Refusal("internal", message, "this is a bug; see the log").document()), None


def ask(address: str, verb: str, arguments: Any, *, timeout: float | None = 60.0) -> Document:
    """Send a verb to the engine at `address`, and wait `timeout` seconds for its answer; None waits without limit.

    Raises `Unreachable` if no engine answers, the `Refusal` of the engine, or `Refusal`: `too_large`, `no_answer`.
    """
    request = json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n"
    if len(request) > MAX_REQUEST_BYTES:
        raise _make_too_large_refusal()
    line = _exchange(address, request, timeout)
    if not line.endswith(b"\n"):
        raise Unreachable("the engine closed the connection before it answered", was_sent=True)
    answer = json.loads(line)
    if "error" in answer:
        raise Refusal(**answer["error"])
    return dict(answer["ok"])


def _exchange(address: str, request: bytes, timeout: float | None) -> bytes:
    """Send a request, and return the line of its answer. Raises `Unreachable`, and `Refusal` `no_answer`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2.0)
        try:
            client.connect(address)
        except (OSError, ValueError) as error:
            raise Unreachable(str(error)) from error
        client.settimeout(timeout)
        try:
            client.sendall(request)
            with client.makefile("rb") as reader:
                return reader.readline(MAX_ANSWER_BYTES)
        except TimeoutError as error:
            raise Refusal(
                "no_answer",
                f"the engine that holds this home did not answer within {timeout:g} s",
                "`clawpy stop` stops its work without an answer; `clawpy doctor` names its process",
            ) from error
        except OSError as error:
            raise Unreachable(str(error), was_sent=True) from error


def _parse_request(line: bytes) -> tuple[str, Any]:
    """The verb and the arguments of a request. Raises `Refusal`: `too_large`, `bad_request`."""
    if len(line) > MAX_REQUEST_BYTES:
        raise _make_too_large_refusal()
    try:
        request = json.loads(line)
        return request["verb"], request.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fix = '{"verb": "status", "arguments": {}}'
        raise Refusal("bad_request", "a request must be one line of JSON with a verb", fix) from error


def _make_too_large_refusal() -> Refusal:
    return Refusal("too_large", f"a request may have at most {MAX_REQUEST_BYTES} bytes", "send less at once")


def _make_private_folder(home: Home) -> tuple[Path, bool]:
    """(folder of mode 0700 for the socket, whether it is temporary). The folder is in the home, unless that path is too
    long. Raises `Refusal` `no_socket`."""
    folder = home.data / "run"
    if len(os.fsencode(folder / SOCKET_NAME)) > MAX_PATH_BYTES:
        return _make_temporary_folder(), True
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise _make_no_socket_refusal(error) from error
    return folder, False


def _make_temporary_folder() -> Path:
    """A new private folder with a short path. Raises `Refusal` `no_socket`."""
    problem: OSError | None = None
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        try:
            if base and len(os.fsencode(base)) + len("/clawpy-12345678/") + len(SOCKET_NAME) <= MAX_PATH_BYTES:
                return Path(tempfile.mkdtemp(prefix="clawpy-", dir=base))
        except OSError as error:  # a variable may name a folder that does not exist, for instance in a container
            problem = error
    raise _make_no_socket_refusal(problem)


def _make_no_socket_refusal(error: OSError | None) -> Refusal:
    reason = f": {error.strerror or error}" if error else ""
    message = f"no socket can be created beside the home nor elsewhere{reason}"
    return Refusal("no_socket", message, "use a shorter --home")


def call(
    home: Home,
    verb: str,
    arguments: Mapping[str, Any],
    *,
    workspaces: Sequence[str] = (),
    opener: Opener,
) -> Document:
    """Carry out a verb in `home` and return its document. Raises `Refusal`.

    If an engine is opened for the verb, it is closed again afterwards, so `approve` waits for the end of the session.
    `opener` opens an engine: `engine.open_engine`, or a function that imports it only when needed. An engine of another
    version may understand a verb otherwise, so it is not asked (`other_version`); `stop` reaches it.
    """
    if verb in OFFLINE_VERBS:
        return _call_without_engine(home, verb, arguments, workspaces)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        holder = read_holder(home)
        if holder is not None and holder.address:
            if (problem := find_version_problem(holder)) and not is_free(home):
                raise problem
            answer = _ask_holder(holder.address, verb, arguments)
            if answer is not None:
                return answer
        try:
            return _call_own_engine(home, verb, arguments, workspaces, opener)
        except Refusal as error:
            if error.code != "home_held":
                raise
        if time.monotonic() > deadline:
            raise make_held_refusal(home)
        time.sleep(0.05)


def _call_without_engine(home: Home, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str]) -> Document:
    """Carry out one of the `OFFLINE_VERBS`. `doctor` also checks the workspaces of a running engine, if none is
    named."""
    from engine.api.operations import OfflineServices, dispatch, system  # noqa: F401 (it declares these verbs)

    if verb == "doctor" and not workspaces:
        workspaces = list(ask_running(home, "status").get("workspaces", ()))
    return dispatch(cast("ApiServices", OfflineServices(home, workspaces)), verb, arguments)


def ask_running(home: Home, verb: str, **arguments: Any) -> Document:
    """The answer of the engine that holds the home; {} if none of this version runs, if it refuses, or if it does not
    answer in time. No engine is opened."""
    holder = read_holder(home)
    if holder is None or not holder.address or find_version_problem(holder):
        return {}
    try:
        return ask(holder.address, verb, arguments, timeout=CONNECT_TIMEOUT_S)
    except (Refusal, Unreachable) as error:
        log.info("the engine did not answer %s: %s", verb, error)
        return {}


def _ask_holder(address: str, verb: str, arguments: Mapping[str, Any]) -> Document | None:
    """The answer of the engine that holds the home. None if it cannot be reached, and the verb may be sent again.

    Raises the `Refusal` of the engine, and `no_answer`.
    """
    timeout = None if arguments.get("wait") else VERB_TIMEOUTS_S.get(verb, DEFAULT_VERB_TIMEOUT_S)
    try:
        return ask(address, verb, dict(arguments), timeout=timeout)
    except Unreachable as error:
        # If the request was not sent, the note is that of a dead engine, or the engine is closing.
        if error.was_sent and verb not in REPEATABLE_VERBS:
            raise Refusal(
                "no_answer",
                "the engine stopped before it answered; the verb may have been carried out",
                "see `clawpy cards --all` and `clawpy work` before you repeat it",
            ) from error
        return None


@contextmanager
def connect(home: Home, *, workspaces: Sequence[str] = (), opener: Opener) -> Iterator[Ask]:
    """Yield a function that carries out verbs and raises `Refusal`. All verbs go to one engine: the one that holds
    `home`, or one that is opened here."""
    holder = read_holder(home)
    with ExitStack() as stack:
        ask_own: Ask | None = None
        if holder is None or not holder.address or is_free(home):
            try:
                ask_own = stack.enter_context(_own_engine(home, workspaces, opener))
            except Refusal as refusal:
                if refusal.code != "home_held":
                    raise
        yield ask_own or (lambda verb, arguments: call(home, verb, arguments, workspaces=workspaces, opener=opener))


def stop(home: Home, reason: str) -> Document:
    """Stop everything in `home`, whatever state its engine is in (SPEC 3.7).

    First the stop file is written: the engine finds it within a fifth of a second, or at its next start. Then the
    engine is asked to stop, unless its process is suspended. Processes of sessions that still run after a second are
    killed here. `killed` is the number of processes that ended, `left` names those that did not. Raises `Refusal`
    `unwritable_home` if the file cannot be written (a full disk) and no engine answers; sessions are ended even then.
    """
    from engine.execution.session_processes import get_pid_folder, terminate_sessions

    file = ""
    write_error: OSError | None = None
    try:
        file = str(request_stop(home.data, reason or STOPPED, "clawpy stop"))
    except OSError as error:
        write_error = error
    answers: list[Document | Refusal | None] = []
    ended = terminate_sessions(get_pid_folder(home), ask_engine=lambda: answers.append(_ask_to_stop(home, reason)))
    [answer] = answers
    if isinstance(answer, Refusal):
        raise answer
    counts = {"killed": ended.killed, "left": list(ended.survivors)}
    if answer is not None:
        return answer | counts
    if write_error is not None:
        raise _make_no_stop_refusal(home, write_error, ended.killed) from write_error
    return {
        "holds": [{"word": "stop", "reason": reason or STOPPED, "since": None, "until": None}],
        "stopped": list(ended.sessions),
        "reached": False,
        "file": file,
        **counts,
    }


def _make_no_stop_refusal(home: Home, error: OSError, killed: int) -> Refusal:
    """The refusal of a stop that no engine has answered, and that the next engine will not know of."""
    problem = f"the stop file cannot be written in {home.data}: {error.strerror or error}"
    return Refusal(
        "unwritable_home",
        f"{problem} ({count(killed, 'process', 'processes')} ended)",
        "press F12 in the console, or end the engine's process; `clawpy doctor` names it",
    )


def _ask_to_stop(home: Home, reason: str) -> Document | Refusal | None:
    """Ask the engine to stop. It ends sessions more gently, and records their results. Returns its answer or its
    refusal, None if there is no engine or it does not answer."""
    from engine.execution.session_processes import is_stopped

    holder = read_holder(home)
    if holder is None or not holder.address or is_stopped(holder.pid):
        return None
    try:
        return ask(holder.address, "stop", {"reason": reason} if reason else {}, timeout=STOP_TIMEOUT_S)
    except Unreachable:
        return None
    except Refusal as refusal:
        return None if refusal.code == "no_answer" else refusal


@contextmanager
def _own_engine(home: Home, workspaces: Sequence[str], opener: Opener, *, lenient: bool = False) -> Iterator[Ask]:
    """Open an engine for some verbs, and yield the function that carries them out. If `lenient`, invalid settings are
    replaced by the defaults, and the engine does not learn from sessions, because that depends on the settings."""
    from engine.api.operations import dispatch
    from engine.services import Overrides

    options: dict[str, Any] = {"overrides": Overrides(lenient=True)} if lenient else {}
    with closing(opener(home, workspaces=list(workspaces), start_schedule=False, resume=False, **options)) as engine:
        yield lambda verb, arguments: dispatch(engine, verb, arguments)
        if not lenient:
            # Meanwhile another verb may have reached this engine and approved a card. Its session runs to its end.
            engine.wind_down(finish=True)
            engine.learn()


def _call_own_engine(
    home: Home, verb: str, arguments: Mapping[str, Any], workspaces: Sequence[str], opener: Opener
) -> Document:
    """Carry out a verb with an engine that is opened for it. `resume` works even if the settings are invalid."""
    if verb == "approve":
        arguments = {**arguments, "wait": True}
    try:
        with _own_engine(home, workspaces, opener) as ask_own:
            return ask_own(verb, arguments)
    except Refusal as refusal:
        if verb != "resume" or refusal.code != "bad_config":
            raise
        with _own_engine(home, workspaces, opener, lenient=True) as ask_own:
            return ask_own("resume", arguments) | {"fault": refusal.message}
