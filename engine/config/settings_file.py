"""Reads `Settings` from the text of `config.toml` and the environment, which wins, or reports all problems (SPEC 7.6).

A problem names the file and line, or the variable; the key; what was found, and what is accepted or was probably meant.
Here are functions over text; of the disk only the links in the paths of workspaces matter.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine.config.provider_settings import PROVIDERS
from engine.config.setting_keys import (
    ID_FORMAT,
    VARIABLES,
    KeyPath,
    describe_accepted,
    format_key,
    parse_value,
    suggest_key,
)
from engine.config.settings import Settings
from engine.frozen import frozen
from engine.model import Refusal, sanitise

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KEY_MARK = "[key]"
"""The last part of pydantic's location of an error in the name of a section."""


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


def syntax_problem(error: tomllib.TOMLDecodeError, text: str, file: str) -> Problem:
    """The problem of a text that is not TOML."""
    message = str(error)
    match = re.search(r"\(at line (\d+), column (\d+)\)", message)
    last = len(text.rstrip().split("\n"))
    line, place = (match[1], f"column {match[2]}") if match else (last, "the file ends too early")
    return Problem(f"{file}:{line}", "", f"{place}: not TOML: {re.sub(r' *[(]at .*[)]$', '', message)}")


def validation_problems(
    error: ValidationError, text: str, file: str, data: Mapping[str, Any], variables: Mapping[KeyPath, str]
) -> list[Problem]:
    """The problems of values that are not accepted. `data` are all values, `variables` the names of those variables
    that set some of them."""
    errors = [(_path_of(entry), entry) for entry in error.errors(include_url=False)]
    lines = _lines_of(text, {path for path, _ in errors})
    problems = []
    for path, entry in errors:
        where = variables.get(path)
        if where is None:
            line = lines.get(path) or lines.get(path[:-1])
            where = f"{file}:{line}" if line else file
        is_missing = entry["type"] == "missing"
        problems.append(Problem(where, sanitise(format_key(path)), _explain(entry, path, data), is_missing))
    return sorted(problems, key=lambda problem: (len(problem.where), problem.where))


def _path_of(entry: ErrorDetails) -> KeyPath:
    return tuple(str(part) for part in entry["loc"] if part != KEY_MARK)


def _explain(entry: ErrorDetails, path: KeyPath, data: Mapping[str, Any]) -> str:
    if entry["type"] == "extra_forbidden":
        return f"unknown key; {suggest_key(path)}"
    if entry["type"] == "missing":
        return f"missing; expected {describe_accepted(path)}"
    if entry["loc"][-1] == KEY_MARK:
        return f"bad name; expected {ID_FORMAT}"
    if entry["type"] == "value_error":
        return str(entry["ctx"]["error"])
    return f"{_format_value(_value_at(data, path))} is not accepted; expected {describe_accepted(path)}"


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
    return data


def _format_value(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
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


MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a settings file in bytes; a larger one is surely something else."""


def read_settings(text: str, *, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings that `text` (TOML) and `environment` give; the environment wins. Raises `BadConfig`."""
    overriding = overriding_variables(environment)
    try:
        values = _merge_built_ins(tomllib.loads(text))
        for path, variable in overriding.items():
            _set_at(values, path, parse_value(path, environment[variable]))
        # Strict JSON mode: "yes" is no truth value and 1.5 no whole number, but a list may become a tuple.
        # TOML's dates fit no setting: a list of one null is refused by every type.
        serialised = json.dumps(values, default=lambda date: [None])
        return Settings.model_validate_json(serialised, strict=True, by_alias=True, by_name=False)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(syntax_problem(error, text, file)) from error
    except ValidationError as error:
        raise BadConfig(*validation_problems(error, text, file, values, overriding)) from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, too many brackets
        raise BadConfig(Problem(file, "", f"cannot be read: {error}")) from error


def overriding_variables(environment: Mapping[str, str]) -> dict[KeyPath, str]:
    """The keys that the environment sets, each with the name of its variable."""
    return {path: variable for variable, path in VARIABLES.items() if variable in environment}


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
