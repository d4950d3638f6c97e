"""The theme, the keys, the bell and the mouse of one console, as the settings have them (SPEC 9.7).

Themes are TOML files with eleven colours: ours in `themes/`, the operator's in `config/themes/`. Every colour is parsed
before a theme is accepted, because Textual accepts a bad one and fails when it draws with it.

`ConsoleApp` has one `Appearance`. `clawpy doctor` and `clawpy config set` judge theme and keys here, because the engine
accepts any text for them.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from clawpy_console.fields import TONES
from clawpy_console.keys import check_keymap
from engine.model import Refusal
from engine.text import sanitise

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from clawpy_console.last_screen import LastScreen
    from engine import Engine, Home


# Themes


THEME_COLORS = ("background", "surface", "line", "text", "grey", "faint", "accent", "wants", "wrong", "good", "lit")
"""The colours that a theme file must define; style sheets and contents use them as `$grey`, `$wants`, ..."""

DEFAULT_THEME = "clawpy-dark"
"""Used where the theme of the last quit is gone or invalid."""


def find_shipped_folder() -> Path:
    """The folder of the program's own themes: inside the wheel, or beside an editable install."""
    inside = Path(__file__).parent / "themes"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "themes"


def load_theme(file: Path) -> Theme:
    """The theme in `file`, named after the file.

    Raises `Refusal` ("bad_theme") that names the file, the key and what is accepted.
    """
    example = "a theme is a TOML file, see themes/clawpy-dark.toml"
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refusal("bad_theme", f"{file}: {error}", example) from error
    colors = document.get("colors", {})
    if not isinstance(colors, dict):
        raise Refusal("bad_theme", f"{file}: colors: is no table", example)
    _check_theme_keys(file, document, colors)
    for key in THEME_COLORS:
        if key not in colors:
            raise Refusal("bad_theme", f"{file}: colors.{key}: is missing", "every theme must set all eleven colours")
        try:
            Color.parse(colors[key])
        except (ColorParseError, TypeError, AttributeError) as error:
            fix = "accepted: #rrggbb, a CSS name, ansi_red"
            raise Refusal("bad_theme", f"{file}: colors.{key}: {colors[key]!r} is not a colour", fix) from error
    return _make_theme(file.stem, colors, dark=document.get("dark", True), ansi=document.get("ansi", False))


def _check_theme_keys(file: Path, document: dict[str, Any], colors: dict[str, Any]) -> None:
    """Raise `Refusal` for a key of a theme that is not known, or a switch that is neither true nor false."""
    for key in (*document, *(f"colors.{key}" for key in colors)):
        accepted = [f"colors.{name}" for name in THEME_COLORS] if "." in key else ["dark", "ansi", "colors"]
        if key not in accepted:
            raise Refusal("bad_theme", f"{file}: {key}: is not a known key", f"accepted: {', '.join(accepted)}")
    for key in ("dark", "ansi"):
        if not isinstance(document.get(key, False), bool):
            raise Refusal("bad_theme", f"{file}: {key}: {document[key]!r} is not true or false", "write true or false")


def load_themes(user_folder: Path) -> Iterator[Theme | Refusal]:
    """All themes, ours first; an invalid file as its refusal."""
    for folder in (find_shipped_folder(), user_folder):
        for file in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            try:
                yield load_theme(file)
            except Refusal as refusal:
                yield refusal


_COLOR_BY_ROLE = TONES["theme"]
"""The colour of a theme file for each colour of Textual's themes."""

_COLOR_BY_VARIABLE = TONES["variable"]
"""The same for variables of style sheets."""


def _make_theme(name: str, colors: dict[str, str], *, dark: bool, ansi: bool) -> Theme:
    cursor = {
        "ansi-background": "ansi_black" if dark else "ansi_white",
        "ansi-foreground": "ansi_white" if dark else "ansi_black",
        "block-cursor-foreground": "ansi_black" if ansi else colors["text"],
        "block-cursor-background": "ansi_cyan" if ansi else colors["lit"],
        "block-cursor-text-style": "bold",
        "input-cursor-background": "ansi_cyan" if ansi else colors["accent"],
        "input-cursor-foreground": "ansi_black" if ansi else colors["background"],
    }
    roles: dict[str, Any] = {role: colors[key] for role, key in _COLOR_BY_ROLE.items()}
    variables = {variable: colors[key] for variable, key in _COLOR_BY_VARIABLE.items()} | cursor
    return Theme(name=name, dark=dark, ansi=ansi, variables=variables, **roles)


# Settings that only the console can judge: the engine accepts any text for them


