"""Measures the time of a running session, and checks its time limits (SPEC 3.8, 9.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.clock import Clock
from engine.execution.channels import Limits


class SessionClock:
    """Measures the time of a session, and the time since its last output. Both pause while it waits for a person. May
    be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._active = clock.monotonic()
        self._asking = 0
        self._asking_since = 0.0

    def note_activity(self) -> None:
        """Note that the session printed or did something."""
        self._active = self._clock.monotonic()

    @contextmanager
    def pause(self, on_pause: Callable[[], None]) -> Iterator[None]:
        """Pause while the session waits for a person; `on_pause` is called by the first of several pauses."""
        with self._lock:
            self._asking += 1
            first = self._asking == 1
            if first:
                self._asking_since = self._clock.monotonic()
        if first:
            on_pause()
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    now = self._clock.monotonic()
                    self._began += now - self._asking_since
                    self._active = now

    @property
    def is_waiting(self) -> bool:
        """Whether the session waits for a person."""
        return self._asking > 0

    @property
    def seconds(self) -> float:
        """Seconds since the session began."""
        return self._clock.monotonic() - self._began

    def exceeded_limit(self, limits: Limits) -> str:
        """Why a time limit is reached; "" when none is."""
        with self._lock:
            if self._asking:
                return ""
        now = self._clock.monotonic()
        if now - self._began >= limits.seconds:
            return f"it ran for {_format_seconds(limits.seconds)}, its time limit"
        if limits.silence_seconds is not None and now - self._active >= limits.silence_seconds:
            return f"it printed nothing for {_format_seconds(limits.silence_seconds)}"
        return ""


def _format_seconds(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
