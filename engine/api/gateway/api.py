"""The routes of the gateway and their OpenAPI document (SPEC 10.1). Each passes a validated request to the service."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from engine.api.gateway import models, rpc
from engine.api.gateway.access import Access
from engine.api.gateway.addresses import Limits, ListenAddress
from engine.api.gateway.feed import Feed
from engine.api.gateway.guard import Guard
from engine.api.gateway.pulse import Pulse
from engine.api.gateway.service import GatewayService
from engine.api.operations import dispatch
from engine.api.operations.learning import DEFAULT_METRIC_DAYS, MAX_METRIC_DAYS
from engine.api.operations.operation import NOT_AN_OBJECT, describe_fault
from engine.api.services import ApiServices
from engine.model import Refusal

API_PATH = "/api/v1"

DESCRIPTION = """The engine of the console, for a phone, a watch, a script or another agent.

Every request carries `Authorization: Bearer TOKEN` (`clawpy token` shows it). What happens comes over the WebSocket
`/pulse`: say `{"type": "subscribe", "channels": ["crosspoll"], "after": LAST_ID}` and get `prediction.new`,
`prediction.executed`, `prediction.expired`, `crosspoll.status`, `crosspoll.paused`, `crosspoll.resumed`."""

_BUSY_CODES = frozenset({"busy", "too_many_cards"})
_UNAVAILABLE_CODES = frozenset({"engine_closed", "disk_full", "unwritable_home", "damaged_home"})


def status_of(refusal: Refusal) -> int:
    """The HTTP status of a refusal: 422 invalid arguments, 404 unknown, 429 too many, 503 unavailable, else 409."""
    if refusal.code == "bad_arguments":
        return 422
    if refusal.code.startswith("unknown_"):
        return 404
    if refusal.code in _BUSY_CODES:
        return 429
    return 503 if refusal.code in _UNAVAILABLE_CODES else 409


def _error(status: int, words: str, code: str, message: str, fix: str = "") -> dict[int | str, dict[str, Any]]:
    example = {"error": {"code": code, "message": message, "fix": fix}}
    return {
        status: {
            "model": models.ErrorReply,
            "description": words,
            "content": {"application/json": {"example": example}},
        }
    }


COMMON_ERRORS: dict[int | str, dict[str, Any]] = {
    **_error(400, "Malformed request", "bad_request", "the body is not JSON"),
    **_error(401, "No token, or a wrong one", "no_token", "the gateway's token is missing or wrong"),
    **_error(403, "Request from a web page", "foreign_origin", "requests from web pages are refused"),
    **_error(413, "Too large", "too_large", "a request may have at most 262144 bytes"),
    **_error(421, "Unknown host name", "foreign_host", "this gateway does not serve that host name"),
    **_error(422, "Invalid arguments", "bad_arguments", "count: Input should be less than or equal to 10"),
    **_error(409, "Conflict with the current state", "already_decided", "card pred_7k2m is confirmed already"),
    **_error(431, "Headers too large", "too_large", "the address and headers may have at most 65536 bytes"),
    **_error(429, "Too many requests", "too_many", "too many requests", "wait 1 s and send fewer requests"),
    **_error(503, "Unavailable", "engine_closed", "the engine is closing; nothing is written any more"),
}
NO_CARD = _error(
    404, "No such card", "unknown_card", "there is no card pred_7k2m", "clawpy cards lists what is pending"
)
COMPRESSED = _error(415, "Compressed body", "bad_request", "a compressed body is not accepted", "send it uncompressed")

MALFORMED_CALL: dict[int | str, dict[str, Any]] = {
    400: {
        "model": models.ErrorReply | models.RpcReply,
        "description": "Malformed call",
        "content": {"application/json": {"example": {"jsonrpc": "2.0", "id": None, "error": {"code": -32600}}}},
    }
}

NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
"""No telemetry is sent, whatever environment variables are set."""

CardId = Annotated[models.Id, Path(alias="id", description="a card's whole id")]


def build(engine: ApiServices, access: Access, feed: Feed, address: ListenAddress, limits: Limits) -> Guard:
    """The whole application behind its guard."""
    service = GatewayService(engine, max_slow_requests=limits.triggers)
    app = FastAPI(
        title="Clawpy Console",
        version=engine.version,
        description=DESCRIPTION,
        openapi_url=f"{API_PATH}/openapi.json",
        docs_url=None,  # its page would come from another machine
        redoc_url=None,
        servers=[{"url": address.url}] if address.port else None,
        responses=COMMON_ERRORS,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.include_router(_router(engine, service))
    pulse = Pulse(engine, service, feed, limits)

    @app.websocket("/pulse")
    async def _pulse(socket: WebSocket) -> None:
        await pulse.serve(socket)

    _add_error_handlers(app)
    return Guard(app, access, address, limits)


def _router(engine: ApiServices, service: GatewayService) -> APIRouter:
    router = APIRouter(
        prefix=API_PATH, dependencies=[Depends(HTTPBearer(auto_error=False, description="the gateway's token"))]
    )

    _add_card_routes(router, service)
    _add_decision_routes(router, service)
    _add_engine_routes(router, engine, service)
    return router


def _add_card_routes(router: APIRouter, service: GatewayService) -> None:
    @router.get("/health", response_model=models.Health, tags=["looking"])
    def health() -> Any:
        """That the engine answers, and how it stands."""
        return JSONResponse(service.health())

    @router.get("/twin/predict", response_model=models.Predictions, tags=["cards"])
    def predict(
        count: Annotated[int, Query(ge=1, le=10)] = 3,
        channel: Annotated[str | None, Query(min_length=1, max_length=100, examples=["koji-core"])] = None,
        shown: Annotated[bool, Query(description="a person looks at them now")] = False,
    ) -> Any:
        """Pending predictions, best first."""
        return JSONResponse(service.latest_cards(count, channel, shown=shown))

    @router.post("/twin/serve", response_model=models.TwinReply, responses=COMPRESSED, tags=["internal"])
    def serve(body: models.TwinBody) -> Any:
        """The single most valuable action to take right now, as the Twin sees it."""
        return JSONResponse(service.serve_twin(body))

    @router.post(
        "/crosspoll/trigger", response_model=models.Triggered, responses={**NO_CARD, **COMPRESSED}, tags=["cards"]
    )
    def trigger(body: Annotated[models.TriggerBody | None, Body()] = None) -> Any:
        """Approve a card, or ask for one to be run."""
        return JSONResponse(service.trigger(body or models.TriggerBody()))


def _add_decision_routes(router: APIRouter, service: GatewayService) -> None:
    decided: dict[str, Any] = {
        "response_model": models.Decided,
        "responses": {**NO_CARD, **COMPRESSED},
        "tags": ["cards"],
    }

    @router.post("/predictions/{id}/confirm", **decided)
    def confirm(card_id: CardId, body: Annotated[models.ConfirmBody | None, Body()] = None) -> Any:
        """Approve: it runs."""
        return JSONResponse(service.confirm(card_id, body or models.ConfirmBody()))

    @router.post("/predictions/{id}/reject", **decided)
    def reject(card_id: CardId, body: Annotated[models.RejectBody | None, Body()] = None) -> Any:
        """Dismiss. A reason may come with it, or later in a call of its own."""
        return JSONResponse(service.reject(card_id, (body or models.RejectBody()).reason))

    @router.post("/predictions/{id}/snooze", **decided)
    def snooze(card_id: CardId, body: Annotated[models.SnoozeBody | None, Body()] = None) -> Any:
        """Put off."""
        return JSONResponse(service.snooze(card_id, (body or models.SnoozeBody()).seconds))

    @router.post("/predictions/{id}/undo", **decided)
    def undo(card_id: CardId) -> Any:
        """Take the last decision back: reopen the card, end its session, or reverse its landing."""
        return JSONResponse(service.undo(card_id))


def _add_engine_routes(router: APIRouter, engine: ApiServices, service: GatewayService) -> None:
    @router.get("/crosspoll/metrics", response_model=models.Metrics, tags=["looking"])
    def metrics(days: Annotated[int, Query(ge=1, le=MAX_METRIC_DAYS)] = DEFAULT_METRIC_DAYS) -> Any:
        """Accuracy and calibration of the last days."""
        return JSONResponse(dispatch(engine, "metrics", {"days": days}))

    @router.patch("/crosspoll/config", response_model=models.Configured, responses=COMPRESSED, tags=["internal"])
    def configure(body: models.ConfigBody) -> Any:
        """Change settings for this run only; a restart brings the file's back."""
        return JSONResponse(service.configure(body))

    @router.get("/tasks", response_model=models.Tasks, tags=["looking"])
    def tasks(
        state: Annotated[Literal["open", "running", "done", "failed"] | None, Query(examples=["open"])] = None,
        workspace: Annotated[str | None, Query(max_length=4096)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        """The task board."""
        return JSONResponse(dispatch(engine, "tasks", {"state": state, "workspace": workspace, "limit": limit}))

    @router.post("/rpc", response_model=models.RpcReply, responses={**MALFORMED_CALL, **COMPRESSED}, tags=["rpc"])
    def call(body: models.RpcCall) -> Any:
        """JSON-RPC 2.0: `pulse.crosspoll.trigger`, `pulse.predictions.latest`, `pulse.crosspoll.status`."""
        return JSONResponse(rpc.answer(service, body.method, body.params, body.id))


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    def handle_refusal(request: Request, refusal: Refusal) -> Response:
        headers = {"retry-after": "2"} if status_of(refusal) == 429 else None
        return JSONResponse(refusal.document(), status_code=status_of(refusal), headers=headers)

    @app.exception_handler(RequestValidationError)
    def handle_invalid_request(request: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        words, fix = describe_fault(fault), f"see {API_PATH}/openapi.json"
        if fault["type"] == NOT_AN_OBJECT and "json" not in request.headers.get("content-type", ""):
            words, fix = "the body is not declared as JSON", "send the header Content-Type: application/json with it"
        if request.url.path == f"{API_PATH}/rpc":
            code = rpc.NO_JSON if fault["type"] == "json_invalid" else rpc.INVALID_REQUEST
            return JSONResponse(rpc.fault(None, code, f"{words}; {fix}"), status_code=400)
        if fault["type"] == "json_invalid":
            return _error_response(400, "bad_request", "the body is not JSON", fix)
        return _error_response(422, "bad_arguments", words, fix)

    @app.exception_handler(Exception)
    def handle_bug(request: Request, error: Exception) -> Response:
        # It is raised again after this, and the guard keeps it in the log.
        return _error_response(500, "internal", f"{type(error).__name__}: this is a bug; see the log")

    @app.exception_handler(HTTPException)
    def handle_http_error(request: Request, error: HTTPException) -> Response:
        words = {404: ("unknown_path", "there is no such path"), 405: ("bad_method", "that method is not allowed here")}
        code, message = words.get(error.status_code, ("bad_request", "the request cannot be read"))
        return _error_response(
            error.status_code, code, message, f"see {API_PATH}/openapi.json", dict(error.headers or {})
        )


def _error_response(
    status: int, code: str, message: str, fix: str = "", headers: dict[str, str] | None = None
) -> Response:
    return JSONResponse(Refusal(code, message, fix).document(), status_code=status, headers=headers)
