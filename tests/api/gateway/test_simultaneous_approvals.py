"""The same card approved in every way at once runs once, and all others are refused (SPEC 2.7, 3.1)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.api.control import ask
from engine.lock import read_holder
from engine.model import Refusal, SessionState
from tests.api.gateway.served import Served

ATTEMPTS = 100

Approve = Callable[[], str]
"""Approves the card: "" when that went through, else the code of the refusal."""


def make_ways_to_approve(served: Served, card_id: str, client: httpx.Client) -> list[Approve]:
    holder = read_holder(served.engine.home)

    def approve_by_path() -> str:
        reply = client.post(f"/api/v1/predictions/{card_id}/confirm")
        assert reply.status_code in (200, 409), reply.text
        return "" if reply.status_code == 200 else str(reply.json()["error"]["code"])

    def approve_by_rpc() -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": "pulse.crosspoll.trigger", "params": {"predictionId": card_id}}
        reply = client.post("/api/v1/rpc", json=body).json()
        if "error" in reply:
            return str(reply["error"]["data"]["code"])
        assert reply["result"]["triggered"] is True
        return ""

    def approve_by_service() -> str:
        try:
            served.engine.cards.approve(card_id)
        except Refusal as refusal:
            return refusal.code
        return ""

    def approve_by_socket() -> str:
        try:
            ask(holder.address, "approve", {"id": card_id})
        except Refusal as refusal:
            return refusal.code
        return ""

    return [approve_by_path, approve_by_rpc, approve_by_service, approve_by_socket]


@pytest.mark.long
@pytest.mark.parametrize("first", range(4), ids=["path", "rpc", "console", "socket"])
def test_a_card_that_is_approved_a_hundred_times_at_once_runs_once(served: Served, first: int):
    card = served.propose_card()
    start = threading.Barrier(ATTEMPTS)
    with httpx.Client(base_url=served.url, headers=served.headers, timeout=60, trust_env=False) as client:
        ways = make_ways_to_approve(served, card.id, client)

        def attempt(number: int) -> str:
            start.wait()
            return ways[(number + first) % len(ways)]()

        with ThreadPoolExecutor(ATTEMPTS) as pool:
            outcomes = list(pool.map(attempt, range(ATTEMPTS)))
    assert outcomes.count("") == 1
    assert set(outcomes) - {""} == {"already_decided"}
    sessions = [session for session in served.engine.sessions.list(limit=1000) if session.prediction_id == card.id]
    assert len(sessions) == 1
    assert served.engine.sessions.wait(sessions[0].id, 30).state is SessionState.SUCCEEDED
    permits = [entry for entry in served.engine.safety.log(limit=1000) if entry.prediction_id == card.id]
    assert len(permits) == 1, "the rails were asked once"
