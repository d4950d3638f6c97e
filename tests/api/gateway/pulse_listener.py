"""A client of the WebSocket `/pulse`, and events for it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from engine.events import PredictionExpired
from tests.api.gateway.served import Served

SUBSCRIBE = {"type": "subscribe", "channels": ["crosspoll"]}


class Listener:
    """A client of the WebSocket, which reads its frames message by message."""

    def __init__(self, connection: ClientConnection):
        self.connection = connection
        self._unread: list[dict[str, Any]] = []

    def send(self, document: Any):
        self.connection.send(json.dumps(document))

    def receive(self, seconds: float = 10.0) -> list[dict[str, Any]]:
        """The messages of the next frame."""
        frame = json.loads(self.connection.recv(timeout=seconds))
        return frame["events"] if frame["type"] == "batch" else [frame]

    def receive_until(self, kind: str, seconds: float = 10.0) -> dict[str, Any]:
        """The next message of this kind; those before it are dropped."""
        end = time.monotonic() + seconds
        while True:
            while self._unread:
                if (message := self._unread.pop(0))["type"] == kind:
                    return message
            self._unread = self.receive(max(0.01, end - time.monotonic()))

    def receive_until_id(self, message_id: int):
        """Read frames until one has the message with this id."""
        while not any(message["id"] == message_id for message in self.receive()):
            pass

    def receive_expired_ids(self, count: int) -> list[int]:
        """The ids of so many messages about expired cards, in the order in which they come."""
        ids = []
        while len(ids) < count:
            ids += [message["id"] for message in self.receive() if message["type"] == "prediction.expired"]
        return ids

    def subscribe(self, **options: Any) -> dict[str, Any]:
        self.send(SUBSCRIBE | options)
        [answer] = self.receive()
        return answer


@contextmanager
def listening(served: Served, **options: Any) -> Iterator[Listener]:
    options = {"additional_headers": served.headers} | options
    with connect(f"ws://127.0.0.1:{served.port}/pulse", **options, proxy=None, close_timeout=1) as connection:
        yield Listener(connection)


def expire(served: Served, number: int = 1, reason: str = "its time was over") -> int:
    """Record `number` times in one transaction that a card expired; the id of the last record."""
    fact = PredictionExpired(subject="pred_gone", withdrawn=False, reason=reason)
    served.engine.database.write(lambda tx: [tx.record(fact) for _ in range(number)])
    return served.engine.ledger.latest(1, kinds=("PredictionExpired",))[0].id
