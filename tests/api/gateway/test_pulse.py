"""What happens, as it happens, over `/pulse` (SPEC 10.1)."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.api.gateway.access import Access, ClientCounts
from engine.api.gateway.calls import Calls
from engine.api.gateway.pulse import Pulse
from engine.events import PredictionExpired, StateChanged, TaskAdded
from tests.api.gateway.conftest import QUICK, Serve, Served

SUBSCRIBE = {"type": "subscribe", "channels": ["crosspoll"]}


class Listener:
    """A client that takes frames apart."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line
        self.frames = 0
        self.left: list[dict[str, Any]] = []

    def say(self, document: Any) -> None:
        self.line.send(json.dumps(document))

    def hear(self, seconds: float = 10.0) -> list[dict[str, Any]]:
        """The messages of the next frame."""
        told = json.loads(self.line.recv(timeout=seconds))
        self.frames += 1
        return told["events"] if told["type"] == "batch" else [told]

    def until(self, kind: str, seconds: float = 10.0) -> dict[str, Any]:
        """The next message of this kind; what comes before is passed over."""
        end = time.monotonic() + seconds
        while True:
            while self.left:
                if (one := self.left.pop(0))["type"] == kind:
                    return one
            self.left = self.hear(max(0.01, end - time.monotonic()))

    def subscribe(self, **more: Any) -> dict[str, Any]:
        self.say(SUBSCRIBE | more)
        [answer] = self.hear()
        return answer


@contextmanager
def listening(served: Served, **how: Any) -> Iterator[Listener]:
    how = {"additional_headers": served.headers} | how
    with connect(f"ws://127.0.0.1:{served.port}/pulse", **how, proxy=None, close_timeout=1) as line:
        yield Listener(line)


def expire(served: Served, number: int = 1, card: str = "pred_gone") -> int:
    """So many facts in one transaction; the id of the last."""
    fact = PredictionExpired(subject=card, withdrawn=False, reason="its time was over")
    served.engine.database.write(lambda tx: [tx.record(fact) for _ in range(number)])
    return served.engine.ledger.latest(1, kinds=("PredictionExpired",))[0].id


@pytest.mark.long
def test_a_new_card_and_what_becomes_of_it(served: Served) -> None:
    with listening(served) as one:
        answer = one.subscribe()
        assert (answer["type"], answer["channels"]) == ("subscribed", ["crosspoll"])
        assert one.until("crosspoll.status")["status"]["enabled"] is True
        card = served.card()
        new = one.until("prediction.new")
        assert (new["prediction"]["id"], new["prediction"]["targetChannel"]) == (card.id, "research")
        served.ask("POST", f"/api/v1/predictions/{card.id}/confirm")
        done = one.until("prediction.executed", 30)
        assert done["predictionId"] == card.id
        assert done["taskId"]
        assert done["result"]["outcome"] == "succeeded"
        assert done["result"]["session"]
        assert done["id"] > new["id"]


def test_status_follows_what_happened(served: Served) -> None:
    with listening(served) as one:
        one.subscribe()
        before = one.until("crosspoll.status")["status"]["pending"]
        served.card()
        while (told := one.until("crosspoll.status"))["status"]["pending"] != before + 1:
            assert told["status"]["pending"] == before


@pytest.mark.parametrize("held", ["PAUSED", "DISABLED"])
def test_paused_and_resumed(served: Served, held: str) -> None:
    with listening(served) as one:
        one.subscribe()
        moves = (("WATCHING", held, "3 rejections in a row"), (held, "WATCHING", "resumed"))
        for before, after, cause in moves:
            fact = StateChanged(before=before, after=after, cause=cause)
            served.engine.database.write(lambda tx, fact=fact: tx.record(fact))
        assert one.until("crosspoll.paused")["reason"] == "3 rejections in a row"
        assert one.until("crosspoll.resumed")["id"]


