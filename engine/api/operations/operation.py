"""What an operation is: a function on the engine's services whose signature declares its arguments (SPEC 9.8)."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from engine.api.documents import Document
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.api.services import ApiServices

Work = TypeVar("Work", bound=Callable[..., Document])
Model = TypeVar("Model", bound=BaseModel)

READ_ONLY_ACTIONS = frozenset({"list", "show", "get", "scopes", "status"})
"""Actions that do not show that you are there."""


def _whole(value: Any) -> Any:
    """Accept 22.0 as a whole number, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _says_something(value: str) -> str:
    if not value.strip():
        raise ValueError("it must not be empty")
    return value


WHOLE = BeforeValidator(_whole)
Text = Annotated[str, Field(max_length=100_000)]
NonEmptyText = Annotated[Text, AfterValidator(_says_something)]
Limit = Annotated[int, WHOLE, Field(ge=1, le=1000)]
Seconds = Annotated[float, Field(ge=1, le=30 * 86_400)]


class Operation:
    """One operation. `work(engine, …)` does it; keyword-only parameters are not arguments of it. `by_you`: to ask for
    it means that you are there, unless its action only reads."""

    def __init__(self, name: str, work: Callable[..., Document], *, by_you: bool) -> None:
        self.name = name
        self._work = work
        self._by_you = by_you

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of its arguments, in camelCase."""
        services = dict.fromkeys(("Services", "ApiServices", "OfflineServices"), Any)
        hints = typing.get_type_hints(self._work, localns=services, include_extras=True)
        _, *parameters = inspect.signature(self._work).parameters.values()
        fields: dict[str, Any] = {
            parameter.name: (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
            for parameter in parameters
            if parameter.kind is not parameter.KEYWORD_ONLY
        }
        config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, allow_inf_nan=False)
        return create_model(self.name, __config__=config, **fields)

    def __call__(self, engine: ApiServices, arguments: Any) -> Document:
        """Carry it out. Raises `Refusal` `bad_arguments`, and its own."""
        values = validate_arguments(self.arguments, arguments)
        arguments_by_name = {name: getattr(values, name) for name in type(values).model_fields}
        if self._by_you and arguments_by_name.get("action") not in READ_ONLY_ACTIONS:
            engine.autonomy.heard(f"clawpy {self.name}")
        return self._work(engine, **arguments_by_name)


NO_OBJECT = "model_attributes_type"
"""Pydantic's error type for a value that is no object."""

OPERATIONS: dict[str, Operation] = {}


def operation(*, name: str = "", by_you: bool = False) -> Callable[[Work], Work]:
    """Declare a function to be an operation, of its own name by default."""

    def declare(work: Work) -> Work:
        operation_name = name or work.__name__
        OPERATIONS[operation_name] = Operation(operation_name, work, by_you=by_you)
        return work

    return declare


def validate_arguments(model: type[Model], values: Any) -> Model:
    """Arguments of any program, validated; null means absent. Raises `Refusal` `bad_arguments`."""
    if not isinstance(values, Mapping):
        raise Refusal("bad_arguments", "the arguments must be an object", 'for example {"id": "pred_1"}')
    try:
        return model.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["type"] == "extra_forbidden":
            accepted = ", ".join(sorted(field.alias or name for name, field in model.model_fields.items()))
            message, fix = f"unknown argument {fault['loc'][0]!r}", f"accepted arguments: {accepted or 'none'}"
        elif fault["type"] == "missing":
            message, fix = f"the argument {fault['loc'][0]} is missing or empty", "see the verb's --help"
        else:
            message, fix = f"the argument {in_words(fault)}", "see the verb's --help"
        raise Refusal("bad_arguments", message, fix) from error


def require(name: str, value: str) -> str:
    """An argument that this action needs. Raises `Refusal` `bad_arguments` when it is empty."""
    if not value.strip():
        raise Refusal("bad_arguments", f"the argument {name}: it must not be empty", "see the verb's --help")
    return value


def in_words(fault: Mapping[str, Any]) -> str:
    """What is wrong with an argument, without its value: that may be a secret in the wrong place."""
    where = ".".join(str(part) for part in fault["loc"] if part != "body")[:100]
    no_object = fault["type"] == NO_OBJECT
    message = "it must be one JSON object" if no_object else str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
