"""The organisation (SPEC 1.1 to 1.4, 1.11, 4.1): the folders of its agents, its settings, tiers and chains of leaders.

`comms.json` and `tools.json` of a folder are validated models. The agents of a first run are in `organisation.toml`. An
invalid key of `wisdom_cascade_config.json` is reported with its file and name. Its default value is used instead,
and the other keys are valid. The tier of an agent and the chain of its leaders up to the owner follow from these files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from engine.config.sections import NAME_PATTERN, find_model_problem
from engine.files import FileCache, create_filled_folder, encode_json, read_plain, read_table, write_json
from engine.frozen import frozen
from engine.model import AgentView, Refusal
from engine.text import sanitise
from engine.wording import count

DEFAULT_TIER = 4
"""The tier of an agent for which no rule applies."""

_TABLE = read_table(__file__, "tiers.toml")

ARCHETYPES: Mapping[str, int] = _TABLE["archetypes"]
"""Archetype keys of `tools.json` and their tiers."""

AGENT_ID = re.compile(rf"(?!owner$){NAME_PATTERN}")
"""The id of an agent, which is the name of its folder. `owner` means you."""

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a file of an agent or of the settings."""

OWNER = "owner"
"""The name of the operator, who is above all agents and is not an agent."""

DEFAULT_DEPTH = 10
"""Maximum number of leaders in a chain if `cascade_depth` is null."""


# -- the folders of agents


class Comms(BaseModel):
    """The content of `comms.json`. Unknown keys are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    reports_to: Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
    title: Annotated[str, Field(max_length=200)] = ""
    domain: Annotated[str, Field(max_length=200)] = ""


class Budget(BaseModel):
    """`budget` in `tools.json`: the dollars that the agent may spend in a calendar day (SPEC 3.4)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    usd_per_day: Annotated[float, Field(ge=0, le=1_000_000)]


