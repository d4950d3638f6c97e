"""Checks the settings that only the console uses, theme and keys: the engine accepts any text for them (SPEC 9.7)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from clawpy_console.keys import check_keymap
from clawpy_console.themes import find_theme_file, load_theme, shipped_folder
from engine import Home
from engine.model import Refusal, sanitise


def find_problems(settings: Mapping[str, Any], home: Home) -> list[Refusal]:
    """The problems of the console with `settings` (named as in the file)."""
    refusals = []
    try:
        _check_theme(settings["console"]["theme"], home)
    except Refusal as refusal:
        refusals.append(refusal)
    return refusals + check_keymap(settings["keys"])[1]


def _check_theme(name: str, home: Home) -> None:
    """Raises `Refusal`: `unknown_theme` when there is no such theme, `bad_theme` when its file is invalid."""
    user_themes = home.config / "themes"
    file = find_theme_file(name, user_themes)
    if file is None:
        names = sorted({path.stem for folder in (shipped_folder(), user_themes) for path in folder.glob("*.toml")})
        raise Refusal(
            "unknown_theme",
            f"console.theme: there is no theme {sanitise(name)[:60]!r}",
            f"one of {', '.join(names)}; or put your own theme file into {user_themes}",
        )
    load_theme(file)


def check_value(key: str, value: str, home: Home) -> None:
    """Check a value for the setting `key`, where the console uses it.

    Raises `Refusal`: `unknown_theme`, `bad_theme`, `bad_keys`. Problems that existed before are ignored.
    """
    match _key_parts(key):
        case ["console", "theme"]:
            _check_theme(value, home)
        case ["keys", action_id]:
            keys = configured_keys(home)
            before = {refusal.message for refusal in check_keymap(keys)[1]}
            for refusal in check_keymap(keys | {action_id: value})[1]:
                if refusal.message not in before:
                    raise refusal


def _key_parts(key: str) -> list[str]:
    """The parts of a dotted key, quotes read as TOML reads them; none when it is not a key."""
    try:
        value: Any = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return []
    parts = []
    while isinstance(value, dict) and len(value) == 1:
        [(part, value)] = value.items()
        parts.append(part)
    return parts


def configured_keys(home: Home) -> dict[str, str]:
    """The keys of the settings file by action."""
    return {name: text for name, text in home.settings_section("keys").items() if isinstance(text, str)}
