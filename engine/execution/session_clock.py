"""The clocks of a running session: since when it runs, and since when nothing was heard of it (SPEC 3.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.clock import Clock
from engine.execution.channels import Limits


class SessionClock:
    """They stand still while a person is asked: his time is not the session's own. From any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._active = clock.monotonic()
        self._asking = 0
        self._asking_since = 0.0

    def stir(self) -> None:
        """A sign of life."""
        self._active = self._clock.monotonic()

    @contextmanager
    def standing_still(self, begun: Callable[[], None]) -> Iterator[None]:
        """While a person is asked; `begun` is called when he was not being asked already."""
        with self._lock:
            self._asking += 1
            first = self._asking == 1
            if first:
                self._asking_since = self._clock.monotonic()
        if first:
            begun()
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

    def over(self, limits: Limits) -> str:
        """Which limit of time it passed, in words; "" for none."""
        with self._lock:
            if self._asking:
                return ""
        now = self._clock.monotonic()
        if now - self._began >= limits.seconds:
            return f"it ran for {_span(limits.seconds)}, its time limit"
        if limits.silence_seconds is not None and now - self._active >= limits.silence_seconds:
            return f"it printed nothing for {_span(limits.silence_seconds)}"
        return ""


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
