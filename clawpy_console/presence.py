"""Whether the operator is there: what the engine hears of him, and what he is told when he comes back (SPEC 7, 9)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from clawpy_console.screens.mission.screen import MissionScreen

if TYPE_CHECKING:
    from textual.content import Content

    from clawpy_console.console import Console

ABSENCE = timedelta(minutes=30)
"""Away for longer than this, and the operator is told what happened meanwhile."""

REPORT_INTERVAL = timedelta(seconds=30)
"""The engine hears of the operator no more often than this."""


class Presence:
    """The operator in front of one console."""

    def __init__(self, app: Console) -> None:
        self._app = app
        self._blurred_at: datetime | None = None
        self._heard_at: datetime | None = None
        self._greeting = False

    def came(self) -> None:
        """Once after the first reading: what happened since the last time, or the first-run line."""
        app, saved = self._app, self._app.last.saved_at
        if not app.last.welcomed:
            from clawpy_console.screens.mission.greeting import first_run_lines

            app.ask(
                lambda engine: first_run_lines(engine, app.keymap),
                lambda lines: self._greet([] if app.last.welcomed else lines),
            )
        if saved is not None and app.now() - saved > ABSENCE:
            self._tell_since(saved)

    def acted(self, key: str) -> None:
        """A key or a click ("" for the latter): the operator is there. Told to the engine at most twice a minute."""
        app = self._app
        now = app.now()
        if self._greeting and (app.last.welcomed or key == "escape"):
            self._greet([])
        if app.greeted and key == "escape" and not app.last.welcomed:
            app.keep(welcomed=True)
        if app.engine is None or (self._heard_at is not None and now - self._heard_at < REPORT_INTERVAL):
            return
        self._heard_at = now
        app.ask(lambda engine: engine.autonomy.heard("console"), lambda _: app.renew(["autonomy"]), group="heard")

    def looked_away(self) -> None:
        """The terminal is not in front any more."""
        self._blurred_at = self._app.now()

    def looked_back(self) -> None:
        """It is again."""
        away, self._blurred_at = self._blurred_at, None
        if away is not None and self._app.now() - away > ABSENCE:
            self._tell_since(away)

    def _tell_since(self, since: datetime) -> None:
        from clawpy_console.screens.mission.greeting import absence_lines

        app = self._app
        app.ask(lambda engine: absence_lines(engine, since, app.now()), self._greet)

    def _greet(self, lines: list[Content]) -> None:
        self._greeting = bool(lines)
        for screen in self._app.screen_stack:
            if isinstance(screen, MissionScreen):
                if screen.ready:
                    screen.greet(lines)
                else:
                    self._app.call_after_refresh(self._greet, lines)
