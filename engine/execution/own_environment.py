"""The virtual environment that the engine itself runs in (`uv run clawpy`): it is not the project's."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from engine.programs import search_path


def own_environment() -> Path | None:
    """Where it is; None when the engine runs in no virtual environment."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def without(folders: Iterable[str], environment: Path | None) -> list[str]:
    """The `folders` of a PATH without the programs of `environment`."""
    if environment is None:
        return list(folders)
    programs = os.path.realpath(environment / "bin")
    return [folder for folder in folders if not (folder and os.path.realpath(folder) == programs)]


def which(program: str, *, project: Path) -> str | None:
    """The operator's `program` on the PATH, outside of the folder `project`; None when there is
    none. What only the engine has is not the project's."""
    path = without(search_path(project).split(os.pathsep), own_environment())
    return shutil.which(program, path=os.pathsep.join(path))
