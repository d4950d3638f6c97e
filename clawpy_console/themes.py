"""Themes as TOML files with eleven colours: ours in `themes/`, the operator's in `config/themes/` (SPEC 9.7).

Every colour is parsed before a theme is accepted, because Textual accepts a bad one and fails when it draws with it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from engine.model import Refusal

COLORS = ("background", "surface", "line", "text", "grey", "faint", "accent", "wants", "wrong", "good", "lit")
"""The colours that a theme file must define; style sheets and contents use them as `$grey`, `$wants`, ..."""

DEFAULT_THEME = "clawpy-dark"


def shipped_folder() -> Path:
    """The folder of the program's own themes: inside the wheel, or beside an editable install."""
    inside = Path(__file__).parent / "themes"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "themes"


def find_theme_file(name: str, user_folder: Path) -> Path | None:
    """The file of the theme `name`, None when there is none; the operator's own comes before ours."""
    for folder in (user_folder, shipped_folder()):
        if (file := folder / f"{name}.toml").is_file():
            return file
    return None


def load_theme(file: Path) -> Theme:
    """The theme in `file`, named after the file.

    Raises `Refusal` ("bad_theme") that names the file, the key and what is accepted.
    """
    if file.exists() and not file.is_file():  # reading a pipe would block
        raise Refusal(
            "bad_theme", f"{file} is not a regular file", "a theme is a TOML file, see themes/clawpy-dark.toml"
        )
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refusal("bad_theme", f"{file}: {error}", "a theme is a TOML file, see themes/clawpy-dark.toml") from error

    def refuse(key: str, problem: str, accepted: str) -> Refusal:
        return Refusal("bad_theme", f"{file}: {key}: {problem}", accepted)

    for key in document:
        if key not in ("dark", "ansi", "colors"):
            raise refuse(key, "is not a known key", "accepted: dark, ansi, [colors]")
    for key in ("dark", "ansi"):
        if not isinstance(document.get(key, False), bool):
            raise refuse(key, f"{document[key]!r} is not true or false", "accepted: true, false")
    colors = document.get("colors")
    if not isinstance(colors, dict):
        raise refuse("colors", "is missing", f"a table [colors] with {', '.join(COLORS)}")
    for key in colors:
        if key not in COLORS:
            raise refuse(f"colors.{key}", "is not a known colour", f"accepted: {', '.join(COLORS)}")
    for key in COLORS:
        if key not in colors:
            raise refuse(f"colors.{key}", "is missing", "every theme must set all eleven colours")
        try:
            Color.parse(colors[key])
        except (ColorParseError, TypeError, AttributeError) as error:
            raise refuse(
                f"colors.{key}", f"{colors[key]!r} is not a colour", "accepted: #rrggbb, a CSS name, ansi_red"
            ) from error
    return _theme(file.stem, colors, dark=document.get("dark", True), ansi=document.get("ansi", False))


def load_themes(user_folder: Path) -> Iterator[Theme | Refusal]:
    """All themes, ours first; an invalid file as its refusal."""
    for folder in (shipped_folder(), user_folder):
        for file in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            try:
                yield load_theme(file)
            except Refusal as refusal:
                yield refusal


def _theme(name: str, colors: dict[str, str], *, dark: bool, ansi: bool) -> Theme:
    own = {key: colors[key] for key in ("line", "grey", "faint", "wants", "wrong", "good", "lit")}
    return Theme(
        name=name,
        primary=colors["accent"],
        secondary=colors["accent"],
        accent=colors["accent"],
        warning=colors["wants"],
        error=colors["wrong"],
        success=colors["good"],
        foreground=colors["text"],
        background=colors["background"],
        surface=colors["surface"],
        panel=colors["surface"],
        boost=colors["lit"],
        dark=dark,
        ansi=ansi,
        variables=own
        | {
            "ink": colors["text"],
            "paper": colors["background"],
            "scrollbar": colors["line"],
            "scrollbar-hover": colors["grey"],
            "scrollbar-active": colors["accent"],
            "scrollbar-background": colors["background"],
            "scrollbar-background-hover": colors["background"],
            "scrollbar-background-active": colors["background"],
            "scrollbar-corner-color": colors["background"],
            "border": colors["accent"],
            "border-blurred": colors["line"],
            "ansi-background": "ansi_black" if dark else "ansi_white",
            "ansi-foreground": "ansi_white" if dark else "ansi_black",
            "block-cursor-foreground": "ansi_black" if ansi else colors["text"],
            "block-cursor-background": "ansi_cyan" if ansi else colors["lit"],
            "block-cursor-text-style": "bold",
            "input-cursor-background": "ansi_cyan" if ansi else colors["accent"],
            "input-cursor-foreground": "ansi_black" if ansi else colors["background"],
        },
    )
