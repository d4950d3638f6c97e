"""The routes of the gateway and their OpenAPI document (SPEC 10.1). Each route carries out an operation, whose
signature declares the arguments.

A decision over the gateway counts as your decision (`decided_by` "api", SPEC 2.7), because only you have the token.
"""

from __future__ import annotations

import inspect
import logging
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from engine.api.documents import Document
from engine.api.gateway import replies
from engine.api.gateway.access import Access, ListenAddress
from engine.api.gateway.guard import ClientCounts, GatewayLimits, Guard
from engine.api.gateway.pulse import Pulse
from engine.api.gateway.server import Server
from engine.api.operations import NOT_AN_OBJECT, OPERATIONS, ApiServices, describe_fault, validate_arguments
from engine.files import read_table
from engine.model import DecidedBy, Refusal
from engine.redaction import redact

log = logging.getLogger(__name__)

API_PATH = "/api/v1"

DESCRIPTION = """The engine of the console, for a phone, a watch, a script or another agent.

Every request carries `Authorization: Bearer TOKEN` (`clawpy token` shows it). What happens comes over the WebSocket
`/pulse`: say `{"type": "subscribe", "channels": ["crosspoll"], "after": LAST_ID}` and get `prediction.new`,
`prediction.executed`, `prediction.expired`, `crosspoll.status`, `crosspoll.paused`, `crosspoll.resumed`."""

_BUSY_CODES = frozenset({"busy", "too_many_cards"})
_UNAVAILABLE_CODES = frozenset({"engine_closed", "disk_full", "unwritable_home", "damaged_home"})


def find_http_status(refusal: Refusal) -> int:
    """The HTTP status of a refusal: 422 invalid arguments, 404 unknown, 429 too many, 503 unavailable, else 409."""
    if refusal.code == "bad_arguments":
        return 422
    if refusal.code.startswith("unknown_"):
        return 404
    if refusal.code in _BUSY_CODES:
        return 429
    return 503 if refusal.code in _UNAVAILABLE_CODES else 409


def _read_example_errors(table: str) -> dict[int | str, Document]:
    """The errors in a table of `examples.toml`, by status."""
    return {
        int(status): {
            "model": replies.ErrorReply,
            "description": row["description"],
            "content": {"application/json": {"example": {"error": row["error"]}}},
        }
        for status, row in replies.EXAMPLES[table].items()
    }


CARD_ERRORS = _read_example_errors("card_errors")
BODY_ERRORS = _read_example_errors("body_errors")
RPC_ERRORS: dict[int | str, Document] = {
    400: {
        "model": replies.ErrorReply | replies.RpcReply,
        "description": "Malformed call",
        "content": {"application/json": {"example": {"jsonrpc": "2.0", "id": None, "error": {"code": -32600}}}},
    }
}

NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
"""No telemetry is sent, whatever environment variables are set."""

CardId = Annotated[replies.IdParameter, Path(description="a card's whole id")]


class Route(NamedTuple):
    """A path that carries out an operation."""

    method: str
    path: str
    operation: str
    reply: str
    """The name of the model of its answer, in `replies`."""
    tag: str
    withheld: Sequence[str] = ()
    """Arguments of the operation that the gateway does not accept."""


ROUTES = [Route(**row) for row in read_table(__file__, "routes.toml")["routes"]]

OPERATION_OF_METHOD = {
    "pulse.crosspoll.trigger": "trigger",
    "pulse.predictions.latest": "latest",
    "pulse.crosspoll.status": "cross_poll_status",
}
"""The operation of each method of JSON-RPC."""

SLOW_OPERATIONS = frozenset({"trigger", "twin"})
"""Operations that may take minutes. Only a limited number of them run at a time."""


