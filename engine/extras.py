"""The optional extras of the package: what each is for, whether it is installed, and the command that installs it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from engine.model.base import Refusal

MODELS, NOTIFY, POSTGRES, TRAIN = "models", "notify", "postgres", "train"

EXTRAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        MODELS: ("pydantic_ai", "running text prompts on a model"),
        NOTIFY: ("apprise", "notifying beyond this desktop"),
        POSTGRES: ("psycopg", "sharing a PostgreSQL between machines"),
        TRAIN: ("together", "training a Twin model"),
    }
)
"""For each extra a module that it installs, and what it is for."""


def installed(extra: str) -> bool:
    """Whether an extra is installed, without importing it."""
    module, _ = EXTRAS[extra]
    return find_spec(module) is not None


def missing() -> tuple[str, ...]:
    """The extras that are not installed."""
    return tuple(extra for extra in EXTRAS if not installed(extra))


def command(*extras: str) -> str:
    """The command that installs extras. It names the packages that they consist of, so it works for a checkout and for
    a wheel, and asks no registry for this program itself."""
    try:
        declared = metadata.requires("clawpy-console") or []
    except metadata.PackageNotFoundError:  # the program runs from a checkout that is not installed
        checkout = Path(__file__).parents[1]
        return install_command("--editable", f"{checkout}[{','.join(extras)}]")
    return install_command(
        *dict.fromkeys(requirement for extra in extras for requirement in _packages(declared, extra))
    )


def _packages(declared: list[str], extra: str) -> Iterator[str]:
    """The requirements of an extra, without the marker that names it."""
    for line in declared:
        requirement, _, marker = line.partition(";")
        if marker.replace('"', "'").strip() == f"extra == '{extra}'":
            yield requirement.strip()


def install_command(*arguments: str) -> str:
    """The command that installs packages into this environment. An environment that uv made may have no pip."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{install} {shlex.join(arguments)}"


def not_installed(extra: str) -> Refusal:
    """The refusal `not_installed` of what needs an extra."""
    _, purpose = EXTRAS[extra]
    return Refusal("not_installed", f"{purpose} needs the extra `{extra}`, which is not installed", command(extra))
