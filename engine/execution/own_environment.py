"""The virtual environment that the engine itself runs in (`uv run clawpy`): it is not the project's."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


def own_environment() -> Path | None:
    """Where it is; None when the engine runs in no virtual environment."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def without(folders: Iterable[str], environment: Path | None) -> list[str]:
    """The `folders` of a PATH without the programs of `environment`."""
    if environment is None:
        return list(folders)
    programs = os.path.realpath(environment / "bin")
    return [folder for folder in folders if not (folder and os.path.realpath(folder) == programs)]


def which(program: str) -> str | None:
    """The operator's `program` on the PATH, None when there is none: what only the engine has is not the project's."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(program, path=os.pathsep.join(without(path, own_environment())))
