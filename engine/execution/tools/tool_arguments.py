"""Describes the tools of `tools.toml` to a model, and checks the arguments that it sends. It has no side effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from engine.files import read_table
from engine.model import Refusal, ToolSpec, sanitise

MAX_COMMAND = 20_000
"""Maximum number of characters of a command."""

MAX_QUERY = 500
"""Maximum number of characters of a search query."""

EXEC_SECONDS = 120
"""Seconds after which a command is ended, unless the model asks for more."""

MAX_EXEC_SECONDS = 3_600
"""The highest timeout in seconds that a model may ask for."""

_TABLES = read_table(__file__, "tools.toml")

TOOL_NAMES = tuple(_TABLES)
"""The names of all tools (SPEC 3.8)."""

_Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]
"""A text that can be encoded as UTF-8."""


def _make_form(name: str, row: Mapping[str, Any]) -> type[BaseModel]:
    """The class that validates the arguments of a tool. A model may send null for an optional one."""
    limits = {"default_seconds": EXEC_SECONDS, "max_seconds": MAX_EXEC_SECONDS}
    fields: dict[str, Any] = {key: (_Text, Field(description=text)) for key, text in row["required"].items()}
    for key, text in row.get("optional", {}).items():
        fields[key] = (int | None, Field(default=None, ge=1, description=text.format(**limits)))
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)


_FORMS = {name: _make_form(name, row) for name, row in _TABLES.items()}

SPECS = {
    name: ToolSpec(
        name,
        _TABLES[name]["description"],
        {
            "type": "object",
            "properties": {
                key: {"type": "string" if field.is_required() else "integer", "description": field.description}
                for key, field in form.model_fields.items()
            },
            "required": list(_TABLES[name]["required"]),
            "additionalProperties": False,
        },
    )
    for name, form in _FORMS.items()
}
"""The descriptions of the tools by name."""


def check_arguments(name: str, arguments: Any) -> dict[str, Any]:
    """Check the arguments of a call; returns those that are set. Raises `Refusal` `bad_arguments`."""
    form = _FORMS[name]
    try:
        return form.model_validate(arguments).model_dump(exclude_none=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))[:60] or "arguments"
        accepted = f"{name} takes {', '.join(form.model_fields)}"
        raise Refusal("bad_arguments", sanitise(f"{name}: {place}: {problem['msg']}"), accepted) from None


def check_plain_text(text: str, name: str, max_length: int) -> str:
    """Return `text`, if a person can be shown all of it without changes. Raises `Refusal` `bad_arguments`. `name` is
    used in the message."""
    if not text.strip():
        raise Refusal("bad_arguments", f"the {name} is empty")
    if len(text) > max_length:
        raise Refusal(
            "bad_arguments", f"the {name} is longer than {max_length:,} characters", "write it into a file first"
        )
    if sanitise(text) != text.expandtabs(4):
        raise Refusal("bad_arguments", f"the {name} has control characters in it", "write it as plain text")
    return text
