"""The client: holds one terminal for a console that runs in the engine's process, and the messages they exchange.

It puts the terminal into raw mode, forwards keys and sizes, writes what the console draws, and gives the terminal back
whatever happens to the engine. Light: `clawpy` imports this and nothing heavier when an engine runs already.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawpy_console.signals import handled
from engine import __version__
from engine.home import Home

HEAD = struct.Struct(">cI")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes of one message at most."""

# To the client
ENTER = b"E"
"""Take the terminal (raw mode), and write this."""
OUTPUT = b"O"
"""Write this; not while the terminal is given back."""
LEAVE = b"L"
"""Give the terminal back."""
RUN = b"R"
"""Give the terminal to a program until it ends: JSON with `command`, `folder`, `banner`."""
EXIT = b"X"
"""End: JSON with `code` and `text`, or with `again`: another engine has the home, attach to that one."""

# From the client
INPUT = b"I"
"""What was typed."""
SIZE = b"S"
"""The terminal's size: JSON, columns and rows."""
BACK = b"B"
"""The terminal is free again after `RUN` or a stop (SIGTSTP): JSON, columns and rows."""


def message(kind: bytes, content: bytes = b"") -> bytes:
    """One message as it is sent."""
    return HEAD.pack(kind, len(content)) + content


class Messages:
    """Cuts what was received into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that `data` completes, as kind and content. Raises ValueError for one that is too large."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append((kind, bytes(self._buffer[HEAD.size : end])))
            del self._buffer[:end]
        return messages


PASSED_ON = (
    "TERM", "COLORTERM", "TERM_PROGRAM", "NO_COLOR", "TMUX", "TMUX_PANE", "SHELL", "VISUAL", "EDITOR", "PATH",
)  # fmt: skip
"""Environment variables of the terminal that its console must know."""

RESTORE = (
    b"\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""Ends everything that a console may have switched on: synchronized output, paste, no wrap, mouse, Kitty's keys,
the alternate screen, the hidden cursor, focus."""

TIMEOUT_S = 10.0
"""Seconds to wait for an engine that starts or ends."""

SHUTDOWN_S = 5
"""Seconds that the engine may take to end after a signal to its last client."""

CHUNK_BYTES = 1024
"""Bytes written to the terminal at a time: so many fit when it says that it takes some."""

MAX_PENDING_BYTES = 65536
"""Bytes that wait for the terminal before nothing more is read from the console."""


def main(home: Home | None, workspaces: Sequence[str], serve: Callable[[socket.socket], int]) -> int:
    """Attach this terminal to the engine of `home`, or to one that `serve` opens in a process of its own; the exit
    code. `home` is None for a throw-away one. `serve` gets the connection to this terminal, and returns the exit code
    of its process. `workspaces` are what the operator named, to be told what is not looked after."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            connection, child = attach(home, workspaces) if home else None, 0
        except Refused as refused:
            print(refused, file=sys.stderr)
            return 1
        if connection is None:
            connection, theirs = socket.socketpair()
            child = os.fork()
            if not child:
                connection.close()
                os.setsid()
                return serve(theirs)
            theirs.close()
        with connection:
            outcome = Client(connection).run()
        if outcome.get("again") and home and time.monotonic() < deadline:
            while _holds_unheard(home) and time.monotonic() < deadline:
                time.sleep(0.05)
            continue
        if outcome.get("again"):
            outcome = {"code": 1, "text": _silent(home)}
        elif "code" not in outcome:
            outcome = {"code": 1, "text": _died(home, child)}
        if outcome["text"]:
            print(outcome["text"], file=sys.stderr)
        return int(outcome["code"])


class Refused(Exception):
    """The engine that holds the home refuses this terminal: its words."""


def attach(home: Home, workspaces: Sequence[str]) -> socket.socket | None:
    """A connection to a console of the engine that holds `home`, None where no engine offers one. Raises `Refused`."""
    note = _note(home)
    if not (address := note.get("address")):
        return None
    hello = here() | {"workspaces": [str(Path(workspace).expanduser().absolute()) for workspace in workspaces]}
    request = {"verb": "attach", "arguments": hello}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(address))
        if note.get("version") != __version__:
            fix = f"end it and start `clawpy` again: kill {note.get('pid')}"
            raise Refused(f"The running engine is clawpy {note.get('version')}, this is {__version__}: {fix}")
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while byte := connection.recv(1):  # one by one: what follows the line is the console's
            answer += byte
            if byte == b"\n":
                break
        if b'"ok"' in answer:
            connection.settimeout(None)
            return connection
    except TimeoutError:
        raise Refused(_silent(home)) from None
    except (OSError, ValueError):
        pass  # a dead engine's note, or an engine that ends; who opens one finds out
    connection.close()
    return None


def size() -> tuple[int, int]:
    """Columns and rows of this terminal."""
    with suppress(OSError):
        columns, rows = os.get_terminal_size(1)
        if columns and rows:
            return columns, rows
    return 80, 24


def here() -> dict[str, Any]:
    """What a console must know of this terminal before it can draw."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:  # it was removed meanwhile
        folder = "/"
    return {"environment": environment, "size": size(), "folder": folder}


