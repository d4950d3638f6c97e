"""Screens with a list that words are filtered by."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.widgets import Input

from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.filter import Filter


class Filtering(ConsoleScreen):
    """Base of a screen with a `Filter` for the list of the pane `FILTERED`. Enter goes to the list, Escape shows all
    of it again."""

    FILTERED: ClassVar[str] = ""

    def filtered(self) -> None:
        """The words moved: show what has them."""
        raise NotImplementedError

    @property
    def filter(self) -> Filter:
        return self.query_one(Filter)

    @property
    def needle(self) -> list[str]:
        """The words that are asked for, in lower case; none before there is a line to type them in."""
        found = self.query(Filter)
        return found.first().words if found else []

    def action_filter(self) -> None:
        self.go_to(self.FILTERED)
        self.filter.open()

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self.filtered()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self.filter.set_class(bool(self.needle), "-shown")
        self.go_to(self.FILTERED)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.filter.has_class("-shown"):
            event.stop()
            self.filter.put_away()
            self.filtered()
            self.go_to(self.FILTERED)
