"""Describes the six tools of `tools.toml` to models (SPEC 3.8), and checks the arguments of their calls."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.execution.tools.policy import TOOL_NAMES
from engine.model import Refusal, ToolSpec, sanitise

MAX_COMMAND = 20_000
"""Characters of a command."""

MAX_QUERY = 500
"""Characters of a search."""

EXEC_SECONDS = 120
"""Seconds after which a command is ended, unless the model asks for more."""

MAX_EXEC_SECONDS = 3_600
"""The most seconds a model may ask for."""

_TYPES: Mapping[str, type] = {"string": str, "integer": int}


def _parse_spec(name: str, row: Mapping[str, Any]) -> ToolSpec:
    limits = {"default_seconds": EXEC_SECONDS, "max_seconds": MAX_EXEC_SECONDS}
    properties: dict[str, Any] = {
        argument: {"type": "string", "description": text} for argument, text in row["required"].items()
    }
    properties |= {
        argument: {"type": "integer", "minimum": 1, "description": text.format(**limits)}
        for argument, text in row.get("optional", {}).items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(row["required"]),
        "additionalProperties": False,
    }
    return ToolSpec(name, row["description"], schema)


_TABLES = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))
SPECS = {name: _parse_spec(name, row) for name, row in _TABLES.items()}
"""The tools by name."""
assert tuple(SPECS) == TOOL_NAMES


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a call; returns those that are set. Raises `Refusal` `bad_arguments`."""
    schema = SPECS[name].parameters
    properties = schema["properties"]
    accepted = f"{name} takes {', '.join(properties)}"
    if not isinstance(arguments, Mapping):
        raise Refusal("bad_arguments", f"{name} takes an object of arguments", accepted)
    present = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in present if key not in properties]
    if unknown:
        raise Refusal("bad_arguments", f"{name} has no argument {sanitise(str(unknown[0]))[:60]!r}", accepted)
    missing = [key for key in schema["required"] if key not in present]
    if missing:
        raise Refusal("bad_arguments", f"{name} needs {' and '.join(missing)}", accepted)
    for key, value in present.items():
        expected = properties[key]
        if not isinstance(value, _TYPES[expected["type"]]) or isinstance(value, bool):
            raise Refusal("bad_arguments", f"{key} must be of type {expected['type']}", expected["description"])
        if isinstance(value, int) and value < expected["minimum"]:
            raise Refusal("bad_arguments", f"{key} must be at least {expected['minimum']}", expected["description"])
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Refusal("bad_arguments", f"{key} has characters that UTF-8 cannot write") from error
    return present


def check_plain_text(text: str, name: str, max_length: int) -> str:
    """`text`, if a person can be shown all of it as it is. Raises `Refusal` `bad_arguments`."""
    if not text.strip():
        raise Refusal("bad_arguments", f"the {name} is empty")
    if len(text) > max_length:
        raise Refusal(
            "bad_arguments", f"the {name} is longer than {max_length:,} characters", "write it into a file first"
        )
    if sanitise(text) != text.expandtabs(4):
        raise Refusal("bad_arguments", f"the {name} has control characters in it", "write it as plain text")
    return text
