"""Agents as folders, their tiers and chains of leaders, guidance down and findings up (SPEC 1, 4.1).

| modules | subject |
|---|---|
| `agents`, `agent_folders` | the service of agents, and their folders, which it reads and writes |
| `profiles`, `profile_text`, `profile_rows` | the guidance of leaders: as a whole, as a text, and as stored rows |
| `guidance`, `teaching` | put it into prompts, and into souls |
| `guided_sessions` | follows how sessions end, and judges guidance by that |
| `bubbles` | findings go up through gates and a queue |

Here are the rules of the organisation: the tier of an agent (SPEC 1.2, 1.3), the chain of its leaders up to the owner
(1.4), and the settings of guidance and findings in `wisdom_cascade_config.json` (1.11). An invalid key of that file is
reported with its file and name. Its default value is used instead, and the other keys are valid.

Its modules know nothing of memory, sessions and predictions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import NAME_PATTERN
from engine.files import FileCache, read_plain, read_table, write_json
from engine.frozen import frozen
from engine.model import AgentView, Refusal
from engine.text import sanitise
from engine.wording import count

OWNER = "owner"
"""The name of the operator, who is above all agents and is not an agent."""

AGENT_ID = re.compile(rf"(?!owner$){NAME_PATTERN}")
"""The id of an agent, which is the name of its folder. `owner` means you."""

DEFAULT_TIER = 4
"""The tier of an agent for which no rule applies."""

_TABLE = read_table(__file__, "tiers.toml")

ARCHETYPES: Mapping[str, int] = _TABLE["archetypes"]
"""Archetype keys of `tools.json` and their tiers."""

DEFAULT_DEPTH = 10
"""Maximum number of leaders in a chain if `cascade_depth` is null."""

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a file of an agent or of the settings."""


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


@frozen
class Lineage:
    """An agent with its leaders, from the direct one upward."""

    agent: AgentView
    leaders: Sequence[AgentView]
    end: str = "reaches the owner"
    """Why the chain ends, in words."""
    is_loose: bool = False
    """Whether the end is a problem of this agent: its chain is a circle, it is broken itself, or its direct leader is
    broken or does not exist."""


def climb_chain(
    agent: AgentView, find_agent: Callable[[str], AgentView | None], *, depth: int | None = None
) -> Lineage:
    """Walk from an agent upward, past at most `depth` leaders; None for all. `find_agent` is called only for agents
    in the chain, and for the one that ends it; it returns None for an agent that does not exist."""
    if agent.broken:
        return Lineage(agent, (), f"stops: {agent.id} does not exist or is broken", is_loose=True)
    leaders: dict[str, AgentView] = {}
    above = agent.reports_to
    while above != OWNER:
        chain = tuple(leaders.values())
        if above == agent.id or above in leaders:
            return Lineage(agent, chain, f"stops: {above} is already in it, so the chain is a circle", is_loose=True)
        leader = find_agent(above)
        if leader is None or leader.broken:
            end = f"stops: {above or agent.id} does not exist or is broken"
            return Lineage(agent, chain, end, is_loose=not chain)
        if len(chain) == depth:
            return Lineage(agent, chain, f"stops after {count(depth, 'leader')}")
        leaders[above] = leader
        above = leader.reports_to
    return Lineage(agent, tuple(leaders.values()))


class CascadeConfig(BaseModel):
    """The settings of guidance and findings, in tokens, seconds, hops, and scores from 0 to 1."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    enable_m1: bool = True
    enable_m2: bool = False
    cascade_depth: Annotated[int, Field(ge=1, le=100)] | None = None
    m1_token_budget: Annotated[int, Field(ge=0, le=32_000)] = 800
    m1_cache_ttl_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    m2_interval_seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = 21_600
    enable_upward_bubbling: bool = True
    bubble_min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.75
    bubble_min_importance: Annotated[float, Field(ge=0, le=1)] = 0.6
    bubble_max_per_cycle: Annotated[int, Field(ge=0, le=1_000)] = 3
    tier_assignments: dict[str, Annotated[int, Field(ge=1, le=5)]] = Field(default_factory=dict)

    @property
    def depth(self) -> int:
        """The maximum number of leaders in a chain (SPEC 1.4)."""
        return DEFAULT_DEPTH if self.cascade_depth is None else self.cascade_depth


@frozen
class ConfigReading:
    """The values in a file, and its problems in words."""

    config: CascadeConfig
    problems: tuple[str, ...] = ()


def read_config(text: str, name: str) -> ConfigReading:
    """Read the settings from `text`. `name` is the file's name, for the problems. Raises ValueError for a text that is
    no JSON object."""
    try:
        return ConfigReading(CascadeConfig.model_validate_json(text))
    except ValidationError as error:
        faults = error.errors(include_url=False)
    if not faults[0]["loc"]:
        raise ValueError(faults[0]["msg"])
    written, problems = json.loads(text), []
    for fault in faults:
        *within, key = map(str, fault["loc"][:2])
        path = ".".join([*within, sanitise(key)[:60]])
        problem = f"{fault['msg']}; the default is used"
        if fault["type"] == "extra_forbidden":
            problem = f"unknown key; known keys: {', '.join(CascadeConfig.model_fields)}"
        problems.append(f"{name}: {path}: {problem}")
        del (written[within[0]] if within else written)[key]
    return ConfigReading(CascadeConfig.model_validate(written), tuple(problems))


class CascadeConfigFile:
    """The file of one home. Any thread may read it; who calls `assign_tier` holds a lock. `read` checks each time
    whether the file changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cache: FileCache[ConfigReading] = FileCache()

    @property
    def current(self) -> CascadeConfig:
        """The present settings."""
        return self.read().config

    def read(self) -> ConfigReading:
        """The present settings, with the problems of the file."""
        try:
            return self._cache.get("", (self.path,), lambda: read_config(self._read_text(), self.path.name))
        except (OSError, ValueError) as error:
            return ConfigReading(CascadeConfig(), (sanitise(f"{self.path.name} cannot be read: {error}"),))

    def assign_tier(self, agent_id: str, tier: int | None) -> None:
        """Write the tier of an agent into the file; None removes it. Everything else in the file stays.

        Raises `Refusal`: `bad_tier`, `bad_config` if the present file cannot be read, `unwritable_home`.
        """
        if tier is not None and not 1 <= tier <= 5:
            raise Refusal("bad_tier", f"there is no tier {tier}", "a tier must be a whole number from 1 to 5")
        try:
            written: dict[str, Any] = json.loads(self._read_text())
            tiers = {**written.get("tier_assignments", {}), agent_id: tier}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Refusal("bad_config", f"{self.path} cannot be read: {error}", "fix it first") from error
        if tier is None:
            del tiers[agent_id]
        with refuse_if_unwritable(self.path):
            write_json(self.path, written | {"tier_assignments": tiers})

    def _read_text(self) -> str:
        return read_plain(self.path, MAX_FILE_BYTES).decode() if self.path.exists() else "{}"


@contextmanager
def refuse_if_unwritable(path: Path) -> Iterator[None]:
    """A context in which an OSError is raised as `Refusal` `unwritable_home`."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise Refusal("unwritable_home", message, "make the folder writable; nothing changed") from error
