"""The console's end of a connection (SPEC 7.5), with an app drawn on it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Input, Static

from clawpy_console.attach.protocol import (
    INPUT,
    OUTPUT,
    SIZE,
    TAKE_TERMINAL,
    TERMINAL_IS_FREE,
    ClientEnd,
    MessageParser,
    encode_message,
)
from clawpy_console.attach.terminal import MAX_QUEUED_BYTES, Terminal, TerminalDriver


class SmallApp(App[None]):
    """An app on a terminal. It ends with the client, and remembers what was typed before F12."""

    def __init__(self, terminal: Terminal):
        self.terminal = terminal
        super().__init__(driver_class=TerminalDriver)
        terminal.apply_colours(self)
        terminal.bind_app(on_hang_up=self.exit, on_stop_key=self.note_stop_key)
        self.is_stopped = asyncio.Event()
        self.typed_before_stop = ""

    def note_stop_key(self):
        self.typed_before_stop = self.query_one(Input).value
        self.is_stopped.set()

    def compose(self) -> ComposeResult:
        yield Static("hello")
        yield Input()


class StandInClient:
    """The client's end of the connection."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._messages = MessageParser()

    def send(self, kind: bytes, content: bytes):
        self._connection.sendall(encode_message(kind, content))

    async def read(self, *, until: bytes, kind: bytes = OUTPUT) -> bytes:
        """All that was drawn, up to the message of that kind that contains `until`."""
        loop = asyncio.get_running_loop()
        drawn = b""
        while True:
            data = await asyncio.wait_for(loop.sock_recv(self._connection, 65536), 20)
            assert data
            messages = self._messages.feed(data)
            drawn += b"".join(content for _, content in messages)
            if any(found == kind and until in content for found, content in messages):
                return drawn


@asynccontextmanager
async def running_app(environment: dict[str, str]) -> AsyncIterator[tuple[SmallApp, Terminal, StandInClient]]:
    """An app that has drawn its first frame."""
    console_socket, client_socket = socket.socketpair()
    for end in (console_socket, client_socket):
        end.setblocking(False)
    terminal = Terminal(environment, (40, 10))
    app = SmallApp(terminal)
    with client_socket:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: terminal, console_socket)
        running = asyncio.create_task(app.run_async())
        client = StandInClient(client_socket)
        await client.read(until=b"hello")
        yield app, terminal, client
        app.exit()
        await running
        await terminal.end_client(ClientEnd())


async def type_until(chunks: tuple[bytes, ...], ending: str) -> str:
    """Send these bytes, and wait until the input ends with `ending`. Returns what it contains."""
    async with running_app({"TERM": "xterm"}) as (app, _, client), asyncio.timeout(20):
        for chunk in chunks:
            client.send(INPUT, chunk)
        while not app.query_one(Input).value.endswith(ending):
            await asyncio.sleep(0.01)
        return app.query_one(Input).value


async def test_what_is_typed_pasted_and_resized_arrives():
    async with running_app({"TERM": "xterm", "COLORTERM": "truecolor"}) as (app, _, client):
        client.send(INPUT, b"a\xc3")
        client.send(INPUT, b"\xbc\x1b[200~b\nc\x1b[201~")
        while app.query_one(Input).value != "aüb":
            await asyncio.sleep(0.01)
        client.send(SIZE, b"[60, 20]")
        while app.size != (60, 20):
            await asyncio.sleep(0.01)
        client.send(TERMINAL_IS_FREE, b"[50, 15]")
        await client.read(until=b"\x1b[?1049h", kind=TAKE_TERMINAL)
        await client.read(until=b"hello")
        assert app.size == (50, 15)


@pytest.mark.parametrize("size", [1, 3, 7, 100], ids=lambda size: f"{size} at a time")
async def test_what_is_pasted_is_text_although_it_has_escape_sequences(size: int):
    typed = b"a\x1b[200~b\x1b[31m\x1b\x1bc\x1b[0md\x1b[20e\x1b[201~z"
    chunks = tuple(typed[start : start + size] for start in range(0, len(typed), size))
    assert await type_until(chunks, "z") == "ab[31mc[0md[20ez"


async def test_f12_waits_for_no_other_key():
    async with running_app({"TERM": "xterm"}) as (app, _, client):
        client.send(INPUT, 500 * b"a" + b"\x1b[24~")
        await asyncio.wait_for(app.is_stopped.wait(), 20)
        assert len(app.typed_before_stop) < 500


async def test_a_client_that_reads_nothing_delays_nothing_and_gets_the_whole_screen_later():
    async with running_app({"TERM": "xterm"}) as (_, terminal, client):
        for _ in range(40):
            terminal.draw("#" * 100_000)
        assert terminal._transport.get_write_buffer_size() < MAX_QUEUED_BYTES + 200_000
        assert len(await client.read(until=b"hello")) < 2_000_000
