"""Other programs that read and decide cards, and what is learnt of your decisions (sections 10 and 8 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from engine.model import Refusal
from tests.seeds.operator_world import OperatorWorld
from tests.support.model_server import Reply
from tests.support.repository import add_conflicting_branches
from tests.support.training_server import TrainingServer

pytestmark = pytest.mark.long


def test_gateway(world: OperatorWorld):
    """10.1: Other programs read cards, decide and trigger over HTTP and JSON-RPC, with a token, and hear of it live."""
    ask = world.serve()
    url = world.engine.gateway.state().url
    assert httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 401
    assert ask("GET", "/api/v1/health")["crossPollStatus"]["enabled"] is True
    with connect(url.replace("http", "ws") + "/pulse", additional_headers=world.bearer, proxy=None) as pulse:
        pulse.send(json.dumps({"type": "subscribe", "channels": ["crosspoll"]}))
        card = world.propose_card("report_branches")
        types = []
        while "prediction.new" not in types:
            message = json.loads(pulse.recv(timeout=10))
            types += [event["type"] for event in message.get("events", [message])]
    predictions = ask("GET", "/api/v1/twin/predict", count=1)
    assert (predictions["count"], predictions["predictions"][0]["id"]) == (1, card["id"])
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "pulse.predictions.latest", "params": {"count": 1}}
    assert ask("POST", "/api/v1/rpc", **rpc)["result"]["predictions"][0]["id"] == card["id"]
    assert ask("POST", f"/api/v1/predictions/{card['id']}/reject")["prediction"]["status"] == "rejected"
    assert ask("PATCH", "/api/v1/crosspoll/config", costCapPerHour=1.5)["config"]["costCapPerHour"] == 1.5


def test_feedback_signals(world: OperatorWorld):
    """8.1: Each thing that you do with a card is a signal of its own weight; a snooze is none."""
    add_conflicting_branches(world.repository)
    (card, *_) = world.predict(shown=True)
    world.carry_out("snooze", id=card["id"], seconds=60)
    assert world.carry_out("status")["decisions"] == []
    world.carry_out("dismiss", id=card["id"])
    world.run_flow("report_branches")
    world.work("Write a greeting into hello.txt", "Done.", edit="Write a farewell into bye.txt")
    rows = world.read_rows("SELECT signal, chosen, weight FROM decisions ORDER BY id")
    assert sorted((row["signal"], bool(row["chosen"]), row["weight"]) for row in rows) == [
        ("approved", True, 1.0), ("approved", True, 1.0), ("dismissed", False, 1.0), ("original", False, 1.0),
    ]  # fmt: skip


def test_preference_pairs(world: OperatorWorld):
    """8.2, 8.3: An approval and a rejection shortly before make a training pair with the situation it was made in."""
    add_conflicting_branches(world.repository)
    (card, *_) = world.predict()
    world.carry_out("dismiss", id=card["id"])
    world.advance(minutes=59)
    world.work("Write a greeting into hello.txt", "Done.")
    (pair,) = world.read_rows("SELECT * FROM dpo_pairs")
    assert pair["chosen"] == "Write a greeting into hello.txt → koji-core"
    assert pair["rejected"] == f"{card['prompt']} → {card['targetChannel']}"
    with pytest.raises(Refusal, match="50"):
        world.carry_out("export", what="dpo")
    world.record_decision_pairs(49)
    exported = Path(world.carry_out("export", what="dpo")["file"]).read_text().splitlines()
    assert len(exported) == 50
    assert all(json.loads(line)["prompt"].strip() for line in exported), "without its situation a pair teaches nothing"
    assert set(json.loads(exported[0])["metadata"]) == {"timestamp", "confidence_chosen", "confidence_rejected"}


def test_twin_training(closed_world: OperatorWorld, monkeypatch: pytest.MonkeyPatch):
    """8.3, 8.4: From 50 pairs on a model is trained on them, and takes the old one's place without a restart."""
    monkeypatch.setenv("CLAWPY_SCHOOL_API_KEY", "sk-school-0123456789abcdefghij")
    with TrainingServer() as training:
        closed_world.configure(twinModelEnabled=True, twinModelId="openai:twin-1")
        closed_world.append_config(
            f'[providers.school]\nkind = "openai"\nbaseUrl = "{training.url}/v1"\n'
            '[training]\nprovider = "school"\napi = "openai"\nbaseModel = "base"\n'
        )
        answer = {"prompt": "research", "channel": "research", "confidence": 0.9, "reasoning": "as ever"}
        closed_world.server.answer = lambda request: Reply(
            text=json.dumps(answer) if request.model == "twin-2" else "?"
        )
        with closed_world.opened() as engine:
            closed_world.record_decision_pairs(49)
            assert "1 more pair" in closed_world.carry_out("train")["next"]
            closed_world.record_decision_pairs(11)
            assert closed_world.carry_out("train", action="start")["runs"][0]["method"] == "dpo"
            assert len(training.files[0].lines) >= 40, "the others are kept to compare both models"
            training.jobs[0].finish("twin-2", dollars=None)
            closed_world.carry_out("train")
            engine.settings.set("providers.school.baseUrl", closed_world.server.openai)
            assert closed_world.carry_out("train")["runs"][0]["state"] == "adopted"
            assert engine.settings.current.twin_model_id == "school:twin-2"


def test_metrics(world: OperatorWorld):
    """8.5: How many cards you took, how often, at which confidence, and how well that came true, over any days."""
    add_conflicting_branches(world.repository)
    (card, *waiting) = world.predict(shown=True)
    world.carry_out("dismiss", id=card["id"])
    world.run_flow("report_branches")
    metrics = world.carry_out("metrics", days=7)
    assert (metrics["period"], metrics["rejected"], metrics["waiting"]) == ("last_7_days", 1, len(waiting))
    assert metrics["approvalRate"] == 0.0, "your own prompts are none of its predictions"
    assert metrics["ownPrompts"] == 1
    assert [bin["bucket"] for bin in metrics["calibration"]][:2] == ["0.3-0.4", "0.4-0.5"]
    assert {"autoSuccessRate", "avgApprovedConfidence", "trendDirection", "lastDpoTraining"} <= set(metrics)
    assert world.serve()("GET", "/api/v1/crosspoll/metrics")["rejected"] == 1, "the gateway says the same"
