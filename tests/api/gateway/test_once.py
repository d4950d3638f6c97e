"""The same card approved from every door at once: it runs once, and everybody else is told so (SPEC 2.7, 3.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.api.control import ask
from engine.lock import read_holder
from engine.model import Refusal, SessionState
from tests.api.gateway.conftest import Serve, Served

TIMES = 100

Try = Callable[[], str]
"""Approves the card: "" when that went through, else the code of the refusal."""


def doors(served: Served, card_id: str, client: httpx.Client) -> list[Try]:
    """Four ways in."""
    address = (holder := read_holder(served.engine.home)) and holder.address
    assert address

    def by_path() -> str:
        reply = client.post(f"/api/v1/predictions/{card_id}/confirm")
        assert reply.status_code in (200, 409), reply.text
        return "" if reply.status_code == 200 else str(reply.json()["error"]["code"])

    def by_rpc() -> str:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "pulse.crosspoll.trigger", "params": {"predictionId": card_id}}
        told = client.post("/api/v1/rpc", json=asked).json()
        if "error" in told:
            return str(told["error"]["data"]["code"])
        assert told["result"]["triggered"] is True
        return ""

    def by_port() -> str:
        try:
            served.engine.cards.approve(card_id)
        except Refusal as refusal:
            return refusal.code
        return ""

    def by_socket() -> str:
        try:
            ask(address, "approve", {"id": card_id})
        except Refusal as refusal:
            return refusal.code
        return ""

    return [by_path, by_rpc, by_port, by_socket]


@pytest.mark.long
@pytest.mark.parametrize("first", range(4), ids=["path", "rpc", "console", "socket"])
def test_a_hundred_at_once_run_it_once(serve: Serve, served: Served, first: int) -> None:
    card = served.card()
    began = threading.Barrier(TIMES)
    with httpx.Client(base_url=served.url, headers=served.headers, timeout=60, trust_env=False) as client:
        ways = doors(served, card.id, client)

        def attempt(number: int) -> str:
            began.wait()
            return ways[(number + first) % len(ways)]()

        with ThreadPoolExecutor(TIMES) as crowd:
            told = list(crowd.map(attempt, range(TIMES)))
    assert told.count("") == 1
    assert set(told) - {""} == {"already_decided"}
    assert len(told) - told.count("") == TIMES - 1
    sessions = [one for one in served.engine.sessions.list(limit=1000) if one.prediction_id == card.id]
    assert len(sessions) == 1
    assert served.engine.sessions.wait(sessions[0].id, 30).state is SessionState.SUCCEEDED
    permits = [one for one in served.engine.safety.log(limit=1000) if one.prediction_id == card.id]
    assert len(permits) == 1, "the rails were asked once"
