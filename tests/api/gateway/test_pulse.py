"""The WebSocket `/pulse`, on which clients follow the events of the engine (SPEC 10.1)."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.api.gateway.access import Access, ClientCounts
from engine.api.gateway.api import Calls
from engine.api.gateway.pulse import FRAME_FACTS, Pulse
from engine.events import PredictionExpired, StateChanged, TaskAdded
from tests.api.gateway.conftest import QUICK, Serve, Served

SUBSCRIBE = {"type": "subscribe", "channels": ["crosspoll"]}


class Listener:
    """A client, which gives the messages of frames one by one."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line
        self._unread: list[dict[str, Any]] = []

    def send(self, document: Any) -> None:
        self.line.send(json.dumps(document))

    def hear(self, seconds: float = 10.0) -> list[dict[str, Any]]:
        """The messages of the next frame."""
        frame = json.loads(self.line.recv(timeout=seconds))
        return frame["events"] if frame["type"] == "batch" else [frame]

    def until(self, kind: str, seconds: float = 10.0) -> dict[str, Any]:
        """The next message of this kind; what comes before is passed over."""
        end = time.monotonic() + seconds
        while True:
            while self._unread:
                if (message := self._unread.pop(0))["type"] == kind:
                    return message
            self._unread = self.hear(max(0.01, end - time.monotonic()))

    def subscribe(self, **more: Any) -> dict[str, Any]:
        self.send(SUBSCRIBE | more)
        [answer] = self.hear()
        return answer


@contextmanager
def listening(served: Served, **options: Any) -> Iterator[Listener]:
    options = {"additional_headers": served.headers} | options
    with connect(f"ws://127.0.0.1:{served.port}/pulse", **options, proxy=None, close_timeout=1) as line:
        yield Listener(line)


def expire(served: Served, number: int = 1, card: str = "pred_gone", reason: str = "its time was over") -> int:
    """Record `number` facts in one transaction; the id of the last."""
    fact = PredictionExpired(subject=card, withdrawn=False, reason=reason)
    served.engine.database.write(lambda tx: [tx.record(fact) for _ in range(number)])
    return served.engine.ledger.latest(1, kinds=("PredictionExpired",))[0].id


@pytest.mark.long
def test_a_new_card_and_its_execution_are_sent(served: Served) -> None:
    with listening(served) as listener:
        answer = listener.subscribe()
        assert (answer["type"], answer["channels"]) == ("subscribed", ["crosspoll"])
        assert listener.until("crosspoll.status")["status"]["enabled"] is True
        card = served.card()
        new = listener.until("prediction.new")
        assert (new["prediction"]["id"], new["prediction"]["targetChannel"]) == (card.id, "research")
        served.ask("POST", f"/api/v1/predictions/{card.id}/confirm")
        done = listener.until("prediction.executed", 30)
        assert done["predictionId"] == card.id
        assert done["taskId"]
        assert done["result"]["outcome"] == "succeeded"
        assert done["result"]["session"]
        assert done["id"] > new["id"]


