"""Operations: functions on the engine's services whose signatures declare their arguments (SPEC 9.8, 10.1).

Each is declared once, by `@operation`, in a module of this package; `engine.engine` imports them all. The command line,
the control socket and the MCP server call `dispatch`. The gateway and JSON-RPC validate arguments with the models of
their routes, and call `carry_out`.

Here are also the types of arguments, and what finds the card, session and change set that an id in an argument means.
The id may be that of any of the three. The beginning of an id is enough if no other id begins with it. The prefix
before the underscore may be left out.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from engine.api.documents import Document, document
from engine.frozen import frozen
from engine.home import Home
from engine.model import Card, ChangeSet, DecidedBy, Refusal, SessionView, find_or_none
from engine.services import Services
from engine.text import sanitise

if TYPE_CHECKING:
    from engine.api.gateway import Gateway
    from engine.api.notify import Notifications

READ_ONLY_ACTIONS = frozenset({"list", "show", "get", "scopes", "status"})
"""Actions that only read, so they do not show that you are present."""

SHOWN_TRANSCRIPT_LINES = 40
"""Number of lines of a transcript that are shown by default."""

NOT_AN_OBJECT = "model_attributes_type"
"""Pydantic's error type for a value that is not an object."""

_WORDS_BY_FAULT_TYPE = {
    NOT_AN_OBJECT: "it must be one JSON object",
    "extra_forbidden": "there is no such argument",
    "missing": "it is missing or empty",
}
"""Our words for types of errors whose own words in Pydantic are about its models."""

OPERATIONS: dict[str, Operation] = {}
"""The operations by name."""


class ApiServices(Services):
    """The services of one engine with its gateway and notifications. Callable from any thread."""

    gateway: Gateway
    notify: Notifications


@frozen
class OfflineServices:
    """The values for verbs in `control.OFFLINE_VERBS`, which need no engine."""

    home: Home
    workspaces: Sequence[str]


AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Document])
AnyModel = TypeVar("AnyModel", bound=BaseModel)


def _accept_whole_float(value: Any) -> Any:
    """Convert a float such as 22.0 to a whole number, because JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _refuse_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("it must not be empty")
    return value


ACCEPT_WHOLE_FLOAT = BeforeValidator(_accept_whole_float)
Text = Annotated[str, Field(max_length=100_000)]
NonEmptyText = Annotated[Text, AfterValidator(_refuse_blank)]
Limit = Annotated[int, Field(ge=1, le=1000), ACCEPT_WHOLE_FLOAT]
Seconds = Annotated[float, Field(ge=1, le=30 * 86_400)]


class Operation:
    """One operation, which `function(engine, …)` carries out. If the function has the keyword-only parameter
    `decided_by`, it gets who decides. If `marks_presence`, a request shows that you are present, unless its action only
    reads."""

    def __init__(self, name: str, function: Callable[..., Document], *, marks_presence: bool) -> None:
        self.name = name
        self.description = inspect.getdoc(function) or ""
        self._function = function
        self._marks_presence = marks_presence
        self._takes_decider = "decided_by" in inspect.signature(function).parameters

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of its arguments, in camelCase."""
        return self.make_model(self.name)

    def make_model(self, name: str, *, without: Collection[str] = (), strict: bool = True) -> type[BaseModel]:
        """A model of its arguments, without those in `without`. If it is not `strict`, it also accepts values as texts,
        as in a query string."""
        services = dict.fromkeys(("Services", "ApiServices", "OfflineServices"), Any)
        hints = typing.get_type_hints(self._function, localns=services, include_extras=True)
        _, *parameters = inspect.signature(self._function).parameters.values()
        fields: dict[str, Any] = {
            parameter.name: (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
            for parameter in parameters
            if parameter.kind is not parameter.KEYWORD_ONLY and parameter.name not in without
        }
        config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=strict, allow_inf_nan=False)
        return create_model(name, __config__=config, **fields)

    def carry_out(
        self, engine: ApiServices, values: Mapping[str, Any], *, by: DecidedBy = DecidedBy.OPERATOR
    ) -> Document:
        """Carry out the operation with validated arguments by name. Raises the refusals of the function."""
        if self._marks_presence and values.get("action") not in READ_ONLY_ACTIONS:
            engine.autonomy.note_activity()
        return self._function(engine, **values, **({"decided_by": by} if self._takes_decider else {}))


