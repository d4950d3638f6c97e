"""The folders of agents (SPEC 1.1, 4.1): how one is read, made for a new agent, and kept after the agent is retired.

`comms.json` and `tools.json` of a folder are validated models. The agents of a first run are in `first_agents.toml`.
Folders are created and moved by one rename.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from engine.config import NAME_PATTERN, find_model_problem
from engine.files import TEMPORARY_PREFIX, create_filled_folder, encode_json, read_plain, read_table, sync_folder
from engine.frozen import frozen
from engine.hierarchy import AGENT_ID, MAX_FILE_BYTES
from engine.text import sanitise


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
    def _check_model_ids(cls, value: dict[str, str]) -> dict[str, str]:
        for run_kind, model in value.items():
            if fault := find_model_problem(model):
                raise PydanticCustomError("model", "{run_kind}: {fault}", {"run_kind": run_kind, "fault": fault})
        return value


@frozen
class AgentFolder:
    """An agent as read from its folder. If it cannot be read, the other fields have their defaults."""

    id: str
    comms: Comms
    tools: Tools
    broken: str
    """The reason, "" for a folder that could be read."""


def read_agent_folder(folder: Path, agent_id: str) -> AgentFolder:
    """Read the agent in `folder`. An error in its files is stored in `broken` and not raised, so that the other agents
    are still shown."""
    file = folder / "comms.json"
    comms, tools, broken = Comms.model_construct(reports_to=""), Tools(), ""
    try:
        comms = Comms.model_validate_json(read_agent_text(file))
        file = folder / "tools.json"
        if file.exists():
            tools = Tools.model_validate_json(read_agent_text(file))
    except FileNotFoundError:
        broken = f"{file.name}: is missing"
    except OSError as error:
        broken = f"{file.name}: cannot be read: {error.strerror or error}"
    except ValidationError as error:
        loc, message = find_first_fault(error)
        broken = ": ".join(filter(None, (file.name, ".".join(map(str, loc)), message)))
    except ValueError as error:
        broken = f"{file.name}: {error}"
    if not AGENT_ID.fullmatch(agent_id):
        broken = "its folder's name is not an agent id"
    return AgentFolder(agent_id, comms, tools, sanitise(broken))


def find_first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """(keys that lead to the first error in a file, its description)."""
    fault = error.errors(include_url=False)[0]
    return fault["loc"], sanitise(fault["msg"])


def read_agent_text(file: Path) -> str:
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
    return read_table(__file__, "first_agents.toml")


@contextmanager
def create_by_rename(folder: Path) -> Iterator[Path]:
    """A context that makes a folder under another name, which then becomes `folder`. Raises OSError."""
    unfinished = folder.with_name(f"{TEMPORARY_PREFIX}{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    yield unfinished
    _move_folder(unfinished, folder)


def _move_folder(folder: Path, target: Path) -> None:
    """Rename a folder, durably. Raises OSError."""
    folder.rename(target)
    sync_folder(target.parent)


class RetiredFolders:
    """The folders of retired agents in `.retired`, which may not exist yet. The folder of `cfo` is named `cfo`, and if
    such an agent was retired before, `cfo.2` and so on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_names(self) -> Sequence[str]:
        """The names of the folders, sorted."""
        return sorted(folder.name for folder in self.folder.glob("[!.]*") if folder.is_dir())

    def take_in(self, agent_folder: Path) -> str:
        """Move the folder of an agent here; returns its name. Raises OSError."""
        name = self._choose_name(agent_folder.name)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        _move_folder(agent_folder, self.folder / name)
        return name

    def give_back(self, name: str, agent_folder: Path) -> None:
        """Move the folder of this name back to the agents. Raises OSError."""
        _move_folder(self.folder / name, agent_folder)

    def free_name(self, agent_id: str) -> None:
        """Give the folder that is named as this agent another name, if there is one. Raises OSError."""
        if (self.folder / agent_id).exists():
            _move_folder(self.folder / agent_id, self.folder / self._choose_name(agent_id))

    def _choose_name(self, agent_id: str) -> str:
        """A name for the folder of an agent that no folder has."""
        names = self.list_names()
        if all(find_retired_id(name) != agent_id for name in names):
            return agent_id
        return next(name for number in itertools.count(2) if (name := f"{agent_id}.{number}") not in names)


def find_retired_id(name: str) -> str:
    """The id of the agent whose folder has this name in `.retired`."""
    return name.partition(".")[0]
