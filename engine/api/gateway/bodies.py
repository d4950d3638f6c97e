"""The bodies of requests, for the OpenAPI document and for RPC, with bounds and examples (SPEC 10.1).

Unknown fields are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from engine.api.operations.operation import ACCEPT_WHOLE_FLOAT
from engine.model import DismissReason

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["pred_7k2m9x4qd1ab"])]
Line = Annotated[str, Field(min_length=1, max_length=100)]
Prose = Annotated[str, Field(min_length=1, max_length=20_000)]


Hour = Annotated[int, Field(ge=0, le=23), ACCEPT_WHOLE_FLOAT]


class ApiInput(BaseModel):
    """A request body without unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", strict=True, allow_inf_nan=False, str_strip_whitespace=False
    )


class TriggerBody(ApiInput):
    """With `predictionId` that card is approved, by you. Without it a program asks: the card that says `hint` (made, if
    there is none), or else the best one, is run if every rail lets it; `force` skips the rate alone. With `fromChannel`
    an agent asks that works on that channel, and is no approval either: what goes in circles is stopped."""

    model_config = ApiInput.model_config | {
        "json_schema_extra": {
            "examples": [
                {"predictionId": "pred_7k2m9x4qd1ab"},
                {"targetChannel": "koji-core", "hint": "Run tests on recently changed modules", "force": False},
            ]
        }
    }

    target_channel: Line | None = None
    hint: Prose | None = None
    force: bool = False
    prediction_id: Id | None = None
    from_channel: Line | None = None
    workspace: Annotated[str, Field(max_length=4096)] | None = None


class ConfirmBody(ApiInput):
    """`edit` is another prompt, or `KEY=VALUE` parameters of a flow; `parameters` are the latter as data.
    `withoutSandbox` confirms that it runs unconfined, which a card that says `needsConfirmation` needs."""

    edit: Prose | None = None
    parameters: Annotated[dict[str, Any], Field(max_length=50)] | None = None
    without_sandbox: bool = False


class RejectBody(ApiInput):
    """The reason, if there is one. It is learned from; `never-here` and `never-anywhere` switch the kind of card
    off."""

    reason: DismissReason | None = None


class SnoozeBody(ApiInput):
    """For how long, in seconds: two hours by default, at most 30 days."""

    seconds: Annotated[int, Field(ge=1, le=30 * 86_400, examples=[7200]), ACCEPT_WHOLE_FLOAT] = 7200


class ConfigBody(ApiInput):
    """Settings of this run only. Dollars, milliseconds, hours of the local day."""

    model_config = ApiInput.model_config | {
        "json_schema_extra": {
            "examples": [
                {
                    "enabled": True,
                    "intervalMs": 600_000,
                    "costCapPerHour": 2.0,
                    "autoExecuteThreshold": 0.8,
                    "quietHoursStart": 23,
                    "quietHoursEnd": 8,
                }
            ]
        }
    }

    enabled: bool | None = None
    interval_ms: Annotated[int, Field(ge=1_000, le=366 * 24 * 3_600_000), ACCEPT_WHOLE_FLOAT] | None = None
    cost_cap_per_hour: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    auto_execute_threshold: Annotated[float, Field(ge=0.8, le=1)] | None = None
    quiet_hours_start: Hour | None = None
    quiet_hours_end: Hour | None = None


class ChatMessage(ApiInput):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=4_000)]


class TwinBody(ApiInput):
    """A chat. What `user` says is the situation; the engine uses its own instruction in place of `system`."""

    model_config = ApiInput.model_config | {
        "alias_generator": None,
        "json_schema_extra": {
            "examples": [
                {
                    "messages": [{"role": "user", "content": "morning; 3 modules changed since the last test run"}],
                    "temperature": 0.3,
                    "max_tokens": 200,
                }
            ]
        },
    }

    model: Annotated[str, Field(max_length=200)] | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=10)]
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.3
    max_tokens: Annotated[int, Field(ge=1, le=200), ACCEPT_WHOLE_FLOAT] = 200


class RpcCall(ApiInput):
    """One call of JSON-RPC 2.0."""

    model_config = ApiInput.model_config | {
        "alias_generator": None,
        "json_schema_extra": {
            "examples": [
                {"jsonrpc": "2.0", "id": 1, "method": "pulse.predictions.latest", "params": {"count": 5}},
                {"jsonrpc": "2.0", "id": 2, "method": "pulse.crosspoll.status", "params": {}},
            ]
        },
    }

    jsonrpc: Literal["2.0"]
    method: Annotated[str, Field(max_length=100)]
    params: dict[str, Any] | None = None
    id: Annotated[str, Field(max_length=100)] | Annotated[int, ACCEPT_WHOLE_FLOAT]
