"""The organisation (SPEC 1.1 to 1.4, 1.11, 4.1): the folders of its agents, their tiers and leaders, and its settings.

`comms.json` and `tools.json` of a folder are validated models. Retired agents are kept under `.retired`. The agents of
a first run are in `organisation.toml`. An invalid key of `wisdom_cascade_config.json` is reported with its file, line
and name. Its default value is used instead, and the other keys are valid. The tier of an agent and the chain of its
leaders up to the owner follow from these files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from engine.config.sections import NAME_PATTERN, find_model_problem
from engine.files import FileCache, create_filled_folder, encode_json, read_plain, read_table, sync_folder, write_json
from engine.frozen import frozen
from engine.model import Refusal, sanitise
from engine.model.text import count

DEFAULT_TIER = 4
"""The tier of an agent for which no rule applies."""

_TABLE = read_table(__file__, "tiers.toml")

ARCHETYPES: Mapping[str, int] = _TABLE["archetypes"]
"""Archetype keys of `tools.json` and their tiers."""

AGENT_ID = re.compile(NAME_PATTERN)
"""The id of an agent, which is the name of its folder."""

MAX_FILE_BYTES = 256 * 1024
"""Maximum size of a file of an agent or of the settings."""

RETIRED = ".retired"
"""The folder of retired agents."""

OWNER = "owner"
"""The name of the operator, who is above all agents and is not an agent."""

DEFAULT_DEPTH = 10
"""Maximum number of leaders in a chain if `cascade_depth` is null."""


# -- the first organisation


@frozen
class Role:
    """One agent of the first organisation. `work` is a sentence about its work."""

    id: str
    title: str
    reports_to: str
    archetype: str
    domain: str
    work: str
    principles: tuple[str, ...]


def make_first_organisation() -> tuple[Role, ...]:
    """The agents that a first run creates."""
    return tuple(Role(**role | {"principles": tuple(role["principles"])}) for role in _read_first_texts()["roles"])


@cache
def _read_first_texts() -> dict[str, Any]:
    return read_table(__file__, "organisation.toml")


def write_soul_text(role: Role) -> str:
    """The text of `soul.md` for a role, with the headings from which a leader's profile is read."""
    principles = "\n".join(f"- {line}" for line in role.principles or ("Say what was done and how it was checked.",))
    work = role.work or "Say here what this agent is for."
    return (
        f"# {role.title}\n\n{work}\n\n## Domain\n\n{role.domain or 'general'}\n\n## Principles\n\n{principles}\n\n"
        "## Guardrails\n\n"
        "- Work only inside the workspace that was given.\n"
        "- What cannot be undone waits for the operator.\n"
    )


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
    broken: str = ""


def read_agent_folder(folder: Path, *, name: str = "") -> AgentFolder:
    """Read the agent in `folder`. Its id is `name`, by default the folder's name. An error in its files is stored in
    `broken` and not raised, so that the other agents are still shown."""
    name, file = name or folder.name, folder / "comms.json"
    comms, tools, broken = Comms.model_construct(reports_to="", title="", domain=""), Tools(), ""
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
    if not AGENT_ID.fullmatch(name) or name == OWNER:
        broken = "its folder's name is not an agent id"
    return AgentFolder(name, comms, tools, sanitise(broken))


def find_first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """(keys that lead to the first error in a file, its description)."""
    fault = error.errors(include_url=False)[0]
    return fault["loc"], sanitise(fault["msg"])