def test_what_concerns_nobody_is_not_told(served: Served) -> None:
    with listening(served) as one:
        one.subscribe()
        one.until("crosspoll.status")
        served.engine.database.write(lambda tx: tx.record(TaskAdded(subject="task_1", title="secret plans")))
        expire(served)
        heard = one.hear()
        while "prediction.expired" not in [each["type"] for each in heard]:
            heard += one.hear()
        assert {each["type"] for each in heard} <= {"prediction.expired", "crosspoll.status"}
        assert "secret plans" not in str(heard)


def test_it_resumes_where_it_was_and_misses_nothing(served: Served) -> None:
    with listening(served) as one:
        one.subscribe()
        one.until("crosspoll.status")
        last = one.until("prediction.expired")["id"] if expire(served) else 0
    first = last + 1
    newest = expire(served, 30)
    with listening(served) as two:
        assert two.subscribe(after=last)["id"] == last
        assert expire(served, 5) == newest + 5
        seen: list[int] = []
        while len(seen) < 35:
            seen += [one["id"] for one in two.hear() if one["type"] == "prediction.expired"]
        assert seen == list(range(first, newest + 6))


@pytest.mark.long
def test_it_resumes_from_far_back_in_the_ledger(serve: Serve) -> None:
    """From before the gateway began, over many reads of the ledger."""
    other = serve()
    newest = expire(other, 1200, card="pred_old")
    with listening(other) as one:
        one.subscribe(after=0)
        seen: list[int] = []
        while len(seen) < 1200:
            seen += [each["id"] for each in one.hear() if each["type"] == "prediction.expired"]
        assert len(set(seen)) == 1200
        assert seen == sorted(seen)
        assert seen[-1] == newest


def test_who_was_away_too_long_reads_the_state_anew(serve: Serve) -> None:
    from dataclasses import replace

    other = serve(limits=replace(QUICK, resume_events=10))
    with listening(other) as first, listening(other) as one:
        first.subscribe()
        last = expire(other, 40)
        while first.until("prediction.expired")["id"] < last:
            pass
        answer = one.subscribe(after=1)
        assert answer["missed"] is True
        assert answer["id"] >= last
        assert one.hear()[0]["type"] == "crosspoll.status"


async def test_who_is_behind_the_kept_frames_reads_the_ledger(served: Served) -> None:
    calls = Calls(served.engine, max_slow_requests=1)
    pulse = Pulse(calls, Access(served.engine.keys, served.engine.database), QUICK, ClientCounts())
    start = pulse.head = served.engine.ledger.latest(1)[0].id
    first, last = expire(served), expire(served)
    await pulse.read_on()
    assert pulse.head == last
    kept = await pulse.frame_after(start)
    between = await pulse.frame_after(first)
    assert (kept.end, between.end) == (last, last)
    assert f'"id":{first},' in kept.text
    assert f'"id":{last},' in between.text
    assert f'"id":{first},' not in between.text


def test_rpc_on_the_same_socket(served: Served) -> None:
    with listening(served) as one:
        one.say({"jsonrpc": "2.0", "id": 7, "method": "pulse.crosspoll.status"})
        told = json.loads(one.line.recv(timeout=10))
        assert (told["id"], told["result"]["enabled"]) == (7, True)
        one.say({"jsonrpc": "2.0", "id": 8})
        assert json.loads(one.line.recv(timeout=10))["error"]["code"] == -32600


