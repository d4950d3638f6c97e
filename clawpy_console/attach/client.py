"""The client of one terminal: `clawpy` without a verb, which attaches to a console in the engine's process.

It sets the terminal to raw mode, forwards keys and sizes, and writes what the console draws. Whatever happens to the
engine, it restores the terminal. When an engine runs already, `clawpy` imports nothing heavier than this module.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawpy_console import ADDED_VARIABLES
from clawpy_console.attach import SHUTDOWN_S, signal_handlers
from clawpy_console.attach.protocol import (
    EXIT,
    INPUT,
    OUTPUT,
    RESTORE_TERMINAL,
    RUN,
    SIZE,
    SUSPEND,
    TAKE_TERMINAL,
    TERMINAL_IS_FREE,
    ClientEnd,
    MessageParser,
    TerminalDescription,
    encode_message,
)
from engine import __version__
from engine.home import Home

ANSWER_TIMEOUT_S = 10.0
"""Seconds that an engine has to answer."""

RETRY_S = 10.0
"""Seconds for which the client tries to attach again, while one engine ends and another starts."""


def main(home: Home | None, workspaces: Sequence[str], serve: Callable[[socket.socket], int]) -> int:
    """Attach this terminal to the engine of `home`. If there is none, `serve` opens one in a forked process.

    `home` is None for a temporary one. `serve` receives the connection to this terminal, and returns the exit code of
    its process. `workspaces` are those of the command line. Returns the exit code of the client.
    """
    deadline: float | None = None
    while True:
        try:
            connection = attach(home, workspaces) if home else None
        except Refused as refused:
            print(refused, file=sys.stderr)
            return 1
        child = 0
        if connection is None:
            child, connection = _fork_engine(serve)
        gc.enable()
        began = time.monotonic()
        with connection:
            end = Client(connection).run()
        if deadline is None or time.monotonic() - began > RETRY_S:  # a console was shown: this is a new try
            deadline = time.monotonic() + RETRY_S
        if end is None:
            exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0
            end = ClientEnd(1, _explain_unexpected_end(home, child, exit_code))
        if end.attach_again and not (home and time.monotonic() < deadline):  # no engine answered in time
            end = ClientEnd(1, _explain_no_answer(home))
        if not end.attach_again:
            if end.text:
                print(end.text, file=sys.stderr)
            return end.code
        while (
            home and _is_engine_starting(home) and time.monotonic() < deadline
        ):  # until the one that takes the home listens
            time.sleep(0.05)


def _fork_engine(serve: Callable[[socket.socket], int]) -> tuple[int, socket.socket]:
    """Fork the process of an engine; returns its id and the connection to it. In that process this does not return: it
    exits with the code of `serve`."""
    connection, far_end = socket.socketpair()
    gc.freeze()  # a collection would write to all memory that the two processes share
    child = os.fork()
    if not child:
        connection.close()
        os.setsid()
        sys.exit(serve(far_end))
    far_end.close()
    return child, connection


PASSED_VARIABLES = (
    "TERM", "COLORTERM", "TERM_PROGRAM", "NO_COLOR", "TMUX", "TMUX_PANE", "SHELL", "VISUAL", "EDITOR", "PATH",
)  # fmt: skip
"""Environment variables that the console needs from the terminal."""


def describe_terminal() -> TerminalDescription:
    """The description of this terminal, without workspaces."""
    environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        folder = ""
    return TerminalDescription(environment, read_terminal_size(), folder)


def read_terminal_size() -> tuple[int, int]:
    """The columns and rows of this terminal."""
    with suppress(OSError):
        columns, rows = os.get_terminal_size(1)
        if columns and rows:
            return columns, rows
    return 80, 24


class Refused(Exception):
    """The engine that holds the home refuses this terminal, and says why."""


def attach(home: Home, workspaces: Sequence[str]) -> socket.socket | None:
    """Connect to the engine that holds `home`, for a new console; None if no engine holds it. Raises `Refused`."""
    note = _read_engine_note(home)
    if not (address := note.get("address")):
        return None
    request = {"verb": "attach", "arguments": _describe_with_workspaces(workspaces)._asdict()}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(str(address))
        if note.get("version") != __version__:
            fix = f"end it and start `clawpy` again: kill {note.get('pid')}"
            raise Refused(f"The running engine is clawpy {note.get('version')}, this is {__version__}: {fix}")
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(_read_line(connection))
        if "ok" in answer:
            connection.settimeout(None)
            return connection
        if "error" in answer:
            raise Refused(f"The running engine refuses this terminal: {answer['error']['message']}")
    except TimeoutError:
        raise Refused(_explain_no_answer(home)) from None
    except (OSError, ValueError):
        pass  # the note of a dead engine, or an engine that ends; opening one will show which
    connection.close()
    return None


def _describe_with_workspaces(workspaces: Sequence[str]) -> TerminalDescription:
    """The description of this terminal, with the workspaces as absolute paths. Raises `Refused`."""
    description = describe_terminal()
    if not (workspaces or description.folder):
        raise Refused("The current folder does not exist any more: cd to a folder that exists, or name a --workspace")
    try:
        folders = tuple(str(Path(workspace).expanduser().absolute()) for workspace in workspaces)
    except RuntimeError as error:
        raise Refused("--workspace names the home of a user who does not exist: write the path from / on") from error
    return description._replace(workspaces=folders)


def _read_line(connection: socket.socket) -> bytes:
    """Read one line, byte by byte: the bytes after it are messages of the console."""
    line = b""
    while not line.endswith(b"\n") and (byte := connection.recv(1)):
        line += byte
    return line


RESTORING_SEQUENCES = (
    b"\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""Ends every mode that a console may have set: synchronized output, bracketed paste, no wrap, mouse, Kitty's keys, the
alternate screen, the hidden cursor, focus reports."""