class Client:
    """One terminal, until its console ends. Standard input and output are the terminal."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._messages = Messages()
        self._before: list[Any] | None = None
        self._pending = bytearray()
        self._told: dict[str, Any] | None = None
        self._connected = True

    def run(self) -> dict[str, Any]:
        """Serve the terminal until the console says how to end; what it said, empty when it died without a word."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        former = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        waking = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT)
        with handled(dict.fromkeys(waking, lambda *_: None)):
            try:
                while self._told is None and self._connected:
                    self._once(woken)
            finally:
                self._restore()
                signal.set_wakeup_fd(former)
                os.close(woken)
                os.close(wake)
        return self._told or {}

    def _once(self, woken: int) -> None:
        reads = [woken, *([0] if self._before else [])]
        if len(self._pending) < MAX_PENDING_BYTES:
            reads.append(self._connection.fileno())
        readable, writable, _ = select.select(reads, [1] if self._pending else [], [])
        if woken in readable:
            for number in os.read(woken, 64):
                self._signalled(number)
        if 0 in readable and self._before:
            self._typed()
        if writable:
            self._write(CHUNK_BYTES)
        if self._connection.fileno() in readable:
            self._received()

    def _typed(self) -> None:
        try:
            typed = os.read(0, 4096)
        except OSError:
            typed = b""
        if typed:
            self._send(INPUT, typed)
        else:  # the terminal is gone
            self._end_after(signal.SIGHUP)

    def _received(self) -> None:
        try:
            data = self._connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._connected = False
            return
        for kind, content in self._messages.feed(data):
            if kind == OUTPUT:
                if self._before:
                    self._pending += content
                continue
            self._write()
            if kind == ENTER:
                self._enter()
                self._pending += content
            elif kind == LEAVE:
                self._restore()
            elif kind == RUN:
                self._run(json.loads(content))
            elif kind == EXIT and self._told is None:
                self._told = json.loads(content)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._send(SIZE, json.dumps(size()).encode())
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._end_after(number)
        elif number == signal.SIGTSTP:
            self._restore()
            os.kill(os.getpid(), signal.SIGSTOP)
        elif number == signal.SIGCONT:
            self._send(BACK, json.dumps(size()).encode())

    def _end_after(self, number: int) -> None:
        """End in order: the console hears of it, and an engine that ends with it has some seconds for that."""
        self._restore()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SHUTDOWN_S)
        with suppress(OSError):
            while self._connection.recv(65536):
                pass
        signal.alarm(0)
        self._told = {"code": 128 + number, "text": ""}

    def _send(self, kind: bytes, content: bytes) -> None:
        try:
            self._connection.sendall(message(kind, content))
        except OSError:
            self._connected = False

    def _write(self, most: int | None = None) -> None:
        """Write what waits for the terminal: all of it, or `most` bytes."""
        while self._pending:
            try:
                written = os.write(1, self._pending[: most or CHUNK_BYTES])
            except OSError:  # the terminal is gone; the signal that says so comes
                self._pending.clear()
                return
            del self._pending[:written]
            if most is not None:
                return

    def _enter(self) -> None:
        if self._before is not None:
            return
        with suppress(termios.error):
            self._before = termios.tcgetattr(0)
            raw = termios.tcgetattr(0)
            raw[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
            raw[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
            raw[6][termios.VMIN] = 1
            termios.tcsetattr(0, termios.TCSANOW, raw)

    def _restore(self) -> None:
        if self._before is None:
            return
        before, self._before = self._before, None
        with suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
            termios.tcsetattr(0, termios.TCSANOW, before)
        self._pending[:] = RESTORE
        self._write()

    def _run(self, program: dict[str, Any]) -> None:
        """Give the terminal to a program. Ctrl+C there is not for us, Ctrl+Z stops us together with it."""
        import subprocess

        self._restore()
        if program["banner"]:
            print(f"\n{program['banner']}\n", flush=True)
        meanwhile: dict[int, Any] = {
            signal.SIGINT: lambda *_: None,
            signal.SIGTSTP: lambda *_: os.kill(os.getpid(), signal.SIGSTOP),
            signal.SIGTERM: signal.SIG_DFL,
            signal.SIGHUP: signal.SIG_DFL,
        }
        wake = signal.set_wakeup_fd(-1)
        try:
            with handled(meanwhile):
                subprocess.run(program["command"], cwd=program["folder"], check=False)
        except OSError as error:
            print(f"clawpy: {error}", file=sys.stderr)
        finally:
            signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._send(BACK, json.dumps(size()).encode())


def _note(home: Home) -> dict[str, Any]:
    """What the engine that holds `home`, or held it, wrote down of itself."""
    try:
        note = json.loads((home.data / "engine.json").read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _holds_unheard(home: Home) -> bool:
    """Whether an engine holds `home` that does not listen yet, or not any more."""
    try:
        with (home.data / "engine.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return not _note(home).get("address")
    except OSError:
        pass
    return False


def _silent(home: Home | None) -> str:
    """What to say of an engine that holds the home and does not answer."""
    pid = _note(home).get("pid", "unknown") if home else "unknown"
    return f"The engine (process {pid}) does not answer. `clawpy stop` stops its work; kill {pid} ends it."


def _died(home: Home | None, child: int) -> str:
    """What to say when the engine's process ended without a word."""
    process = ""
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        process = f" (process {child}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'})"
    elif home:
        process = f" (process {_note(home).get('pid', 'unknown')})"
    log = f" Log: {home.logs}" if home else ""
    return f"The engine ended unexpectedly{process}. Start it again with `clawpy`.{log}"