def build_server(
    engine: ApiServices, access: Access, address: ListenAddress, limits: GatewayLimits | None = None
) -> Server:
    """Build the application with its guard and its server. Raises as `Server`."""
    limits, counts = limits or GatewayLimits(), ClientCounts()
    app = FastAPI(
        title="Clawpy Console",
        version=engine.version,
        description=DESCRIPTION,
        openapi_url=f"{API_PATH}/openapi.json",
        docs_url=None,  # that page would load scripts from another machine
        redoc_url=None,
        servers=[{"url": address.url}] if address.port else None,
        responses=_read_example_errors("errors"),
        redirect_slashes=False,
        exception_handlers=dict(ERROR_HANDLERS),
        telemetry=NO_TELEMETRY,
    )
    operations = OperationRunner(engine, max_slow_operations=limits.max_slow_operations)
    pulse = Pulse(engine, operations.answer_rpc, access, limits, counts)
    router = APIRouter(
        prefix=API_PATH, dependencies=[Depends(HTTPBearer(auto_error=False, description="the gateway's token"))]
    )
    for route in ROUTES:
        _add_route(router, route, operations)

    @router.post("/rpc", response_model=replies.RpcReply, responses=RPC_ERRORS | BODY_ERRORS, tags=["rpc"])
    def answer_rpc(
        body: Annotated[
            replies.RpcCall, Body(examples=[{"jsonrpc": "2.0", "id": 1, "method": "pulse.crosspoll.status"}])
        ],
    ) -> Any:
        """JSON-RPC 2.0: `pulse.crosspoll.trigger`, `pulse.predictions.latest`, `pulse.crosspoll.status`."""
        return JSONResponse(operations.answer_rpc(body.method, body.params, body.id))

    @app.websocket("/pulse")
    async def serve_pulse(socket: WebSocket) -> None:
        await pulse.serve(socket)

    @app.get("/pulse", include_in_schema=False)
    def refuse_plain_request() -> None:
        raise HTTPException(426, headers={"upgrade": "websocket"})

    app.include_router(router)
    return Server(Guard(app, access, address, limits), address, limits, counts, pulse.run)


class OperationRunner:
    """Carries out operations for the routes and for JSON-RPC 2.0. Its methods block. Callable from any thread."""

    def __init__(self, engine: ApiServices, *, max_slow_operations: int) -> None:
        """`max_slow_operations` is the maximum number of slow operations at a time."""
        self.engine = engine
        self._slow_slots = threading.BoundedSemaphore(max_slow_operations)

    def run(self, name: str, values: Mapping[str, Any]) -> Document:
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

    def answer_rpc(self, method: str, params: Mapping[str, Any] | None, call_id: str | int | None) -> Document:
        """Carry out one call of JSON-RPC. Never raises."""
        if method not in OPERATION_OF_METHOD:
            return replies.make_error_reply(
                call_id, replies.METHOD_NOT_FOUND, "there is no such method; one of " + ", ".join(OPERATION_OF_METHOD)
            )
        name = OPERATION_OF_METHOD[method]
        try:
            arguments = validate_arguments(OPERATIONS[name].arguments, params or {})
            return {"jsonrpc": "2.0", "id": call_id, "result": self.run(name, dict(arguments))}
        except Refusal as refusal:
            code = replies.INVALID_PARAMS if refusal.code == "bad_arguments" else replies.REFUSED
            return replies.make_error_reply(call_id, code, refusal.message, refusal.document()["error"])
        except Exception as error:
            log.error("a call over the gateway failed\n%s", redact(traceback.format_exc()))
            return replies.make_error_reply(
                call_id, replies.INTERNAL_ERROR, f"{type(error).__name__}: this is a bug; see the log"
            )


