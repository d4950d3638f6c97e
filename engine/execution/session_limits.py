"""Reads the channels of the settings, and holds sessions to their limits of time (SPEC 1.1, 2.4, 3.8, 9.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.clock import Clock
from engine.config import ChannelSettings, SettingsSource
from engine.frozen import frozen
from engine.model import Refusal, microusd

APPROVED = "approved"
AUTONOMOUS = "autonomous"

AUTONOMOUS_SECONDS = 120.0
AUTONOMOUS_TOKENS = 50_000


@frozen
class Limits:
    """The limits of a running session (SPEC 3.8); None is no limit."""

    seconds: float
    silence_seconds: float | None
    """Seconds without output."""
    cost: int
    """Micro-dollars, which it may reach but not exceed."""
    tokens: int | None = None
    """Tokens, which it may reach but not exceed."""


class Channels:
    """The present channels; settings may change while the engine runs."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    def get(self, name: str) -> ChannelSettings:
        """The channel called `name`. Raises `Refusal` `unknown_channel`."""
        channels = self._settings.current.channels
        if name not in channels:
            names = ", ".join(channels) or "none"
            raise Refusal("unknown_channel", f"there is no channel {name!r}", f"registered channels: {names}")
        return channels[name]

    def limits(self, name: str, mode: str) -> Limits:
        """The limits of a session on a channel: the channel's own for `approved`, those of SPEC 3.8 for `autonomous`,
        with the channel's cost cap. Raises as `get`."""
        channel = self.get(name)
        cost = microusd(channel.session_cost_cap)
        if mode == AUTONOMOUS:
            return Limits(AUTONOMOUS_SECONDS, None, cost, AUTONOMOUS_TOKENS)
        return Limits(channel.session_minutes * 60, channel.session_silence_minutes * 60, cost)


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
