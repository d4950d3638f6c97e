"""The WebSocket `/pulse`: which events a client gets, how it resumes, and what it may send (SPEC 10.1)."""

import json
import re
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus

from engine.events import StateChanged, TaskAdded
from tests.api.gateway.pulse_listener import expire, listening
from tests.api.gateway.served import SMALL, Serve, Served


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


def test_the_number_of_pending_cards_is_sent_when_it_changes(served: Served):
    with listening(served) as listener:
        listener.subscribe()
        before = listener.receive_until("crosspoll.status")["status"]["pending"]
        served.propose_card()
        while (message := listener.receive_until("crosspoll.status"))["status"]["pending"] != before + 1:
            assert message["status"]["pending"] == before


@pytest.mark.parametrize("stopped", ["PAUSED", "DISABLED"])
def test_pause_and_resume_are_sent(served: Served, stopped: str):
    paused = StateChanged(before="WATCHING", after=stopped, cause="3 dismissals in a row")
    resumed = StateChanged(before=stopped, after="WATCHING", cause="resumed")
    with listening(served) as listener:
        listener.subscribe()
        for event in (paused, resumed):
            served.engine.database.write(lambda tx, event=event: tx.record(event))
        assert listener.receive_until("crosspoll.paused")["reason"] == "3 dismissals in a row"
        assert listener.receive_until("crosspoll.resumed")["id"]


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


@pytest.mark.long
def test_a_client_resumes_from_before_the_gateway_opened(serve: Serve):
    """The gateway reads the ledger many times for it."""
    served = serve()
    newest = expire(served, 1200)
    with listening(served) as listener:
        listener.subscribe(after=0)
        assert listener.receive_expired_ids(1200) == list(range(newest - 1199, newest + 1))


def test_a_client_that_was_away_too_long_is_told_to_read_the_state_again(serve: Serve):
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


def test_calls_of_json_rpc_are_answered_on_the_same_socket(served: Served):
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


@pytest.mark.long
def test_an_allowed_page_may_listen(serve: Serve):
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
