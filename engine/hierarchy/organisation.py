"""What the organisation is made of: tiers and chains of leaders (SPEC 1.2 to 1.4), the folders of agents (SPEC 1.1,
4.1) and the settings of guidance (SPEC 1.11).

`comms.json` and `tools.json` of a folder are validated models. Retired agents are kept under `.retired`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from engine.config.sections import model_problem
from engine.files import FileCache, create_filled_folder, json_bytes, read_plain, sync_folder, write_json
from engine.frozen import frozen
from engine.model import Refusal, sanitise
from engine.model.text import count

# -- tiers and chains of leaders

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

_WORDS = {
    1: {"alfred", "ceo"},
    2: {"cto", "cfo", "coo", "cmo", "cino", "cro", "oeo"},
    3: {"lead", "leader", "manager", "head"},
    5: {"junior", "jr", "intern", "trainee"},
    4: {"builder", "worker"},
}
"""Words in an id and the tier they mean; the first tier with a match counts: `cto` 2, `frontend_lead` 3,
`junior_builder` 5."""


def resolve_tier(agent_id: str, *, assigned: int | None, archetype: str) -> tuple[int, str]:
    """The tier of an agent, 1 to 5, and the rule that decided it, in words; the first rule that has an answer wins.

    `assigned` is the agent's entry in `tier_assignments` or None, `archetype` the key of its `tools.json` or "". An
    archetype that is not known decides nothing.
    """
    if assigned is not None:
        return assigned, "tier_assignments in wisdom_cascade_config.json"
    if archetype in ARCHETYPES:
        return ARCHETYPES[archetype], f"archetype {archetype} in tools.json"
    for tier, names in _WORDS.items():
        for word in re.split(r"[_-]+", agent_id):
            if word in names:
                return tier, f"the name: {word!r} in {agent_id}"
    return DEFAULT_TIER, "default; no other rule applies"


def is_leader(tier: int) -> bool:
    """Whether a tier takes part as a leader (SPEC 1.3): 1 to 3 are synced and give guidance, 4 and 5 receive it and
    send findings up."""
    return tier <= 3


OWNER = "owner"
"""Above everyone: the operator. Not an agent."""

DEPTH = 10
"""Maximum number of leaders in a chain where `cascade_depth` is null."""


@frozen
class Chain:
    """Leaders from the direct one (hop 0) upward, and why it ends, in words. `is_loose`: it is a circle, or ends at
    somebody who does not exist."""

    leaders: tuple[str, ...]
    words: str
    is_loose: bool = False


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
    """The chain of an agent where every agent is known: `reports_to` has an entry for each."""
    return climb_chain(agent_id, reports_to.get)


# -- folders of agents


@frozen
class Role:
    """One agent of the first organisation. `work` says in a sentence what it does, `principles` how."""

    id: str
    title: str
    reports_to: str
    archetype: str
    domain: str
    work: str
    principles: tuple[str, ...]


def first_organisation() -> tuple[Role, ...]:
    """The agents that a first run creates."""
    return tuple(Role(**role | {"principles": tuple(role["principles"])}) for role in _texts()["roles"])


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("organisation.toml").read_text(encoding="utf-8"))


def soul(role: Role) -> str:
    """The text of `soul.md` for a role: who it is, and the headings from which a leader's profile is seeded."""
    principles = "\n".join(f"- {line}" for line in role.principles or ("Say what was done and how it was checked.",))
    work = role.work or "Say here what this agent is for."
    return (
        f"# {role.title}\n\n{work}\n\n## Domain\n\n{role.domain or 'general'}\n\n## Principles\n\n{principles}\n\n"
        "## Guardrails\n\n"
        "- Work only inside the workspace that was given.\n"
        "- What cannot be undone waits for the operator.\n"
    )


ID = re.compile(r"[a-z][a-z0-9_-]{0,39}")
MAX_FILE_BYTES = 256 * 1024


