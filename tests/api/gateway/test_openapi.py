"""The OpenAPI document of the gateway: it is whole, and every reply is as it says (SPEC 10.1).

`tests/faults/test_gateway_requests.py` makes ten thousand requests in the same way.
"""

import pytest

from tests.api.gateway.calls import request
from tests.api.gateway.served import Serve, Served


def test_the_document_has_every_path_an_example_and_every_reply(served: Served):
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


@pytest.mark.long
def test_every_reply_is_as_documented(serve: Serve):
    from tests.api.gateway.fuzz import UNHURRIED, fuzz  # Schemathesis takes a second to import

    counts = fuzz(serve(limits=UNHURRIED), 60)
    assert sum(counts.values()) >= 50
    statuses = {key.rpartition(" ")[2] for key in counts}
    assert "200" in statuses
    assert statuses & {"400", "422"}, "bad requests were among them"
