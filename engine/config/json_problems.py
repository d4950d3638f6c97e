"""What is wrong with a JSON file that the operator edits, in words, with line and column (SPEC 4.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from engine.model import sanitise

Fault = tuple[Sequence[str | int], str]
"""Where in a JSON document (the keys that lead there), and what is wrong there in words."""


def json_problem(text: str, check: Callable[[], Fault | None]) -> str:
    """What is wrong with a document, "" when nothing is; `check` looks at one that can be parsed."""
    try:
        json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {_SYNTAX_MESSAGES.get(error.msg, error.msg.lower())}"
    except _DuplicateKey as duplicate:
        return f"the key {sanitise(str(duplicate))!r} appears twice"
    except RecursionError:
        return "it is nested too deeply"
    fault = check()
    if fault is None:
        return ""
    keys, message = fault
    line, column = _position(text, keys)
    path = ".".join(str(key) for key in keys)
    return sanitise(f"line {line}, column {column}: {path + ': ' if path else ''}{message}")


_SYNTAX_MESSAGES = {
    "Expecting value": "a value is expected here",
    "Expecting property name enclosed in double quotes": 'a key in double quotes is expected here, or "}"',
    "Expecting ':' delimiter": 'a ":" is missing here',
    "Expecting ',' delimiter": 'a "," is missing here',
    "Illegal trailing comma before end of object": "there is a comma too many here",
    "Illegal trailing comma before end of array": "there is a comma too many here",
    "Extra data": "there is text after the end of the document",
    "Unterminated string starting at": "this string has no closing quote",
    "Invalid control character at": "there is a line break or control character inside a string",
}


class _DuplicateKey(ValueError):
    """An object has a key twice, of which a parser would drop one."""


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise _DuplicateKey(key)
        unique[key] = value
    return unique


def _position(text: str, keys: Sequence[str | int]) -> tuple[int, int]:
    """Line and column (from 1) of the value to which `keys` lead in a JSON document, or of what holds it when it is
    missing. JSON is YAML, but for tabs; where YAML cannot read it the document itself is meant."""
    import yaml

    try:
        node = yaml.compose(text.replace("\t", " "))
    except (yaml.YAMLError, RecursionError):
        node = None
    if node is None:
        return 1, 1
    for key in keys:
        children = isinstance(node, yaml.MappingNode) and [value for name, value in node.value if name.value == key]
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            children = node.value[key : key + 1]
        if not children:
            break
        node = children[0]
    return node.start_mark.line + 1, node.start_mark.column + 1
