"""Requests to the routes of the gateway, and the documents of their replies."""

from typing import Any

from tests.api.gateway.served import Served


def request(served: Served, method: str, path: str, status: int = 200, **options: Any) -> dict[str, Any]:
    """The document of a reply that must have this status."""
    reply = served.ask(method, f"/api/v1{path}", **options)
    assert reply.status_code == status, reply.text
    assert reply.headers["cache-control"] == "no-store"
    return reply.json()


def trigger(served: Served, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    """The document of a reply to a trigger, which must have this status."""
    return request(served, "POST", "/crosspoll/trigger", status, json=body)


def call(served: Served, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a reply to a call over JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})
    return request(served, "POST", "/rpc", json=body)
