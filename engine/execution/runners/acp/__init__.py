"""Drives the coding agents of this machine with the Agent Client Protocol (SPEC 3.8).

This module says which agents are known, which of them are installed, how each is started and logged in, and what it
and its commands may use. `runner` carries out a session: `conversation` talks to the process of the agent through its
`pipe`, `requests` answers what the agent asks for, `agent_transcript` writes what it says and does, and `turns` counts
what that costs.

The library of the protocol takes most of a second to import. So only these modules, and not `runner`, import it. They
are imported when the first session begins.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from engine.config.external_sections import AcpSettings
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import TOOLS
from engine.files import read_table
from engine.frozen import frozen
from engine.installed import FoundAgent

CommandWords = Annotated[tuple[str, ...], BeforeValidator(str.split)]
"""The words of a command, which is one text in the table."""


class KnownAgent(BaseModel):
    """A public agent, a table of `agents.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    commands: tuple[CommandWords, ...]
    """Commands that may start it. The first one that is installed is used."""
    hosts: tuple[str, ...] = ()
    """The hosts of its provider."""
    login: CommandWords = ()
    """The command that logs it in, empty for none."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key."""
    program: str = ""
    """The program of an agent that needs an adapter, "" for one that needs none."""
    adapter: str = ""
    """How to install the adapter."""


KNOWN_AGENTS = tuple(KnownAgent(name=name, **row) for name, row in read_table(__file__, "agents.toml").items())
"""In the order in which they are looked for."""


@frozen
class ConfiguredAgent:
    """A coding agent of the settings."""

    name: str
    title: str
    settings: AcpSettings
    home: Path
    """Its home folder here."""
    login: str
    """How the operator logs it in."""


def find_agents(data: Path, path: str | None = None) -> list[FoundAgent]:
    """Find the known agents on the search path (`path`, by default PATH).

    `data` is the data folder of the home, in which each agent gets a folder. Only files are read, which takes a few
    milliseconds.
    """
    agents = []
    for agent in KNOWN_AGENTS:
        installed = [command for command in agent.commands if shutil.which(command[0], path=path)]
        if installed:
            agents.append(describe_agent(agent.name, installed[0], data))
        elif agent.program and shutil.which(agent.program, path=path):
            agents.append(replace(describe_agent(agent.name, agent.commands[0], data), missing=agent.adapter))
    return agents


def describe_agent(name: str, command: Sequence[str], data: Path) -> FoundAgent:
    """Describe the agent `name`, which `command` starts. It is known by its name or by its program, or not at all."""
    program = Path(command[0]).name
    known_agents = (
        agent for agent in KNOWN_AGENTS if agent.name == name or program in {words[0] for words in agent.commands}
    )
    agent = next(known_agents, None)
    title, hosts = (agent.title, agent.hosts) if agent else (name, ())
    return FoundAgent(name, tuple(command), title, hosts, _describe_login(agent, name, get_agent_home(data, name)))


def get_agent_home(data: Path, name: str) -> Path:
    """The folder that an agent gets as its home. It has the login and the configuration of the agent, and nothing from
    the operator's home."""
    return data / "acp" / name


def _describe_login(agent: KnownAgent | None, name: str, home: Path) -> str:
    """How the operator logs the agent `name` in: with a command that is run once, or with a variable that is passed on.
    `agent` is None for one that is not known."""
    folder = shlex.quote(str(home))
    hints = []
    if agent is None:
        hints.append(f"log it in once with HOME={folder}")
    elif agent.login:
        hints.append(f"run once: mkdir -p {folder} && HOME={folder} {shlex.join(agent.login)}")
    keys = ", ".join(agent.keys) if agent is not None else "the name of the variable that holds its key"
    if keys:
        hints.append(f"set `env` of [acp.{name}] to {keys}")
    return ", or ".join(hints)


def make_agent_confinement(
    session: Confinement, *, home: Path, command: Sequence[str], hosts: Sequence[str]
) -> Confinement:
    """The confinement of the agent. It is that of its session, with the agent's home, its scripts and `hosts` added."""
    return replace(
        session,
        readable=tuple(dict.fromkeys((*session.readable, *_find_script_paths(command)))),
        writable=(*session.writable, home),
        hosts=(*session.hosts, *hosts),
    )


def make_command_confinement(agent: Confinement, session: Confinement, *, home: Path) -> Confinement:
    """The confinement of commands that the agent asks Clawpy to run. It is that of the agent, without its home and its
    hosts."""
    return replace(agent, writable=tuple(folder for folder in agent.writable if folder != home), hosts=session.hosts)


def _find_script_paths(command: Sequence[str]) -> list[Path]:
    """The scripts that the command names. For a script in a `node_modules`, that whole folder."""
    paths = []
    for word in command[1:]:
        file = Path(word)
        if file.is_absolute() and file.is_file():
            for path in dict.fromkeys((file, file.resolve())):
                paths.append(next((parent for parent in path.parents if parent.name == "node_modules"), path))
    return paths


def make_agent_environment(*, home: Path, names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are added to a session's clean environment: the agent's HOME, the places of the operator's
    tools, and the `names` that the operator configured."""
    user_home = Path(environment.get("HOME") or Path.home())
    variables = {"HOME": str(home)}
    for tool in TOOLS:
        if tool.for_agents and tool.variable not in environment and (user_home / tool.folder).is_dir():
            variables[tool.variable] = str(user_home / tool.folder)
    return variables | {name: environment[name] for name in names if name in environment}
