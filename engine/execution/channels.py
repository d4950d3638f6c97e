"""Channels: lines of work, the agent that serves each, and the limits of its sessions (SPEC 1.1, 2.4, 3.8)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import SettingsSource
from engine.values import Refusal, microusd

APPROVED = "approved"
AUTONOMOUS = "autonomous"

AUTONOMOUS_SECONDS = 120.0
AUTONOMOUS_TOKENS = 50_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a session while it runs (SPEC 3.8): seconds in all, seconds without output, micro-dollars, tokens.

    None is no limit. Reaching a limit is allowed, passing it is not; seconds end it when they are reached.
    """

    seconds: float
    silence_seconds: float | None
    cost: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """One line of work as configured."""

    name: str
    agent: str
    specialty: str
    runner: str
    minutes: float
    silence_minutes: float
    cost_cap: int

    def limits(self, mode: str) -> Limits:
        """The limits of a session of this channel: `approved` ones have the channel's, `autonomous` ones the fixed
        ones of SPEC 3.8 (and never more money than the channel allows)."""
        if mode == AUTONOMOUS:
            return Limits(AUTONOMOUS_SECONDS, None, self.cost_cap, AUTONOMOUS_TOKENS)
        return Limits(self.minutes * 60, self.silence_minutes * 60, self.cost_cap)


class Channels:
    """The channels that are registered now; settings may change while the engine runs."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    def names(self) -> tuple[str, ...]:
        """Every registered channel, in the order of the settings."""
        return tuple(self._settings.current.channels)

    def get(self, name: str) -> Channel:
        """The channel called `name`. Raises `Refusal` `unknown_channel`."""
        settings = self._settings.current.channels.get(name)
        if settings is None:
            known = ", ".join(self.names()) or "none"
            raise Refusal("unknown_channel", f"there is no channel {name!r}", f"registered channels: {known}")
        return Channel(
            name=name,
            agent=settings.agent,
            specialty=settings.specialty,
            runner=settings.runner,
            minutes=settings.session_minutes,
            silence_minutes=settings.session_silence_minutes,
            cost_cap=microusd(settings.session_cost_cap),
        )
