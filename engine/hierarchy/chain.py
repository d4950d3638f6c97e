"""The chain of leaders above an agent (SPEC 1.4). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.model.text import count

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


@dataclass(frozen=True, slots=True)
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


def climb(agent_id: str, leader_of: Callable[[str], str | None], *, depth: int = DEPTH) -> Chain:
    """Walk from `agent_id` upward; `leader_of` says whom an agent reports to, None for one that is not there.

    It is asked only about those who are in the chain. A missing agent ends the chain and is named; it is no error.
    """
    leaders: list[str] = []
    seen = {agent_id}
    at = leader_of(agent_id) or ""
    while True:
        if at == OWNER:
            return Chain(tuple(leaders), Stop.OWNER, at)
        if at in seen:
            return Chain(tuple(leaders), Stop.CYCLE, at)
        above = leader_of(at)
        if above is None:
            return Chain(tuple(leaders), Stop.MISSING, at)
        if len(leaders) == depth:
            return Chain(tuple(leaders), Stop.DEPTH, at)
        leaders.append(at)
        seen.add(at)
        at = above


def walk(agent_id: str, reports_to: Mapping[str, str], *, depth: int = DEPTH) -> Chain:
    """The same where all are known; `reports_to` has an entry for every agent that is there."""
    return climb(agent_id, reports_to.get, depth=depth)
