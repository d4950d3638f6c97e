"""The WebSocket `/pulse`: which events a client gets, how it resumes, and what ends its connection (SPEC 10.1)."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.events.work import PredictionExpired, TaskAdded
from tests.api.gateway.served import SMALL, Serve, Served

SUBSCRIBE = {"type": "subscribe", "channels": ["crosspoll"]}


class Listener:
    """A client of the WebSocket, which reads its frames message by message."""

    def __init__(self, connection: ClientConnection):
        self.connection = connection
        self._unread: list[dict[str, Any]] = []

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

    def receive_expired_ids(self, count: int) -> list[int]:
        """The ids of so many messages about expired cards, in the order in which they come."""
        ids = []
        while len(ids) < count:
            ids += [message["id"] for message in self.receive() if message["type"] == "prediction.expired"]
        return ids

    def subscribe(self, **options: Any) -> dict[str, Any]:
        self.connection.send(json.dumps(SUBSCRIBE | options))
        [answer] = self.receive()
        return answer


@contextmanager
def listening(served: Served, **options: Any) -> Iterator[Listener]:
    options = {"additional_headers": served.headers} | options
    with connect(f"ws://127.0.0.1:{served.port}/pulse", **options, proxy=None, close_timeout=1) as connection:
        yield Listener(connection)


def expire(served: Served, number: int = 1) -> int:
    """Record `number` times in one transaction that a card expired; the id of the last record."""
    fact = PredictionExpired(subject="pred_gone", withdrawn=False, reason="its time was over")
    served.engine.database.write(lambda tx: [tx.record(fact) for _ in range(number)])
    return served.engine.ledger.read_newest(1, kinds=("PredictionExpired",))[0].id


@pytest.mark.long
def test_a_new_card_and_its_execution_are_sent(served: Served):
    with listening(served) as listener:
        answer = listener.subscribe()
        assert (answer["type"], answer["channels"]) == ("subscribed", ["crosspoll"])
        assert listener.receive_until("crosspoll.status")["status"]["enabled"] is True
        card = served.propose_card()
        new = listener.receive_until("prediction.new")
        assert (new["prediction"]["id"], new["prediction"]["targetChannel"]) == (card.id, "research")
        served.ask("POST", f"/api/v1/predictions/{card.id}/confirm")
        done = listener.receive_until("prediction.executed", 30)
        assert done["predictionId"] == card.id
        assert done["taskId"]
        assert done["result"]["outcome"] == "succeeded"
        assert done["result"]["session"]
        assert done["id"] > new["id"]


def test_events_of_no_channel_are_not_sent(served: Served):
    with listening(served) as listener:
        listener.subscribe()
        listener.receive_until("crosspoll.status")
        served.engine.database.write(lambda tx: tx.record(TaskAdded(subject="task_1", title="secret plans")))
        expire(served)
        messages = listener.receive()
        while "prediction.expired" not in [message["type"] for message in messages]:
            messages += listener.receive()
        assert not re.search("task_1|secret plans", str(messages))


def test_a_client_resumes_after_its_last_message_and_misses_nothing(served: Served):
    with listening(served) as listener:
        listener.subscribe()
        listener.receive_until("crosspoll.status")
        last = listener.receive_until("prediction.expired")["id"] if expire(served) else 0
    newest = expire(served, 30)
    with listening(served) as second:
        assert second.subscribe(after=last)["id"] == last
        assert expire(served, 5) == newest + 5
        assert second.receive_expired_ids(35) == list(range(last + 1, newest + 6))


def test_a_client_that_was_away_too_long_is_told_to_read_the_state_again(serve: Serve):
    served = serve(limits=replace(SMALL, max_missed_events=10))
    with listening(served) as first, listening(served) as listener:
        first.subscribe()
        last = expire(served, 40)
        while first.receive_until("prediction.expired")["id"] < last:
            pass
        answer = listener.subscribe(after=1)
        assert answer["missed"] is True
        assert answer["id"] >= last
        assert listener.receive()[0]["type"] == "crosspoll.status"


def test_a_call_of_json_rpc_is_answered_on_the_same_socket(served: Served):
    with listening(served) as listener:
        listener.connection.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "pulse.crosspoll.status"}))
        reply = json.loads(listener.connection.recv(timeout=10))
    assert (reply["id"], reply["result"]["enabled"]) == (7, True)


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"type": "subscribe"}',
        '{"type": "other"}',
        '{"type": "subscribe", "channels": ["keys"]}',
        '{"type": "subscribe", "channels": ["crosspoll"], "after": -1}',
        "[" * 50_000,
        b"\xff\x00",
    ],
)
def test_a_message_that_is_not_understood_is_answered_with_an_error(served: Served, text: str | bytes):
    with listening(served) as listener:
        listener.connection.send(text)
        assert listener.receive()[0]["error"]["code"] == "bad_request"
        assert listener.subscribe()["type"] == "subscribed"


def test_a_token_may_come_as_a_subprotocol(served: Served):
    subprotocols = ["pulse", f"bearer.{served.token}"]
    with listening(served, additional_headers={}, subprotocols=subprotocols) as listener:
        assert listener.connection.subprotocol == "pulse"
        assert listener.subscribe()["type"] == "subscribed"
    with pytest.raises(InvalidStatus), listening(served, additional_headers={}, subprotocols=["bearer.no"]):
        pass


def read_closing(listener: Listener, seconds: float = 10.0) -> tuple[int, str]:
    """The code and the reason with which the connection is closed."""
    end = time.monotonic() + seconds
    with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (whatever comes before the end)
        while time.monotonic() < end:
            listener.connection.recv(timeout=seconds)
    return closed.value.rcvd.code, closed.value.rcvd.reason


def test_a_new_token_disconnects_everybody(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    from engine.api.gateway import access, pulse

    monkeypatch.setattr(pulse, "TOKEN_POLL_S", 0.1)
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        token, source = access.rotate_token(served.engine.keys, in_file=True)
        assert source == "file"
        assert read_closing(listener, 30) == (4001, "the token has changed")
    assert served.ask("GET", "/api/v1/health").status_code == 401
    served.token = token
    assert served.ask("GET", "/api/v1/health").status_code == 200