class Tools(BaseModel):
    """The content of `tools.json`: permissions, archetype, model routing, budget. Unknown keys are kept as they are.

    `allow`, `ask` and `deny` hold names of tools (SPEC 3.8) or patterns such as `exec:git push*`, `write:docs/*`,
    `web_fetch:*.python.org`. `deny` wins over `ask`, and `ask` over `allow`. A tool in none of them is not allowed.
    `models` are ids such as `openai:gpt-6.1-terra` by kind of run (`task`, `heal`, `reply`, …), `default` for all
    others.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    archetype: str = ""
    allow: list[str] = Field(default_factory=lambda: ["read", "write", "edit", "exec", "web_search", "web_fetch"])
    ask: list[str] = Field(default_factory=list)
    deny: list[str] = Field(default_factory=list)
    models: dict[str, str] = Field(default_factory=dict)
    budget: Budget | None = None

    @field_validator("models", mode="after")
    @classmethod
    def _ids(cls, value: dict[str, str]) -> dict[str, str]:
        for run_kind, model in value.items():
            if fault := find_model_problem(model):
                raise PydanticCustomError("model", "{run_kind}: {fault}", {"run_kind": run_kind, "fault": fault})
        return value


@frozen
class AgentFolder:
    """An agent as read from its folder. If the folder cannot be read, `broken` is the reason and the other fields have
    their defaults."""

    id: str
    comms: Comms
    tools: Tools
    broken: str
    """"" for a folder that could be read."""


def read_agent_folder(folder: Path, agent_id: str) -> AgentFolder:
    """Read the agent in `folder`. An error in its files is stored in `broken` and not raised, so that the other agents
    are still shown."""
    file = folder / "comms.json"
    comms, tools, broken = Comms.model_construct(reports_to=""), Tools(), ""
    try:
        comms = Comms.model_validate_json(read_text(file))
        file = folder / "tools.json"
        if file.exists():
            tools = Tools.model_validate_json(read_text(file))
    except FileNotFoundError:
        broken = f"{file.name}: is missing"
    except OSError as error:
        broken = f"{file.name}: cannot be read: {error.strerror or error}"
    except ValidationError as error:
        loc, message = find_first_fault(error)
        broken = ": ".join([file.name, *([".".join(map(str, loc))] if loc else []), message])
    except ValueError as error:
        broken = f"{file.name}: {error}"
    if not AGENT_ID.fullmatch(agent_id):
        broken = "its folder's name is not an agent id"
    return AgentFolder(agent_id, comms, tools, sanitise(broken))


def find_first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """(keys that lead to the first error in a file, its description)."""
    fault = error.errors(include_url=False)[0]
    return fault["loc"], sanitise(fault["msg"])


def read_text(file: Path) -> str:
    """The text of a file. Raises OSError, and ValueError if it is too large, not a regular file or not UTF-8."""
    try:
        return read_plain(file, MAX_FILE_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from error


@frozen
class Role:
    """What a new agent is for: a sentence about its work, and how it does that."""

    title: str
    reports_to: str
    archetype: str
    domain: str
    work: str = "Say here what this agent is for."
    principles: Sequence[str] = ("Say what was done and how it was checked.",)


def create_agent_folder(folder: Path, role: Role) -> None:
    """Create the folder of a new agent with its five files. A leader's profile is read from the headings of its
    `soul.md`. Raises OSError."""
    texts = _read_first_texts()
    principles = "\n".join(f"- {line}" for line in role.principles)
    soul = texts["soul"].format(
        title=role.title, work=role.work, domain=role.domain or "general", principles=principles
    )
    files = {
        "soul.md": soul.encode(),
        "memory.md": texts["memory"].encode(),
        "heartbeat.md": texts["heartbeat"].encode(),
        "comms.json": encode_json({"reports_to": role.reports_to, "title": role.title, "domain": role.domain}),
        "tools.json": encode_json(Tools(archetype=role.archetype).model_dump()),
    }
    create_filled_folder(folder, files)


def load_first_roles() -> dict[str, Role]:
    """The agents of a first run by id."""
    return {agent_id: Role(**role) for agent_id, role in _read_first_texts()["roles"].items()}


@cache
def _read_first_texts() -> dict[str, Any]:
    return read_table(__file__, "organisation.toml")


@contextmanager
def refuse_if_unwritable(path: Path) -> Iterator[None]:
    """A context in which an OSError is raised as `Refusal` `unwritable_home`."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise Refusal("unwritable_home", message, "make the folder writable; nothing changed") from error


# -- the settings


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
class ReadConfig:
    """The values in a file, and its problems in words."""

    config: CascadeConfig
    problems: tuple[str, ...] = ()


def read_config(text: str, name: str) -> ReadConfig:
    """Read the settings from `text`. `name` is the file's name, for the problems. Raises ValueError for a text that is
    no JSON object."""
    try:
        return ReadConfig(CascadeConfig.model_validate_json(text))
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
    return ReadConfig(CascadeConfig.model_validate(written), tuple(problems))


class CascadeConfigFile:
    """The file of one home. Thread-safe. `read` checks each time whether the file changed, which takes microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched: FileCache[ReadConfig] = FileCache()

    @property
    def current(self) -> CascadeConfig:
        """The present settings."""
        return self.read().config

    def read(self) -> ReadConfig:
        """The present settings, with the problems of the file."""
        try:
            return self._watched.get("", (self.path,), lambda: read_config(self._read_text(), self.path.name))
        except (OSError, ValueError) as error:
            return ReadConfig(CascadeConfig(), (sanitise(f"{self.path.name} cannot be read: {error}"),))

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


# -- tiers and chains


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
    """An agent with its leaders, from the direct one upward, and in `end` why the chain ends. It `is_loose` if it is a
    circle, or if the agent itself is broken, or reports to one that does not exist or is."""

    agent: AgentView
    leaders: Sequence[AgentView]
    end: str = "reaches the owner"
    is_loose: bool = False


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
