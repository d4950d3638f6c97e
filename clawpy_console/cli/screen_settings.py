"""What the settings say of the screen, checked where the screen is known: its themes and its keys (SPEC 9.7, 9.8).

The engine accepts any text there, since it knows nothing of a screen. Verbs ask here; the console itself goes on with
what can be used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawpy_console import themes
from clawpy_console.keys import check_keymap
from engine.model import Refusal, sanitise


def problems(settings: Mapping[str, Any], user_themes: Path) -> list[Refusal]:
    """What of `settings` (named as in the file) the console cannot use; `user_themes` are the operator's own."""
    found = []
    try:
        check_theme(settings["console"]["theme"], user_themes)
    except Refusal as refusal:
        found.append(refusal)
    return found + check_keymap(settings["keys"])[1]


def check_theme(name: str, user_themes: Path) -> None:
    """Raises `Refusal`: `unknown_theme` when there is no such theme, `bad_theme` when its file is no good."""
    file = themes.find(name, user_themes)
    if file is None:
        known = sorted({one.stem for folder in (themes.shipped(), user_themes) for one in folder.glob("*.toml")})
        raise Refusal(
            "unknown_theme",
            f"console.theme: there is no theme {sanitise(name)[:60]!r}",
            f"one of {', '.join(known)}; or put your own theme file into {user_themes}",
        )
    themes.load(file)


def check_value(key: str, value: str, config: Path) -> None:
    """Refuse a value for `key` that the console could not use; other keys pass. `config` is the home's config folder.

    Raises `Refusal`: `unknown_theme`, `bad_theme`, `bad_keys`. What was wrong before is not held against the change.
    """
    match key_parts(key):
        case ["console", "theme"]:
            check_theme(value, config / "themes")
        case ["keys", action_id]:
            keys = keys_in(config / "config.toml")
            before = {refusal.message for refusal in check_keymap(keys)[1]}
            for refusal in check_keymap(keys | {action_id: value})[1]:
                if refusal.message not in before:
                    raise refusal


def key_parts(key: str) -> list[str]:
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


def keys_in(file: Path) -> dict[str, str]:
    """`[keys]` as it is written; the engine will say what is wrong with a file that cannot be read."""
    if not file.is_file():  # a pipe in its place would be waited for
        return {}
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("keys", {})
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: text for name, text in section.items() if isinstance(text, str)} if isinstance(section, dict) else {}
