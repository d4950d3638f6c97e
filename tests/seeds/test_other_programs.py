"""Other programs that read and decide cards (section 10 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json

import httpx
import pytest
from websockets.sync.client import connect

from tests.seeds.operator_world import OperatorWorld


@pytest.mark.long
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
