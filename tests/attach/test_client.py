"""The client alone, on a pseudo-terminal (SPEC 7.5); the test is the console at the other end of its socket."""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpy_console.attach.client import RESTORING_SEQUENCES, Client
from clawpy_console.attach.protocol import (
    EXIT,
    INPUT,
    OUTPUT,
    RUN,
    SIZE,
    TAKE_TERMINAL,
    TERMINAL_IS_FREE,
    MessageParser,
    encode_message,
)


class ClientProcess:
    """A client in a process of its own, on a terminal of which we have the other end."""

    def __init__(self):
        self.connection, client_socket = socket.socketpair()
        self._messages = MessageParser()
        self._received: list[tuple[bytes, bytes]] = []
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            code = 99
            try:
                self.connection.close()
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                end = Client(client_socket).run()
                code = 98 if end is None else end.code
            finally:
                os._exit(code)
        client_socket.close()
        self.connection.settimeout(20)

    def send(self, kind: bytes, content: bytes = b""):
        """Send a message, as the console does."""
        self.connection.sendall(encode_message(kind, content))

    def receive(self) -> tuple[bytes, bytes]:
        """The next message of the client."""
        while not self._received:
            data = self.connection.recv(4096)
            assert data, "the client hung up"
            self._received += self._messages.feed(data)
        return self._received.pop(0)

    def read_until(self, wanted: bytes) -> bytes:
        """What the terminal gets, up to and with `wanted`."""
        output = b""
        while wanted not in output:
            assert select.select([self.terminal], [], [], 20)[0], output
            output += os.read(self.terminal, 65536)
        return output

    def take_terminal(self):
        """Have the client take its terminal."""
        self.send(TAKE_TERMINAL, b"<enter>")
        self.read_until(b"<enter>")
        assert not self.is_cooked()

    def is_cooked(self) -> bool:
        """Whether the terminal gives whole lines, as a shell wants it."""
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ICANON)

    def wait_for_exit_code(self) -> int:
        """Wait for the end of the client; returns its exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self):
        self.connection.close()
        os.close(self.terminal)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture
def client() -> Iterator[ClientProcess]:
    client = ClientProcess()
    yield client
    client.close()


def test_keys_go_to_the_console_and_its_drawing_to_the_terminal(client: ClientProcess):
    client.take_terminal()
    os.write(client.terminal, "q\x03ü\r".encode())  # Ctrl+C is a key like any other
    assert client.receive() == (INPUT, "q\x03ü\r".encode())
    client.send(OUTPUT, b"x" * 300_000 + b"<end>")
    assert client.read_until(b"<end>").count(b"x") == 300_000
    client.send(EXIT, b'{"code": 7, "text": ""}')
    client.read_until(RESTORING_SEQUENCES)
    assert client.is_cooked()
    assert client.wait_for_exit_code() == 7


def test_a_new_size_of_the_terminal_is_sent(client: ClientProcess):
    client.take_terminal()
    fcntl.ioctl(client.terminal, termios.TIOCSWINSZ, struct.pack("4H", 50, 132, 0, 0))
    kind, content = client.receive()
    assert kind == SIZE
    assert json.loads(content) == [132, 50]


def test_a_console_that_dies_without_a_word_leaves_the_terminal_as_it_was(client: ClientProcess):
    client.take_terminal()
    client.connection.close()
    client.read_until(RESTORING_SEQUENCES)
    assert client.is_cooked()
    assert client.wait_for_exit_code() == 98


def test_a_program_has_the_terminal_until_it_ends(client: ClientProcess, tmp_path: Path):
    client.take_terminal()
    program = [sys.executable, "-c", "import os; print(os.getcwd(), os.isatty(0)); input()"]
    client.send(RUN, json.dumps({"command": program, "folder": str(tmp_path), "banner": "a shell"}).encode())
    client.send(OUTPUT, b"<drawn meanwhile>")
    client.read_until(b"a shell")
    client.read_until(f"{tmp_path} True".encode())
    assert client.is_cooked()
    os.write(client.terminal, b"\n")
    assert client.receive()[0] == TERMINAL_IS_FREE
    client.send(TAKE_TERMINAL, b"<enter again>")
    assert b"meanwhile" not in client.read_until(b"<enter again>")


def test_a_signal_restores_the_terminal_and_lets_the_console_end(client: ClientProcess):
    client.take_terminal()
    os.kill(client.pid, signal.SIGTERM)
    client.read_until(RESTORING_SEQUENCES)
    assert client.connection.recv(1) == b"", "the console hears that nobody is there"
    client.send(EXIT, b'{"code": 0, "text": ""}')
    client.connection.close()
    assert client.wait_for_exit_code() == 128 + signal.SIGTERM
