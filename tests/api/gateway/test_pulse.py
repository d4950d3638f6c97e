"""The WebSocket `/pulse`, on which clients follow the events of the engine (SPEC 10.1)."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.api.gateway.pulse import MAX_FRAME_ENTRIES
from engine.events import PredictionExpired, StateChanged, TaskAdded
from tests.api.gateway.conftest import SMALL, Serve, Served

SUBSCRIBE = {"type": "subscribe", "channels": ["crosspoll"]}


class Listener:
    """A client of the WebSocket, which reads its frames message by message."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._unread: list[dict[str, Any]] = []

    def send(self, document: Any) -> None:
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

    def receive_until_id(self, message_id: int) -> None:
        """Read frames until one has the message with this id."""
        while not any(message["id"] == message_id for message in self.receive()):
            pass

    def receive_expired_ids(self, count: int) -> list[int]:
        """The ids of so many messages about expired cards, in the order in which they come."""
        ids: list[int] = []
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


@pytest.mark.long
def test_a_new_card_and_its_execution_are_sent(served: Served) -> None:
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


def test_the_number_of_pending_cards_is_sent_when_it_changes(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        before = listener.receive_until("crosspoll.status")["status"]["pending"]
        served.propose_card()
        while (message := listener.receive_until("crosspoll.status"))["status"]["pending"] != before + 1:
            assert message["status"]["pending"] == before


@pytest.mark.parametrize("stopped", ["PAUSED", "DISABLED"])
def test_pause_and_resume_are_sent(served: Served, stopped: str) -> None:
    paused = StateChanged(before="WATCHING", after=stopped, cause="3 dismissals in a row")
    resumed = StateChanged(before=stopped, after="WATCHING", cause="resumed")
    with listening(served) as listener:
        listener.subscribe()
        for event in (paused, resumed):
            served.engine.database.write(lambda tx, event=event: tx.record(event))
        assert listener.receive_until("crosspoll.paused")["reason"] == "3 dismissals in a row"
        assert listener.receive_until("crosspoll.resumed")["id"]


def test_events_of_no_channel_are_not_sent(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.receive_until("crosspoll.status")
        served.engine.database.write(lambda tx: tx.record(TaskAdded(subject="task_1", title="secret plans")))
        expire(served)
        messages = listener.receive()
        while "prediction.expired" not in [message["type"] for message in messages]:
            messages += listener.receive()
        assert not re.search("task_1|secret plans", str(messages))


def test_a_client_resumes_after_its_last_message_and_misses_nothing(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.receive_until("crosspoll.status")
        last = listener.receive_until("prediction.expired")["id"] if expire(served) else 0
    newest = expire(served, 30)
    with listening(served) as second:
        assert second.subscribe(after=last)["id"] == last
        assert expire(served, 5) == newest + 5
        assert second.receive_expired_ids(35) == list(range(last + 1, newest + 6))


@pytest.mark.long
def test_a_client_resumes_from_before_the_gateway_opened(serve: Serve) -> None:
    """The gateway reads the ledger many times for it."""
    served = serve()
    newest = expire(served, 1200)
    with listening(served) as listener:
        listener.subscribe(after=0)
        assert listener.receive_expired_ids(1200) == list(range(newest - 1199, newest + 1))


def test_a_client_that_was_away_too_long_is_told_to_read_the_state_again(serve: Serve) -> None:
    served = serve(limits=replace(SMALL, resume_events=10))
    with listening(served) as first, listening(served) as listener:
        first.subscribe()
        last = expire(served, 40)
        while first.receive_until("prediction.expired")["id"] < last:
            pass
        answer = listener.subscribe(after=1)
        assert answer["missed"] is True
        assert answer["id"] >= last
        assert listener.receive()[0]["type"] == "crosspoll.status"


def test_calls_of_json_rpc_are_answered_on_the_same_socket(served: Served) -> None:
    with listening(served) as listener:
        listener.send({"jsonrpc": "2.0", "id": 7, "method": "pulse.crosspoll.status"})
        reply = json.loads(listener.connection.recv(timeout=10))
        assert (reply["id"], reply["result"]["enabled"]) == (7, True)
        listener.send({"jsonrpc": "2.0", "id": 8})
        assert json.loads(listener.connection.recv(timeout=10))["error"]["code"] == -32600


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"type": "subscribe"}',
        '{"type": "subscribe", "channels": []}',
        '{"type": "subscribe", "channels": ["keys"]}',
        '{"type": "subscribe", "channels": ["crosspoll"], "after": -1}',
        '{"type": "subscribe", "channels": ["crosspoll"], "after": true}',
        '{"type": "subscribe", "channels": ["crosspoll"], "after": 1e300}',
        '{"type": "unsubscribe"}',
        "[" * 50_000,
        b"\xff\x00",
        b"{}",
    ],
)
def test_a_message_that_is_not_understood_is_answered_with_an_error(served: Served, text: str | bytes) -> None:
    with listening(served) as listener:
        listener.connection.send(text)
        assert listener.receive()[0]["error"]["code"] == "bad_request"
        assert listener.subscribe()["type"] == "subscribed"


def read_closing(listener: Listener, seconds: float = 10.0) -> tuple[int, str]:
    """The code and the reason with which the connection is closed."""
    end = time.monotonic() + seconds
    with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (whatever comes before the end)
        while time.monotonic() < end:
            listener.connection.recv(timeout=seconds)
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.long
def test_a_client_that_does_not_subscribe_is_disconnected(serve: Serve) -> None:
    with listening(serve(limits=replace(SMALL, subscribe_seconds=0.4))) as listener:
        assert read_closing(listener) == (1008, "subscribe first")


