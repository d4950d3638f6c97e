"""Starts `clawpy` as a process without importing the engine again: it is forked from a process that has imported it.

To a test it looks like `python -m clawpy_console`, in a tenth of the time. How `clawpy` itself starts is for tests that
start it without this.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

CLAWPY = "import sys; from clawpy_console.__main__ import main; sys.argv[0] = 'clawpy'; sys.exit(main())"


class ForkedProcess:
    """A process with text pipes and those methods of `subprocess.Popen` that tests use.

    `out` is the descriptor of its standard output; None makes a pipe.
    """

    def __init__(self, fork_server: ForkServer, code: str, argv: tuple[str, ...], folder: Path, out: int | None):
        self._fork_server = fork_server
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        child_in, parent_in = os.pipe()
        parent_out, child_out = os.pipe()
        try:
            streams = (child_in, child_out if out is None else out, self._errors.fileno())
            self.pid = fork_server.fork(code, argv, folder, streams)
        finally:
            os.close(child_in)
            os.close(child_out)
        self.stdin = os.fdopen(parent_in, "w", encoding="utf-8")
        self.stdout = os.fdopen(parent_out, encoding="utf-8", errors="replace")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._fork_server.find_exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def communicate(self, input_text: str = "", *, timeout: float = 60) -> tuple[str, str]:
        """Write to its standard input, and close it; returns its output and its errors once it has ended."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended before
            self.stdin.write(input_text)
            self.stdin.close()
        deadline = time.monotonic() + timeout
        output = b""
        while select.select([self.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(self.stdout.fileno(), 65536)
            output += piece
            if not piece:
                self.wait(max(0.0, deadline - time.monotonic()))
                self._errors.seek(0)
                return output.decode(errors="replace"), self._errors.read().decode(errors="replace")
        raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, output)

    def send_signal(self, number: int):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def close(self):
        """End it, if it has not ended yet."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class ForkServer:
    """Forks processes. One server is for all tests of a process, one at a time."""

    def __init__(self):
        self._requests, server_end = socket.socketpair()
        with server_end:
            number = server_end.fileno()
            command = [sys.executable, "-m", "tests.support.fork_server", str(number)]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number], stdin=subprocess.DEVNULL)

    @contextmanager
    def clawpy(self, *argv: str, folder: Path, out: int | None = None) -> Iterator[ForkedProcess]:
        """Run `clawpy ARGV` in `folder`, with the present environment. If it still runs at the end, it is killed."""
        with self.python(CLAWPY, *argv, folder=folder, out=out) as process:
            yield process

    @contextmanager
    def python(self, code: str, *argv: str, folder: Path, out: int | None = None) -> Iterator[ForkedProcess]:
        """Run `python -c CODE ARGV` in the same way."""
        process = ForkedProcess(self, code, argv, folder, out)
        try:
            yield process
        finally:
            process.close()

    def fork(self, code: str, argv: tuple[str, ...], folder: Path, streams: tuple[int, int, int]) -> int:
        socket.send_fds(self._requests, [b"!"], streams)
        return int(self._ask({"code": code, "argv": argv, "folder": str(folder), "environment": dict(os.environ)}))

    def find_exit_code(self, pid: int) -> int | None:
        """The exit code of a process, None while it runs."""
        self._requests.sendall(b"?")
        return self._ask({"ended": pid})

    def _ask(self, request: dict[str, Any]) -> Any:
        self._requests.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(_read_line(self._requests))

    def close(self):
        self._requests.close()
        self._process.wait(30)


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece:
            raise EOFError("the server is gone")
        line += piece
    return line


def _serve(requests: socket.socket):
    """Fork a process for each request until the connection ends. Returns in the forked process too."""
    while True:
        kind, streams, _, _ = socket.recv_fds(requests, 1, 3)
        if not kind:
            sys.exit()
        request = json.loads(_read_line(requests))
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                requests.close()
                _become(request, streams)
                return
            for stream in streams:
                os.close(stream)
        requests.sendall(json.dumps(answer).encode() + b"\n")


def _become(request: dict[str, Any], streams: list[int]):
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["argv"]
    exec(compile(request["code"], "<forked>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    for name in (
        "clawpy_console.cli.verbs",
        "clawpy_console.cli.headless",
        "engine.api.operations",
        "engine.engine",
    ):
        import_module(name)
    # Whoever runs the tests may ignore these, `nohup` for instance.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection)