def read_text(file: Path) -> str:
    """The text of a file. Raises OSError, and ValueError if it is too large, not a regular file or not UTF-8."""
    try:
        return read_plain(file, MAX_FILE_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from error


def create_agent_folder(folder: Path, role: Role) -> None:
    """Create the folder of a new agent with its five files. Raises OSError."""
    files = {
        "soul.md": write_soul_text(role).encode(),
        "memory.md": _read_first_texts()["memory"].encode(),
        "heartbeat.md": _read_first_texts()["heartbeat"].encode(),
        "comms.json": encode_json({"reports_to": role.reports_to, "title": role.title, "domain": role.domain}),
        "tools.json": encode_json(Tools(archetype=role.archetype).model_dump()),
    }
    create_filled_folder(folder, files)


@contextmanager
def refuse_if_unwritable(path: Path) -> Iterator[None]:
    """A context in which an OSError is raised as `Refusal` `unwritable_home`."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise Refusal("unwritable_home", message, "make the folder writable; nothing changed") from error


def read_retired_folders(agents: Path) -> list[tuple[str, AgentFolder]]:
    """(name of the folder, retired agent) for each retired agent of the folder `agents`. A second retired `cfo` has the
    folder `cfo.2`."""
    try:
        folders = sorted(
            folder for folder in (agents / RETIRED).iterdir() if folder.is_dir() and not folder.name.startswith(".")
        )
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(folder.name, read_agent_folder(folder, name=_strip_number(folder.name))) for folder in folders]


def retire_folder(agents: Path, agent_id: str) -> str:
    """Move the folder of an agent to `.retired`; returns its name there. Raises OSError."""
    target, number = agents / RETIRED / agent_id, 2
    while target.exists():
        target = agents / RETIRED / f"{agent_id}.{number}"
        number += 1
    target.parent.mkdir(mode=0o700, exist_ok=True)
    (agents / agent_id).rename(target)
    sync_folder(agents)
    return target.name


def restore_folder(agents: Path, name: str) -> str:
    """Move the retired folder `name` back to the agents; returns the agent's id. Raises OSError, and `Refusal`:
    `unknown_agent`, `agent_exists`."""
    if name not in [folder for folder, _ in read_retired_folders(agents)]:
        raise Refusal("unknown_agent", f"no {sanitise(name)} was retired", f"see {agents / RETIRED}")
    agent_id = _strip_number(name)
    if (agents / agent_id).exists():
        raise Refusal("agent_exists", f"{agent_id} already exists again", "retire that one first")
    (agents / RETIRED / name).rename(agents / agent_id)
    sync_folder(agents)
    return agent_id


def _strip_number(name: str) -> str:
    return name.partition(".")[0]


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
    """Read the settings from `text`, which is JSON. `name` is the file's name, for the problems."""
    try:
        written = json.loads(text)
        if not isinstance(written, dict):
            raise ValueError("it must be an object, {…}")
    except (ValueError, RecursionError) as error:
        return ReadConfig(CascadeConfig(), (f"{name} cannot be read: {error}",))
    problems: list[str] = []
    while True:
        try:
            return ReadConfig(CascadeConfig.model_validate(written), tuple(problems))
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                *within, key = map(str, fault["loc"][:2])
                last_place = max(0, text.rfind(json.dumps(key)))  # JSON uses the last one of equal keys
                line = text.count("\n", 0, last_place) + 1
                path = ".".join([*within, sanitise(key)[:60]])
                problems.append(f"{name}:{line}: {path}: {_describe_fault(fault)}")
                (written[within[0]] if within else written).pop(key)


def _describe_fault(fault: ErrorDetails) -> str:
    if fault["type"] == "extra_forbidden":
        return f"unknown key; known keys: {', '.join(CascadeConfig.model_fields)}"
    return f"{fault['msg']}; the default is used"


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
            entries = {**written.get("tier_assignments", {}), agent_id: tier}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Refusal("bad_config", f"{self.path} cannot be read: {error}", "fix it first") from error
        assigned = {agent: tier for agent, tier in entries.items() if tier is not None}
        with refuse_if_unwritable(self.path):
            write_json(self.path, written | {"tier_assignments": assigned})

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
class Chain:
    """The leaders of an agent from the direct one (hop 0) upward, and in `words` why the chain ends. It `is_loose` if
    it is a circle or ends at an agent that does not exist or is broken."""

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


def climb_chain(agent_id: str, leader_of: Callable[[str], str | None], *, depth: int = DEFAULT_DEPTH) -> Chain:
    """Walk from `agent_id` upward. `leader_of` returns the leader of an agent, None for an agent that does not exist
    or is broken. It is called only for agents in the chain. Such an agent ends the chain, which names it.
    """
    leaders: list[str] = []
    current = leader_of(agent_id)
    while current != OWNER:
        if current in (agent_id, *leaders):
            return Chain(tuple(leaders), f"stops: {current} is already in it, so the chain is a circle", is_loose=True)
        above = leader_of(current) if current else None
        if current is None or above is None:
            missing_agent = current or agent_id
            return Chain(tuple(leaders), f"stops: {missing_agent} does not exist or is broken", is_loose=True)
        if len(leaders) == depth:
            return Chain(tuple(leaders), f"stops after {count(depth, 'leader')}")
        leaders.append(current)
        current = above
    return Chain(tuple(leaders), "reaches the owner")


def walk_chain(agent_id: str, reports_to: Mapping[str, str]) -> Chain:
    """The chain of an agent if all agents are known: `reports_to` has an entry for each."""
    return climb_chain(agent_id, reports_to.get)
