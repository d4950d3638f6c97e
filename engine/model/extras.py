"""Parts that are installed only when they are asked for: what each is for, whether it is there, what brings it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
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
"""The module that an extra of the package brings, and what it is for."""


def installed(extra: str) -> bool:
    """Whether an extra is there, without importing it."""
    module, _ = EXTRAS[extra]
    return find_spec(module) is not None


def missing() -> tuple[str, ...]:
    """The extras that are not there."""
    return tuple(extra for extra in EXTRAS if not installed(extra))


def command(*extras: str) -> str:
    """The command that brings extras into the environment this runs in. uv and its tools make some without pip."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{install} 'clawpy-console[{','.join(extras)}]'"


def not_installed(extra: str) -> Refusal:
    """`not_installed`: what was asked for needs an extra that is not there."""
    _, purpose = EXTRAS[extra]
    return Refusal("not_installed", f"{purpose} needs the extra `{extra}`, which is not installed", command(extra))