class Comms(BaseModel):
    """`comms.json`. Keys this version does not know are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    reports_to: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    title: Annotated[str, Field(max_length=200)] = ""
    domain: Annotated[str, Field(max_length=200)] = ""


class Budget(BaseModel):
    """`budget` of `tools.json`: dollars this agent may spend in a calendar day (SPEC 3.4)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    usd_per_day: Annotated[float, Field(ge=0, le=1_000_000)]


class Tools(BaseModel):
    """`tools.json`: permissions, archetype, model routing, budget. Unknown keys are kept as they are.

    `allow`, `ask` and `deny` hold names of tools (SPEC 3.8) or patterns such as `exec:git push*`, `write:docs/*`,
    `web_fetch:*.python.org`; deny wins over ask, ask over allow, and what is in none of them is not allowed. `models`
    are ids such as `openai:gpt-6.1-terra` by kind of run (`task`, `heal`, `reply`, …), `default` for all others.
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
            if fault := model_problem(model):
                raise PydanticCustomError("model", "{run_kind}: {fault}", {"run_kind": run_kind, "fault": fault})
        return value


@frozen
class Member:
    """An agent as its folder says. `broken` holds the reason when it cannot be read; the rest is then default."""

    id: str
    comms: Comms
    tools: Tools
    broken: str = ""


def read_member(folder: Path, *, name: str = "") -> Member:
    """The agent in `folder`, of that `name` unless another is given; whatever is wrong with it becomes `broken`, so
    that the others are still shown."""
    name, file = name or folder.name, folder / "comms.json"
    comms, tools, broken = Comms.model_construct(reports_to="", title="", domain=""), Tools(), ""
    try:
        comms = Comms.model_validate_json(read_text(file))
        file = folder / "tools.json"
        if file.exists():
            tools = Tools.model_validate_json(read_text(file))
    except FileNotFoundError:
        broken = f"{file.name}: is missing"
    except (OSError, UnicodeDecodeError) as error:
        broken = f"{file.name}: cannot be read: {error}"
    except ValidationError as error:
        loc, message = first_fault(error)
        broken = ": ".join([file.name, *([".".join(map(str, loc))] if loc else []), message])
    except ValueError as error:
        broken = f"{file.name}: {error}"
    if not ID.fullmatch(name) or name == OWNER:
        broken = "its folder's name is not an agent id"
    return Member(name, comms, tools, sanitise(broken))


def first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """The keys that lead to the first fault in a file, and words for it."""
    fault = error.errors(include_url=False)[0]
    return fault["loc"], sanitise(fault["msg"])


def read_text(file: Path) -> str:
    """The text of a file. Raises OSError, and ValueError when it is too large, no plain file or no UTF-8."""
    return read_plain(file, MAX_FILE_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")


def create_folder(folder: Path, role: Role) -> None:
    """Make the folder of a new agent with its five files. Raises OSError."""
    files = {
        "soul.md": soul(role).encode(),
        "memory.md": _texts()["memory"].encode(),
        "heartbeat.md": _texts()["heartbeat"].encode(),
        "comms.json": json_bytes({"reports_to": role.reports_to, "title": role.title, "domain": role.domain}),
        "tools.json": json_bytes(Tools(archetype=role.archetype).model_dump()),
    }
    create_filled_folder(folder, files)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it an OSError becomes `Refusal` `unwritable_home`."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise Refusal("unwritable_home", message, "make the folder writable; nothing changed") from error


RETIRED = ".retired"


def retired_members(agents: Path) -> list[tuple[str, Member]]:
    """The retired agents of the folder `agents`, each with the name of its folder: `cfo`, `cfo.2` for a second one."""
    try:
        folders = sorted(
            folder for folder in (agents / RETIRED).iterdir() if folder.is_dir() and not folder.name.startswith(".")
        )
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(folder.name, read_member(folder, name=_id(folder.name))) for folder in folders]


def retire_folder(agents: Path, agent_id: str) -> str:
    """Put the folder of an agent away; returns the name it has there. Raises OSError."""
    target, number = agents / RETIRED / agent_id, 2
    while target.exists():
        target = agents / RETIRED / f"{agent_id}.{number}"
        number += 1
    target.parent.mkdir(mode=0o700, exist_ok=True)
    (agents / agent_id).rename(target)
    sync_folder(agents)
    return target.name


def restore_folder(agents: Path, name: str) -> str:
    """Put the folder `name` back among the agents; returns its id. Raises OSError, and `Refusal`: `unknown_agent`,
    `agent_exists`."""
    if name not in [folder for folder, _ in retired_members(agents)]:
        raise Refusal("unknown_agent", f"no {sanitise(name)} was retired", f"see {agents / RETIRED}")
    agent_id = _id(name)
    if (agents / agent_id).exists():
        raise Refusal("agent_exists", f"{agent_id} already exists again", "retire that one first")
    (agents / RETIRED / name).rename(agents / agent_id)
    sync_folder(agents)
    return agent_id


def _id(name: str) -> str:
    return name.partition(".")[0]


# -- settings of guidance: `wisdom_cascade_config.json`. An invalid key is reported by file, line and name, and has its
# default; the others count.


class CascadeConfig(BaseModel):
    """The settings of guidance and findings. Tokens, seconds, hops, and scores from 0 to 1."""

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
        """Leaders that are walked at most (SPEC 1.4)."""
        return DEPTH if self.cascade_depth is None else self.cascade_depth


@frozen
class ReadConfig:
    """The values in a file, and its problems in words."""

    config: CascadeConfig
    problems: tuple[str, ...] = ()


def read_config(text: str, name: str) -> ReadConfig:
    """The settings that `text` (JSON) gives; `name` is the file's, for the problems."""
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
                line = text.count("\n", 0, max(0, text.rfind(json.dumps(key)))) + 1
                message = f"{fault['msg']}; the default is used"
                if fault["type"] == "extra_forbidden":
                    message = f"unknown key; known keys: {', '.join(CascadeConfig.model_fields)}"
                problems.append(f"{name}:{line}: {'.'.join([*within, sanitise(key)[:60]])}: {message}")
                (written[within[0]] if within else written).pop(key)


