"""The models of the gateway's OpenAPI document: its replies, and a call of JSON-RPC with its own (SPEC 10.1).

`engine.api.documents` makes the replies themselves. `routes` names these models as the answers of its paths. No reply
is validated when it is sent; `tests/api/gateway` compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from engine.api.operations import ACCEPT_WHOLE_FLOAT
from engine.files import read_table

IdParameter = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["pred_7k2m9x4qd1ab"])]


EXAMPLES: Mapping[str, Any] = read_table(__file__, "examples.toml")


def _make_example_config(name: str) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": EXAMPLES["replies"][name]})


class ApiModel(BaseModel):
    """A reply. It may have more fields than are declared here."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", serialize_by_alias=True)


class ErrorDetails(ApiModel):
    """A stable code, what is wrong, and how to fix it."""

    code: str
    message: str
    fix: str


class ErrorReply(ApiModel):
    """The reply of every refused request."""

    error: ErrorDetails


class Hold(ApiModel):
    """A stop or a pause of the engine."""

    word: Literal["stop", "config", "api", "month", "pause"]
    reason: str
    since: str | None
    until: str | None


class Status(ApiModel):
    """The state, costs and triggers; money in dollars."""

    model_config = _make_example_config("Status")

    enabled: bool
    state: Literal["DISABLED", "WATCHING", "PRIMING", "AUTONOMOUS", "PAUSED"]
    cause: str
    holds: list[Hold]
    pending: int
    last_trigger_at: str | None
    total_triggers: int
    loop_detection_count: int
    cost_this_hour: float
    cost_cap_per_hour: float
    cost_today: float
    cost_cap_per_day: float
    cost_this_month: float
    cost_cap_per_month: float


class Prediction(ApiModel):
    """A card."""

    model_config = _make_example_config("Prediction")

    id: str
    prompt: str
    target_agent: str
    target_channel: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    stated: bool
    tier: Annotated[int, Field(ge=1, le=4)]
    tier_word: str
    reasoning: str
    created_at: str
    status: Literal["pending", "confirmed", "rejected", "expired", "executed"]
    source: str
    workspace: str
    band: str
    estimated_cost: float
    expires_at: str | None
    snoozed_until: str | None
    decided_by: Literal["operator", "autonomy", "api"] | None
    outcome: str | None
    session: str | None
    task_id: str | None
    note: str
    without_sandbox: bool
    needs_confirmation: bool


class Session(ApiModel):
    """The session that a card's approval started."""

    id: str
    prediction_id: str
    state: str
    summary: str
    cost: float


class ChangeSet(ApiModel):
    """The changes of a session; they are landed at the console or by `clawpy land`."""

    id: str
    session: str
    state: str


class Predictions(ApiModel):
    """Pending cards, best first."""

    predictions: list[Prediction]
    count: int
    timestamp: str
    cross_poll_status: Status


class Decided(ApiModel):
    """The card after a decision, and the session that it started."""

    prediction: Prediction
    session: Session | None
    change_set: ChangeSet | None


class Triggered(ApiModel):
    """Whether something was started; `message` says what, or which rail held it back."""

    triggered: bool
    prediction: Prediction | None
    target_channel: str | None
    message: str
    session: Session | None
    status: Status


class Bucket(ApiModel):
    """Cards of a range of confidence, and the share that was approved."""

    bucket: str
    predictions: int
    approval_rate: float | None


class Metrics(ApiModel):
    """How good the cards are."""

    period: Annotated[str, Field(examples=["last_7_days"])]
    total_predictions: int
    approved: int
    rejected: int
    discarded: int
    expired: int
    auto_executed: int
    auto_executed_undone: int
    approval_rate: float | None
    auto_success_rate: float | None
    avg_confidence: float | None
    avg_approved_confidence: float | None
    avg_rejected_confidence: float | None
    calibration: list[Bucket]
    trend_direction: str
    last_dpo_training: str | None


class Task(ApiModel):
    """A task of the board."""

    id: str
    title: str
    state: str
    channel: str
    workspace: str
    created_at: str


class Tasks(ApiModel):
    """The task board."""

    tasks: list[Task]
    more: bool
    """Whether there are tasks beyond `limit`."""


class Health(ApiModel):
    """The engine answers."""

    status: Literal["ok"]
    version: str
    timestamp: str
    cross_poll_status: Status


class Config(ApiModel):
    """Settings that can be changed for this run."""

    enabled: bool
    interval_ms: int
    cost_cap_per_hour: float
    auto_execute_threshold: float
    quiet_hours_start: int
    quiet_hours_end: int


class Configured(ApiModel):
    """The settings as they are now."""

    config: Config
    cross_poll_status: Status


class TwinReply(ApiModel):
    """The single most valuable action; `source` says who proposes it."""

    model: str
    prompt: str
    channel: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    reasoning: str
    source: str


# The codes of JSON-RPC 2.0. A server may choose its own from -32000 to -32099.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000
"""The code of an operation's refusal."""


class RpcCall(BaseModel, extra="forbid", strict=True):
    """One call of JSON-RPC 2.0."""

    jsonrpc: Literal["2.0"]
    method: Annotated[str, Field(max_length=100)]
    params: dict[str, Any] | None = None
    id: Annotated[str, Field(max_length=100)] | Annotated[int, ACCEPT_WHOLE_FLOAT]


class RpcError(ApiModel):
    """The error of a call. `data` is the refusal of the operation."""

    code: int
    message: str
    data: ErrorDetails | None = None


class RpcReply(ApiModel):
    """JSON-RPC 2.0: the `result` of the operation, or an `error`."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    result: dict[str, Any] | None = None
    error: RpcError | None = None


def make_error_reply(
    call_id: str | int | None, code: int, message: str, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The reply to a call of JSON-RPC that failed."""
    error: dict[str, Any] = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": call_id, "error": error | ({"data": data} if data else {})}