CHUNK_BYTES = 1024
"""Bytes that are written at a time: a terminal that is ready accepts so many."""

MAX_PENDING_BYTES = 65536
"""Bytes that wait for the terminal before the client stops reading from the console."""


INPUT_FLAGS, LOCAL_FLAGS, CHARACTERS = 0, 3, 6
"""The places of these in the mode that `termios.tcgetattr` returns."""


class Client:
    """Serves one terminal, which is standard input and output."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._parser = MessageParser()
        self._saved_mode: list[Any] | None = None
        self._pending = bytearray()
        self._end: ClientEnd | None = None
        self._is_connected = True

    def run(self) -> ClientEnd | None:
        """Serve the terminal until the console ends it. Returns how, None when the console died."""
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        former_writer = signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        waking_signals = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT)
        with signal_handlers(dict.fromkeys(waking_signals, lambda *_: None)):
            try:
                while self._end is None and self._is_connected:
                    self._handle_ready(wake_reader)
            finally:
                self._restore_terminal()
                signal.set_wakeup_fd(former_writer)
                os.close(wake_reader)
                os.close(wake_writer)
        return self._end

    def _handle_ready(self, wake_reader: int) -> None:
        """Wait until something is ready, and handle it: signals, keys, output, messages. `wake_reader` is readable
        after a signal, and has its number."""
        reads = [wake_reader, *([0] if self._saved_mode else [])]
        if len(self._pending) < MAX_PENDING_BYTES:
            reads.append(self._connection.fileno())
        readable, writable, _ = select.select(reads, [1] if self._pending else [], [])
        if wake_reader in readable:
            for number in os.read(wake_reader, 64):
                self._handle_signal(number)
        if 0 in readable and self._saved_mode:
            self._forward_keys()
        if writable:
            self._write_chunk()
        if self._connection.fileno() in readable:
            self._handle_messages()

    def _forward_keys(self) -> None:
        """Send what was typed to the console."""
        try:
            typed = os.read(0, 4096)
        except OSError:
            typed = b""
        if typed:
            self._send(INPUT, typed)
        else:  # the terminal is gone
            self._end_after(signal.SIGHUP)

    def _handle_messages(self) -> None:
        """Read from the console: keep its output for the terminal, and do what its other messages ask for."""
        try:
            data = self._connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._is_connected = False
            return
        for kind, content in self._parser.feed(data):
            if kind == OUTPUT:
                if self._saved_mode:
                    self._pending += content
                continue
            self._write_all()
            if kind == TAKE_TERMINAL:
                self._take_terminal()
                self._pending += content
            elif kind == RESTORE_TERMINAL:
                self._restore_terminal()
            elif kind == RUN:
                self._run_program(json.loads(content))
            elif kind == SUSPEND:
                os.kill(0, signal.SIGTSTP)  # to the whole job of the shell, as the terminal does: `uvx` waits above it
            elif kind == EXIT and self._end is None:
                self._end = ClientEnd(**json.loads(content))

    def _handle_signal(self, number: int) -> None:
        """Tell the console of a new size, end, or give the terminal back while the client is suspended."""
        if number == signal.SIGWINCH:
            self._send(SIZE, json.dumps(read_terminal_size()).encode())
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._end_after(number)
        elif number == signal.SIGTSTP:
            self._restore_terminal()
            # By the default action the system stops no process that has no shell to continue it.
            with signal_handlers({signal.SIGTSTP: signal.SIG_DFL, signal.SIGCONT: signal.SIG_DFL}):
                os.kill(os.getpid(), signal.SIGTSTP)
            self._send_terminal_is_free()
        elif number == signal.SIGCONT:
            self._send_terminal_is_free()

    def _end_after(self, number: int) -> None:
        """End after a signal: tell the console, and wait until it has ended, too. If that takes longer than
        `SHUTDOWN_S`, SIGALRM kills the client."""
        self._restore_terminal()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SHUTDOWN_S)
        with suppress(OSError):
            while self._connection.recv(65536):
                pass
        signal.alarm(0)
        self._end = ClientEnd(128 + number)

    def _send(self, kind: bytes, content: bytes) -> None:
        """Send a message to the console; if it is gone, `run` ends."""
        try:
            self._connection.sendall(encode_message(kind, content))
        except OSError:
            self._is_connected = False

    def _send_terminal_is_free(self) -> None:
        """Have the console take the terminal again, and draw."""
        self._send(TERMINAL_IS_FREE, json.dumps(read_terminal_size()).encode())

    def _write_all(self) -> None:
        """Write all pending output, however long the terminal takes."""
        while self._pending:
            self._write_chunk()

    def _write_chunk(self) -> None:
        """Write the beginning of the pending output."""
        try:
            written = os.write(1, self._pending[:CHUNK_BYTES])
        except OSError:  # the terminal is gone; its signal follows
            self._pending.clear()
        else:
            del self._pending[:written]

    def _take_terminal(self) -> None:
        """Set the terminal to raw mode, unless it is."""
        if self._saved_mode is not None:
            return
        with suppress(termios.error):
            self._saved_mode = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[INPUT_FLAGS] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
            mode[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
            mode[CHARACTERS][termios.VMIN] = 1
            termios.tcsetattr(0, termios.TCSANOW, mode)

    def _restore_terminal(self) -> None:
        """Give the terminal the mode that it had, unless it has it."""
        if self._saved_mode is None:
            return
        saved_mode, self._saved_mode = self._saved_mode, None
        with suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
            termios.tcsetattr(0, termios.TCSANOW, saved_mode)
        self._pending[:] = RESTORING_SEQUENCES
        self._write_all()

    def _run_program(self, program: dict[str, Any]) -> None:
        """Run a program on the terminal. Ctrl+C goes to it alone; Ctrl+Z stops both."""
        import subprocess

        self._restore_terminal()
        if program["banner"]:
            print(f"\n{program['banner']}\n", flush=True)
        handlers_meanwhile: dict[int, Any] = {
            signal.SIGINT: lambda *_: None,
            signal.SIGTSTP: lambda *_: os.kill(os.getpid(), signal.SIGSTOP),
            signal.SIGTERM: signal.SIG_DFL,
            signal.SIGHUP: signal.SIG_DFL,
        }
        environment = {name: value for name, value in os.environ.items() if name not in ADDED_VARIABLES}
        wake_writer = signal.set_wakeup_fd(-1)
        try:
            with signal_handlers(handlers_meanwhile):
                subprocess.run(program["command"], cwd=program["folder"], env=environment, check=False)
        except OSError as error:
            print(f"clawpy: {error}", file=sys.stderr)
        finally:
            signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self._send_terminal_is_free()


def _read_engine_note(home: Home) -> dict[str, Any]:
    """The note of the engine that holds `home`, or held it; {} for one that was copied from another home.

    `engine.lock.read_holder` does the same, but its module takes too long to import.
    """
    try:
        note = json.loads(home.engine_note.read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) and home.has_data_folder(str(note.get("data"))) else {}


def _is_engine_starting(home: Home) -> bool:
    """Whether an engine holds `home` but does not listen yet, or no longer does."""
    try:
        with home.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return not _read_engine_note(home).get("address")
    except OSError:
        pass
    return False


def _explain_no_answer(home: Home | None) -> str:
    """The message for an engine that does not answer."""
    pid = _read_engine_note(home).get("pid", "unknown") if home else "unknown"
    return f"The engine (process {pid}) does not answer. `clawpy stop` stops its work; kill {pid} ends it."


def _explain_unexpected_end(home: Home | None, child: int, exit_code: int) -> str:
    """The message for an engine whose process ended unexpectedly. `child` is its id, and `exit_code` its exit code or
    the negative number of a signal; `child` is 0 for an engine that this client did not start."""
    process = ""
    if child:
        reason = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
        process = f" (process {child}: {reason})"
    elif home:
        process = f" (process {_read_engine_note(home).get('pid', 'unknown')})"
    log = f" Log: {home.logs}" if home else ""
    return f"The engine ended unexpectedly{process}. Start it again with `clawpy`.{log}"
