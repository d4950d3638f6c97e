"""Reads `Settings` from the text of `config.toml` and the environment, which wins, or reports all problems (SPEC 7.6).

A problem names the file and line, or the variable; the key; what was found, and what is accepted or was probably meant.
Here are functions over text and keys; of the disk only the links in the paths of workspaces matter.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from engine.config.external_sections import PROVIDERS
from engine.config.settings import Settings
from engine.frozen import frozen
from engine.model import Refusal
from engine.text import sanitise

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KEY_MARK = "[key]"
"""The last part of pydantic's location of an error in the name of a section."""

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a settings file in bytes; a larger one is surely something else."""

KeyPath = tuple[str, ...]
"""The parts of a key: `console.theme` is `("console", "theme")`."""

ID_FORMAT = "an id: a lower-case letter, then at most 39 of a-z, 0-9, _ and -"
"""The form of an id, in words."""

BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
"""Words for yes and no in the environment and on the command line; the file itself takes true and false only."""

_SECRET_NAME = re.compile(r"(?i)key|token|secret|password")
"""Names under which people would write a key of a provider."""

FORMER_KEYS = (("console", "emoji"),)
"""Keys of earlier checkouts that set nothing any more. A file may still have them."""

MAX_SUGGESTED_KEYS = 4
"""Maximum number of keys that are suggested for an unknown one."""


@frozen
class Problem:
    """One thing wrong: `where` is `FILE:LINE` or a variable's name, `key` the dotted key ("" for the file itself)."""

    where: str
    key: str
    message: str
    is_missing: bool = False
    """Whether a value that a section needs is not there."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class BadConfig(Refusal):
    """The settings cannot be used. `problems` has every reason; the message has one a line."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(
            "bad_config",
            "\n".join(str(problem) for problem in problems),
            "fix the lines named above; then `clawpy config get` shows every key",
        )
        self.problems = problems


def make_syntax_problem(error: tomllib.TOMLDecodeError, text: str, file: str) -> Problem:
    """The problem of a text that is not TOML."""
    message = str(error)
    match = re.search(r"\(at line (\d+), column (\d+)\)", message)
    last = len(text.rstrip().split("\n"))
    line, place = (match[1], f"column {match[2]}") if match else (last, "the file ends too early")
    return Problem(f"{file}:{line}", "", f"{place}: not TOML: {re.sub(r' *[(]at .*[)]$', '', message)}")


def make_validation_problems(
    error: ValidationError, text: str, file: str, data: Mapping[str, Any], variables: Mapping[KeyPath, str]
) -> list[Problem]:
    """The problems of values that are not accepted. `data` are all values, `variables` the names of those variables
    that set some of them."""
    errors = [(_make_path(entry), entry) for entry in error.errors(include_url=False)]
    lines = _find_lines(text, {path for path, _ in errors})
    problems = []
    for path, entry in errors:
        where = variables.get(path)
        if where is None:
            line = lines.get(path) or lines.get(path[:-1])
            where = f"{file}:{line}" if line else file
        is_missing = entry["type"] == "missing"
        problems.append(Problem(where, sanitise(format_key(path)), _explain(entry, path, data), is_missing))
    return sorted(problems, key=lambda problem: (len(problem.where), problem.where))


def _make_path(entry: ErrorDetails) -> KeyPath:
    return tuple(str(part) for part in entry["loc"] if part != KEY_MARK)


def _explain(entry: ErrorDetails, path: KeyPath, data: Mapping[str, Any]) -> str:
    """A validation error in words."""
    if entry["type"] == "json_invalid":
        return "a variable CLAWPY_… in the environment is not Unicode text"  # the text of a file always is
    if entry["type"] == "extra_forbidden":
        return f"unknown key; {suggest_key(path)}"
    if entry["type"] == "missing":
        return f"missing; expected {describe_accepted(path)}"
    if entry["loc"][-1] == KEY_MARK:
        return f"bad name; expected {ID_FORMAT}"
    if entry["type"] == "value_error":
        return str(entry["ctx"]["error"])
    return f"{_format_value(_get_value(data, path))} is not accepted; expected {describe_accepted(path)}"


def _get_value(data: Any, path: KeyPath) -> Any:
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
    return data


