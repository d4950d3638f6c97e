"""The client alone: what it does to its terminal, told by a socket as a console would."""

from __future__ import annotations

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
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.attach import client as wire
from clawpy_console.attach.client import RESTORE, Client, ClientEnd, Refused, attach
from engine import Home, __version__


class Held:
    """A client in a process of its own, on a terminal of which we have the other end."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair()
        self._messages = wire.Messages()
        self._heard: list[tuple[bytes, bytes]] = []
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            code = 99
            try:
                self.connection.close()
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                end = Client(theirs).run()
                code = 98 if end is None else end.code
            finally:
                os._exit(code)
        theirs.close()
        self.connection.settimeout(20)

    def tell(self, kind: bytes, content: bytes = b"") -> None:
        self.connection.sendall(wire.message(kind, content))

    def hear(self) -> tuple[bytes, bytes]:
        """The next message of the client."""
        while not self._heard:
            data = self.connection.recv(4096)
            assert data, "the client hung up"
            self._heard += self._messages.feed(data)
        return self._heard.pop(0)

    def shown(self, wanted: bytes) -> bytes:
        """What the terminal got, up to and with `wanted`."""
        got = b""
        while wanted not in got:
            assert select.select([self.terminal], [], [], 20)[0], got
            got += os.read(self.terminal, 65536)
        return got

    def entered(self) -> None:
        self.tell(wire.ENTER, b"<enter>")
        self.shown(b"<enter>")
        assert not self.is_cooked()

    def is_cooked(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ICANON)

    def code(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self) -> None:
        self.connection.close()
        os.close(self.terminal)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.close()


def size_of(message: tuple[bytes, bytes]) -> tuple[bytes, Any]:
    return message[0], json.loads(message[1])


def test_keys_go_to_the_console_and_its_drawing_to_the_terminal(held: Held) -> None:
    held.entered()
    os.write(held.terminal, "q\x03ü\r".encode())  # Ctrl+C is a key like any other
    assert held.hear() == (wire.INPUT, "q\x03ü\r".encode())
    held.tell(wire.OUTPUT, b"x" * 300_000 + b"<end>")
    assert held.shown(b"<end>").count(b"x") == 300_000
    held.tell(wire.EXIT, b'{"code": 7, "text": ""}')
    held.shown(RESTORE)
    assert held.is_cooked()
    assert held.code() == 7


def test_the_terminals_size_is_told(held: Held) -> None:
    held.entered()
    fcntl.ioctl(held.terminal, termios.TIOCSWINSZ, struct.pack("4H", 50, 132, 0, 0))
    assert size_of(held.hear()) == (wire.SIZE, [132, 50])


def test_a_console_that_dies_without_a_word_leaves_the_terminal_as_it_was(held: Held) -> None:
    held.entered()
    held.connection.close()
    held.shown(RESTORE)
    assert held.is_cooked()
    assert held.code() == 98


def test_a_program_has_the_terminal_until_it_ends(held: Held, tmp_path: Path) -> None:
    held.entered()
    program = [sys.executable, "-c", "import os; print(os.getcwd(), os.isatty(0)); input()"]
    held.tell(wire.RUN, json.dumps({"command": program, "folder": str(tmp_path), "banner": "a shell"}).encode())
    held.tell(wire.OUTPUT, b"<drawn meanwhile>")
    held.shown(b"a shell")
    held.shown(f"{tmp_path} True".encode())
    assert held.is_cooked()
    os.write(held.terminal, b"\n")
    assert held.hear()[0] == wire.BACK
    held.tell(wire.ENTER, b"<enter again>")
    assert b"meanwhile" not in held.shown(b"<enter again>")


def test_a_signal_gives_the_terminal_back_and_lets_the_console_end(held: Held) -> None:
    held.entered()
    os.kill(held.pid, signal.SIGTERM)
    held.shown(RESTORE)
    assert held.connection.recv(1) == b"", "the console hears that nobody is there"
    held.tell(wire.EXIT, b'{"code": 0, "text": ""}')
    held.connection.close()
    assert held.code() == 128 + signal.SIGTERM


def test_messages_that_come_in_pieces() -> None:
    messages, found = wire.Messages(), []
    for byte in wire.message(b"O", b"one") + wire.message(b"L") + wire.message(b"O", b"two"):
        found += messages.feed(bytes([byte]))
    assert found == [(b"O", b"one"), (b"L", b""), (b"O", b"two")]
    with pytest.raises(ValueError, match="a message of"):
        messages.feed(wire.HEAD.pack(b"O", wire.MAX_MESSAGE_BYTES + 1))


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"address": ""}', '{"address": "/no/socket"}', '{"address": "\\u0000"}']
)
def test_where_no_engine_answers_there_is_nothing_to_attach_to(tmp_path: Path, note: str) -> None:
    home = Home.locate(tmp_path)
    home.data.mkdir()
    (home.data / "engine.json").write_text(note)
    assert attach(home, []) is None


def test_an_engine_of_another_version_is_named(tmp_path: Path) -> None:
    home = Home.locate(tmp_path)
    home.data.mkdir()
    address = str(tmp_path / "socket")
    (home.data / "engine.json").write_text(json.dumps({"address": address, "version": "0.0.9", "pid": 77}))
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(address)
        engine.listen()
        with pytest.raises(Refused, match=r"The running engine is clawpy 0\.0\.9, this is .*: kill 77"):
            attach(home, [])


def test_an_engine_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawpy_console.attach.client.TIMEOUT_S", 0.05)
    home = Home.locate(tmp_path)
    home.data.mkdir()
    address = str(tmp_path / "socket")
    (home.data / "engine.json").write_text(json.dumps({"address": address, "version": __version__, "pid": 77}))
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(address)
        engine.listen()
        with pytest.raises(Refused, match=r"process 77\) does not answer.* kill 77 ends it"):
            attach(home, [])


def test_a_console_that_was_open_for_long_attaches_to_the_engine_that_another_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not start an engine, and `r` was pressed a minute later: meanwhile another terminal had started one."""
    ends = [ClientEnd(again=True), ClientEnd()]
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=chain([0.0], repeat(60.0)).__next__))

    def attach_to_next(*_: object) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(ends.pop(0).message())
        return ours

    monkeypatch.setattr(wire, "attach", attach_to_next)
    assert wire.main(Home.locate(tmp_path), [], lambda _: pytest.fail("no engine is to be started")) == 0
    assert not ends