class CascadeConfigFile:
    """The file of one home. Thread-safe; `read` looks each time whether it changed, which costs microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched: FileCache[ReadConfig] = FileCache()

    @property
    def current(self) -> CascadeConfig:
        """The settings as they are now."""
        return self.read().config

    def read(self) -> ReadConfig:
        """The settings, and what is wrong with the file."""
        try:
            return self._watched.get("", (self.path,), lambda: read_config(self._text(), self.path.name))
        except (OSError, ValueError) as error:
            return ReadConfig(CascadeConfig(), (sanitise(f"{self.path.name} cannot be read: {error}"),))

    def assign_tier(self, agent_id: str, tier: int | None) -> None:
        """Write the tier of an agent into the file, or take it out with None. Everything else in it stays.

        Raises `Refusal`: `bad_tier`, `bad_config` when the file as it is cannot be read, `unwritable_home`.
        """
        if tier is not None and not 1 <= tier <= 5:
            raise Refusal("bad_tier", f"there is no tier {tier}", "a tier must be a whole number from 1 to 5")
        try:
            written: dict[str, Any] = json.loads(self._text())
            entries = {**written.get("tier_assignments", {}), agent_id: tier}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Refusal("bad_config", f"{self.path} cannot be read: {error}", "fix it first") from error
        assigned = {agent: tier for agent, tier in entries.items() if tier is not None}
        with writing(self.path):
            write_json(self.path, written | {"tier_assignments": assigned})

    def _text(self) -> str:
        return read_plain(self.path, MAX_FILE_BYTES).decode() if self.path.exists() else "{}"
