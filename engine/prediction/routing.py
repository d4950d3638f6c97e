"""Chooses the channel and the agent of a piece of work (SPEC 2.4, 1.1).

The first of five steps that gives a channel decides: the channel named by the Twin or a person, the channel of the kind
of card, the channel that fits the text of the prompt (`placing`), round-robin over channels that were not triggered
recently, and a draw weighted by the time of day. A channel that is not registered is refused. The agent is the one
whose domain fits best, else the channel's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine.clock import Clock, PartOfDay, part_of_day
from engine.config.settings import Settings
from engine.frozen import frozen
from engine.model import Refusal
from engine.randomness import Randomness

_NEVER = datetime.min.replace(tzinfo=UTC)
"""The time of the last trigger of a channel that was never triggered."""

RECENT_TRIGGER_AGE = timedelta(hours=1)
"""A channel that was triggered within this time is not the one unused for longest."""

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
    embedding: bytes = b""
    """The embedding of the prompt (float32), b"" without an embedder. It is stored with the card, so that later prompts
    can be compared with it."""


@frozen
class Router:
    """Routes work to the channels of the settings. `place` is `PromptPlacer.place`."""

    clock: Clock
    randomness: Randomness
    place: Callable[[str, str, Settings], Route]

    def route(
        self,
        prose: str,
        settings: Settings,
        *,
        named: str | None,
        affinity: str,
        triggered: Mapping[str, datetime],
        routed: Mapping[str, int],
    ) -> Route:
        """The route of one piece of work. `prose` is its prompt, "" for a flow. The channel is one of these `settings`.

        `named` is the channel that the Twin or a person chose, `affinity` that of the kind of card. `triggered` is when
        each channel was last triggered. `routed` is how many proposals this check has sent to each. Raises `Refusal`
        `unknown_channel`.
        """
        channels = settings.channels
        requested = named or affinity
        if requested not in (*channels, "") or not channels:
            message = f"there is no channel {requested!r}" if requested else "no channel is registered"
            names = ", ".join(channels) or "none"
            fix = f"one of {names}; or add it under [channels.NAME] in config.toml"
            raise Refusal("unknown_channel", message, fix)
        route = self.place(prose, requested, settings) if prose else Route(requested)
        if not route.channel:
            channel, rule = self._pick_channel(list(channels), triggered, routed)
            route = replace(route, channel=channel, why=f"its meaning fits no channel; {rule}" if prose else rule)
        return route if route.agent else replace(route, agent=channels[route.channel].agent)

    def _pick_channel(
        self, registered: Sequence[str], triggered: Mapping[str, datetime], routed: Mapping[str, int]
    ) -> tuple[str, str]:
        """Returns (channel, rule): a channel, and the rule that chose it."""
        now = self.clock.now()
        rested = [name for name in registered if name not in triggered or now - triggered[name] >= RECENT_TRIGGER_AGE]
        if rested:
            longest_unused = min(rested, key=lambda name: (routed.get(name, 0), triggered.get(name, _NEVER)))
            return longest_unused, "this one was unused for longest"
        weights = CHANNEL_WEIGHTS[part_of_day(self.clock.local())]
        return self.randomness.pick({name: weights.get(name, 1.0) for name in registered}), "by the time of day"
