"""What verbs do about settings themselves: secrets, which are typed or piped and never given as arguments; and theme
and keys, which only the console uses, so that the engine accepts any text for them (SPEC 9.7)."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from clawpy_console.appearance import find_theme_file, load_theme, shipped_folder
from clawpy_console.cli.options import CommonOptions, WrongUse
from clawpy_console.keys import check_keymap
from engine import Home
from engine.model import Refusal, sanitise

# Theme and keys


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


MAX_SECRET_CHARS = 8192


def store_key(options: argparse.Namespace, common: CommonOptions) -> dict[str, Any]:
    """Ask for a key and store it; returns the document. Raises `WrongUse` when the key was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give a key as an argument: other programs can read it there, and the shell keeps it. "
            "Run `clawpy key set NAME` and paste it when you are asked. "
            "If this was a real key, get a new one from the provider"
        )
    from engine import store_key

    return store_key(common.home, options.name, _read_secret("Key (not shown): "), in_file=options.store == "file")


def store_address(options: argparse.Namespace, common: CommonOptions, *, opener: Callable[..., Any]) -> dict[str, Any]:
    """Ask for the address of a notification surface, which may contain a secret, and store it. Raises `WrongUse` when
    the address was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give an address as an argument: it may contain a token, and the shell keeps it. "
            f"Run `clawpy notify set {options.surface}` and paste it when you are asked"
        )
    from engine import call, store_address

    def write(setting: str, value: str) -> None:
        call(common.home, "config", {"action": "set", "key": setting, "value": value}, opener=opener)

    address_text = _read_secret("Address (not shown): ")
    return store_address(common.home, options.surface, address_text, in_file=options.store == "file", write=write)


def _read_secret(question: str) -> str:
    """A secret, typed without echo or read from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.read(MAX_SECRET_CHARS).strip()
    import getpass

    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
