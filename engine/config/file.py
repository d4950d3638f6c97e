"""From the text of `config.toml` and the environment to `Settings`, or to a list of problems (SPEC 7.6, 11.2).

Functions over text, without a clock; of the disk only the links in the paths of workspaces matter. Every problem
names the file and line, or the variable, the key, what was found, what is accepted, and the key that was probably
meant. All problems are reported at once.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from engine.config import Settings
from engine.config.agents import PROVIDERS
from engine.frozen import frozen
from engine.model import Refusal, sanitise

KeyPath = tuple[str, ...]

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a settings file in bytes; a larger one is surely something else."""


NAMES = "an id: a lower-case letter, then at most 39 of a-z, 0-9, _ and -"

_SECRET = re.compile(r"(?i)key|token|secret|password")
"""Names under which people would write a key."""

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
"""Words for yes and no in the environment and on the command line; the file itself takes true and false only."""


@frozen
class Problem:
    """One thing wrong: `where` is `FILE:LINE` or a variable's name, `key` the dotted key ("" for the file itself)."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class BadConfig(Refusal):
    """The settings cannot be used. `problems` has every reason; the message has one a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(
            "bad_config",
            "\n".join(str(problem) for problem in problems),
            "fix the lines named above; then `clawpy config get` shows every key",
        )
        self.problems = tuple(problems)


