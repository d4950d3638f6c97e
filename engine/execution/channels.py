"""Channels: lines of work, the agent that serves each, and the limits of its sessions (SPEC 1.1, 2.4, 3.8)."""

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
    """What ends a session while it runs (SPEC 3.8): seconds in all, seconds without output, micro-dollars, tokens.

    None is no limit. Reaching a limit is allowed, passing it is not; seconds end it when they are reached.
    """

    seconds: float
    silence_seconds: float | None
    cost: int
    tokens: int | None = None


class Channels:
    """The channels that are registered now; settings may change while the engine runs."""

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
        """The limits of a session there: `approved` ones have the channel's, `autonomous` ones the fixed ones of SPEC
        3.8 (and never more money than the channel allows). Raises as `get`."""
        channel = self.get(name)
        cost = microusd(channel.session_cost_cap)
        if mode == AUTONOMOUS:
            return Limits(AUTONOMOUS_SECONDS, None, cost, AUTONOMOUS_TOKENS)
        return Limits(channel.session_minutes * 60, channel.session_silence_minutes * 60, cost)
