"""The operator in front of a console: the greeting at a first run and after an absence, and the reports of activity.

`ConsoleApp` has one `Presence`, and tells it of keys and of the terminal's focus.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields.cards import make_absence_fields
from clawpy_console.keys import format_key
from clawpy_console.screens.mission import MissionScreen
from clawpy_console.widgets.texts import render_fields
from engine.model import MIN_ABSENCE

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine

REPORT_INTERVAL = timedelta(seconds=30)
"""Minimum time between two reports to the engine."""


class Presence:
    """The operator in front of one console."""

    def __init__(self, app: Console) -> None:
        self._app = app
        self._active_at: datetime | None = None
        """The time of the last key or click, or of the greeting."""
        self._blurred_at: datetime | None = None
        self._reported_at: datetime | None = None
        self._is_greeting = False

    def greet(self) -> None:
        """Show the hints of a first run, or what happened since the last quit. Called once, after the first reading."""
        app = self._app
        saved = app.last_screen.saved_at
        self._active_at = app.now()
        if not app.last_screen.welcomed:
            self._show_first_steps()
        if saved is not None and app.now() - saved > MIN_ABSENCE:
            self._show_absence(saved)

    def update_first_steps(self) -> None:
        """Show the hints of a first run again, since other channels are served than they say."""
        if self._is_greeting and not self._app.last_screen.welcomed:
            self._show_first_steps()

    def _show_first_steps(self) -> None:
        app = self._app
        app.call_engine(
            lambda engine: _read_first_run_lines(engine, app.keymap, demo=app.demo),
            lambda lines: self._greet([] if app.last_screen.welcomed else lines),
        )

    def note_activity(self, key: str) -> None:
        """Note a key, or a click ("" as the key). The first one after an absence shows what happened: many terminals do
        not say that they lost the focus."""
        app = self._app
        now = app.now()
        active_at = self._active_at
        self._active_at = now
        if active_at is not None and now - active_at > MIN_ABSENCE:
            self._show_absence(active_at)
        elif self._is_greeting and (app.last_screen.welcomed or key == "escape"):
            self._greet([])
        if app.is_loaded and key == "escape" and not app.last_screen.welcomed:
            app.update_last_screen(welcomed=True)
        self._report_activity(now)

    def _report_activity(self, now: datetime) -> None:
        """Report activity to the engine, at most twice a minute."""
        app = self._app
        if app.engine is None or (self._reported_at is not None and now - self._reported_at < REPORT_INTERVAL):
            return
        self._reported_at = now
        app.call_engine(
            lambda engine: engine.autonomy.note_activity(), lambda _: app.reload(["autonomy"]), group="activity"
        )

    def note_blur(self) -> None:
        """Note that the terminal lost the focus."""
        self._blurred_at = self._app.now()

    def note_focus(self) -> None:
        """Note that the terminal has the focus again; after an absence show what happened."""
        blurred_at = self._blurred_at
        self._blurred_at = None
        if blurred_at is not None and self._app.now() - blurred_at > MIN_ABSENCE:
            self._show_absence(blurred_at)
            self._active_at = self._app.now()

    def _show_absence(self, since: datetime) -> None:
        app = self._app
        app.call_engine(lambda engine: _read_absence_lines(engine, since, app.now()), self._greet)

    def _greet(self, lines: list[Content]) -> None:
        self._is_greeting = bool(lines)
        for screen in self._app.screen_stack:
            if isinstance(screen, MissionScreen):
                if screen.is_ready:
                    screen.greet(lines)
                else:
                    self._app.call_after_refresh(self._greet, lines)


def _read_first_run_lines(engine: Engine, keymap: Mapping[str, str], *, demo: bool) -> list[Content]:
    """The hints of a first run: which keys do what, and the optional steps. Each fits 75 cells while no agent is found.

    Blocking: call it in a thread.
    """
    # not before the first frame
    from clawpy_console.screens.agent_dialogs import make_channel_hint, read_channel_options

    def key(action: str) -> tuple[str, str]:
        return (format_key(action, keymap), "$accent")

    scope = "--workspace DIR adds folders · only what you approve runs"
    if demo:
        scope = "the demo runs a few checks; the rest waits for you"
    return [
        Content.assemble(
            ("Each card is useful work: ", "bold $ink"), key("stack.approve"), " runs it, ",
            key("stack.dismiss"), " dismisses it, ", key("stack.snooze"), " snoozes it",
        ),
        Content.assemble(
            "Changes wait as a diff: ", key("app.work"), " shows them, ",
            key("work.land"), " lands them, ", key("work.undo"), " undoes that",
        ),
        Content.assemble(
            key("mission.own"), " writes your own prompt; ",
            make_channel_hint(read_channel_options(engine), format_key("app.hire", keymap)),
        ),
        Content.assemble(f"{scope} · ", ("esc", "$accent"), " hides this"),
    ]  # fmt: skip


MAX_ABSENCE_CELLS = 200
"""Maximum number of cells of a line about what happened."""


def _read_absence_lines(engine: Engine, since: datetime, now: datetime) -> list[Content]:
    """The work since then; no lines when nothing happened. Blocking: call it in a thread."""
    from engine import document  # not before the first frame

    if not (lines := render_fields(make_absence_fields(document(engine.read_activity(since))), MAX_ABSENCE_CELLS)):
        return []
    return [Content.styled(f"While you were away, {formats.age(now - since)}", "bold $accent"), *lines]
