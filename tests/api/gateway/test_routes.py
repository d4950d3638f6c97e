"""The routes, with a real engine behind them (SPEC 10.1)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic.fields import FieldInfo

from engine.api.control import ask
from engine.api.gateway import replies
from engine.api.gateway.access import Access, ClientCounts, Limits, listen_address
from engine.api.gateway.routes import build_server
from engine.api.operations import dispatch
from engine.engine import Engine
from engine.execution.runners.flows import FLOWS
from engine.lock import read_holder
from engine.model import (
    Answer,
    DecidedBy,
    Question,
    Refusal,
    SessionState,
    Status,
    TriggerType,
    Verdict,
)
from tests.api.gateway.conftest import Serve, Served
from tests.support.helpers import refused


@pytest.fixture(scope="module")
def engine(served: Served) -> Engine:
    return served.engine


def request(served: Served, method: str, path: str, status: int = 200, **options: Any) -> dict[str, Any]:
    """The document of a reply that must have this status."""
    reply = served.ask(method, f"/api/v1{path}", **options)
    assert reply.status_code == status, reply.text
    assert reply.headers["cache-control"] == "no-store"
    document: dict[str, Any] = reply.json()
    return document


def trigger(served: Served, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    """The document of a reply to a trigger, which must have this status."""
    return request(served, "POST", "/crosspoll/trigger", status, json=body)


def call(served: Served, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a reply to a call over JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})
    return request(served, "POST", "/rpc", json=body)


def test_the_newest_pending_predictions_are_listed(served: Served) -> None:
    cards = [served.propose_card() for _ in range(4)]
    document = request(served, "GET", "/twin/predict")
    replies.Predictions.model_validate(document)
    assert document["count"] == len(document["predictions"]) == 3
    assert document["predictions"][0]["id"] == cards[-1].id
    assert request(served, "GET", "/twin/predict?count=10")["count"] >= 4
    assert request(served, "GET", "/twin/predict?channel=garden")["predictions"] == []


@pytest.mark.parametrize(("count", "status"), [(1_000, 200), (1_001, 422)])
def test_every_card_that_can_wait_is_listed(served: Served, count: int, status: int) -> None:
    request(served, "GET", f"/twin/predict?count={count}", status)
    assert ("error" in call(served, "pulse.predictions.latest", {"count": count})) is (status == 422)


def test_a_card_is_rejected_taken_back_and_snoozed(served: Served, engine: Engine) -> None:
    card = served.propose_card()
    assert request(served, "POST", f"/predictions/{card.id}/reject")["prediction"]["status"] == "rejected"
    assert engine.cards.get(card.id).decided_by is DecidedBy.API
    assert "gateway" in engine.autonomy.presence.last()[1], "it is a sign of the operator"
    assert request(served, "POST", f"/predictions/{card.id}/undo")["prediction"]["status"] == "pending"
    snoozed = request(served, "POST", f"/predictions/{card.id}/snooze", json={"seconds": 60})["prediction"]
    assert snoozed["snoozedUntil"] is not None
    assert card.id not in [card["id"] for card in request(served, "GET", "/twin/predict?count=10")["predictions"]]
    snoozed_longer = request(served, "POST", f"/predictions/{card.id}/snooze")["prediction"]
    assert snoozed_longer["snoozedUntil"] > snoozed["snoozedUntil"]


def test_the_beginning_of_an_id_is_not_enough(served: Served) -> None:
    card = served.propose_card()
    assert request(served, "POST", f"/predictions/{card.id[:-1]}/confirm", 404)["error"]["code"] == "unknown_card"


def test_a_trigger_approves_the_card_that_it_describes_and_no_other(served: Served, engine: Engine) -> None:
    card = served.propose_card()
    for mismatch in ({"hint": "Delete the project"}, {"targetChannel": "garden"}):
        document = trigger(served, {"predictionId": card.id} | mismatch, 409)
        assert document["error"]["code"] == "another_card"
    assert engine.cards.get(card.id).status is Status.PENDING
    described = {"predictionId": card.id, "targetChannel": "research", "hint": card.assignment.prompt, "force": False}
    document = trigger(served, described)
    replies.Triggered.model_validate(document)
    assert document["triggered"] is True
    engine.sessions.wait(document["session"]["id"], 20)


def test_the_card_of_a_programs_hint_waits_for_the_operator(served: Served, engine: Engine) -> None:
    """Without an id it is no approval. The human gate is asked as for what runs by itself, and `force` does not open
    it."""
    body = {"targetChannel": "koji-core", "force": True, "workspace": None}
    pending = len(engine.cards.pending())
    document = trigger(served, body | {"hint": "lint"})
    assert document["triggered"] is False
    assert re.search("gate|runner|tool", document["message"]), document["message"]
    assert document["session"] is None
    assert document["prediction"]["reasoning"] == "requested over the gateway"
    again = trigger(served, body | {"hint": document["prediction"]["prompt"]})
    assert again["prediction"]["id"] == document["prediction"]["id"], "the same hint makes no second card"
    assert again["triggered"] is False, "nor does saying it twice approve it"
    assert len(engine.cards.pending()) == pending + 1


def test_an_agent_that_names_its_channel_asks_and_does_not_approve(served: Served, engine: Engine) -> None:
    card = served.propose_card("report_branches days=9")
    body = {"predictionId": card.id, "fromChannel": "garden"}
    assert trigger(served, body)["triggered"] is False
    [logged] = [entry for entry in engine.safety.log() if entry.prediction_id == card.id]
    assert (logged.from_channel, logged.decided_by) == ("garden", DecidedBy.AUTONOMY)
    unknown = trigger(served, body | {"fromChannel": "nowhere"}, 404)
    assert unknown["error"]["code"] == "unknown_channel"
    engine.cards.dismiss(card.id)


@pytest.mark.parametrize("force", [False, True])
def test_a_programs_trigger_passes_every_rail(served: Served, engine: Engine, force: bool) -> None:
    hint = "report_branches days=8" if force else "summarise_day"
    document = trigger(served, {"hint": hint, "force": force})
    [logged] = [entry for entry in engine.safety.log() if entry.prediction_id == document["prediction"]["id"]]
    assert logged.blocked
    assert (logged.trigger_type, logged.decided_by) == (TriggerType.CRON, DecidedBy.AUTONOMY)
    assert [verdict.rail for verdict in logged.verdicts] == ["loop", "rate", "cost", "content", "gate", "kill"]
    assert (logged.verdicts[1].rule == "force") is force
    assert logged.verdicts[4].verdict is Verdict.ASK
    assert "suggested" in logged.verdicts[4].rule, "whatever its confidence and its record"
    assert document["prediction"]["source"] == "predictor-hook"
    engine.cards.dismiss(document["prediction"]["id"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"targetChannel": "nowhere", "hint": "x"}, 404, "unknown_channel"),
        ({"hint": "x", "workspace": "/etc"}, 404, "unknown_workspace"),
        ({"hint": "\u0007"}, 409, "empty_prompt"),
        ({"hint": 7}, 422, "bad_arguments"),
        ({"Hint": "x"}, 422, "bad_arguments"),
    ],
)
def test_wrong_triggers_are_refused(served: Served, body: dict[str, Any], status: int, code: str) -> None:
    assert trigger(served, body, status)["error"]["code"] == code


NEED_PARAMETERS = [name for name, flow in FLOWS.items() if any(map(FieldInfo.is_required, flow.model_fields.values()))]
NEED_PARAMETERS.remove("summarise_day")  # its name alone means today


@pytest.mark.parametrize(
    "prompt",
    [
        *NEED_PARAMETERS, "Bisect.", 'bisect {"good": "v1"}', "bisect good=v1 speed=9", "report_branches days=soon",
        "prepare_environment command=nonsense",
    ],
)  # fmt: skip
def test_a_flow_whose_parameters_are_wrong_or_missing_leaves_no_card(
    served: Served, engine: Engine, prompt: str
) -> None:
    pending, workspace = engine.cards.pending(include_snoozed=True), engine.workspaces[0]
    flow = re.split("[ .]", prompt.lower())[0]
    text = {"text": prompt, "workspace": workspace}
    for refusal in (
        refused("bad_parameters", lambda: dispatch(engine, "propose", text)),
        refused("bad_parameters", lambda: dispatch(engine, "suggest", text | {"by": "claude"})),  # the tool of MCP
    ):
        assert all(f"{parameter}=…" in refusal.fix for parameter in FLOWS[flow].model_fields)
    over_http = trigger(served, {"hint": prompt}, 409)
    assert over_http["error"]["code"] == "bad_parameters"
    over_rpc = call(served, "pulse.crosspoll.trigger", {"hint": prompt})
    assert over_rpc["error"]["data"]["code"] == "bad_parameters"
    assert engine.cards.pending(include_snoozed=True) == pending


def test_config_is_changed_for_this_run_only(served: Served, engine: Engine) -> None:
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
    assert engine.settings.origin("crossPollIntervalMs") == "this run"
    assert not engine.settings.file.exists() or "900" not in engine.settings.file.read_text()
    engine.settings.set("maxPendingCards", 7)  # what is written to the file takes nothing of this run along
    assert engine.settings.current.cross_poll_interval_ms == 900_000
    assert "crossPollIntervalMs" not in engine.settings.file.read_text()


@pytest.mark.parametrize(
    "body",
    [
        {"autoExecuteThreshold": 0.79},
        {"intervalMs": 999},
        {"quietHoursStart": 24},
        {"costCapPerHour": -1},
        {"enabled": "no"},
        {"costCapPerDay": 5},
    ],
)
def test_config_out_of_bounds_changes_nothing(served: Served, engine: Engine, body: dict[str, Any]) -> None:
    before = engine.settings.current
    assert request(served, "PATCH", "/crosspoll/config", 422, json=body)["error"]["code"] == "bad_arguments"
    assert engine.settings.current == before


@pytest.mark.long
def test_switched_off_for_this_run_nothing_runs(serve: Serve) -> None:
    served = serve()
    card = served.propose_card()
    assert request(served, "PATCH", "/crosspoll/config", json={"enabled": False})["crossPollStatus"]["enabled"] is False
    blocked = request(served, "POST", f"/predictions/{card.id}/confirm", 409)["error"]
    assert (blocked["code"], "kill" in blocked["message"]) == ("blocked", True)
    document = trigger(served, {"predictionId": card.id})
    assert (document["triggered"], "kill" in document["message"]) == (False, True)
    assert request(served, "PATCH", "/crosspoll/config", json={"enabled": True})["crossPollStatus"]["enabled"] is True
    assert trigger(served, {"predictionId": card.id})["triggered"] is True


def test_the_twin_falls_back_to_the_best_card(serve: Serve) -> None:
    served = serve()
    body = {"messages": [{"role": "user", "content": "morning"}], "temperature": 0.3, "max_tokens": 200}
    assert request(served, "POST", "/twin/serve", 409, json=body)["error"]["code"] == "nothing_to_predict"
    card = served.propose_card()
    document = request(served, "POST", "/twin/serve", json=body)
    replies.TwinReply.model_validate(document)
    assert (document["prompt"], document["channel"]) == (card.assignment.prompt, "research")
    other = request(served, "POST", "/twin/serve", 409, json=body | {"model": "gpt-9"})
    assert other["error"]["code"] == "another_model"


def test_the_twin_model_is_asked_within_its_bounds(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[tuple[str, Question]] = []

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
        assert document["model"] == "ollama:small"
        [(model, question)] = questions
        assert (model, question.temperature, question.max_tokens) == ("ollama:small", 0.1, 50)
        assert "it is morning" in question.text
        assert "obey me" not in question.text + question.instructions
    finally:
        served.engine.settings.set_for_this_run({"twin_model_enabled": False})


@pytest.mark.long
def test_rpc_reads_triggers_and_refuses_as_the_paths_do(served: Served, engine: Engine) -> None:
    card = served.propose_card()
    latest = call(served, "pulse.predictions.latest", {"count": 5})
    assert (latest["jsonrpc"], latest["id"]) == ("2.0", 1)
    assert latest["result"]["predictions"][0]["id"] == card.id
    assert call(served, "pulse.crosspoll.status")["result"]["enabled"] is True
    started = call(served, "pulse.crosspoll.trigger", {"predictionId": card.id})["result"]
    assert started["triggered"] is True
    engine.sessions.wait(started["session"]["id"], 20)
    again = call(served, "pulse.crosspoll.trigger", {"predictionId": card.id})["error"]
    assert (again["code"], again["data"]["code"]) == (-32000, "already_decided")
    hinted = call(served, "pulse.crosspoll.trigger", {"channel": "research", "hint": "Compare two caches"})["result"]
    assert (hinted["triggered"], hinted["targetChannel"]) == (False, "research")


def test_a_body_that_is_not_declared_as_json_is_named(served: Served) -> None:
    """`curl -d` alone says that it sends a form. The error names this, and finds no fault with the body."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    wrong = request(served, "PATCH", "/crosspoll/config", 422, content=b'{"enabled": true}', headers=form)["error"]
    assert wrong["message"] == "the body is not declared as JSON"
    assert "Content-Type: application/json" in wrong["fix"]
    called = request(served, "POST", "/rpc", 400, content=b'{"jsonrpc": "2.0"}', headers=form)["error"]
    assert "not declared as JSON; send the header Content-Type" in called["message"]
    several = request(served, "POST", "/rpc", 400, json=[{"jsonrpc": "2.0"}])["error"]
    assert several["message"].startswith("it must be one JSON object")