def operation(function: AnyFunction) -> AnyFunction:
    """Declare a function as the operation with its name. Its requests show that you are present, unless their action
    only reads."""
    OPERATIONS[function.__name__] = Operation(function.__name__, function, marks_presence=True)
    return function


def quiet_operation(function: AnyFunction) -> AnyFunction:
    """Declare an operation whose requests do not show that you are present: it only reads, or programs ask for it."""
    OPERATIONS[function.__name__] = Operation(function.__name__, function, marks_presence=False)
    return function


def dispatch(engine: ApiServices, name: str, arguments: Any) -> Document:
    """Carry out an operation. Raises `Refusal`: `unknown_verb`, `bad_arguments`, or its own."""
    declared = OPERATIONS.get(name) if isinstance(name, str) else None
    if declared is None:
        raise Refusal(
            "unknown_verb", f"there is no verb {sanitise(str(name))[:40]!r}", "one of " + ", ".join(OPERATIONS)
        )
    return declared.carry_out(engine, dict(validate_arguments(declared.arguments, arguments)))


def validate_arguments(model: type[AnyModel], values: Any) -> AnyModel:
    """The validated arguments of a request; an argument that is null counts as absent. Raises `Refusal`
    `bad_arguments`."""
    if not isinstance(values, Mapping):
        raise Refusal("bad_arguments", "the arguments must be an object", 'for example {"id": "pred_1"}')
    try:
        return model.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            accepted = ", ".join(sorted(field.alias or name for name, field in model.model_fields.items()))
            unknown = str(fault["loc"][0])[:100]
            message, fix = f"unknown argument {unknown!r}", f"accepted arguments: {accepted or 'none'}"
        else:
            message, fix = f"the argument {describe_fault(fault)}", "see the verb's --help"
        raise Refusal("bad_arguments", message, fix) from error


def require_argument(name: str, value: str) -> str:
    """The `value` of an argument that an action needs. Raises `Refusal` `bad_arguments` if it is empty."""
    if not value.strip():
        raise Refusal("bad_arguments", f"the argument {name}: it must not be empty", "see the verb's --help")
    return value


def require_channel(engine: Services, name: str | None) -> str | None:
    """The name of a channel that exists, None for none. Raises `Refusal` `unknown_channel` with the names of all."""
    channels = engine.settings.current.channels
    if name and name not in channels:
        raise Refusal("unknown_channel", f"there is no channel {sanitise(name)[:60]}", f"one of {', '.join(channels)}")
    return name or None


def describe_fault(fault: Mapping[str, Any]) -> str:
    """The problem with an argument, in words. The value is not repeated, because it may be a secret that was put in the
    wrong place."""
    argument_name = ".".join(str(part) for part in fault["loc"] if part != "body" and "[" not in str(part))[:100]
    message = _WORDS_BY_FAULT_TYPE.get(fault["type"]) or str(fault["msg"]).removeprefix("Value error, ")
    return f"{argument_name}: {message}" if argument_name else message


