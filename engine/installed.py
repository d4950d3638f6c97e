"""What is installed on this machine: extras of the package, programs on the PATH, coding agents and local models.

`doctor`, refusals and a `SetupStep` say how to install what is missing. Code that starts `git`, `gh` or a sandbox finds
it here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from engine.frozen import frozen
from engine.model.refusal import Refusal

# -- extras of the package

MODELS, NOTIFY, POSTGRES, TRAIN = "models", "notify", "postgres", "train"
"""The names of the extras."""


class Extra(NamedTuple):
    """An extra: a module that it installs, and its purpose."""

    module: str
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    MODELS: Extra("pydantic_ai", "running text prompts on a model"),
    NOTIFY: Extra("apprise", "notifying beyond this desktop"),
    POSTGRES: Extra("psycopg", "sharing a PostgreSQL between machines"),
    TRAIN: Extra("together", "training a Twin model"),
}
"""The extras by name."""


def has_extra(extra: str) -> bool:
    """Whether an extra is installed, without importing it."""
    return find_spec(EXTRAS[extra].module) is not None


def find_missing_extras() -> tuple[str, ...]:
    """The extras that are not installed."""
    return tuple(extra for extra in EXTRAS if not has_extra(extra))


def make_extras_command(*extras: str) -> str:
    """The command that installs extras. It names the packages that they consist of, so it works for a checkout and for
    a wheel, and asks no registry for this program itself."""
    from importlib import metadata  # it imports `email`: 12 ms that the first frame does not wait for

    try:
        declared = metadata.requires("clawpy-console") or []
    except metadata.PackageNotFoundError:  # the program runs from a checkout that is not installed
        checkout = Path(__file__).parents[1]
        return make_install_command("--editable", f"{checkout}[{','.join(extras)}]")
    return make_install_command(
        *dict.fromkeys(requirement for extra in extras for requirement in _select_packages(declared, extra))
    )


def _select_packages(declared: list[str], extra: str) -> Iterator[str]:
    """The requirements of an extra, without the marker that names it. None of them has another marker."""
    for line in declared:
        requirement, _, marker = line.partition(";")
        if marker.replace('"', "'").strip() == f"extra == '{extra}'":
            yield requirement.strip()


def make_install_command(*arguments: str) -> str:
    """The command that installs packages into this environment. An environment that uv made may have no pip."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{install} {shlex.join(arguments)}"


def make_not_installed_refusal(extra: str) -> Refusal:
    """The refusal `not_installed` of what needs an extra."""
    message = f"{EXTRAS[extra].purpose} needs the extra `{extra}`, which is not installed"
    return Refusal("not_installed", message, make_extras_command(extra))


# -- programs on the PATH


def search_path_without(*excluded_folders: Path) -> str:
    """The PATH without relative folders, and without folders that are inside one of `excluded_folders`.

    Otherwise a `.` on the PATH, or the active environment of a project, would let a repository choose which `git` runs.
    """
    return _search_path(os.environ.get("PATH", os.defpath), excluded_folders)


@lru_cache(maxsize=64)
def _search_path(path: str, excluded_folders: tuple[Path, ...]) -> str:
    roots = [os.path.realpath(folder) for folder in excluded_folders]
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in roots)
    ]
    return os.pathsep.join(folders)


def find_program(program: str, *excluded_folders: Path) -> str | None:
    """The absolute path of `program` on `search_path_without(*excluded_folders)`, None if it is not there."""
    return shutil.which(program, path=search_path_without(*excluded_folders))


# -- a sandbox

_SANDBOX_FIXES = {"linux": "install bubblewrap", "darwin": "start clawpy outside of other sandboxes"}
SANDBOX_FIX = _SANDBOX_FIXES.get(sys.platform, "run clawpy on Linux or macOS")
"""How to get a sandbox on this machine."""


# -- agents and models


@frozen
class SetupStep:
    """A step that is missing before a model can answer text prompts."""

    problem: str
    """What is missing, in a few words."""
    command: str
    """The command that supplies it."""
    short_command: str = ""
    """A command that fits a line of a screen and leads to `command`; "" if that fits itself."""

    @property
    def shown_command(self) -> str:
        """The command for a line of a screen."""
        return self.short_command or self.command


@frozen
class FoundAgent:
    """An agent that is installed here. `missing` is the command that installs its adapter, "" if it can serve now.

    `login` says in words how the operator logs in to it, for which it needs the agent's own folder.
    """

    name: str
    command: tuple[str, ...]
    title: str
    hosts: tuple[str, ...]
    login: str
    missing: str = ""


@frozen
class LocalModels:
    """The models that answer on this machine (SPEC 9.1)."""

    ids: tuple[str, ...] = ()
    """Ids such as `ollama:qwen3`, by provider, in the order of the provider's list."""

    faults: tuple[str, ...] = ()
    """A sentence for each provider whose server answers but does not list its models."""
