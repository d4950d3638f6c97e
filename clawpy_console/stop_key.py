"""The stop key, F12: it stops everything at once, in a thread of its own, and waits for nothing (SPEC 3.7)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from engine.model import Hold

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine

log = logging.getLogger(__name__)


class StopKey:
    """The stop key of one console. A stop is shown from the key on, before the engine has answered."""

    def __init__(self, app: Console) -> None:
        self._app = app
        self._was_pressed = False

    def press(self) -> None:
        """Stop everything; if the engine is not open yet, as soon as it is."""
        self._was_pressed = True
        self._app.pressed_stop = Hold("stop", "Stopping… (F12)", self._app.now())
        self._app.state_changed(frozenset({"holds"}))
        if self._app.engine is not None:
            self._stop_in_thread(self._app.engine)

    def engine_opened(self, engine: Engine) -> None:
        """Stop the engine if the key was pressed before it was open."""
        if self._was_pressed:
            self._stop_in_thread(engine)

    def _stop_in_thread(self, engine: Engine) -> None:
        app = self._app

        def stop() -> None:
            try:
                engine.safety.kill_switch.stop("F12 pressed in the console", "operator")
            except Exception as error:
                log.exception("F12 failed")
                app.call_from_thread(self._stop_failed, error)
            else:
                app.call_from_thread(app.reload, ["costs", "autonomy", "sessions", "tasks"])

        threading.Thread(target=stop, name="stop", daemon=True).start()

    def _stop_failed(self, error: Exception) -> None:
        self._app.stop_ended()
        self._app.show_toast(f"Stop failed: {error}. Run `clawpy stop`.", "error")
