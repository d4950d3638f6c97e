"""Reads the channels of the settings, and the limits of their sessions (SPEC 1.1, 2.4, 3.8)."""

from __future__ import annotations

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
