"""Many WebSocket clients in one process, for the benchmark of `/pulse`.

They are clients of our own on bare sockets, which do as little work as possible for a message. Two hundred clients of a
library would take more time than the gateway that is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections import Counter
from datetime import datetime
from multiprocessing.connection import Connection

CARD_EVENT = re.compile(rb'"type":"prediction\.[a-z]+","id":\d+,"at":"([^"]+)"')
MEASURED_EVERY = 10
"""The age of one message in this many is measured. All are counted."""

TEXT_FRAME = 1
"""The opcode of a frame with text (RFC 6455)."""

SUBSCRIBE = json.dumps({"type": "subscribe", "channels": ["crosspoll"]}).encode()


def listen(pipe: Connection, port: int, token: str, number: int, stalled: int) -> None:
    """Connect `number` clients that read, and `stalled` that do not. Send "listening", and count messages until
    something is received. Then send the report."""
    asyncio.run(_listen(pipe, port, token, number, stalled))


class _Client:
    """Counts the messages of one connection, its frames in each second, and ages of messages."""

    def __init__(self) -> None:
        self.messages = 0
        self.frames_by_second: Counter[int] = Counter()
        self.ages: list[float] = []

    async def read(self, reader: asyncio.StreamReader) -> None:
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", await reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", await reader.readexactly(8))
            body = await reader.readexactly(size)
            if head[0] & 0x0F != TEXT_FRAME:
                continue
            now = time.time()
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
    writer.write(_make_frame(SUBSCRIBE))
    return reader, writer


async def _listen(pipe: Connection, port: int, token: str, number: int, stalled: int) -> None:
    clients, tasks = [], []
    open_connections: list[object] = []  # a connection that nothing refers to is closed
    for _ in range(number):
        reader, writer = await _connect(port, token)
        open_connections.append(writer)
        clients.append(_Client())
        tasks.append(asyncio.create_task(clients[-1].read(reader)))
    for _ in range(stalled):
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", port))
        silent.sendall(_make_handshake(token))
        silent.recv(1000)
        silent.sendall(_make_frame(SUBSCRIBE))
        open_connections.append(silent)
    pipe.send("listening")
    while not pipe.poll():
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    report = {
        "ages": [age for client in clients for age in client.ages],
        "frames": sum(client.frames_by_second.total() for client in clients),
        "busiest": max(max(client.frames_by_second.values(), default=0) for client in clients),
        "fewest": min(client.messages for client in clients),
    }
    pipe.send(json.dumps(report))


def _make_handshake(token: str) -> bytes:
    return (
        b"GET /pulse HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n"
        b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
    )


def _make_frame(text: bytes) -> bytes:
    """A frame from a client, with a mask of zeros."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text)]) + b"\0\0\0\0" + text
