"""Makes the environment variables of a session's commands (SPEC 3.9). The environment that the engine itself runs in is
left out of these, and of the search for programs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.execution.sandbox import SESSION_MARK, Confinement, Sandbox
from engine.execution.sandbox.host_paths import TABLES
from engine.installed import search_path

_CREDENTIALS_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]+@", re.IGNORECASE)


def make_session_environment(
    confinement: Confinement, sandbox: Sandbox, session_id: str, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a session's commands (SPEC 3.9).

    It has an allow-list of the engine's own variables, without secrets. It makes tools write line by line and without
    colours, and keep their caches outside of the operator's tree. The virtual environment of the engine itself (as with
    `uv run clawpy`) is removed, unless it is that of the workspace. The `.venv` of the workspace, with which its tests
    run, comes first on the PATH.
    """
    variables = {
        name: value
        for name, value in inherited.items()
        if (name in TABLES["inherited"] or name in confinement.variables or name.startswith("LC_"))
        and not _CREDENTIALS_IN_URL.search(value)
    }
    variables = _use_project_environment(variables, confinement)
    places = {
        "caches": confinement.caches,
        "files": confinement.files,
        "home": confinement.home,
        "temporary": sandbox.temporary_folder(confinement),
    }
    fixed = {name: template.format(**places) for name, template in TABLES["environment"].items()}
    return variables | fixed | {SESSION_MARK: session_id} | _package_variables(confinement)


def _package_variables(confinement: Confinement) -> dict[str, str]:
    """Variables by which tools find the packages that were installed into the caches or into `vendor`."""
    variables = {
        row["variable"]: row["value"].format(confinement.caches / row["folder"])
        for row in TABLES["cached_packages"].values()
        if (confinement.caches / row["folder"]).is_dir()
    }
    for place in (confinement.folder, confinement.tree or confinement.folder):
        if "BUNDLE_PATH" not in variables and (place / "vendor" / "bundle" / "ruby").is_dir():
            variables["BUNDLE_PATH"] = str(place / "vendor" / "bundle")
    return variables


def _use_project_environment(variables: dict[str, str], confinement: Confinement) -> dict[str, str]:
    """Replace the engine's virtual environment in `variables` by that of the project, if it has one."""
    tree = confinement.tree or confinement.folder
    folders = [confinement.folder, tree] if confinement.prepared else [tree, confinement.folder]
    project_env = next((place / ".venv" for place in folders if (place / ".venv" / "bin" / "python").exists()), None)
    engine_env = find_own_environment()
    path = variables.get("PATH", "").split(os.pathsep)
    is_shared = engine_env is not None and project_env is not None and _is_same_place(engine_env, project_env)
    if engine_env is not None and not is_shared:
        path = remove_programs_of(path, engine_env)
        if _is_same_place(Path(variables.get("VIRTUAL_ENV") or os.devnull), engine_env):
            variables = {name: value for name, value in variables.items() if name != "VIRTUAL_ENV"}
    if project_env is not None:
        programs = str(project_env / "bin")
        path = [programs, *(folder for folder in path if folder != programs)]
        variables = variables | {"VIRTUAL_ENV": str(project_env)}
    if path == [""]:  # no PATH was inherited, and the project adds nothing to it
        return variables
    return variables | {"PATH": os.pathsep.join(path)}


def _is_same_place(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def find_own_environment() -> Path | None:
    """The virtual environment that the engine runs in, or None."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def remove_programs_of(folders: Iterable[str], environment: Path | None) -> list[str]:
    """The `folders` of a PATH without the programs of `environment`."""
    if environment is None:
        return list(folders)
    programs = os.path.realpath(environment / "bin")
    return [folder for folder in folders if not (folder and os.path.realpath(folder) == programs)]


def which(program: str, *, project: Path) -> str | None:
    """The path of a program on the operator's PATH, None if there is none. Programs in the folder `project` and in the
    engine's own environment are left out."""
    path = remove_programs_of(search_path(project).split(os.pathsep), find_own_environment())
    return shutil.which(program, path=os.pathsep.join(path))
