"""Where an agent lives: a home of its own, its installation, its environment, and nothing else (SPEC 3.8, 11.1). Pure
but for looking which files are there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.sandbox import PRIVATE, Confinement, forward

TOOL_HOMES = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "GOPATH": "go",
    "ASDF_DATA_DIR": ".asdf",
}
"""Toolchains that are found through HOME, which is another one for an agent: they are named and shown instead."""

_PROGRAMS = ("bin", "sbin", "shims")


def confined(
    session: Confinement, *, place: Path, command: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
) -> Confinement:
    """What the agent may touch: what its session may, its own home, its installation; the operator's home is hidden,
    and of the network `hosts` are reached at most, unless the workspace allows all of it."""
    user = Path(environment.get("HOME") or Path.home()).resolve()
    hidden, readable = session.hidden, (*session.readable, *named_privately(command))
    if user.is_dir() and user != Path(user.anchor):
        hidden = (*hidden, user)
        readable = (*readable, *shown_of(user, command, environment, never=place))
    return replace(
        session,
        hidden=hidden,
        readable=tuple(dict.fromkeys(readable)),
        writable=(*session.writable, place),
        hosts=tuple(hosts),
    )


def of_commands(agent: Confinement, *, place: Path) -> Confinement:
    """What commands may touch that it has run for it: the same, but for its home and its way to its provider."""
    return replace(agent, writable=tuple(one for one in agent.writable if one != place), hosts=())


def shown_of(user: Path, command: Sequence[str], environment: Mapping[str, str], *, never: Path) -> list[Path]:
    """What of the operator's home `user` is shown read-only: programs on the PATH, toolchains, the agent's own
    installation and ours, which keeps its way to its provider. Never all of it, and no folder that holds `never`."""
    found = [user / place for place in TOOL_HOMES.values()]
    found += [Path(sys.prefix), Path(sys.base_prefix), Path(forward.__file__).resolve().parent]
    for folder in environment.get("PATH", "").split(os.pathsep):
        if folder:
            found += _installation(Path(folder) / "program", user)
    for word in command:
        named = shutil.which(word, path=environment.get("PATH")) if word == command[0] else word
        path = Path(named or "")
        if path.is_absolute() and path.exists():
            found += [*_installation(path, user), *_installation(path.resolve(), user)]
    kept = []
    for one in dict.fromkeys(found):
        if one == user or not one.is_relative_to(user) or not one.exists() or one.is_symlink():
            continue
        if never.is_relative_to(one):
            continue
        kept.append(one)
    return kept


def named_privately(command: Sequence[str]) -> list[Path]:
    """Files that the command names and that lie where a session sees nothing of others' (/tmp): shown, each alone."""
    files = [Path(word) for word in command[1:] if Path(word).is_absolute() and Path(word).is_file()]
    return [file for file in files if any(file.is_relative_to(place) for place in PRIVATE)]


def agent_environment(*, place: Path, names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What is added to a session's clean environment: its home, toolchains, and the variables the operator named."""
    user = Path(environment.get("HOME") or Path.home())
    added = {"HOME": str(place)}
    for name, folder in TOOL_HOMES.items():
        if name not in environment and (user / folder).is_dir():
            added[name] = str(user / folder)
    return added | {name: environment[name] for name in names if name in environment}


def _installation(program: Path, user: Path) -> list[Path]:
    """Folders that a program needs: of `x/bin/p` that is `x`, but where `x` is shared by everything (`~`, `~/.local`)
    only `x/bin`; of a script in an npm package the whole `node_modules` it lies in."""
    for parent in program.parents:
        if parent.name == "node_modules":
            return [parent]
    folder = program.parent
    if folder.name not in _PROGRAMS:
        return [folder]
    return [folder] if folder.parent in (user, user / ".local") else [folder.parent]
