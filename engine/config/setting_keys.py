"""The keys of settings: parses and formats them, and says what each accepts (SPEC 7.6).

`settings_file` uses these functions on the file and on the environment, the settings store on keys that you name.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import typing
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engine.config.settings import Settings
from engine.model import Refusal

KeyPath = tuple[str, ...]
"""The parts of a key: `console.theme` is `("console", "theme")`."""

ID_FORMAT = "an id: a lower-case letter, then at most 39 of a-z, 0-9, _ and -"

BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
"""Words for yes and no in the environment and on the command line; the file itself takes true and false only."""

_SECRET_NAME = re.compile(r"(?i)key|token|secret|password")
"""Names under which people would write a key of a provider."""


def parse_key(key: str) -> KeyPath:
    """The parts of a dotted key, for instance `console.theme` or `workspaces."/srv/shop".autonomy`.

    Raises `Refusal` `bad_key` when it is not a key, and `unknown_key` with the key that was probably meant.
    """
    try:
        value: Any = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        value = None
    parts: list[str] = []
    while isinstance(value, dict) and len(value) == 1:
        [(name, value)] = value.items()
        parts.append(name)
    if value != 0:
        fix = 'for example `crossPollEnabled`, `console.theme` or `workspaces."/full/path".autonomy`'
        raise Refusal("bad_key", f"{key!r} is not a key", fix)
    path = tuple(parts)
    if _field_at(path) is None:
        raise Refusal("unknown_key", f"there is no setting {format_key(path)}", suggest_key(path))
    return path


def format_key(path: Sequence[str]) -> str:
    """The key as it is written in a file: parts that are no bare words stand in quotes."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False) for part in path
    )


def parse_value(path: KeyPath, text: str) -> Any:
    """The value that `text` stands for, by the type of the setting; text that fits nothing stays text and fails
    validation."""
    annotation = _annotation_at(path)
    if annotation is bool:
        return BOOLEAN_WORDS.get(text.strip().lower(), text)
    if annotation is str or annotation is None or _is_subclass(annotation, StrEnum):
        return text
    if typing.get_origin(annotation) is tuple and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def describe_accepted(path: KeyPath) -> str:
    """The values that are accepted at `path`, in words."""
    field = _field_at(path)
    if field is None:
        return ""
    annotation, info = field
    return (info.description if info else None) or _describe_type(annotation, list(info.metadata) if info else [])


MAX_SUGGESTED_KEYS = 4


def suggest_key(path: KeyPath) -> str:
    """The keys that were probably meant by an unknown one, in words; else where all keys are listed."""
    depth = next((depth for depth in range(len(path)) if _field_at(path[: depth + 1]) is None), len(path) - 1)
    section, unknown = path[:depth], path[depth]
    annotation = _annotation_at(section)
    if not _is_subclass(annotation, BaseModel):
        return f"{format_key(section)} is a single value"
    if path[0] in ("providers", "acp") and _SECRET_NAME.search(unknown):
        return f"keys do not belong in this file; remove it and run: clawpy key set {path[1]}"
    keys = {key.lower(): key for key in _keys_of(annotation)}
    name = unknown.replace("_", "").lower()
    close = difflib.get_close_matches(name, keys, n=1) or [key for key in keys if name in key][:MAX_SUGGESTED_KEYS]
    likely = [(*section, keys[key]) for key in close]
    likely = likely or [elsewhere for elsewhere in VARIABLES.values() if elsewhere[-1] == unknown][:1]
    if likely:
        return f"did you mean {' or '.join(map(format_key, likely))}?"
    if section:
        return "known keys: " + ", ".join(keys.values())
    return "`clawpy config get` lists all keys, `clawpy help settings` explains them"


def _describe_type(annotation: Any, metadata: list[Any]) -> str:
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return _describe_number("a whole number" if annotation is int else "a number", metadata)
    if _is_subclass(annotation, StrEnum):
        return "one of " + ", ".join(f'"{item.value}"' for item in annotation)
    if typing.get_origin(annotation) is tuple:
        return 'a list of strings, for example ["main", "prod*"]'
    if annotation is str:
        return ID_FORMAT if any(getattr(item, "pattern", None) for item in metadata) else "a string in quotes"
    if _is_subclass(annotation, BaseModel):
        return "a section with " + ", ".join(_keys_of(annotation))
    return "a section"


def _describe_number(kind: str, metadata: list[Any]) -> str:
    limits = {name: getattr(item, name) for item in metadata for name in ("ge", "gt", "le") if hasattr(item, name)}
    if "gt" in limits:
        return f"{kind} above {limits['gt']:g}" + (f" and up to {limits['le']:g}" if "le" in limits else "")
    return f"{kind} from {limits['ge']} to {limits['le']}" if limits.keys() >= {"ge", "le"} else kind


def _keys_of(section: Any) -> list[str]:
    """The keys of a section as they are written in the file."""
    return [info.alias or name for name, info in section.model_fields.items()]


def _annotation_at(path: KeyPath) -> Any:
    """The type of the setting at `path`, None when there is no such setting."""
    field = _field_at(path)
    return None if field is None else field[0]


def _field_at(path: KeyPath) -> tuple[Any, FieldInfo | None] | None:
    """The type and the field of a setting or a section, None when there is none."""
    annotation: Any = Settings
    info: FieldInfo | None = None
    for part in path:
        if _is_subclass(annotation, BaseModel):
            info = {field.alias or name: field for name, field in annotation.model_fields.items()}.get(part)
            if info is None:
                return None
            annotation = info.annotation
        elif typing.get_origin(annotation) in (dict, tuple):
            values = typing.get_args(annotation)
            annotation, info = values[1] if typing.get_origin(annotation) is dict else values[0], None
        else:
            return None
    return annotation, info


def _is_subclass(annotation: Any, kind: type) -> bool:
    # On 3.11 and 3.12 `dict[str, str]` passes for a type and then fails in issubclass.
    return typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, kind)


def _variables() -> dict[str, KeyPath]:
    """`CLAWPY_CROSS_POLL_ENABLED` -> `crossPollEnabled`; single values at the top and in `[console]`."""
    variables: dict[str, KeyPath] = {}
    for name, info in Settings.model_fields.items():
        alias = info.alias or name
        if typing.get_origin(info.annotation) is not dict and not _is_subclass(info.annotation, BaseModel):
            variables[f"CLAWPY_{name.upper()}"] = (alias,)
        elif name == "console":
            for inner, field in info.annotation.model_fields.items():  # type: ignore[union-attr]
                variables[f"CLAWPY_CONSOLE_{inner.upper()}"] = (alias, field.alias or inner)
    return variables


VARIABLES = _variables()
"""Every environment variable that overrides a setting, and the key it sets."""
