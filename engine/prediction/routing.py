"""Which channel a proposal goes to (SPEC 2.4), in four steps. Pure but for the seeded draw of the last one.

The Twin's channel → the channel the task belongs to → round-robin over channels that were not triggered recently → a
draw weighted by the time of day. A channel that is not registered is refused, whoever names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine.values import PartOfDay, Randomness, Refusal

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


@dataclass(frozen=True, slots=True)
class Route:
    """Where to, and which step said so."""

    channel: str
    step: str


def check_registered(channel: str, registered: Sequence[str]) -> str:
    """`channel`, or `Refusal` `unknown_channel` when it is not registered."""
    if channel not in registered:
        raise Refusal(
            "unknown_channel",
            f"there is no channel {channel!r}",
            f"registered are {', '.join(registered) or 'none'}; add one under [channels.NAME] in config.toml",
        )
    return channel


def route(
    *,
    twin: str | None,
    affinity: str,
    registered: Sequence[str],
    triggered: Mapping[str, datetime],
    routed: Mapping[str, int],
    part: PartOfDay,
    now: datetime,
    randomness: Randomness,
) -> Route:
    """The channel for one proposal.

    `registered` in the order of the configuration, `triggered` when each was last triggered, `routed` how many
    proposals the round-robin has already sent to each in this cycle. Raises `Refusal` `unknown_channel`.
    """
    if twin:
        return Route(check_registered(twin, registered), "twin")
    if affinity:
        return Route(check_registered(affinity, registered), "affinity")
    if not registered:
        raise Refusal("unknown_channel", "no channel is registered", "add one under [channels.NAME] in config.toml")
    rested = [name for name in registered if name not in triggered or now - triggered[name] >= RECENTLY]
    if rested:
        return Route(min(rested, key=lambda name: (routed.get(name, 0), triggered.get(name, _NEVER))), "round-robin")
    weights = WEIGHTS[part]
    return Route(randomness.pick({name: weights.get(name, 1.0) for name in registered}), "time of day")