def test_status_follows_what_happened(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        before = listener.until("crosspoll.status")["status"]["pending"]
        served.card()
        while (message := listener.until("crosspoll.status"))["status"]["pending"] != before + 1:
            assert message["status"]["pending"] == before


@pytest.mark.parametrize("held", ["PAUSED", "DISABLED"])
def test_pause_and_resume_are_sent(served: Served, held: str) -> None:
    with listening(served) as listener:
        listener.subscribe()
        moves = (("WATCHING", held, "3 rejections in a row"), (held, "WATCHING", "resumed"))
        for before, after, cause in moves:
            fact = StateChanged(before=before, after=after, cause=cause)
            served.engine.database.write(lambda tx, fact=fact: tx.record(fact))
        assert listener.until("crosspoll.paused")["reason"] == "3 rejections in a row"
        assert listener.until("crosspoll.resumed")["id"]


def test_events_of_no_channel_are_not_sent(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.until("crosspoll.status")
        served.engine.database.write(lambda tx: tx.record(TaskAdded(subject="task_1", title="secret plans")))
        expire(served)
        messages = listener.hear()
        while "prediction.expired" not in [message["type"] for message in messages]:
            messages += listener.hear()
        assert {message["type"] for message in messages} <= {"prediction.expired", "crosspoll.status"}
        assert "secret plans" not in str(messages)


def test_a_client_resumes_after_its_last_message_and_misses_nothing(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.until("crosspoll.status")
        last = listener.until("prediction.expired")["id"] if expire(served) else 0
    first = last + 1
    newest = expire(served, 30)
    with listening(served) as second:
        assert second.subscribe(after=last)["id"] == last
        assert expire(served, 5) == newest + 5
        ids: list[int] = []
        while len(ids) < 35:
            ids += [message["id"] for message in second.hear() if message["type"] == "prediction.expired"]
        assert ids == list(range(first, newest + 6))


@pytest.mark.long
def test_a_client_resumes_from_before_the_gateway_opened(serve: Serve) -> None:
    """From before the gateway began, over many reads of the ledger."""
    served = serve()
    newest = expire(served, 1200, card="pred_old")
    with listening(served) as listener:
        listener.subscribe(after=0)
        ids: list[int] = []
        while len(ids) < 1200:
            ids += [message["id"] for message in listener.hear() if message["type"] == "prediction.expired"]
        assert len(set(ids)) == 1200
        assert ids == sorted(ids)
        assert ids[-1] == newest


def test_a_client_that_was_away_too_long_is_told_to_read_the_state_again(serve: Serve) -> None:
    served = serve(limits=replace(QUICK, resume_events=10))
    with listening(served) as first, listening(served) as listener:
        first.subscribe()
        last = expire(served, 40)
        while first.until("prediction.expired")["id"] < last:
            pass
        answer = listener.subscribe(after=1)
        assert answer["missed"] is True
        assert answer["id"] >= last
        assert listener.hear()[0]["type"] == "crosspoll.status"


async def test_a_client_behind_the_kept_frames_gets_them_from_the_ledger(served: Served) -> None:
    calls = Calls(served.engine, max_slow_requests=1)
    pulse = Pulse(
        served.engine, calls.answer, Access(served.engine.keys, served.engine.database), QUICK, ClientCounts()
    )
    start = pulse.head = served.engine.ledger.latest(1)[0].id
    first, last = expire(served), expire(served)
    await pulse.read_on()
    assert pulse.head == last
    kept_frame = await pulse.frame_after(start)
    read_frame = await pulse.frame_after(first)
    assert (kept_frame.end, read_frame.end) == (last, last)
    assert f'"id":{first},' in kept_frame.text
    assert f'"id":{last},' in read_frame.text
    assert f'"id":{first},' not in read_frame.text


def test_rpc_on_the_same_socket(served: Served) -> None:
    with listening(served) as listener:
        listener.send({"jsonrpc": "2.0", "id": 7, "method": "pulse.crosspoll.status"})
        reply = json.loads(listener.line.recv(timeout=10))
        assert (reply["id"], reply["result"]["enabled"]) == (7, True)
        listener.send({"jsonrpc": "2.0", "id": 8})
        assert json.loads(listener.line.recv(timeout=10))["error"]["code"] == -32600


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
    ],
)
def test_a_message_that_is_not_understood_is_answered_with_an_error(served: Served, text: str) -> None:
    with listening(served) as listener:
        listener.line.send(text)
        assert listener.hear()[0]["error"]["code"] == "bad_request"
        assert listener.subscribe()["type"] == "subscribed"


def closing_of(listener: Listener, seconds: float = 10.0) -> tuple[int, str]:
    """The code and the reason with which the connection is closed."""
    end = time.monotonic() + seconds
    with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (whatever comes before the end)
        while time.monotonic() < end:
            listener.line.recv(timeout=seconds)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.long
def test_a_client_that_does_not_subscribe_is_disconnected(served: Served) -> None:
    with listening(served) as listener:
        assert closing_of(listener) == (1008, "subscribe first")


def test_a_client_that_sends_too_many_messages_is_disconnected(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        for _ in range(QUICK.message_burst):  # no more: who writes to a closed line may never read why it closed
            listener.line.send("{}")
        assert closing_of(listener) == (1008, "too many messages")


def test_a_message_that_is_too_large_ends_the_connection(served: Served) -> None:
    with listening(served) as listener:
        listener.subscribe()
        listener.line.send(" " * (QUICK.body + 1))
        assert closing_of(listener)[0] == 1009


def test_the_token_as_a_subprotocol(served: Served) -> None:
    subprotocols = ["pulse", f"bearer.{served.token}"]
    with listening(served, additional_headers={}, subprotocols=subprotocols) as listener:
        assert listener.line.subprotocol == "pulse"
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


def connections(served: Served) -> int:
    server = served.gateway._server
    assert server is not None
    return len(server.server_state.connections)


@pytest.mark.long
def test_a_client_that_does_not_read_is_cut_off_and_delays_no_other(serve: Serve) -> None:
    served = serve()
    with listening(served) as quick, silent_client(served):
        quick.subscribe()
        end = time.monotonic() + 20
        while served.gateway.state().dropped == 0:
            last = expire(served, 500)
            began = time.monotonic()
            while not any(message["id"] == last for message in quick.hear()):
                pass
            assert time.monotonic() - began < 5
            assert time.monotonic() < end, "it is still there"
        while served.gateway.state().clients > 1 or connections(served) > 1:
            assert time.monotonic() < end, "its connection is still there"
    assert served.gateway.state().dropped == 1


@pytest.mark.long
def test_a_client_that_reads_slowly_is_not_cut_off_and_misses_nothing(serve: Serve) -> None:
    """It reads so little that no space becomes free in the gateway's own buffer, several times as long as a client that
    reads nothing may stay."""
    stall_seconds, step, rounds, frame_bytes = 0.5, 2048, 30, 600_000
    served = serve(limits=replace(QUICK, stall_seconds=stall_seconds))
    with listening(served, max_size=None) as quick, silent_client(served) as slow:
        quick.subscribe()
        expire(served, FRAME_FACTS, reason="x" * (frame_bytes // FRAME_FACTS))
        began, received = time.monotonic(), b""

        def read() -> bytes:
            chunk = slow.recv(step)
            assert chunk, "it was cut off"
            return chunk

        for number in range(1, rounds + 1):
            last = expire(served)
            while not any(message["id"] == last for message in quick.hear()):  # which paces the slow one
                pass
            while len(received) < number * step:
                received += read()
        assert time.monotonic() - began > 4 * stall_seconds
        while f'"id":{last}'.encode() not in received[-2 * step :]:
            received += read()
    assert served.gateway.state().dropped == 0


@pytest.mark.long
def test_pings_of_a_client_that_does_not_read_the_answers_take_no_memory(serve: Serve) -> None:
    served = serve()
    pings = (bytes([0x89, 0x80 | 125]) + b"\0\0\0\0" + b"x" * 125) * 4000
    with silent_client(served) as client:
        server = served.gateway._server
        assert server is not None
        most_kept, end = 0, time.monotonic() + 20
        with contextlib.suppress(OSError):  # cut off
            while time.monotonic() < end:
                client.sendall(pings)
                for connection in list(server.server_state.connections):
                    most_kept = max(most_kept, connection.transport.get_write_buffer_size())
        assert most_kept < 1_000_000
        while connections(served):
            assert time.monotonic() < end, "its connection is still there"


def test_a_new_token_disconnects_everybody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.api.gateway import access, pulse

    monkeypatch.setattr(pulse, "TOKEN_POLL_S", 0.1)
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        token, source = access.rotate_token(served.engine.keys, in_file=True)
        assert source == "file"
        assert closing_of(listener, 30) == (4001, "the token has changed")
    assert served.ask("GET", "/api/v1/health").status_code == 401
    served.token = token
    assert served.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_closing_disconnects_listeners(serve: Serve) -> None:
    served = serve()
    with listening(served) as listener:
        listener.subscribe()
        served.gateway.close()
        assert closing_of(listener)[0] == 1012
    assert not served.gateway.state().listening
