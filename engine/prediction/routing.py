"""Which channel and agent work goes to (SPEC 2.4, 1.1), in five steps.

The channel that was named, by the Twin or by a person → the channel the task belongs to → the one that prose belongs to
by its meaning → round-robin over channels that were not triggered recently → a draw weighted by the time of day. A
channel that is not registered is refused, whoever names it. Who does prose is the agent whose domain fits it best, else
the channel's own; a flow needs no such choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine.clock import Clock
from engine.config import SettingsSource
from engine.model import PartOfDay, Randomness, Refusal, part_of_day
from engine.prediction.placing import Route

_NEVER = datetime.min.replace(tzinfo=UTC)

RECENTLY = timedelta(hours=1)
"""A channel triggered within this time is passed over by the round-robin."""

WEIGHTS: Mapping[PartOfDay, Mapping[str, float]] = {
    PartOfDay.MORNING: {"koji-core": 3, "research": 3, "chronicle-hub": 1, "dream-weaver": 1, "garden": 1},
    PartOfDay.AFTERNOON: {"koji-core": 5, "research": 2, "chronicle-hub": 1, "dream-weaver": 2, "garden": 1},
    PartOfDay.EVENING: {"koji-core": 1, "research": 1, "chronicle-hub": 4, "dream-weaver": 2, "garden": 2},
    PartOfDay.NIGHT: {"koji-core": 1, "research": 1, "chronicle-hub": 1, "dream-weaver": 2, "garden": 3},
}
"""Mornings plan, afternoons work, evenings write up (SPEC 2.1); a channel that is not named here weighs 1."""


def nowhere(prompt: str, channel: str = "") -> Route:
    """Nobody knows what prompts mean."""
    return Route(channel)


class Router:
    """Routes by the channels of the settings. `place(prompt, channel)` says what prose means, see `Placing.place`."""

    def __init__(
        self,
        settings: SettingsSource,
        clock: Clock,
        randomness: Randomness,
        place: Callable[[str, str], Route] = nowhere,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._place = place

    def route(
        self,
        prose: str,
        *,
        named: str | None = None,
        affinity: str = "",
        triggered: Mapping[str, datetime],
        routed: Mapping[str, int],
    ) -> Route:
        """The route of one piece of work; `prose` is its prompt, "" for a flow.

        `triggered` when each channel was last triggered, `routed` how many proposals the round-robin has already sent
        to each in this cycle. Raises `Refusal` `unknown_channel`.
        """
        channels = self._settings.current.channels
        given = named or affinity
        if given not in (*channels, "") or not channels:
            told = f"there is no channel {given!r}" if given else "no channel is registered"
            known = ", ".join(channels) or "none"
            fix = f"one of {known}; or add it under [channels.NAME] in config.toml"
            raise Refusal("unknown_channel", told, fix)
        route = self._place(prose, given) if prose else Route(given)
        if not route.channel:
            channel, step = self._in_turn(list(channels), triggered, routed)
            route = replace(route, channel=channel, why=f"{step}: its meaning fits no channel" if prose else step)
        return route if route.agent else replace(route, agent=channels[route.channel].agent)

    def _in_turn(
        self, registered: Sequence[str], triggered: Mapping[str, datetime], routed: Mapping[str, int]
    ) -> tuple[str, str]:
        now = self._clock.now()
        rested = [name for name in registered if name not in triggered or now - triggered[name] >= RECENTLY]
        if rested:
            return min(rested, key=lambda name: (routed.get(name, 0), triggered.get(name, _NEVER))), "round-robin"
        weights = WEIGHTS[part_of_day(self._clock.local())]
        return self._randomness.pick({name: weights.get(name, 1.0) for name in registered}), "time of day"
