"""Which of the five tiers an agent belongs to, which rule decided (SPEC 1.2, 1.3), and the chain of leaders above it
(SPEC 1.4). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from engine.frozen import frozen
from engine.model.text import count

DEFAULT_TIER = 4

ARCHETYPES: Mapping[str, int] = {
    "core_identity": 1,
    "butler": 1,
    "ceo": 1,
    "executive": 2,
    "senior_executive": 2,
    "builder_senior": 2,
    "junior_leader": 3,
    "lead": 3,
    "manager": 3,
    "builder": 4,
    "specialist": 4,
    "worker": 4,
    "builder_junior": 5,
    "junior": 5,
    "junior_worker": 5,
}
"""Archetype keys of `tools.json` and their tiers."""

EXECUTIVES = frozenset({"cto", "cfo", "coo", "cmo", "cino", "cro", "oeo"})


@frozen
class TierDecision:
    """A tier, 1 to 5, and the rule that decided it, in words."""

    tier: int
    rule: str


def resolve_tier(agent_id: str, *, assigned: int | None, archetype: str) -> TierDecision:
    """The tier of an agent; the first rule that has an answer wins.

    `assigned` is the agent's entry in `tier_assignments` (1 to 5) or None, `archetype` the key of its `tools.json` or
    "". An archetype that is not known decides nothing.
    """
    if assigned is not None:
        return TierDecision(assigned, "tier_assignments in wisdom_cascade_config.json")
    if archetype in ARCHETYPES:
        return TierDecision(ARCHETYPES[archetype], f"archetype {archetype} in tools.json")
    named = tier_of_name(agent_id)
    if named is not None:
        return named
    return TierDecision(DEFAULT_TIER, "default; no other rule applies")


def tier_of_name(agent_id: str) -> TierDecision | None:
    """The tier by the words of an id: `cto` 2, `frontend_lead` 3, `junior_backend` 5; None for other words."""
    words = re.split(r"[_-]+", agent_id)
    for tier, names in (
        (1, {"alfred", "ceo"}),
        (2, EXECUTIVES),
        (3, {"lead", "leader", "manager", "head"}),
        (5, {"junior", "jr", "intern", "trainee"}),
        (4, {"builder", "worker"}),
    ):
        for word in words:
            if word in names:
                return TierDecision(tier, f"the name: {word!r} in {agent_id}")
    return None


def is_leader(tier: int) -> bool:
    """Whether a tier takes part as a leader (SPEC 1.3): 1 to 3 are synced and give guidance, 4 and 5 receive it and
    send findings up."""
    return tier <= 3


OWNER = "owner"
"""Above everyone: the operator. Not an agent."""

DEPTH = 10
"""At most so many leaders are walked; what `cascade_depth` null means."""


class Stop(StrEnum):
    """Why a chain ends where it does."""

    OWNER = "owner"
    CYCLE = "cycle"
    MISSING = "missing"
    DEPTH = "depth"


@frozen
class Chain:
    """Leaders from the direct one (hop 0) upward. `at` is the id that stopped the walk."""

    leaders: tuple[str, ...]
    stop: Stop
    at: str

    @property
    def words(self) -> str:
        """Why it ends, for a person."""
        return {
            Stop.OWNER: "reaches the owner",
            Stop.CYCLE: f"stops: {self.at} is already in it, so the chain is a circle",
            Stop.MISSING: f"stops: {self.at} does not exist",
            Stop.DEPTH: f"stops after {count(len(self.leaders), 'leader')}",
        }[self.stop]


@frozen
class AgentTier:
    """Where an agent stands: its tier, the rule that decided it, and its domain as `comms.json` has it."""

    id: str
    tier: int
    rule: str
    domain: str


@frozen
class Lineage:
    """An agent, its leaders from the direct one upward, and the chain they make."""

    agent: AgentTier
    leaders: tuple[AgentTier, ...]
    chain: Chain


def climb_chain(agent_id: str, leader_of: Callable[[str], str | None], *, depth: int = DEPTH) -> Chain:
    """Walk from `agent_id` upward; `leader_of` says whom an agent reports to, None for one that is not there.

    It is asked only about those who are in the chain. A missing agent ends the chain and is named; it is no error.
    """
    leaders: list[str] = []
    visited = {agent_id}
    current = leader_of(agent_id) or ""
    while True:
        if current == OWNER:
            return Chain(tuple(leaders), Stop.OWNER, current)
        if current in visited:
            return Chain(tuple(leaders), Stop.CYCLE, current)
        above = leader_of(current)
        if above is None:
            return Chain(tuple(leaders), Stop.MISSING, current)
        if len(leaders) == depth:
            return Chain(tuple(leaders), Stop.DEPTH, current)
        leaders.append(current)
        visited.add(current)
        current = above


def walk_chain(agent_id: str, reports_to: Mapping[str, str]) -> Chain:
    """The chain of an agent where every agent is known: `reports_to` has an entry for each."""
    return climb_chain(agent_id, reports_to.get)