@pytest.mark.parametrize(
    "said",
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
def test_what_is_not_understood_is_answered(served: Served, said: str) -> None:
    with listening(served) as one:
        one.line.send(said)
        assert one.hear()[0]["error"]["code"] == "bad_request"
        assert one.subscribe()["type"] == "subscribed"


def code_of(listener: Listener, seconds: float = 10.0) -> tuple[int, str]:
    """How the connection is ended."""
    end = time.monotonic() + seconds
    with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012 (whatever comes before the end)
        while time.monotonic() < end:
            listener.line.recv(timeout=seconds)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.long
def test_who_does_not_subscribe_is_sent_away(served: Served) -> None:
    with listening(served) as one:
        assert code_of(one) == (1008, "subscribe first")


def test_who_talks_too_much_is_sent_away(served: Served) -> None:
    with listening(served) as one:
        one.subscribe()
        for _ in range(QUICK.message_burst):  # no more: who writes to a closed line may never read why it closed
            one.line.send("{}")
        assert code_of(one) == (1008, "too many messages")


def test_too_large_a_message_ends_it(served: Served) -> None:
    with listening(served) as one:
        one.subscribe()
        one.line.send(" " * (QUICK.body + 1))
        assert code_of(one)[0] == 1009


def test_the_token_as_a_subprotocol(served: Served) -> None:
    subprotocols = ["pulse", f"bearer.{served.token}"]
    with listening(served, additional_headers={}, subprotocols=subprotocols) as one:
        assert one.line.subprotocol == "pulse"
        assert one.subscribe()["type"] == "subscribed"
    with pytest.raises(InvalidStatus), listening(served, additional_headers={}, subprotocols=["bearer.no"]):
        pass


@pytest.mark.long
def test_a_page_that_is_allowed_may_listen(serve: Serve) -> None:
    other = serve()
    other.gateway.close()
    other.engine.settings.set("gateway.origins", ["https://phone.example"])
    other.token = other.gateway.open(port=0) or other.token
    try:
        with listening(other, origin="https://phone.example") as one:
            assert one.subscribe()["type"] == "subscribed"
        reply = other.ask("GET", "/api/v1/health", headers={"Origin": "https://phone.example"})
        assert reply.headers["access-control-allow-origin"] == "https://phone.example"
        asks = {"Origin": "https://phone.example", "Access-Control-Request-Method": "POST", "Authorization": ""}
        preflight = other.ask("OPTIONS", "/api/v1/crosspoll/trigger", headers=asks)
        assert preflight.status_code == 204
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        with pytest.raises(InvalidStatus), listening(other, origin="https://phone.example.evil"):
            pass
    finally:
        other.engine.settings.unset("gateway.origins")


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
    other = serve()
    with listening(other) as quick, silent_client(other):
        quick.subscribe()
        end = time.monotonic() + 20
        while other.gateway.state().dropped == 0:
            last = expire(other, 500)
            began = time.monotonic()
            while not any(message["id"] == last for message in quick.hear()):
                pass
            assert time.monotonic() - began < 5
            assert time.monotonic() < end, "it is still there"
        while other.gateway.state().clients > 1 or connections(other) > 1:
            assert time.monotonic() < end, "its connection is still there"
    assert other.gateway.state().dropped == 1


@pytest.mark.long
def test_pings_of_a_client_that_does_not_read_the_answers_take_no_memory(serve: Serve) -> None:
    other = serve()
    pings = (bytes([0x89, 0x80 | 125]) + b"\0\0\0\0" + b"x" * 125) * 4000
    with silent_client(other) as client:
        server = other.gateway._server
        assert server is not None
        most_kept, end = 0, time.monotonic() + 20
        with contextlib.suppress(OSError):  # cut off
            while time.monotonic() < end:
                client.sendall(pings)
                for connection in list(server.server_state.connections):
                    most_kept = max(most_kept, connection.transport.get_write_buffer_size())
        assert most_kept < 1_000_000
        while connections(other):
            assert time.monotonic() < end, "its connection is still there"


def test_another_token_shows_everybody_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.api.gateway import access, pulse

    monkeypatch.setattr(pulse, "TOKEN_POLL_S", 0.1)
    other = serve()
    with listening(other) as one:
        one.subscribe()
        token, source = access.rotate_token(other.engine.keys, in_file=True)
        assert source == "file"
        assert code_of(one, 30) == (4001, "the token has changed")
    assert other.ask("GET", "/api/v1/health").status_code == 401
    other.token = token
    assert other.ask("GET", "/api/v1/health").status_code == 200


@pytest.mark.long
def test_closing_tells_who_listens(serve: Serve) -> None:
    other = serve()
    with listening(other) as one:
        one.subscribe()
        other.gateway.close()
        assert code_of(one)[0] == 1012
    assert not other.gateway.state().listening