def _format_value(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
    return sanitise(shown if len(shown) <= 60 else shown[:57] + "…")


def _find_lines(text: str, paths: set[KeyPath]) -> dict[KeyPath, int]:
    """The line on which each key (or the section it would be in) begins.

    tomllib reports no positions, so the document is parsed line by line as it grows: the first prefix that is whole and
    has the key ends where its value ends, and begins after the last prefix that was whole. Only runs on errors.
    """
    wanted = paths | {path[:depth] for path in paths for depth in range(1, len(path))}
    lines_by_path: dict[KeyPath, int] = {}
    lines = text.splitlines(keepends=True)
    begin = 0
    for count in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        while begin < count - 1 and lines[begin].strip()[:1] in ("", "#"):
            begin += 1
        lines_by_path |= {path: begin + 1 for path in wanted - lines_by_path.keys() if _has_path(data, path)}
        begin = count
        if lines_by_path.keys() == wanted:
            break
    return lines_by_path


def _has_path(data: Any, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(data, list):
            return True
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def read_settings(text: str, *, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings that `text` (TOML) and `environment` give; the environment wins. Raises `BadConfig`."""
    overriding = find_overriding_variables(environment)
    try:
        values = _merge_built_ins(_remove_former_keys(tomllib.loads(text)))
        for path, variable in overriding.items():
            _set_at(values, path, parse_value(path, environment[variable]))
        # Strict JSON mode: "yes" is no truth value and 1.5 no whole number, but a list may become a tuple.
        # TOML's dates fit no setting: a list of one null is refused by every type.
        serialised = json.dumps(values, default=lambda date: [None])
        return Settings.model_validate_json(serialised, strict=True, by_alias=True, by_name=False)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(make_syntax_problem(error, text, file)) from error
    except ValidationError as error:
        raise BadConfig(*make_validation_problems(error, text, file, values, overriding)) from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, too many brackets
        raise BadConfig(Problem(file, "", f"cannot be read: {error}")) from error


def find_overriding_variables(environment: Mapping[str, str]) -> dict[KeyPath, str]:
    """The keys that the environment sets, each with the name of its variable."""
    return {path: variable for variable, path in SETTING_VARIABLES.items() if variable in environment}


def _remove_former_keys(data: dict[str, Any]) -> dict[str, Any]:
    """The document without the keys that set nothing any more."""
    for section, name in FORMER_KEYS:
        if isinstance(values := data.get(section), dict):
            values.pop(name, None)
    return data


def _merge_built_ins(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` over the five channels of SPEC 2.4 and over the built-in providers that it names, so that a file may
    change one value of one of them. A provider that it does not name stays unnamed: that means something."""
    merged = dict(data)
    for section, built_in, all_of_them in (("channels", Settings().channels, True), ("providers", PROVIDERS, False)):
        written = data.get(section, {})
        if not isinstance(written, dict):
            continue
        defaults = {name: settings.model_dump(mode="json", by_alias=True) for name, settings in built_in.items()}
        merged[section] = (defaults if all_of_them else {}) | {
            name: defaults.get(name, {}) | values if isinstance(values, dict) else values
            for name, values in written.items()
        }
    return merged


def _set_at(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        inner = data.get(part)
        data[part] = dict(inner) if isinstance(inner, dict) else {}
        data = data[part]
    data[path[-1]] = value


def parse_key(key: str, *, allow_former: bool = False) -> KeyPath:
    """The parts of a dotted key, for instance `console.theme` or `workspaces."/srv/shop".autonomy`.

    Raises `Refusal` `bad_key` when it is not a key, and `unknown_key` with the key that was probably meant. With
    `allow_former`, a key of `FORMER_KEYS` is known.
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
    if _find_field(path) is None and not (allow_former and path in FORMER_KEYS):
        raise Refusal("unknown_key", f"there is no setting {format_key(path)}", suggest_key(path))
    return path


def format_key(path: Sequence[str]) -> str:
    """The key as it is written in a file: parts that are no bare words stand in quotes."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False) for part in path
    )


def parse_value(path: KeyPath, text: str) -> Any:
    """The value that `text` stands for, by the type of the setting. Text that fits nothing stays text and fails
    validation."""
    annotation = _find_annotation(path)
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
    field = _find_field(path)
    if field is None:
        return ""
    annotation, info = field
    return (info.description if info else None) or _describe_type(annotation, list(info.metadata) if info else [])


def suggest_key(path: KeyPath) -> str:
    """The keys that were probably meant by an unknown one, in words; else where all keys are listed."""
    depth = next((depth for depth in range(len(path)) if _find_field(path[: depth + 1]) is None), len(path) - 1)
    section, unknown = path[:depth], path[depth]
    annotation = _find_annotation(section)
    if not _is_subclass(annotation, BaseModel):
        with_dots = (*section[:-1], ".".join(path[depth - 1 :]))
        quoted = f"; a name with dots stands in quotes: {format_key(with_dots)}" if _find_field(with_dots) else ""
        return f"{format_key(section)} is a single value{quoted}"
    if path[0] in ("providers", "acp") and _SECRET_NAME.search(unknown):
        return f"keys do not belong in this file; remove it and run: clawpy key set {path[1]}"
    keys = {key.lower(): key for key in _list_keys(annotation)}
    name = unknown.replace("_", "").lower()
    close = difflib.get_close_matches(name, keys, n=1) or [key for key in keys if name in key][:MAX_SUGGESTED_KEYS]
    likely = [(*section, keys[key]) for key in close]
    likely = likely or [elsewhere for elsewhere in SETTING_VARIABLES.values() if elsewhere[-1] == unknown][:1]
    if likely:
        return f"did you mean {' or '.join(map(format_key, likely))}?"
    if section:
        return "known keys: " + ", ".join(keys.values())
    return "`clawpy help settings` explains the keys"


def _describe_type(annotation: Any, metadata: list[Any]) -> str:
    """The values of a type, in words."""
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return _describe_number("a whole number" if annotation is int else "a number", metadata)
    if _is_subclass(annotation, StrEnum):
        return "one of " + ", ".join(f'"{item.value}"' for item in annotation)
    if typing.get_origin(annotation) is tuple:
        return 'a list of strings, for example ["main", "prod*"]'
    if annotation is str:
        return ID_FORMAT if any(getattr(item, "pattern", None) for item in metadata) else "text, in quotes in the file"
    if _is_subclass(annotation, BaseModel):
        return "a section with " + ", ".join(_list_keys(annotation))
    return "a section"


def _describe_number(kind: str, metadata: list[Any]) -> str:
    limits = {name: getattr(item, name) for item in metadata for name in ("ge", "gt", "le") if hasattr(item, name)}
    if "gt" in limits:
        return f"{kind} above {limits['gt']:g}" + (f" and up to {limits['le']:g}" if "le" in limits else "")
    return f"{kind} from {limits['ge']} to {limits['le']}" if limits.keys() >= {"ge", "le"} else kind


def _list_keys(section: Any) -> list[str]:
    """The keys of a section as they are written in the file."""
    return [info.alias or name for name, info in section.model_fields.items()]


def _find_annotation(path: KeyPath) -> Any:
    """The type of the setting at `path`, None when there is no such setting."""
    field = _find_field(path)
    return None if field is None else field[0]


def _find_field(path: KeyPath) -> tuple[Any, FieldInfo | None] | None:
    """The type and the field of a setting or a section, None when there is none."""
    annotation: Any = Settings
    info: FieldInfo | None = None
    for part in path:
        if _is_subclass(annotation, BaseModel):
            info = {field.alias or name: field for name, field in annotation.model_fields.items()}.get(part)
            if info is None:
                return None
            annotation = info.annotation
            if isinstance(annotation, types.UnionType):  # `X | None`
                annotation = typing.get_args(annotation)[0]
        elif typing.get_origin(annotation) in (dict, tuple):
            values = typing.get_args(annotation)
            annotation, info = values[1] if typing.get_origin(annotation) is dict else values[0], None
        else:
            return None
    return annotation, info


def _is_subclass(annotation: Any, kind: type) -> bool:
    # On 3.11 and 3.12 `dict[str, str]` passes for a type and then fails in issubclass.
    return typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, kind)


def _collect_variables() -> dict[str, KeyPath]:
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


SETTING_VARIABLES = _collect_variables()
"""Every environment variable that overrides a setting, and the key it sets."""
