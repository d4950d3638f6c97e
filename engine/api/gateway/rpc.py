"""JSON-RPC 2.0 for agents (SPEC 10.1), over `POST /api/v1/rpc` and over the WebSocket.

Its parameters are validated by the same models as those of the routes.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from engine.api.documents import Document
from engine.api.gateway.models import ApiInput, Line, TriggerBody
from engine.api.gateway.service import GatewayService
from engine.api.operations.operation import ACCEPT_WHOLE_FLOAT, describe_fault
from engine.model import Refusal
from engine.model.secrets import redact

log = logging.getLogger(__name__)

NO_JSON, INVALID_REQUEST, UNKNOWN_METHOD, BAD_PARAMS, INTERNAL, REFUSED = -32700, -32600, -32601, -32602, -32603, -32000


class _Trigger(TriggerBody):
    channel: Line | None = None


class _Latest(ApiInput):
    count: Annotated[int, Field(ge=1, le=10), ACCEPT_WHOLE_FLOAT] = 3
    channel: Line | None = None


class _Nothing(ApiInput):
    pass


METHODS: Mapping[str, tuple[type[Any], Callable[[GatewayService, Any], Document]]] = {
    "pulse.crosspoll.trigger": (
        _Trigger,
        lambda service, arguments: service.trigger(
            arguments.model_copy(update={"target_channel": arguments.channel or arguments.target_channel})
        ),
    ),
    "pulse.predictions.latest": (
        _Latest,
        lambda service, arguments: service.latest_cards(arguments.count, arguments.channel),
    ),
    "pulse.crosspoll.status": (_Nothing, lambda service, arguments: service.status()),
}


def answer(
    service: GatewayService, method: str, params: Mapping[str, Any] | None, call_id: str | int | None
) -> Document:
    """Carry out one call. Blocking; never raises."""
    if method not in METHODS:
        return fault(call_id, UNKNOWN_METHOD, "there is no such method; one of " + ", ".join(METHODS))
    model, work = METHODS[method]
    try:
        arguments = model.model_validate(dict(params or {}))
        return {"jsonrpc": "2.0", "id": call_id, "result": work(service, arguments)}
    except ValidationError as error:
        return fault(call_id, BAD_PARAMS, describe_fault(error.errors()[0]))
    except Refusal as refusal:
        return fault(call_id, REFUSED, refusal.message, refusal.document()["error"])
    except Exception as error:
        log.error("a call over the gateway failed\n%s", redact(traceback.format_exc()))
        return fault(call_id, INTERNAL, f"{type(error).__name__}: this is a bug; see the log")


def fault(call_id: str | int | None, code: int, message: str, data: Document | None = None) -> Document:
    """An error of JSON-RPC."""
    error: Document = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": call_id, "error": error | ({"data": data} if data else {})}
