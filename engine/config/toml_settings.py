"""Reads `Settings` from the text of `config.toml` and the environment, which wins (SPEC 7.6).

Functions over text; of the disk only the links in the paths of workspaces matter.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from engine.config import Settings
from engine.config.agents import PROVIDERS
from engine.config.config_problems import BadConfig, Problem, nesting_problem, syntax_problem, validation_problems
from engine.config.setting_keys import VARIABLES, KeyPath, parse_value

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
    except ValueError as error:  # Python reads no number of so many digits
        raise BadConfig(Problem(file, "", f"a number in it is too long: {error}")) from error
    except RecursionError as error:
        raise BadConfig(nesting_problem(file)) from error


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
