"""Many WebSocket clients in a process of their own, for the benchmarks of `/pulse`.

They are clients of our own on bare sockets, which do as little work as possible for a message. Two hundred clients of a
library would take more time than the gateway that is measured.
"""

import asyncio
import multiprocessing
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection

CARD_EVENT = re.compile(rb'"type":"prediction\.[a-z]+","id":\d+,"at":"([^"]+)"')
"""An event about a card in a message, with its time."""
MEASURED_EVERY = 10
"""The age of one message in this many is measured. All are counted."""

TEXT_FRAME = 1
"""The opcode of a frame with text (RFC 6455)."""

SUBSCRIBE = b'{"type": "subscribe", "channels": ["crosspoll"]}'


@dataclass(frozen=True)
class ClientReport:
    """What the clients that read received together."""

    ages: list[float]
    """Seconds from an event to the moment at which a client has read it."""

    frames: int
    max_frames_per_second: int
    """Frames of the busiest client in its busiest second."""

    min_messages: int
    """Messages of the client that received the fewest."""


class ClientProcess:
    """The process of the clients, seen from the benchmark. `pipe` leads to it."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        assert pipe.poll(60), "the clients did not connect"
        assert pipe.recv() == "listening"

    def end(self) -> ClientReport:
        """Let the clients stop listening. Returns what they received."""
        self._pipe.send("enough")
        return self._pipe.recv()


@contextmanager
def connect_clients(port: int, token: str, number: int, stalled: int = 0) -> Iterator[ClientProcess]:
    """Start a process with `number` clients that read, and `stalled` that do not."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=_run_clients, args=(there, port, token, number, stalled), daemon=True)
    child.start()
    try:
        yield ClientProcess(here)
    finally:
        child.kill()
        child.join()


def _run_clients(pipe: Connection, port: int, token: str, number: int, stalled: int):
    """Connect all clients, send "listening", and count messages until something is received. Then send the report."""
    asyncio.run(_listen(pipe, port, token, number, stalled))


async def _listen(pipe: Connection, port: int, token: str, number: int, stalled: int):
    clients, tasks = [], []
    open_connections = []  # a connection that nothing refers to is closed
    for _ in range(number):
        reader, writer = await _connect(port, token)
        open_connections.append(writer)
        clients.append(_Client())
        tasks.append(asyncio.create_task(clients[-1].read(reader)))
    open_connections += [connect_silently(port, token) for _ in range(stalled)]
    pipe.send("listening")
    while not pipe.poll():
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    pipe.send(
        ClientReport(
            ages=[age for client in clients for age in client.ages],
            frames=sum(client.frames_by_second.total() for client in clients),
            max_frames_per_second=max(max(client.frames_by_second.values(), default=0) for client in clients),
            min_messages=min(client.messages for client in clients),
        )
    )


class _Client:
    """Counts the messages of one connection, its frames in each second, and ages of messages."""

    def __init__(self):
        self.messages = 0
        self.frames_by_second: Counter[int] = Counter()
        self.ages: list[float] = []

    async def read(self, reader: asyncio.StreamReader):
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await reader.readexactly(8))
            body = await reader.readexactly(size)
            if head[0] & 0x0F == TEXT_FRAME:
                self._count(body, time.time())

    def _count(self, body: bytes, now: float):
        self.frames_by_second[int(now)] += 1
        for at in CARD_EVENT.findall(body):
            self.messages += 1
            if self.messages % MEASURED_EVERY == 0:
                self.ages.append(now - datetime.fromisoformat(at.decode()).timestamp())


async def _connect(port: int, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(_make_handshake(token))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head, head
    writer.write(_make_subscription())
    return reader, writer


def connect_silently(port: int, token: str) -> socket.socket:
    """A client that subscribes and then reads nothing. What it does else may take 5 seconds."""
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.settimeout(5)
    silent.connect(("127.0.0.1", port))
    silent.sendall(_make_handshake(token))
    assert b" 101 " in silent.recv(1000)
    silent.sendall(_make_subscription())
    return silent


def _make_handshake(token: str) -> bytes:
    return (
        b"GET /pulse HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n"
        b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
    )


def _make_subscription() -> bytes:
    """The frame that subscribes, with a mask of zeros."""
    return bytes([0x81, 0x80 | len(SUBSCRIBE)]) + b"\0\0\0\0" + SUBSCRIBE
