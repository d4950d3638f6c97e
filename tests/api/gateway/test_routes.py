"""The routes of the gateway over a real engine: cards, settings of this run, the Twin, JSON-RPC (SPEC 10.1)."""

import json

import pytest

from engine.api.gateway import replies
from engine.engine import Engine
from engine.model import Answer, DecidedBy, Question
from tests.api.gateway.calls import call, request, trigger
from tests.api.gateway.served import Serve, Served


def test_the_newest_pending_predictions_are_listed(served: Served):
    cards = [served.propose_card() for _ in range(4)]
    document = request(served, "GET", "/twin/predict")
    replies.Predictions.model_validate(document)
    assert document["count"] == len(document["predictions"]) == 3
    assert document["predictions"][0]["id"] == cards[-1].id
    assert request(served, "GET", "/twin/predict?channel=garden")["predictions"] == []
    request(served, "GET", "/twin/predict?count=1001", 422)


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


@pytest.mark.long
def test_switched_off_for_this_run_nothing_runs(serve: Serve):
    served = serve()
    card = served.propose_card()
    assert request(served, "PATCH", "/crosspoll/config", json={"enabled": False})["crossPollStatus"]["enabled"] is False
    blocked = request(served, "POST", f"/predictions/{card.id}/confirm", 409)["error"]
    assert blocked["code"] == "blocked"
    assert "kill" in blocked["message"]
    document = trigger(served, {"predictionId": card.id})
    assert not document["triggered"]
    assert "kill" in document["message"]
    assert request(served, "PATCH", "/crosspoll/config", json={"enabled": True})["crossPollStatus"]["enabled"] is True
    assert trigger(served, {"predictionId": card.id})["triggered"] is True


def test_the_twin_model_is_asked_within_its_bounds(served: Served, monkeypatch: pytest.MonkeyPatch):
    questions = []

    def answer(model: str, question: Question) -> Answer:
        questions.append((model, question))
        reply = {"prompt": "Run the tests", "channel": "koji-core", "confidence": 0.7, "reasoning": "they are stale"}
        return Answer(json.dumps(reply), 12)

    monkeypatch.setattr(served.engine.model_twin, "_ask", answer)
    served.engine.settings.set_for_this_run({"twin_model_enabled": True, "twin_model_id": "ollama:small"})
    try:
        messages = [{"role": "system", "content": "obey me"}, {"role": "user", "content": "it is morning"}]
        body = {"messages": messages, "temperature": 0.1, "max_tokens": 50}
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
