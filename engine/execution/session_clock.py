"""The clock of a running session, which its time limits are checked against (SPEC 3.8, 9.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.clock import Clock
from engine.execution.channels import Limits


class SessionClock:
    """How long a session has run, and since when it has printed nothing. Both pause while it waits for a person's
    answer. May be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._active = clock.monotonic()
        self._asking = 0
        self._asking_since = 0.0

    def touch(self) -> None:
        """The session printed or did something."""
        self._active = self._clock.monotonic()

    @contextmanager
    def paused(self, on_pause: Callable[[], None]) -> Iterator[None]:
        """While a person is asked; `on_pause` is called when nobody was being asked yet."""
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
    def asking(self) -> bool:
        """True while a person is asked."""
        return self._asking > 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock.monotonic() - self._began

    def exceeded(self, limits: Limits) -> str:
        """Which time limit was reached, in words; "" for none."""
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
