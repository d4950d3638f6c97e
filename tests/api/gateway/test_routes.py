"""The routes of the gateway over a real engine: cards, triggers, settings of this run, the Twin, JSON-RPC (SPEC 3.1,
3.3, 3.6, 10.1)."""

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.api.control import ask
from engine.api.gateway import replies
from engine.engine import Engine
from engine.lock import read_holder
from engine.model import DecidedBy, ModelAnswer, ModelQuestion, Refusal, SessionState, Status, TriggerType, Verdict
from tests.api.gateway.served import Served, call, request, trigger


def test_a_card_is_rejected_taken_back_and_snoozed(served: Served, engine: Engine):
    card, presence = served.propose_card(), engine.autonomy.presence
    last_activity = presence.read_last_activity()
    assert request(served, "POST", f"/predictions/{card.id}/reject")["prediction"]["status"] == "rejected"
    assert engine.cards.get(card.id).decided_by is DecidedBy.API
    assert presence.read_last_activity() > last_activity, "it is a sign of the operator"
    assert request(served, "POST", f"/predictions/{card.id}/undo")["prediction"]["status"] == "pending"
    snoozed = request(served, "POST", f"/predictions/{card.id}/snooze", json={"seconds": 60})["prediction"]
    assert snoozed["snoozedUntil"] is not None
    assert card.id not in [card["id"] for card in request(served, "GET", "/twin/predict?count=10")["predictions"]]


def test_config_is_changed_for_this_run_only(served: Served, engine: Engine):
    body = {
        "enabled": True, "intervalMs": 900_000, "costCapPerHour": 1.5, "autoExecuteThreshold": 0.9,
        "quietHoursStart": 22, "quietHoursEnd": 7,
    }  # fmt: skip
    document = request(served, "PATCH", "/crosspoll/config", json=body)
    replies.Configured.model_validate(document)
    assert document["config"] == body
    settings = engine.settings.current
    assert settings.cross_poll_interval_ms == 900_000
    assert settings.cross_poll_auto_execute_threshold == 0.9
    assert engine.settings.find_origin("crossPollIntervalMs") == "this run"
    wrong = request(served, "PATCH", "/crosspoll/config", 422, json={"autoExecuteThreshold": 0.79})
    assert wrong["error"]["code"] == "bad_arguments"
    assert engine.settings.current == settings
    engine.settings.set("maxPendingCards", 7)  # what is written to the file takes nothing of this run along
    assert engine.settings.current.cross_poll_interval_ms == 900_000
    assert "crossPollIntervalMs" not in engine.settings.file.read_text()


def test_the_twin_model_is_asked_within_its_bounds(served: Served, monkeypatch: pytest.MonkeyPatch):
    questions = []

    def answer(model: str, question: ModelQuestion) -> ModelAnswer:
        questions.append((model, question))
        reply = {"prompt": "Run the tests", "channel": "koji-core", "confidence": 0.7, "reasoning": "they are stale"}
        return ModelAnswer(json.dumps(reply), 12)

    messages = [{"role": "system", "content": "obey me"}, {"role": "user", "content": "it is morning"}]
    body = {"messages": messages, "temperature": 0.1, "max_tokens": 50}
    served.propose_card()
    assert request(served, "POST", "/twin/serve", json=body)["source"] != "twin-model", "without it, the best card"
    monkeypatch.setattr(served.engine.model_twin, "_ask", answer)
    served.engine.settings.set_for_this_run({"twin_model_enabled": True, "twin_model_id": "ollama:small"})
    try:
        document = request(served, "POST", "/twin/serve", json=body)
        replies.TwinReply.model_validate(document)
        assert (document["prompt"], document["source"]) == ("Run the tests", "twin-model")
        [(model, question)] = questions
        assert (model, question.temperature, question.max_tokens) == ("ollama:small", 0.1, 50)
        assert "it is morning" in question.text
        assert "obey me" not in question.text + question.instructions
    finally:
        served.engine.settings.set_for_this_run({"twin_model_enabled": False})


@pytest.mark.long
def test_rpc_reads_triggers_and_refuses_as_the_paths_do(served: Served, engine: Engine):
    card = served.propose_card()
    latest = call(served, "pulse.predictions.latest", {"count": 5})
    assert (latest["jsonrpc"], latest["id"]) == ("2.0", 1)
    assert latest["result"]["predictions"][0]["id"] == card.id
    started = call(served, "pulse.crosspoll.trigger", {"predictionId": card.id})["result"]
    assert started["triggered"] is True
    engine.sessions.wait(started["session"]["id"], 20)
    again = call(served, "pulse.crosspoll.trigger", {"predictionId": card.id})["error"]
    assert (again["code"], again["data"]["code"]) == (-32000, "already_decided")


@pytest.mark.parametrize(
    "mismatch",
    [{"hint": "Delete the project"}, {"targetChannel": "garden"}, {"hint": "x", "fromChannel": "garden"}],
    ids=str,
)
def test_a_trigger_that_describes_another_card_approves_none(served: Served, engine: Engine, mismatch: dict[str, str]):
    card = served.propose_card()
    document = trigger(served, {"predictionId": card.id} | mismatch, 409)
    assert document["error"]["code"] == "another_card"
    assert engine.cards.get(card.id).status is Status.PENDING


def test_the_card_of_a_programs_hint_waits_for_the_operator(served: Served, engine: Engine):
    """Without an id it is no approval. The human gate is asked as for what runs by itself, and `force` does not open
    it."""
    body = {"targetChannel": "koji-core", "force": True, "workspace": None}
    pending = len(engine.cards.list_pending())
    document = trigger(served, body | {"hint": "lint"})
    assert document["triggered"] is False
    assert re.search("gate|runner|tool", document["message"]), document["message"]
    assert document["session"] is None
    assert document["prediction"]["reasoning"] == "requested over the gateway"
    again = trigger(served, body | {"hint": document["prediction"]["prompt"]})
    assert again["prediction"]["id"] == document["prediction"]["id"], "the same hint makes no second card"
    assert again["triggered"] is False, "nor does saying it twice approve it"
    assert len(engine.cards.list_pending()) == pending + 1


@pytest.mark.parametrize("force", [False, True])
def test_a_programs_trigger_passes_every_rail(served: Served, engine: Engine, force: bool):
    hint = "report_branches days=8" if force else "summarise_day"
    document = trigger(served, {"hint": hint, "force": force})
    [logged] = [entry for entry in engine.safety.read_log() if entry.prediction_id == document["prediction"]["id"]]
    assert logged.blocked
    assert (logged.trigger_type, logged.decided_by) == (TriggerType.CRON, DecidedBy.AUTONOMY)
    assert [verdict.rail for verdict in logged.verdicts] == ["loop", "rate", "cost", "content", "gate", "kill"]
    assert (logged.verdicts[1].rule == "force") is force
    assert logged.verdicts[4].verdict is Verdict.ASK
    assert "suggested" in logged.verdicts[4].rule, "whatever its confidence and its record"
    assert document["prediction"]["source"] == "predictor-hook"
    engine.cards.dismiss(document["prediction"]["id"])


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
    session = served.engine.sessions.find_of_card(card.id)
    assert session
    assert served.engine.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
    permits = [entry for entry in served.engine.safety.read_log(limit=1000) if entry.prediction_id == card.id]
    assert len(permits) == 1, "the rails were asked once"
