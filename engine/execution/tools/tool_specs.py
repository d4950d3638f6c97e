"""The six tools as a model sees them (SPEC 3.8), and the check of its arguments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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


def _spec(
    name: str, description: str, required: Mapping[str, str], optional: Mapping[str, tuple[int, str]]
) -> ToolSpec:
    """`required` arguments are texts, `optional` ones whole numbers with their minimum."""
    properties: dict[str, Any] = {key: {"type": "string", "description": text} for key, text in required.items()}
    properties |= {
        key: {"type": "integer", "minimum": minimum, "description": text} for key, (minimum, text) in optional.items()
    }
    return ToolSpec(
        name,
        description,
        {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False},
    )


_PATH = "Path of the file, relative to the project's top folder."

SPECS: Mapping[str, ToolSpec] = {
    "read": _spec(
        "read",
        "Read a text file of the project, or list a folder of it. Long files come in parts.",
        {"path": "Path of a file or folder, relative to the project's top folder; `.` is that folder."},
        {"first_line": (1, "Begin at this line; 1 by default."), "lines": (1, "Read at most so many lines.")},
    ),
    "write": _spec(
        "write",
        "Write a whole text file of the project, new or in place of the old one. Missing folders are made.",
        {"path": _PATH, "content": "The whole text of the file."},
        {},
    ),
    "edit": _spec(
        "edit",
        "Replace one piece of text in a file of the project. The piece must be in the file exactly once.",
        {
            "path": _PATH,
            "old_text": "The text as it stands in the file, exactly.",
            "new_text": "What stands there then.",
        },
        {},
    ),
    "exec": _spec(
        "exec",
        "Run a shell command in the project's top folder, in a sandbox, and get the end of its output and its exit "
        "code. It reads no input; what it leaves running in the background ends with it.",
        {"command": "The command, for a POSIX shell."},
        {"timeout_seconds": (1, f"End it after so long; {EXEC_SECONDS} by default, at most {MAX_EXEC_SECONDS}.")},
    ),
    "web_search": _spec("web_search", "Search the web.", {"query": "What to look for, in a few words."}, {}),
    "web_fetch": _spec(
        "web_fetch",
        "Fetch a web page and get its text. Long pages come in parts.",
        {"url": "The full address, beginning with https:// or http://."},
        {"first_character": (1, "Begin at this character; 1 by default.")},
    ),
}
assert tuple(SPECS) == TOOL_NAMES


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a call; returns those that are set. Raises `Refusal` `bad_arguments`."""
    schema = SPECS[name].parameters
    properties = schema["properties"]
    if not isinstance(arguments, Mapping):
        raise Refusal("bad_arguments", f"{name} takes an object of arguments", f"it takes {', '.join(properties)}")
    present = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in present if key not in properties]
    if unknown:
        raise Refusal(
            "bad_arguments",
            f"{name} has no argument {sanitise(str(unknown[0]))[:60]!r}",
            _accepted_arguments(name, properties),
        )
    missing = [key for key in schema["required"] if key not in present]
    if missing:
        raise Refusal("bad_arguments", f"{name} needs {' and '.join(missing)}", _accepted_arguments(name, properties))
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


def _accepted_arguments(name: str, properties: Mapping[str, Any]) -> str:
    return f"{name} takes {', '.join(properties)}"


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