def test_a_client_that_sends_too_many_messages_is_disconnected(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        for _ in range(SMALL.message_burst):  # no more: who writes to a closed line may never read why it closed
            listener.connection.send("{}")
        assert read_closing(listener) == (1008, "too many messages")


def test_a_message_that_is_too_large_ends_the_connection(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.connection.send(" " * (SMALL.body + 1))
        assert read_closing(listener)[0] == 1009


def test_a_token_may_come_as_a_subprotocol(served: Served) -> None:
    subprotocols = ["pulse", f"bearer.{served.token}"]
    with listening(served, additional_headers={}, subprotocols=subprotocols) as listener:
        assert listener.connection.subprotocol == "pulse"
        assert listener.subscribe()["type"] == "subscribed"
    with pytest.raises(InvalidStatus), listening(served, additional_headers={}, subprotocols=["bearer.no"]):
        pass


@pytest.mark.long
def test_an_allowed_page_may_listen(serve: Serve) -> None:
    served = serve()
    served.gateway.close()
    served.engine.settings.set("gateway.origins", ["https://phone.example"])
    served.token = served.gateway.open(port=0) or served.token
    try:
        with listening(served, origin="https://phone.example") as listener:
            assert listener.subscribe()["type"] == "subscribed"
        reply = served.ask("GET", "/api/v1/health", headers={"Origin": "https://phone.example"})
        assert reply.headers["access-control-allow-origin"] == "https://phone.example"
        asks = {"Origin": "https://phone.example", "Access-Control-Request-Method": "POST", "Authorization": ""}
        preflight = served.ask("OPTIONS", "/api/v1/crosspoll/trigger", headers=asks)
        assert preflight.status_code == 204
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        with pytest.raises(InvalidStatus), listening(served, origin="https://phone.example.evil"):
            pass
    finally:
        served.engine.settings.unset("gateway.origins")


@contextmanager
def silent_client(served: Served) -> Iterator[socket.socket]:
    """A WebSocket whose client sends what a test makes it send, and reads nothing."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(5)
        client.connect(("127.0.0.1", served.port))
        client.sendall(
            b"GET /pulse HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n"
            b"Authorization: Bearer " + served.token.encode() + b"\r\n\r\n"
        )
        assert b" 101 " in client.recv(1000)
        subscribe = json.dumps(SUBSCRIBE).encode()
        client.sendall(bytes([0x81, 0x80 | len(subscribe)]) + b"\0\0\0\0" + subscribe)
        yield client


def count_connections(served: Served) -> int:
    server = served.gateway._server
    return len(server.server_state.connections)


@pytest.mark.long
def test_a_client_that_does_not_read_is_cut_off_and_delays_no_other(serve: Serve) -> None:
    served = serve(limits=replace(SMALL, stall_seconds=1.0))
    with listening(served) as quick, silent_client(served):
        quick.subscribe()
        end = time.monotonic() + 60
        while served.gateway.state().dropped == 0:
            last = expire(served, 500)
            quick.receive_until_id(last)
            assert time.monotonic() < end, "it is still there"
        while served.gateway.state().clients > 1 or count_connections(served) > 1:
            assert time.monotonic() < end, "its connection is still there"
    assert served.gateway.state().dropped == 1


@pytest.mark.long
def test_a_client_that_reads_slowly_is_not_cut_off_and_misses_nothing(serve: Serve) -> None:
    """It reads so little that no space becomes free in the gateway's own buffer, for four times as long as a client
    that reads nothing may stay."""
    stall_seconds, chunk_bytes, rounds, frame_bytes = 1.0, 2048, 60, 600_000
    served = serve(limits=replace(SMALL, stall_seconds=stall_seconds))
    with listening(served, max_size=None) as quick, silent_client(served) as slow:
        quick.subscribe()
        expire(served, MAX_FRAME_ENTRIES, reason="x" * (frame_bytes // MAX_FRAME_ENTRIES))
        began, received = time.monotonic(), b""

        def read() -> bytes:
            chunk = slow.recv(chunk_bytes)
            assert chunk, "it was cut off"
            return chunk

        for number in range(1, rounds + 1):
            last = expire(served)
            quick.receive_until_id(last)  # which paces the slow one
            while len(received) < number * chunk_bytes:
                received += read()
        assert time.monotonic() - began > 4 * stall_seconds
        while f'"id":{last}'.encode() not in received[-2 * chunk_bytes :]:
            received += read()
    assert served.gateway.state().dropped == 0


@pytest.mark.long
def test_pings_of_a_client_that_does_not_read_the_answers_take_no_memory(serve: Serve) -> None:
    served = serve(limits=replace(SMALL, stall_seconds=0.4))
    pings = (bytes([0x89, 0x80 | 125]) + b"\0\0\0\0" + b"x" * 125) * 4000
    with silent_client(served) as client:
        server = served.gateway._server
        most_kept, end = 0, time.monotonic() + 60
        with contextlib.suppress(OSError):  # cut off
            while time.monotonic() < end:
                client.sendall(pings)
                for connection in list(server.server_state.connections):
                    most_kept = max(most_kept, connection.transport.get_write_buffer_size())
        assert most_kept < 1_000_000
        while count_connections(served):
            assert time.monotonic() < end, "its connection is still there"


def test_a_new_token_disconnects_everybody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.long
def test_closing_disconnects_listeners(serve: Serve) -> None:
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        served.gateway.close()
        assert read_closing(listener)[0] == 1012
    assert not served.gateway.state().listening
