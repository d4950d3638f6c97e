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

Approve = Callable[[], object]
"""Approves the card, or is refused."""


def make_ways_to_approve(served: Served, card_id: str, client: httpx.Client) -> list[Approve]:
    """Over HTTP, as the console does it, and over the control socket as verbs do it."""
    holder = read_holder(served.engine.home)

    def approve_by_path():
        reply = client.post(f"/api/v1/predictions/{card_id}/confirm")
        if reply.status_code == 409:
            raise Refusal(reply.json()["error"]["code"], "over HTTP")
        assert reply.status_code == 200, reply.text

    return [
        approve_by_path,
        lambda: served.engine.cards.approve(card_id),
        lambda: ask(holder.address, "approve", {"id": card_id}),
    ]


@pytest.mark.long
def test_a_card_that_is_approved_a_hundred_times_at_once_runs_once(served: Served):
    card = served.propose_card()
    start = threading.Barrier(ATTEMPTS)
    with httpx.Client(base_url=served.url, headers=served.headers, timeout=60, trust_env=False) as client:
        ways = make_ways_to_approve(served, card.id, client)

        def attempt(number: int) -> str:
            start.wait()
            try:
                ways[number % len(ways)]()
            except Refusal as refusal:
                return refusal.code
            return ""

        with ThreadPoolExecutor(ATTEMPTS) as pool:
            outcomes = list(pool.map(attempt, range(ATTEMPTS)))
    assert outcomes.count("") == 1
    assert set(outcomes) - {""} == {"already_decided"}
    [session] = [session for session in served.engine.sessions.list(limit=1000) if session.prediction_id == card.id]
    assert served.engine.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
    permits = [entry for entry in served.engine.safety.log(limit=1000) if entry.prediction_id == card.id]
    assert len(permits) == 1, "the rails were asked once"
