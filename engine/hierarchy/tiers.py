"""The tier of an agent, and the chain of its leaders up to the owner (SPEC 1.2 to 1.4). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from engine.files import read_table
from engine.frozen import frozen
from engine.model.text import count

DEFAULT_TIER = 4

_TABLE = read_table(__file__, "tiers.toml")

ARCHETYPES: Mapping[str, int] = _TABLE["archetypes"]
"""Archetype keys of `tools.json` and their tiers."""


def resolve_tier(agent_id: str, *, assigned: int | None, archetype: str) -> tuple[int, str]:
    """(tier of an agent, 1 to 5, and the rule that decided it, in words). The first rule that applies wins.

    `assigned` is the agent's entry in `tier_assignments` or None, `archetype` the key in its `tools.json` or "". An
    unknown archetype is ignored.
    """
    if assigned is not None:
        return assigned, "tier_assignments in wisdom_cascade_config.json"
    if archetype in ARCHETYPES:
        return ARCHETYPES[archetype], f"archetype {archetype} in tools.json"
    for tier, names in _TABLE["words"].items():
        for word in re.split(r"[_-]+", agent_id):
            if word in names:
                return int(tier), f"the name: {word!r} in {agent_id}"
    return DEFAULT_TIER, "default; no other rule applies"


def is_leader(tier: int) -> bool:
    """Whether agents of a tier are leaders (SPEC 1.3). Tiers 1 to 3 are synchronised and give guidance; tiers 4 and 5
    receive it and send findings up."""
    return tier <= 3


OWNER = "owner"
"""The name of the operator, who is above all agents and is not an agent."""

DEPTH = 10
"""Maximum number of leaders in a chain if `cascade_depth` is null."""


@frozen
class Chain:
    """The leaders of an agent from the direct one (hop 0) upward, and in `words` why the chain ends. It `is_loose` if
    it is a circle or ends at an agent that does not exist."""

    leaders: tuple[str, ...]
    words: str
    is_loose: bool = False


@frozen
class AgentTier:
    """An agent's tier, the rule that decided it, and the agent's domain in `comms.json`."""

    id: str
    tier: int
    rule: str
    domain: str


@frozen
class Lineage:
    """An agent, its leaders from the direct one upward, and their chain."""

    agent: AgentTier
    leaders: tuple[AgentTier, ...]
    chain: Chain


def climb_chain(agent_id: str, leader_of: Callable[[str], str | None], *, depth: int = DEPTH) -> Chain:
    """Walk from `agent_id` upward. `leader_of` returns the leader of an agent, None for an agent that does not exist.
    It is called only for agents in the chain.

    An agent that does not exist ends the chain, which names it. That is not an error.
    """
    leaders: list[str] = []
    current = leader_of(agent_id) or ""
    while current != OWNER:
        if current in (agent_id, *leaders):
            return Chain(tuple(leaders), f"stops: {current} is already in it, so the chain is a circle", is_loose=True)
        above = leader_of(current)
        if above is None:
            return Chain(tuple(leaders), f"stops: {current} does not exist", is_loose=True)
        if len(leaders) == depth:
            return Chain(tuple(leaders), f"stops after {count(depth, 'leader')}")
        leaders.append(current)
        current = above
    return Chain(tuple(leaders), "reaches the owner")


def walk_chain(agent_id: str, reports_to: Mapping[str, str]) -> Chain:
    """The chain of an agent if all agents are known: `reports_to` has an entry for each."""
    return climb_chain(agent_id, reports_to.get)
