"""The places of this machine that commands may read, the variables that they inherit, and the places of secrets (SPEC
3.8).

The first two are allow-lists. Of the operator's home they have only the rows of `TOOLS`, and installations that lie on
the PATH or in which a command itself lies. Commands have another HOME, with links where the tools look for their files.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.execution.sandbox import SESSION_MARK, Confinement, Sandbox
from engine.frozen import frozen
from engine.home import Home
from engine.programs import search_path

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""The lists of `host_paths.toml`."""

SYSTEM = tuple(map(Path, TABLES["system"]))
"""Places that every user of the machine reads. macOS has a list of its own (see `seatbelt`)."""

_SYSTEM_PLACES = frozenset(SYSTEM)


@frozen
class Tool:
    """The files of one tool that commands read."""

    folder: str
    """Its folder under the operator's home."""
    pieces: tuple[str, ...] = ("",)
    """The parts of the folder that are shown."""
    variable: str = ""
    """An environment variable that may name another folder."""


TOOLS = tuple(Tool(**{**row, "pieces": tuple(row.get("pieces", ("",)))}) for row in TABLES["tools"])
"""The tools, with what they need of a home to run and to find what they installed, never settings with keys."""


def readable_places(confinement: Confinement, program: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The existing places that commands may read but not write. `program` is run; `environment` is the engine's."""
    user = home_of(environment)
    paths = [*SYSTEM, *(piece for piece, _ in installed_tools(environment)), *confinement.readable]
    if confinement.tree is not None:
        paths.append(confinement.tree)
    path = environment.get("PATH", "")
    for folder in path.split(os.pathsep):
        if folder.startswith("/"):
            paths += _installation_of(Path(folder) / "program", user)
    relative = os.sep in program and not program.startswith(os.sep)  # of the command's folder, not of this process's
    if not relative and (executable := shutil.which(program, path=path)):
        paths += [Path(executable), *installations_of(Path(executable), user)]
    for place in dict.fromkeys((confinement.tree or confinement.folder, confinement.folder)):
        for name in TABLES["environment_folders"]:
            if _is_accessible(place / name / "pyvenv.cfg"):
                paths += [(place / name).resolve(), *_base_interpreters(place / name, user)]
    own_parents = {user, *user.parents}
    return [place for place in dict.fromkeys(paths) if place not in own_parents and _is_accessible(place)]


def installations_of(program: Path, user: Path) -> Iterator[Path]:
    """The installations that `program` needs: the one it lies in, the one of the file that it links to, and for a
    virtual environment its base interpreter. Those in `SYSTEM` are left out."""
    for spelling in dict.fromkeys((program, program.parent.resolve() / program.name, program.resolve())):
        for place in _installation_of(spelling, user):
            yield place
            yield from _base_interpreters(place, user)


def installed_tools(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The existing pieces of `TOOLS`: each with its place, and its path under a home."""
    user = home_of(environment)
    home = str(user)
    for tool in TOOLS:
        named = environment.get(tool.variable, "") if tool.variable else ""
        root = named if named.startswith("/") else f"{home}/{tool.folder}"
        for piece in tool.pieces:
            if not os.access(f"{root}/{piece}", os.F_OK):
                continue  # cheaper than a `Path`, and few of them exist
            place = Path(root, piece)
            if not user.is_relative_to(place):
                yield place, f"{tool.folder}/{piece}".rstrip("/")


def link_tools(home: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Put links into a new `home` where tools look for their files, and the operator's name for git."""
    user = home_of(environment)
    for place, name in installed_tools(environment):
        link = home / name
        if not os.path.lexists(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
    identity = _git_identity(user / ".gitconfig") or _git_identity(user / ".config" / "git" / "config")
    if identity:
        (home / ".gitconfig").write_text(identity)


def home_of(environment: Mapping[str, str]) -> Path:
    """The operator's home."""
    return Path(environment.get("HOME") or Path.home())


def system_secrets() -> list[Path]:
    """Files and folders in /etc and /opt that the engine may read and other users may not; commands do not see them."""
    return [*_private_entries("/etc", deep=True), *_private_entries("/opt", deep=False)]


def _private_entries(folder: str, *, deep: bool) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # not for us either
    for entry in entries:
        if entry.is_symlink():
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        world_bits = stat.S_IROTH | stat.S_IXOTH if is_folder else stat.S_IROTH
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if mode & world_bits != world_bits:
            if os.access(entry.path, os.R_OK):
                yield Path(entry.path)
        elif is_folder and deep:
            yield from _private_entries(entry.path, deep=True)


def _is_accessible(path: Path) -> bool:
    """Whether it is there for us; `Path.exists` raises where we may not look."""
    return os.access(path, os.F_OK)


def _installation_of(program: Path, user: Path) -> list[Path]:
    """The folder that `program` needs, [] for none: for `x/bin/program` that is `x` where `x` looks like an
    installation, else the folder of programs alone; for a script in an npm package the `node_modules` it lies in."""
    for parent in program.parents:
        if parent.name == "node_modules":
            return [parent]
    folder = program.parent
    if not _SYSTEM_PLACES.isdisjoint((folder, *folder.parents)) or not _is_accessible(folder):
        return []
    prefix = folder.parent
    if folder.name not in TABLES["program_folders"]:
        return []
    shared = prefix in (user, user / ".local", Path("/"))
    if shared:
        return [folder]
    marked = any(os.access(f"{prefix}/{mark}", os.F_OK) for mark in TABLES["installation_marks"])
    return [prefix] if marked or any(prefix.glob("lib/python3*")) else [folder]


def _base_interpreters(environment: Path, user: Path) -> Iterator[Path]:
    """The interpreters that a virtual environment was made with."""
    try:
        config_text = (environment / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return
    home = re.search(r"^home\s*=\s*(/.*?)\s*$", config_text, re.MULTILINE)
    if home is None:
        return
    for program in (Path(home[1]) / "python", environment / "bin" / "python"):
        for spelling in (program, program.parent.resolve() / program.name, program.resolve()):
            yield from _installation_of(spelling, user)


def _git_identity(config: Path) -> str:
    """The operator's name and address for git, from a configuration file that may hold secrets as well."""
    try:
        config_text = config.read_text(errors="replace")
    except OSError:
        return ""
    identity: dict[str, str] = {}
    section = ""
    for line in config_text.splitlines():
        if header := re.match(r'\s*\[\s*([\w.]+)\s*(?:"[^"]*")?\s*\]', line):
            section = header[1].lower() if '"' not in header[0] else ""
        elif section == "user" and (entry := re.match(r"\s*(name|email)\s*=\s*(.*?)\s*$", line, re.IGNORECASE)):
            identity[entry[1].lower()] = entry[2]
    return "[user]\n" + "".join(f"\t{name} = {value}\n" for name, value in identity.items()) if identity else ""


# Environment variables and secrets


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
    places = {
        "caches": confinement.caches,
        "files": confinement.files,
        "home": confinement.home,
        "temporary": sandbox.temporary_folder(confinement),
    }
    fixed = {name: template.format(**places) for name, template in TABLES["environment"].items()}
    return variables | fixed | {SESSION_MARK: session_id} | _package_variables(confinement)


def _package_variables(confinement: Confinement) -> dict[str, str]:
    """Variables that lead tools to the packages that an installation put among the caches or into `vendor`."""
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