def find_settings_problems(settings: Mapping[str, Any], home: Home) -> list[Refusal]:
    """The problems of the console with its theme and keys in `settings` (named as in the file)."""
    refusals: list[Refusal] = []
    try:
        _find_theme(settings["console"]["theme"], home)
    except Refusal as refusal:
        refusals.append(refusal)
    bad_keys = check_keymap(settings["keys"])[1]
    return refusals + [Refusal(bad.code, f"{home.config_file}: {bad.message}", bad.fix) for bad in bad_keys]


def check_setting(key: str, value: str, home: Home) -> None:
    """Check a new value of the setting `key`, where only the console uses it.

    Raises `Refusal`: `unknown_theme`, `bad_theme`, `bad_keys`. Problems that existed before are ignored.
    """
    match _parse_key(key):
        case ["console", "theme"]:
            _find_theme(value, home)
        case ["keys", action_id]:
            keys = read_configured_keys(home)
            before = {refusal.message for refusal in check_keymap(keys)[1]}
            changed = {action_id: value}
            for refusal in check_keymap(changed | keys | changed)[1]:  # of two with one key, this one is refused
                if refusal.message not in before:
                    raise refusal


def read_configured_keys(home: Home) -> dict[str, str]:
    """The keys of the settings file by action."""
    return {name: text for name, text in home.read_settings_section("keys").items() if isinstance(text, str)}


def _find_theme(name: str, home: Home) -> Theme:
    """The theme `name`, read from its file; the operator's own comes before ours. Raises `Refusal`: `unknown_theme`
    when there is no such theme, `bad_theme` when its file is invalid."""
    user_themes = home.config / "themes"
    file: Path | None = None
    with suppress(OSError, ValueError):  # a name that no file can have
        files = (folder / f"{name}.toml" for folder in (user_themes, find_shipped_folder()))
        file = next(filter(Path.is_file, files), None)
    if file is None:
        names = sorted({path.stem for folder in (find_shipped_folder(), user_themes) for path in folder.glob("*.toml")})
        message = f"console.theme: there is no theme {sanitise(name)[:60]!r}"
        fix = f"one of {', '.join(names)}; or put your own theme file into {user_themes}"
        raise Refusal("unknown_theme", message, fix)
    return load_theme(file)


def _parse_key(key: str) -> list[str]:
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


class Appearance:
    """The theme and keys of one app: at the start those of the last quit, then those of the settings.

    Invalid ones are reported, and the valid ones used.
    """

    def __init__(self, app: Console, last: LastScreen) -> None:
        """Use the theme and keys of `last`, before the first frame."""
        self._app = app
        self._app.keymap, _ = check_keymap(last.keys)
        app.set_keymap(self._app.keymap)
        try:
            self.use_theme(last.theme)
        except Refusal:  # if it is the theme of the settings, `apply_settings` says so
            self.use_theme(DEFAULT_THEME)

    def remove_builtin_themes(self) -> None:
        """Remove Textual's own themes from the choice."""
        for name in BUILTIN_THEMES:
            if name in self._app.available_themes and name != self._app.theme:
                self._app.unregister_theme(name)

    def use_theme(self, name: str) -> None:
        """Load the theme `name` from its file and use it. Raises `Refusal` `unknown_theme`, `bad_theme`."""
        if name not in self._app.available_themes or name not in BUILTIN_THEMES:
            self._app.register_theme(_find_theme(name, self._app.home))
        theme = self._app.get_theme(name)
        if theme is None or theme.ansi or self._app.is_running:
            self._app.theme = name
            return
        # At the start the style sheet is not parsed yet: setting the colours now saves a second parse.
        self._app.set_reactive(App.theme, name)
        self._app.stylesheet.set_variables(self._app.get_css_variables())
        self._app.set_class(theme.dark, "-dark-mode", update=False)
        self._app.set_class(not theme.dark, "-light-mode", update=False)

    async def load_themes(self) -> None:
        """Register all themes, the operator's own too."""
        themes = await asyncio.to_thread(lambda: list(load_themes(self._app.home.config / "themes")))
        for theme in themes:
            if isinstance(theme, Refusal):
                self._app.report_refusal(theme)
            else:
                self._app.register_theme(theme)

    async def apply_settings(self, engine: Engine) -> None:
        """Use theme, keys, bell and mouse of the settings. Called at the start and when a setting changes."""
        current = await asyncio.to_thread(lambda: engine.settings.current)
        self._app.keymap, refusals = check_keymap(current.keys)
        self._app.set_keymap(self._app.keymap)
        for refusal in refusals:
            self._app.report_refusal(refusal)
        self._app.bell_enabled = current.console.bell
        self._app.uses_mouse = current.console.mouse
        if current.console.theme != self._app.theme:
            try:
                self.use_theme(current.console.theme)
            except Refusal as refusal:
                self._app.report_refusal(refusal)