def read_settings(text: str, *, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings that `text` (TOML) and `environment` give; the environment wins. Raises `BadConfig`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig([_syntax_problem(error, text, file)]) from error
    except ValueError as error:  # Python reads no number of so many digits
        raise BadConfig([Problem(file, "", f"a number in it is too long: {error}")]) from error
    except RecursionError as error:
        raise BadConfig([_too_deep(file)]) from error
    chosen = _over_built_ins(data)
    variables = overridden(environment)
    for path, (_, value) in variables.items():
        _place(chosen, path, value)
    try:
        # Strict JSON mode: "yes" is no truth value and 1.5 no whole number, but a list may become a tuple.
        return Settings.model_validate_json(
            json.dumps(chosen, default=_unfit), strict=True, by_alias=True, by_name=False
        )
    except RecursionError as error:
        raise BadConfig([_too_deep(file)]) from error
    except ValidationError as error:
        raise BadConfig(_problems(error, text, file, chosen, {p: v for p, (v, _) in variables.items()})) from error


def overridden(environment: Mapping[str, str]) -> dict[KeyPath, tuple[str, Any]]:
    """Which keys the environment sets: variable's name and typed value by key."""
    return {
        path: (variable, typed(path, environment[variable]))
        for variable, path in VARIABLES.items()
        if variable in environment
    }


def typed(path: KeyPath, text: str) -> Any:
    """The value that `text`, typed for `path`, stands for; text that fits nothing stays text and fails validation."""
    annotation = annotation_at(path)
    if annotation is bool:
        return TRUTH.get(text.strip().lower(), text)
    if annotation is str or annotation is None or _is(annotation, StrEnum):
        return text
    if typing.get_origin(annotation) is tuple and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


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
    if not is_known(path):
        raise Refusal("unknown_key", f"there is no setting {dotted(path)}", _suggestion(path))
    return path


def dotted(path: Sequence[str | int]) -> str:
    """The key as it is written in a file: parts that are no bare words stand in quotes."""
    return ".".join(
        str(part) if re.fullmatch(r"[A-Za-z0-9_-]+", str(part)) else json.dumps(str(part), ensure_ascii=False)
        for part in path
    )


def annotation_at(path: Sequence[str | int]) -> Any:
    """The type of the setting at `path`, None when there is no such setting."""
    field = _field_at(path)
    return None if field is None else field[0]


def is_known(path: Sequence[str | int]) -> bool:
    """True when `path` leads to a setting or a section."""
    return _field_at(path) is not None


def accepted(path: Sequence[str | int]) -> str:
    """The values allowed at `path`, in words."""
    field = _field_at(path)
    if field is None:
        return ""
    annotation, info = field
    return (info.description if info else None) or _words(annotation, list(info.metadata) if info else [])


def _words(annotation: Any, metadata: list[Any]) -> str:
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        kind = "a whole number" if annotation is int else "a number"
        limits = {
            name: getattr(item, name) for item in metadata for name in ("ge", "gt", "le", "lt") if hasattr(item, name)
        }
        if "gt" in limits:
            return f"{kind} above {limits['gt']:g}" + (f" and up to {limits['le']:g}" if "le" in limits else "")
        if "ge" in limits and "le" in limits:
            return f"{kind} from {limits['ge']} to {limits['le']}"
        return kind
    if _is(annotation, StrEnum):
        return "one of " + ", ".join(f'"{item.value}"' for item in annotation)
    if typing.get_origin(annotation) is tuple:
        return 'a list of strings, for example ["main", "prod*"]'
    if annotation is str:
        patterned = any(getattr(item, "pattern", None) for item in metadata)
        return NAMES if patterned else "a string in quotes"
    if _is(annotation, BaseModel):
        return "a section with " + ", ".join(known_keys(annotation))
    return "a section"


def known_keys(model: Any) -> list[str]:
    """The keys of a section as they are written in the file."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _field_at(path: Sequence[str | int]) -> tuple[Any, FieldInfo | None] | None:
    annotation: Any = Settings
    info: FieldInfo | None = None
    for part in path:
        if _is(annotation, BaseModel):
            named = {field.alias or name: field for name, field in annotation.model_fields.items()}
            info = named.get(str(part))
            if info is None:
                return None
            annotation = info.annotation
        elif typing.get_origin(annotation) is dict:
            annotation, info = typing.get_args(annotation)[1], None
        elif typing.get_origin(annotation) is tuple:
            annotation, info = typing.get_args(annotation)[0], None
        else:
            return None
    return annotation, info


def _is(annotation: Any, kind: type) -> bool:
    # On 3.11 and 3.12 `dict[str, str]` passes for a type and then fails in issubclass.
    return typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, kind)


def _variables() -> dict[str, KeyPath]:
    """`CLAWPY_CROSS_POLL_ENABLED` -> `crossPollEnabled`; single values at the top and in `[console]`."""
    variables: dict[str, KeyPath] = {}
    for name, info in Settings.model_fields.items():
        alias = info.alias or name
        if typing.get_origin(info.annotation) is not dict and not _is(info.annotation, BaseModel):
            variables[f"CLAWPY_{name.upper()}"] = (alias,)
        elif name == "console":
            for inner, field in info.annotation.model_fields.items():  # type: ignore[union-attr]
                variables[f"CLAWPY_CONSOLE_{inner.upper()}"] = (alias, field.alias or inner)
    return variables


VARIABLES = _variables()
"""Every environment variable that overrides a setting, and the key it sets."""


def _over_built_ins(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` over the five channels of SPEC 2.4 and over the built-in providers that it names, so that a file may
    change one value of one of them. A provider that it does not name stays unnamed: that means something."""
    merged = dict(data)
    for section, built_in, all_of_them in (("channels", Settings().channels, True), ("providers", PROVIDERS, False)):
        written = data.get(section, {})
        if not isinstance(written, dict):
            continue
        defaults = {name: settings.model_dump(mode="json", by_alias=True) for name, settings in built_in.items()}
        entries: dict[str, Any] = dict(defaults) if all_of_them else {}
        for name, values in written.items():
            entries[name] = defaults.get(name, {}) | values if isinstance(values, dict) else values
        merged[section] = entries
    return merged


def _place(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        inner = data.get(part)
        data[part] = dict(inner) if isinstance(inner, dict) else {}
        data = data[part]
    data[path[-1]] = value


def _unfit(value: Any) -> Any:
    """TOML's dates fit no setting; a list of one null is refused by every type."""
    return [None]


def _too_deep(file: str) -> Problem:
    return Problem(file, "", "tables or lists are nested too deeply; no setting needs more than three levels")


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str, file: str) -> Problem:
    message = str(error)
    match = re.search(r"\(at line (\d+), column (\d+)\)", message)
    last = len(text.rstrip().split("\n"))
    line, place = (match[1], f"column {match[2]}") if match else (last, "the file ends too early")
    return Problem(f"{file}:{line}", "", f"{place}: not TOML: {re.sub(r' *[(]at .*[)]$', '', message)}")


def _problems(
    error: ValidationError, text: str, file: str, data: Mapping[str, Any], variables: Mapping[KeyPath, str]
) -> list[Problem]:
    errors = error.errors(include_url=False)
    lines = _lines_of(text, {tuple(str(part) for part in entry["loc"]) for entry in errors})
    problems = []
    for entry in errors:
        path = tuple(str(part) for part in entry["loc"] if part != "[key]")
        where = variables.get(path)
        if where is None:
            line = lines.get(path) or lines.get(path[:-1])
            where = f"{file}:{line}" if line else file
        problems.append(Problem(where, sanitise(dotted(path)), _explain(entry, path, data)))
    return sorted(problems, key=lambda problem: (len(problem.where), problem.where))


def _explain(entry: Any, path: KeyPath, data: Mapping[str, Any]) -> str:
    if entry["type"] == "extra_forbidden":
        return f"unknown key; {_suggestion(path)}"
    if entry["type"] == "missing":
        return f"missing; expected {accepted(path)}"
    if entry["loc"][-1] == "[key]":
        return f"bad name; expected {NAMES}"
    if entry["type"] == "value_error":
        return str(entry["ctx"]["error"])
    return f"{_shown(_value_at(data, path))} is not accepted; expected {accepted(path)}"


def _suggestion(path: KeyPath) -> str:
    for depth in range(len(path)):
        if not is_known(path[: depth + 1]):
            break
    annotation = annotation_at(path[:depth])
    if not _is(annotation, BaseModel):
        return f"{dotted(path[:depth])} is a single value"
    keys = known_keys(annotation)
    wrong = path[depth]
    if path[0] in ("providers", "acp") and _SECRET.search(wrong):
        return f"keys do not belong in this file; remove it and run: clawpy key set {path[1]}"
    close = difflib.get_close_matches(wrong.replace("_", "").lower(), [key.lower() for key in keys], n=1, cutoff=0.6)
    if close:
        key = next(key for key in keys if key.lower() == close[0])
        return f"did you mean {dotted((*path[:depth], key))}?"
    elsewhere = [variable_path for variable_path in VARIABLES.values() if variable_path[-1] == wrong]
    if elsewhere:
        return f"did you mean {dotted(elsewhere[0])}?"
    return "known keys: " + ", ".join(keys)


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
    return data


def _shown(value: Any) -> str:
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    shown = text or (json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value))
    return sanitise(shown if len(shown) <= 60 else shown[:57] + "…")


def _lines_of(text: str, paths: set[KeyPath]) -> dict[KeyPath, int]:
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
        for path in wanted - lines_by_path.keys():
            if _has(data, path):
                lines_by_path[path] = begin + 1
        begin = count
        if len(lines_by_path) == len(wanted):
            break
    return lines_by_path


def _has(data: Any, path: KeyPath) -> bool:
    for part in path:
        if isinstance(data, list):
            return True
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True