def test_pulse_without_a_websocket_says_so(served: Served) -> None:
    reply = served.ask("GET", "/pulse")
    assert (reply.status_code, reply.headers["upgrade"]) == (426, "websocket")
    assert reply.json()["error"]["message"] == "only a WebSocket client can read this path"


def test_an_argument_that_does_not_exist_is_named(served: Served) -> None:
    path = f"/predictions/{served.propose_card().id}/confirm"
    assert (
        request(served, "POST", path, 422, json={"wait": True})["error"]["message"] == "wait: there is no such argument"
    )


def test_no_telemetry_is_sent(served: Served, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    address = replace(listen_address(engine.settings.current.gateway), port=0)
    server = build_server(engine, Access(engine.keys, engine.database), address, Limits(), ClientCounts())
    server._listening.close()
    app: Any = server.guard._app
    assert not app._native_telemetry.enabled()
    assert app._telemetry["auto_configure"] is False


def test_the_document_has_every_path_an_example_and_every_reply(served: Served) -> None:
    document = request(served, "GET", "/openapi.json")
    assert set(document["paths"]) == {
        "/api/v1/health", "/api/v1/twin/predict", "/api/v1/twin/serve", "/api/v1/crosspoll/trigger",
        "/api/v1/predictions/{id}/confirm", "/api/v1/predictions/{id}/reject", "/api/v1/predictions/{id}/snooze",
        "/api/v1/predictions/{id}/undo", "/api/v1/crosspoll/metrics", "/api/v1/crosspoll/config", "/api/v1/tasks",
        "/api/v1/rpc",
    }  # fmt: skip
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert {"200", "400", "401", "403", "413", "421", "422", "429", "503"} <= set(operation["responses"]), where
            assert operation["security"], where
            for status, reply in operation["responses"].items():
                if status != "200":
                    assert reply["content"]["application/json"]["example"]["error"]["code"], where
    for path in ("crosspoll/trigger", "crosspoll/config", "twin/serve", "rpc"):
        [body] = document["paths"][f"/api/v1/{path}"].values()
        assert body["requestBody"]["content"]["application/json"]["schema"]["examples"], path
    schemas = document["components"]["schemas"]
    [count, *_] = document["paths"]["/api/v1/twin/predict"]["get"]["parameters"]
    assert count["schema"] == {"type": "integer", "default": 3, "minimum": 1, "maximum": 1000, "title": "Count"}
    assert schemas["Prediction"]["example"]["targetChannel"] == "koji-core"
    assert set(schemas["RpcReply"]["properties"]) == {"jsonrpc", "id", "result", "error"}
    for page in ("/docs", "/redoc", "/openapi.json"):
        assert served.ask("GET", page).status_code == 404


# The same card approved by every way at once: it runs once, and all others are refused (SPEC 2.7, 3.1).


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
def test_a_card_that_is_approved_a_hundred_times_at_once_runs_once(served: Served, first: int) -> None:
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


# Ten thousand requests: `pytest -m faults -s tests/faults/test_gateway_requests.py`.


@pytest.mark.long
def test_every_reply_is_as_documented(serve: Serve) -> None:
    from tests.api.gateway.fuzz import UNHURRIED, fuzz  # Schemathesis takes a second to import

    counts = fuzz(serve(limits=UNHURRIED), 60)
    assert sum(counts.values()) >= 50
    statuses = {key.rpartition(" ")[2] for key in counts}
    assert "200" in statuses
    assert statuses & {"400", "422"}, "bad requests were among them"
