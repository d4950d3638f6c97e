"""What the settings say of the console itself: theme, keys, bell, mouse (SPEC 9.7)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.app import App
from textual.theme import BUILTIN_THEMES

from clawpy_console import themes
from clawpy_console.keys import check_keymap
from engine.model import Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp
    from clawpy_console.last_screen import LastScreen
    from engine import Engine


class Looks:
    """Theme and keys of one app: first as they were last time, then as the settings say.

    What cannot be used is complained of, and the console goes on with what can.
    """

    def __init__(self, app: ConsoleApp, last: LastScreen) -> None:
        """Take what `last` kept, before the first frame."""
        self._app = app
        self.bell = True
        self.mouse = last.mouse
        """Whether the console takes the mouse at its next start."""
        self.keymap, _ = check_keymap(last.keys)
        app.set_keymap(self.keymap)
        if not self.use_theme(last.theme):
            self.use_theme(themes.DEFAULT)

    def only_ours(self) -> None:
        """Take the themes that Textual brings out of the choice."""
        for name in BUILTIN_THEMES:
            if name in self._app.available_themes and name != self._app.theme:
                self._app.unregister_theme(name)

    def use_theme(self, name: str) -> bool:
        """Load theme `name` from its file and take it; False when there is none or it is no good."""
        if name not in self._app.available_themes or name not in BUILTIN_THEMES:
            file = themes.find(name, self._app.home.config / "themes")
            if file is None:
                return False
            try:
                self._app.register_theme(themes.load(file))
            except Refusal as refusal:
                self._app.complain(refusal)
                return False
        theme = self._app.get_theme(name)
        if theme is None or theme.ansi or self._app.is_running:
            self._app.theme = name
            return True
        # At the start the style sheet was not parsed yet: it gets these colours at once instead of a second parse.
        self._app.set_reactive(App.theme, name)
        self._app.stylesheet.set_variables(self._app.get_css_variables())
        self._app.set_class(theme.dark, "-dark-mode", update=False)
        self._app.set_class(not theme.dark, "-light-mode", update=False)
        return True

    async def load_themes(self) -> None:
        """Offer every theme there is, the operator's own too."""
        found = await asyncio.to_thread(lambda: list(themes.load_all(self._app.home.config / "themes")))
        for one in found:
            if isinstance(one, Refusal):
                self._app.complain(one)
            else:
                self._app.register_theme(one)

    async def take(self, engine: Engine) -> None:
        """Take over what the settings say. At the start and whenever a setting changes."""
        current = await asyncio.to_thread(lambda: engine.settings.current)
        self.keymap, refusals = check_keymap(current.keys)
        self._app.set_keymap(self.keymap)
        for refusal in refusals:
            self._app.complain(refusal)
        self.bell = current.console.bell
        self.mouse = current.console.mouse
        if current.console.theme != self._app.theme and not self.use_theme(current.console.theme):
            self._app.say(f"there is no theme {current.console.theme!r}; see config/themes", "warning")
