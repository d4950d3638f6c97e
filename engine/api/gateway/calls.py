"""Carries out operations for the gateway (SPEC 10.1).

The routes use it, and JSON-RPC 2.0 over HTTP and over the WebSocket. A decision over the gateway counts as your
decision (`decided_by` "api", SPEC 2.7), because only you have the token.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from engine.api.documents import Document
from engine.api.operations import OPERATIONS
from engine.api.operations.operation import ApiServices, validate_arguments
from engine.model import DecidedBy, Refusal
from engine.model.secrets import redact

log = logging.getLogger(__name__)

# The codes of JSON-RPC 2.0. A server may choose its own from -32000 to -32099.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000
"""The code of an operation's refusal."""

METHODS = {
    "pulse.crosspoll.trigger": "trigger",
    "pulse.predictions.latest": "latest",
    "pulse.crosspoll.status": "cross_poll_status",
}
"""The operation of each method of JSON-RPC."""

SLOW_OPERATIONS = frozenset({"trigger", "twin"})


class Calls:
    """Blocking calls, from any thread."""

    def __init__(self, engine: ApiServices, *, max_slow_requests: int) -> None:
        """`max_slow_requests` is the maximum number of slow requests at a time."""
        self.engine = engine
        self._slow_slots = threading.BoundedSemaphore(max_slow_requests)

    def carry_out(self, name: str, values: Mapping[str, Any]) -> Document:
        """Carry out an operation with validated arguments. Raises its `Refusal`, and `busy`."""
        operation = OPERATIONS[name]
        is_slow = name in SLOW_OPERATIONS and values.get("prediction_id") is None  # approving a card is fast
        if is_slow and not self._slow_slots.acquire(blocking=False):
            raise Refusal("busy", "other requests are being processed", "try again in a few seconds")
        try:
            return operation.carry_out(self.engine, values, by=DecidedBy.API)
        finally:
            if is_slow:
                self._slow_slots.release()

    def answer(self, method: str, params: Mapping[str, Any] | None, call_id: str | int | None) -> Document:
        """Carry out one call of JSON-RPC. Never raises."""
        if method not in METHODS:
            return error_reply(call_id, METHOD_NOT_FOUND, "there is no such method; one of " + ", ".join(METHODS))
        name = METHODS[method]
        try:
            arguments = validate_arguments(OPERATIONS[name].arguments, params or {})
            return {"jsonrpc": "2.0", "id": call_id, "result": self.carry_out(name, dict(arguments))}
        except Refusal as refusal:
            code = INVALID_PARAMS if refusal.code == "bad_arguments" else REFUSED
            return error_reply(call_id, code, refusal.message, refusal.document()["error"])
        except Exception as error:
            log.error("a call over the gateway failed\n%s", redact(traceback.format_exc()))
            return error_reply(call_id, INTERNAL_ERROR, f"{type(error).__name__}: this is a bug; see the log")


def error_reply(call_id: str | int | None, code: int, message: str, data: Document | None = None) -> Document:
    """The reply to a call of JSON-RPC that failed."""
    error: Document = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": call_id, "error": error | ({"data": data} if data else {})}