@frozen
class Target:
    """A card, its session and its change set; each is None if it does not exist."""

    card: Card | None
    session: SessionView | None
    change_set: ChangeSet | None

    def document(self) -> Document:
        """The JSON of all three."""
        return {
            "prediction": document(self.card),
            "session": document(self.session),
            "changeSet": document(self.change_set),
        }

    @property
    def card_id(self) -> str:
        """The id of the card. Raises `Refusal` `no_card`."""
        if self.card is None:
            raise Refusal("no_card", "that session belongs to no card", "see `clawpy cards --all`")
        return self.card.id

    @property
    def change_set_id(self) -> str:
        """The id of the change set. Raises `Refusal` `no_change_set`, which says why there is none."""
        if self.change_set is not None:
            return self.change_set.id
        if self.session is None:
            raise Refusal("no_change_set", "this card has not run yet", "approve it first: clawpy approve ID")
        if not self.session.state.is_over:
            fix = "wait until it finishes: clawpy work ID"
            raise Refusal("no_change_set", f"{self.session.id} has not finished", fix)
        message = f"{self.session.id} is {self.session.state} and has no changes"
        raise Refusal("no_change_set", message, "see `clawpy work ID`")


def find_target(engine: Services, prefix: str, *, see: str = "clawpy cards") -> Target:
    """The target whose id is `prefix` or begins with it. `see` is the verb that lists ids, for the error. Raises
    `Refusal`: `unknown_id`, `ambiguous_id`."""
    if (card := find_or_none(engine.cards.get, prefix)) is not None:
        return _make_card_target(engine, card)
    if (session := find_or_none(engine.sessions.get, prefix)) is not None:
        return _make_session_target(engine, session)
    cards, sessions, changes = (
        service.find_ids_with_prefix(prefix) for service in (engine.cards, engine.sessions, engine.changes)
    )
    found_id = match_prefix(prefix, [*cards, *sessions, *changes], see=see)
    if found_id in cards:
        return _make_card_target(engine, engine.cards.get(found_id))
    session_id = engine.changes.get(found_id).session_id if found_id in changes else found_id
    return _make_session_target(engine, engine.sessions.get(session_id))


def match_prefix(
    prefix: str, ids: Iterable[str], *, what: str = "card, session or changes", see: str = "clawpy cards"
) -> str:
    """The only id that equals `prefix` or begins with it. Raises `Refusal` `unknown_id`, `ambiguous_id`."""
    ids = list(dict.fromkeys(ids))
    if prefix in ids:
        return prefix
    matches = [known_id for known_id in ids if _begins_id(known_id, prefix)]
    if len(matches) == 1:
        return matches[0]
    shown_prefix = sanitise(prefix)[:60]
    if not matches:
        if prefix.startswith("cand_"):
            see = f"clawpy candidates show {shown_prefix}"
        raise Refusal("unknown_id", f"there is no {what} with the id {shown_prefix}", f"see `{see}`")
    examples = ", ".join(matches[:3]) + (", …" if len(matches) > 3 else "")
    raise Refusal("ambiguous_id", f"{shown_prefix} begins {len(matches)} ids: {examples}", "give more of the id")


def _begins_id(known_id: str, prefix: str) -> bool:
    """Whether an id begins with `prefix`, which may lack what stands before the underscore."""
    start = known_id.find("_") + 1
    rest_of_prefix = prefix.removeprefix(known_id[:start])
    return bool(rest_of_prefix) and known_id[start:].startswith(rest_of_prefix)


def make_document_with_transcript(engine: Services, target: Target, lines: int) -> Document:
    """The document of a target, with the last `lines` of the transcript. The line that streams in is added."""
    reply = target.document()
    if target.session is not None and lines:
        after = max(0, target.session.lines - lines)
        last_lines = engine.sessions.read_transcript(target.session.id, after=after, limit=lines)
        unfinished = engine.sessions.read_unfinished_line(target.session.id)
        reply["transcript"] = document([*last_lines, *([unfinished] if unfinished else [])])
    return reply


def _make_card_target(engine: Services, card: Card) -> Target:
    session = find_or_none(engine.sessions.get, card.session_id) if card.session_id else None
    return Target(card, session, engine.changes.find_of_session(session.id) if session else None)


def _make_session_target(engine: Services, session: SessionView) -> Target:
    card = find_or_none(engine.cards.get, session.prediction_id)
    return Target(card, session, engine.changes.find_of_session(session.id))
