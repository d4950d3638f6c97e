"""The operator in front of one console: reports keys and clicks to the engine, and shows what happened meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from clawpy_console.screens.mission import MissionScreen

if TYPE_CHECKING:
    from textual.content import Content

    from clawpy_console.console import Console

ABSENCE = timedelta(minutes=30)
"""Time away after which the operator is shown what happened meanwhile."""

REPORT_INTERVAL = timedelta(seconds=30)
"""Minimum time between two reports to the engine."""


class Presence:
    """The operator in front of one console."""

    def __init__(self, app: Console) -> None:
        self._app = app
        self._blurred_at: datetime | None = None
        self._reported_at: datetime | None = None
        self._is_greeting = False

    def greet(self) -> None:
        """Show the hints of a first run, or what happened since the last quit. Called once, after the first reading."""
        app, saved = self._app, self._app.last.saved_at
        if not app.last.welcomed:
            from clawpy_console.screens.mission_panes import first_run_lines

            app.call_engine(
                lambda engine: first_run_lines(engine, app.keymap),
                lambda lines: self._greet([] if app.last.welcomed else lines),
            )
        if saved is not None and app.now() - saved > ABSENCE:
            self._show_absence(saved)

    def note_activity(self, key: str) -> None:
        """Note a key, or a click ("" as the key), and report it to the engine at most twice a minute."""
        app = self._app
        now = app.now()
        if self._is_greeting and (app.last.welcomed or key == "escape"):
            self._greet([])
        if app.greeted and key == "escape" and not app.last.welcomed:
            app.update_last_screen(welcomed=True)
        if app.engine is None or (self._reported_at is not None and now - self._reported_at < REPORT_INTERVAL):
            return
        self._reported_at = now
        app.call_engine(
            lambda engine: engine.autonomy.note_activity("console"),
            lambda _: app.reload(["autonomy"]),
            group="activity",
        )

    def note_blur(self) -> None:
        """Note that the terminal lost the focus."""
        self._blurred_at = self._app.now()

    def note_focus(self) -> None:
        """Note that the terminal has the focus again; after an absence show what happened."""
        blurred_at, self._blurred_at = self._blurred_at, None
        if blurred_at is not None and self._app.now() - blurred_at > ABSENCE:
            self._show_absence(blurred_at)

    def _show_absence(self, since: datetime) -> None:
        from clawpy_console.screens.mission_panes import absence_lines

        app = self._app
        app.call_engine(lambda engine: absence_lines(engine, since, app.now()), self._greet)

    def _greet(self, lines: list[Content]) -> None:
        self._is_greeting = bool(lines)
        for screen in self._app.screen_stack:
            if isinstance(screen, MissionScreen):
                if screen.ready:
                    screen.greet(lines)
                else:
                    self._app.call_after_refresh(self._greet, lines)