def _add_route(router: APIRouter, route: Route, operations: OperationRunner) -> None:
    """Add the endpoint of an operation: the id in the path, the other arguments in the query or the body."""
    operation, is_get, has_id = OPERATIONS[route.operation], route.method == "GET", "{id}" in route.path
    excluded = (*route.withheld, *(["id"] if has_id else []))
    model = operation.make_model(f"{route.operation.capitalize()}Body", without=excluded, strict=not is_get)
    parameters = [inspect.Parameter("id", inspect.Parameter.KEYWORD_ONLY, annotation=CardId)] if has_id else []
    if model.model_fields:
        parameters.append(_make_values_parameter(route, model))

    def endpoint(*, id: str | None = None, values: BaseModel | None = None) -> Any:
        arguments = dict(values or ())
        if id is not None:
            operations.engine.cards.get(id)  # accepts only a whole id, not its beginning
            arguments["id"] = id
        return JSONResponse(operations.run(route.operation, arguments))

    # FastAPI reads the arguments of a route from this signature: `(*, id: CardId, values: SnoozeBody | None = None)`.
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    has_body = not is_get and model.model_fields
    router.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.operation,
        description=operation.description,
        response_model=getattr(replies, route.reply),
        responses=(CARD_ERRORS if route.tag == "cards" else {}) | (BODY_ERRORS if has_body else {}),
        tags=[route.tag],
    )


def _make_values_parameter(route: Route, model: type[BaseModel]) -> inspect.Parameter:
    """The parameter `values` of an endpoint: the query of a GET, or the body, which may be left out if no argument is
    required."""
    default: Any = inspect.Parameter.empty
    annotation: Any = Annotated[model, Query()]
    if route.method != "GET":
        example = replies.EXAMPLES["bodies"].get(route.operation)
        body = Body(examples=[example] if example else None)
        annotation = Annotated[model, body]
        if not any(field.is_required() for field in model.model_fields.values()):
            annotation, default = Annotated[model | None, body], None
    return inspect.Parameter("values", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


# -- errors, in the form of the API

_HTTP_ERRORS = {
    404: ("unknown_path", "there is no such path"),
    405: ("bad_method", "that method is not allowed here"),
    426: ("needs_websocket", "only a WebSocket client can read this path"),
}
"""(code, message) by status."""


def _answer_refusal(request: Request, refusal: Any) -> Response:
    status = find_http_status(refusal)
    return JSONResponse(refusal.document(), status, headers={"retry-after": "2"} if status == 429 else None)


def _answer_invalid_request(request: Request, error: Any) -> Response:
    fault = error.errors()[0]
    is_json = fault["type"] != "json_invalid"
    message, fix = describe_fault(fault) if is_json else "the body is not JSON", f"see {API_PATH}/openapi.json"
    if fault["type"] == NOT_AN_OBJECT and "json" not in request.headers.get("content-type", ""):
        message, fix = "the body is not declared as JSON", "send the header Content-Type: application/json with it"
    if request.url.path == f"{API_PATH}/rpc":
        code = replies.INVALID_REQUEST if is_json else replies.PARSE_ERROR
        return JSONResponse(replies.make_error_reply(None, code, f"{message}; {fix}"), 400)
    status, refusal_code = (422, "bad_arguments") if is_json else (400, "bad_request")
    return _make_error_response(status, refusal_code, message, fix)


def _answer_http_error(request: Request, error: Any) -> Response:
    code, message = _HTTP_ERRORS.get(error.status_code, ("bad_request", "the request cannot be read"))
    response = _make_error_response(error.status_code, code, message, f"see {API_PATH}/openapi.json")
    response.headers.update(error.headers or {})
    return response


def _answer_bug(request: Request, error: Exception) -> Response:
    # Starlette raises the error again after this, and the guard logs it.
    return _make_error_response(500, "internal", f"{type(error).__name__}: this is a bug; see the log")


def _make_error_response(status: int, code: str, message: str, fix: str = "") -> Response:
    return JSONResponse(Refusal(code, message, fix).document(), status_code=status)


ERROR_HANDLERS: Mapping[Any, Any] = {
    Refusal: _answer_refusal,
    RequestValidationError: _answer_invalid_request,
    HTTPException: _answer_http_error,
    Exception: _answer_bug,
}
