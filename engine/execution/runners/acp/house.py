"""Where an agent lives: a home of its own, its installation, its environment, and nothing else (SPEC 3.8, 11.1). Pure
but for looking which files are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.sandbox import Confinement

TOOL_HOMES = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "GOPATH": "go",
    "ASDF_DATA_DIR": ".asdf",
}
"""Toolchains that are found through HOME, which is another one for an agent: they are named instead."""


def confined(session: Confinement, *, place: Path, command: Sequence[str], hosts: Sequence[str]) -> Confinement:
    """What the agent may touch: what its session may, its own home, its installation; of the network `hosts` besides
    what the workspace allows."""
    return replace(
        session,
        readable=tuple(dict.fromkeys((*session.readable, *named(command)))),
        writable=(*session.writable, place),
        hosts=(*session.hosts, *hosts),
    )


def of_commands(agent: Confinement, session: Confinement, *, place: Path) -> Confinement:
    """What commands may touch that it has run for it: the same, but for its home and its way to its provider."""
    return replace(agent, writable=tuple(one for one in agent.writable if one != place), hosts=session.hosts)


def named(command: Sequence[str]) -> list[Path]:
    """Files that the command names: scripts, each alone, or with all of the `node_modules` it lies in."""
    found = []
    for word in command[1:]:
        file = Path(word)
        if file.is_absolute() and file.is_file():
            for one in dict.fromkeys((file, file.resolve())):
                found.append(next((up for up in one.parents if up.name == "node_modules"), one))
    return found


def agent_environment(*, place: Path, names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What is added to a session's clean environment: its home, toolchains, and the variables the operator named."""
    user = Path(environment.get("HOME") or Path.home())
    added = {"HOME": str(place)}
    for name, folder in TOOL_HOMES.items():
        if name not in environment and (user / folder).is_dir():
            added[name] = str(user / folder)
    return added | {name: environment[name] for name in names if name in environment}
