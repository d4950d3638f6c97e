"""Lines drawn in styles that have names: what a list or a transcript says of its text is a word, the theme the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.style import Style as RichStyle
from textual.scroll_view import ScrollView
from textual.style import Style


class Toned(ScrollView):
    """A scrolled widget that draws its lines in `TONES`: by name, a style as `Content` takes it.

    In place of Textual's component classes: for each of them it makes up a widget and matches it with every style rule
    whenever the real one is styled, which was more work than all the widgets of a screen.
    """

    TONES: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._tones: dict[str, RichStyle] = {}

    def tone(self, name: str) -> RichStyle:
        """The style `name` in the colours of the theme, to lay over the widget's own."""
        if name not in self._tones:
            style = Style.parse(self.TONES[name])
            if style.background is not None and style.background.a < 1:
                style = Style(background=self.background_colors[1]) + style
            self._tones[name] = style.rich_style
        return self._tones[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        before, self._tones = self._tones, {}
        if any(self.tone(name) != style for name, style in before.items()):
            self.refresh()
