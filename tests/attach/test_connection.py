"""The console's end of the connection, and who may have one."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.widgets import Input, Static

from clawpy_console.app import ConsoleApp
from clawpy_console.attach import client as wire
from clawpy_console.attach.consoles import Consoles
from clawpy_console.attach.terminal import MAX_QUEUED_BYTES, MAX_SIZE, Terminal, TerminalDriver
from engine import Home, Refusal
from engine.api.control import ControlServer, ask
from tests.attach.conftest import until
from tests.console.stand_in import StandIn


class Small(App[None]):
    """An app on a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        super().__init__(driver_class=TerminalDriver)
        terminal.apply_colours(self)

    def compose(self) -> ComposeResult:
        yield Static("hello")
        yield Input()


class Other:
    """The client's end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._messages = wire.Messages()
        self.got: list[tuple[bytes, bytes]] = []

    def tell(self, kind: bytes, content: bytes) -> None:
        self._connection.sendall(wire.message(kind, content))

    async def read(self, *, until: bytes, kind: bytes = wire.OUTPUT) -> bytes:
        """All that was drawn, up to the message of that kind that has `until` in it."""
        loop = asyncio.get_running_loop()
        drawn = b""
        while True:
            data = await asyncio.wait_for(loop.sock_recv(self._connection, 65536), 20)
            assert data
            found = self._messages.feed(data)
            drawn += b"".join(content for _, content in found)
            if any(item == kind and until in content for item, content in found):
                return drawn


@asynccontextmanager
async def small(environment: dict[str, str]) -> AsyncIterator[tuple[Small, Terminal, Other]]:
    ours, theirs = socket.socketpair()
    for item in (ours, theirs):
        item.setblocking(False)
    terminal = Terminal(environment, (40, 10))
    app = Small(terminal)
    terminal.on_hang_up = app.exit
    with theirs:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: terminal, ours)
        running = asyncio.create_task(app.run_async())
        yield app, terminal, Other(theirs)
        app.exit()
        await running
        await terminal.end_client(wire.ClientEnd())


async def test_what_is_typed_pasted_and_resized_arrives() -> None:
    async with small({"TERM": "xterm", "COLORTERM": "truecolor"}) as (app, _, client):
        await client.read(until=b"hello")
        client.tell(wire.INPUT, b"a\xc3")
        client.tell(wire.INPUT, b"\xbc\x1b[200~b\nc\x1b[201~")
        while app.query_one(Input).value != "aüb":
            await asyncio.sleep(0.01)
        client.tell(wire.SIZE, b"[60, 20]")
        while app.size != (60, 20):
            await asyncio.sleep(0.01)
        client.tell(wire.BACK, b"[50, 15]")
        await client.read(until=b"\x1b[?1049h", kind=wire.ENTER)
        await client.read(until=b"hello")
        assert app.size == (50, 15)


async def test_f12_waits_for_no_other_key() -> None:
    async with small({"TERM": "xterm"}) as (app, terminal, client):
        await client.read(until=b"hello")
        typed: list[str] = []
        stopped = asyncio.Event()

        def stop() -> None:
            typed.append(app.query_one(Input).value)
            stopped.set()

        terminal.on_stop_key = stop
        client.tell(wire.INPUT, 500 * b"a" + b"\x1b[24~")
        await asyncio.wait_for(stopped.wait(), 20)
        assert len(typed[0]) < 500


@pytest.mark.parametrize(
    ("said", "size"),
    [(b"[100000, 100000]", MAX_SIZE), (b"[0, -1]", (1, 1)), (b'["a", 1]', None), (b"7", None), (b"[", None)],
)
async def test_a_size_that_no_terminal_has_is_bounded_or_ends_the_connection(
    said: bytes, size: tuple[int, int] | None
) -> None:
    terminal = Terminal({}, (80, 24))
    terminal.connection_made(Mock(spec=asyncio.Transport))
    terminal.data_received(wire.message(wire.SIZE, said))
    assert terminal.size == (size or (80, 24))
    assert terminal._transport.abort.called == (size is None)  # type: ignore[attr-defined, union-attr]


async def test_a_client_that_reads_nothing_holds_up_nothing_and_gets_the_whole_screen_later() -> None:
    async with small({"TERM": "xterm"}) as (_, terminal, client):
        await client.read(until=b"hello")
        for _ in range(40):
            terminal.draw("#" * 100_000)
        assert terminal._transport is not None
        assert terminal._transport.get_write_buffer_size() < MAX_QUEUED_BYTES + 200_000
        drawn = await client.read(until=b"hello")
        assert len(drawn) < 2_000_000


@pytest.mark.parametrize(
    ("environment", "colours"),
    [({"TERM": "xterm", "COLORTERM": "truecolor"}, "truecolor"), ({"TERM": "xterm-256color"}, "256"),
     ({"TERM": "xterm"}, "standard")],
)  # fmt: skip
async def test_colours_are_the_terminals(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colours: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Small(Terminal(environment, (80, 24)))
    assert app.console.color_system == colours
    assert not app.no_color
    assert Small(Terminal(environment | {"NO_COLOR": "1"}, (80, 24))).no_color


def test_only_an_engine_with_consoles_lets_a_terminal_attach(tmp_path: object) -> None:
    home = Home.locate(str(tmp_path))
    home.data.mkdir()
    hello = {"environment": {}, "size": [80, 24], "workspaces": [], "folder": "/"}
    server = ControlServer(home, lambda verb, arguments: {})
    server.start()
    try:
        with pytest.raises(Refusal, match="for one command"):
            ask(server.address, "attach", hello)
    finally:
        server.close()


@pytest.mark.long
def test_a_console_whose_client_went_away_is_freed(home: Home) -> None:
    before = sum(type(object) is StylesCache for object in gc.get_objects())
    consoles = Consoles(StandIn, home, owns_engine=False)  # type: ignore[arg-type, return-value]
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with ours:
            hello = {"environment": {"TERM": "xterm"}, "size": (100, 30), "workspaces": [], "folder": "/"}
            consoles.attach(theirs, hello)
            del theirs
            drawn = b""
            ours.settimeout(60)
            while b"koji-core" not in drawn:
                drawn += ours.recv(65536)
    until(lambda: not consoles._tasks)  # each has left, as a console does while others stay
    consoles.close()
    consoles.release_clients()
    gc.collect()
    assert not [object for object in gc.get_objects() if type(object) is ConsoleApp]
    assert sum(type(object) is StylesCache for object in gc.get_objects()) <= before
