"""The theme, the keys, the bell and the mouse of one console, as the settings have them (SPEC 9.7)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.app import App
from textual.theme import BUILTIN_THEMES

from clawpy_console.keys import check_keymap
from clawpy_console.themes import DEFAULT_THEME, find_theme_file, load_theme, load_themes
from engine.model import Refusal

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from clawpy_console.last_screen import LastScreen
    from engine import Engine


class Appearance:
    """The theme and keys of one app: at the start those of the last quit, then those of the settings.

    Invalid ones are reported, and the valid ones used.
    """

    def __init__(self, app: Console, last: LastScreen) -> None:
        """Use the theme and keys of `last`, before the first frame."""
        self._app = app
        self._app.keymap, _ = check_keymap(last.keys)
        app.set_keymap(self._app.keymap)
        if not self.use_theme(last.theme):
            self.use_theme(DEFAULT_THEME)

    def remove_builtin_themes(self) -> None:
        """Remove Textual's own themes from the choice."""
        for name in BUILTIN_THEMES:
            if name in self._app.available_themes and name != self._app.theme:
                self._app.unregister_theme(name)

    def use_theme(self, name: str) -> bool:
        """Load the theme `name` from its file and use it; False when there is none or it is invalid."""
        if name not in self._app.available_themes or name not in BUILTIN_THEMES:
            file = find_theme_file(name, self._app.home.config / "themes")
            if file is None:
                return False
            try:
                self._app.register_theme(load_theme(file))
            except Refusal as refusal:
                self._app.report_refusal(refusal)
                return False
        theme = self._app.get_theme(name)
        if theme is None or theme.ansi or self._app.is_running:
            self._app.theme = name
            return True
        # At the start the style sheet is not parsed yet: setting the colours now saves a second parse.
        self._app.set_reactive(App.theme, name)
        self._app.stylesheet.set_variables(self._app.get_css_variables())
        self._app.set_class(theme.dark, "-dark-mode", update=False)
        self._app.set_class(not theme.dark, "-light-mode", update=False)
        return True

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
        self._app.mouse = current.console.mouse
        if current.console.theme != self._app.theme and not self.use_theme(current.console.theme):
            self._app.show_toast(f"there is no theme {current.console.theme!r}; see config/themes", "warning")
