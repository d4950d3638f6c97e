"""Chooses the channel and the agent of a piece of work (SPEC 2.4, 1.1).

The first of five steps that gives a channel decides: the channel named by the Twin or a person, the channel of the kind
of card, the channel that fits the text of the prompt (`prompt_placing`), round-robin over channels that were not
triggered recently, and a draw weighted by the time of day. A channel that is not registered is refused. The agent is
the one whose domain fits best, else the channel's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine.clock import Clock
from engine.config import SettingsSource
from engine.frozen import frozen
from engine.model import PartOfDay, Randomness, Refusal, part_of_day

_NEVER = datetime.min.replace(tzinfo=UTC)

RECENT = timedelta(hours=1)
"""The round-robin leaves out a channel that was triggered within this time."""

CHANNEL_WEIGHTS: Mapping[PartOfDay, Mapping[str, float]] = {
    PartOfDay.MORNING: {"koji-core": 3, "research": 3, "chronicle-hub": 1, "dream-weaver": 1, "garden": 1},
    PartOfDay.AFTERNOON: {"koji-core": 5, "research": 2, "chronicle-hub": 1, "dream-weaver": 2, "garden": 1},
    PartOfDay.EVENING: {"koji-core": 1, "research": 1, "chronicle-hub": 4, "dream-weaver": 2, "garden": 2},
    PartOfDay.NIGHT: {"koji-core": 1, "research": 1, "chronicle-hub": 1, "dream-weaver": 2, "garden": 3},
}
"""The weights of channels by the part of the day: mornings plan, afternoons work, evenings write up (SPEC 2.1). A
channel that is not named here weighs 1."""


@frozen
class Route:
    """The channel and the agent of a piece of work, "" for unknown."""

    channel: str = ""
    agent: str = ""
    why: str = ""
    """The reason in words."""
    meaning: bytes = b""
    """The embedding of the prompt (float32), b"" without an embedder. It is stored with the card, so that later prompts
    can be compared with it."""


class Router:
    """Routes work to the channels of the settings. `place` is `PromptPlacer.place`."""

    def __init__(
        self,
        settings: SettingsSource,
        clock: Clock,
        randomness: Randomness,
        place: Callable[[str, str], Route],
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
        """The route of one piece of work. `prose` is its prompt, "" for a flow.

        `named` is the channel that the Twin or a person chose, `affinity` that of the kind of card. `triggered` is when
        each channel was last triggered. `routed` is how many proposals this cycle has sent to each. Raises `Refusal`
        `unknown_channel`.
        """
        channels = self._settings.current.channels
        requested = named or affinity
        if requested not in (*channels, "") or not channels:
            message = f"there is no channel {requested!r}" if requested else "no channel is registered"
            names = ", ".join(channels) or "none"
            fix = f"one of {names}; or add it under [channels.NAME] in config.toml"
            raise Refusal("unknown_channel", message, fix)
        route = self._place(prose, requested) if prose else Route(requested)
        if not route.channel:
            channel, rule = self._pick_channel(list(channels), triggered, routed)
            route = replace(route, channel=channel, why=f"{rule}: its meaning fits no channel" if prose else rule)
        return route if route.agent else replace(route, agent=channels[route.channel].agent)

    def _pick_channel(
        self, registered: Sequence[str], triggered: Mapping[str, datetime], routed: Mapping[str, int]
    ) -> tuple[str, str]:
        """Returns (channel, rule): a channel, and the rule that chose it."""
        now = self._clock.now()
        rested = [name for name in registered if name not in triggered or now - triggered[name] >= RECENT]
        if rested:
            return min(rested, key=lambda name: (routed.get(name, 0), triggered.get(name, _NEVER))), "round-robin"
        weights = CHANNEL_WEIGHTS[part_of_day(self._clock.local())]
        return self._randomness.pick({name: weights.get(name, 1.0) for name in registered}), "time of day"
