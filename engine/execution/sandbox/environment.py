"""The environment variables that a session's commands inherit, and the places of secrets that they never see (SPEC
3.8)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from engine.execution.sandbox.base import SESSION_MARK, Confinement, Sandbox
from engine.execution.sandbox.host_paths import TABLES, home_of, system_secrets
from engine.home import Home
from engine.programs import search_path


def own_environment() -> Path | None:
    """The virtual environment that the engine runs in, or None."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def without_programs_of(folders: Iterable[str], environment: Path | None) -> list[str]:
    """The `folders` of a PATH without the programs of `environment`."""
    if environment is None:
        return list(folders)
    programs = os.path.realpath(environment / "bin")
    return [folder for folder in folders if not (folder and os.path.realpath(folder) == programs)]


def which(program: str, *, project: Path) -> str | None:
    """The operator's `program` on the PATH, outside of the folder `project` and of the engine's own environment; None
    when there is none."""
    path = without_programs_of(search_path(project).split(os.pathsep), own_environment())
    return shutil.which(program, path=os.pathsep.join(path))


CACHED_PACKAGES = {
    "go": ("go-mod", "GOMODCACHE", "{}"),
    "cargo": ("cargo-home", "CARGO_HOME", "{}"),
    "maven": ("maven", "MAVEN_OPTS", "-Dmaven.repo.local={}"),
    "gradle": ("gradle", "GRADLE_USER_HOME", "{}"),
    "dotnet": ("nuget", "NUGET_PACKAGES", "{}"),
}
"""Tools that keep packages outside of the project: the folder among the caches, once an installation made it, and the
variable that names it to the tool."""

_CREDENTIALS_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]+@", re.IGNORECASE)


def secret_places(home: Home, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The places that exist here and are hidden where a place around them is shown: secrets of the operator and of the
    system, and the engine's own folders with other sessions' worktrees, scratch and caches."""
    user = home_of(environment)
    named = [*_secret_places_of(user), *system_secrets()]
    for pointer in TABLES["secret_pointers"]:
        named += [Path(part).expanduser() for part in environment.get(pointer, "").split(os.pathsep) if part]
    named += [home.config, home.data, home.cache, home.logs]
    paths: set[Path] = set()
    for path in named:
        if not path.exists():
            continue  # cheaper than `resolve`, and few of them exist
        try:
            # A link is hidden where it leads: mounting over the link itself is not possible.
            real = path.resolve(strict=True)
        except OSError:
            continue  # not readable for us either
        if real != user and real != Path("/"):
            paths.add(real)
    return tuple(sorted(paths))


@lru_cache(4)
def _secret_places_of(user: Path) -> tuple[Path, ...]:
    return tuple(user / place for place in TABLES["secrets"])


def session_environment(
    confinement: Confinement, sandbox: Sandbox, session_id: str, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a session's commands: an allow-list of the engine's own without secrets, output line by line
    and without colours, and caches outside of the operator's tree (SPEC 3.9).

    The virtual environment that the engine itself runs in (`uv run clawpy`) is not the project's: it is taken away,
    unless it is the workspace's own. The workspace's `.venv`, with which its tests run, comes first on the PATH."""
    variables = {
        name: value
        for name, value in inherited.items()
        if (name in TABLES["inherited"] or name in confinement.variables or name.startswith("LC_"))
        and not _CREDENTIALS_IN_URL.search(value)
    }
    variables = _use_project_environment(variables, confinement)
    caches = confinement.caches
    temporary = sandbox.temporary_folder(confinement)
    return variables | {
        SESSION_MARK: session_id,
        "HOME": str(confinement.home),
        "TMPDIR": temporary,
        "TMP": temporary,
        "TEMP": temporary,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(caches),
        "MYPY_CACHE_DIR": str(caches / "mypy"),
        "RUFF_CACHE_DIR": str(caches / "ruff"),
        "GOCACHE": str(caches / "go-build"),
        "npm_config_cache": str(caches / "npm"),
        "npm_config_update_notifier": "false",
        "COVERAGE_FILE": str(confinement.files / "coverage"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(caches / "hypothesis"),
        # A Java machine takes the operator's home from the system's list of users.
        "GRADLE_USER_HOME": str(confinement.home / ".gradle"),
        **_package_variables(confinement),
    }


def _package_variables(confinement: Confinement) -> dict[str, str]:
    """Variables that lead tools to the packages that an installation put among the caches or into `vendor`."""
    variables = {
        variable: form.format(confinement.caches / folder)
        for folder, variable, form in CACHED_PACKAGES.values()
        if (confinement.caches / folder).is_dir()
    }
    for place in (confinement.folder, confinement.tree or confinement.folder):
        if "BUNDLE_PATH" not in variables and (place / "vendor" / "bundle" / "ruby").is_dir():
            variables["BUNDLE_PATH"] = str(place / "vendor" / "bundle")
    return variables


def _use_project_environment(variables: dict[str, str], confinement: Confinement) -> dict[str, str]:
    """`variables` with the project's virtual environment, if it has one, in place of the engine's."""
    folders = [confinement.tree or confinement.folder, confinement.folder]
    if confinement.prepared:
        folders.reverse()
    project_env = next((place / ".venv" for place in folders if (place / ".venv" / "bin" / "python").exists()), None)
    engine_env = own_environment()
    path = variables.get("PATH", "").split(os.pathsep)
    if engine_env is not None and not (project_env is not None and _is_same_place(engine_env, project_env)):
        path = without_programs_of(path, engine_env)
        if _is_same_place(Path(variables.get("VIRTUAL_ENV") or os.devnull), engine_env):
            variables = {name: value for name, value in variables.items() if name != "VIRTUAL_ENV"}
    if project_env is not None:
        path = [str(project_env / "bin"), *(part for part in path if part != str(project_env / "bin"))]
        variables = variables | {"VIRTUAL_ENV": str(project_env)}
    return variables | {"PATH": os.pathsep.join(path)} if path != [""] else variables


def _is_same_place(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)
