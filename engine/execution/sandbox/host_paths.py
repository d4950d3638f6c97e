"""Finds what commands get of this machine: the places that they may read, the places of secrets, which they never see,
and their environment variables (SPEC 3.8, 3.9).

The readable places are an allow-list. Of the operator's home, commands may read only the rows of `TOOLS`, installations
that are on the PATH, and the installation of the command itself. Commands have a HOME of their own, with links at the
paths where tools look for their files. The virtual environment in which the engine itself runs is left out of their
variables, and of the search for programs.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from engine.execution.sandbox import SESSION_MARK, Confinement, Sandbox
from engine.files import read_table
from engine.frozen import frozen
from engine.home import Home
from engine.installed import search_path_without

HOST_TABLES = read_table(__file__, "host_paths.toml")
"""The lists of `host_paths.toml`."""

SYSTEM = tuple(map(Path, HOST_TABLES["system"]))
"""Places that every user of the machine may read. macOS has a list of its own (see `programs`)."""

_SYSTEM_PLACES = frozenset(SYSTEM)
"""The same, for quick look-ups."""

_CREDENTIALS_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]+@", re.IGNORECASE)
"""An address with a user or a password."""


@frozen
class Tool:
    """The files of one tool that commands read."""

    folder: str
    """Its folder under the operator's home."""
    pieces: tuple[str, ...] = ("",)
    """The parts of the folder that commands may read."""
    variable: str = ""
    """An environment variable that may name another folder."""
    for_agents: bool = False
    """Whether `variable` tells the place to coding agents, which have another HOME."""


TOOLS = tuple(Tool(**{**row, "pieces": tuple(row.get("pieces", ("",)))}) for row in HOST_TABLES["tools"])
"""The tools, with the parts of a home that they need to run and to find their packages. None contains keys."""


def find_readable_places(
    confinement: Confinement, program: str, environment: Mapping[str, str] = os.environ
) -> list[Path]:
    """The existing places that a command may read but not write. `program` is the program that it runs, and
    `environment` is that of the engine."""
    user = find_home(environment)
    paths = [*SYSTEM, *(piece for piece, _ in find_installed_tools(environment)), *confinement.readable]
    if confinement.tree is not None:
        paths.append(confinement.tree)
    path = environment.get("PATH", "")
    absolute_folders = [folder for folder in path.split(os.pathsep) if folder.startswith("/")]
    paths += [place for folder in absolute_folders for place in _find_installation(Path(folder) / "program", user)]
    relative = os.sep in program and not program.startswith(os.sep)  # in the command's folder, which is shown anyway
    if not relative and (executable := shutil.which(program, path=path)):
        paths += [Path(executable), *find_program_installations(Path(executable), user)]
    paths += _find_virtual_environments(confinement, user)
    own_parents = {user, *user.parents}
    return [place for place in dict.fromkeys(paths) if place not in own_parents and _is_accessible(place)]


def _find_virtual_environments(confinement: Confinement, user: Path) -> Iterator[Path]:
    """The virtual environments of the project, each with the installations of its interpreters."""
    for project in dict.fromkeys((confinement.tree or confinement.folder, confinement.folder)):
        for name in HOST_TABLES["environment_folders"]:
            if _is_accessible(project / name / "pyvenv.cfg"):
                yield (project / name).resolve()
                yield from _find_base_interpreters(project / name, user)


def find_program_installations(program: Path, user: Path) -> Iterator[Path]:
    """The installations that `program` needs, except those in `SYSTEM`: the one that contains it, the one that contains
    the file it links to, and for a virtual environment that of its base interpreter."""
    for spelling in dict.fromkeys((program, program.parent.resolve() / program.name, program.resolve())):
        for place in _find_installation(spelling, user):
            yield place
            yield from _find_base_interpreters(place, user)


def find_installed_tools(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The parts of `TOOLS` that exist on this machine: the place of each, and its path relative to a home."""
    user = find_home(environment)
    home = str(user)
    for tool in TOOLS:
        root_in_variable = environment.get(tool.variable, "") if tool.variable else ""
        root = root_in_variable if root_in_variable.startswith("/") else f"{home}/{tool.folder}"
        for piece in tool.pieces:
            if not os.access(f"{root}/{piece}", os.F_OK):
                continue  # few of them exist, and this is cheaper than making a `Path`
            place = Path(root, piece)
            if not user.is_relative_to(place):
                yield place, f"{tool.folder}/{piece}".rstrip("/")


def link_tools(home: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Put links to the files of tools into a new `home`, and a `.gitconfig` with the operator's name and address."""
    user = find_home(environment)
    for place, name in find_installed_tools(environment):
        link = home / name
        if not os.path.lexists(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
    identity = _read_git_identity(user / ".gitconfig") or _read_git_identity(user / ".config" / "git" / "config")
    if identity:
        (home / ".gitconfig").write_text(identity)


def find_home(environment: Mapping[str, str]) -> Path:
    """The operator's home."""
    return Path(environment.get("HOME") or Path.home())


def find_system_secrets() -> list[Path]:
    """Files and folders in /etc and /opt that the engine may read and other users may not. They are hidden from
    commands."""
    return [*_list_private_entries("/etc", deep=True), *_list_private_entries("/opt", deep=False)]


def _list_private_entries(folder: str, *, deep: bool) -> Iterator[Path]:
    """The entries of a folder that others may not read, with `deep` also those of its folders."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # we may not read it either
    for entry in entries:
        if entry.is_symlink():
            continue
        try:
            is_private = not _is_readable_for_others(entry)
        except FileNotFoundError:
            continue
        if is_private and os.access(entry.path, os.R_OK):
            yield Path(entry.path)
        if not is_private and deep and entry.is_dir(follow_symlinks=False):
            yield from _list_private_entries(entry.path, deep=True)


def _is_readable_for_others(entry: os.DirEntry[str]) -> bool:
    """Whether every user may read a file, or list and enter a folder. Raises FileNotFoundError."""
    world_bits = stat.S_IROTH | stat.S_IXOTH if entry.is_dir(follow_symlinks=False) else stat.S_IROTH
    return entry.stat(follow_symlinks=False).st_mode & world_bits == world_bits


def _is_accessible(path: Path) -> bool:
    """Whether a path exists and we may see it. `Path.exists` would raise an error in a folder that we may not read."""
    return os.access(path, os.F_OK)


def _find_installation(program: Path, user: Path) -> list[Path]:
    """The folder that `program` needs, [] for none.

    For `x/bin/program` that is `x` if `x` looks like an installation, and otherwise `x/bin`. For a script in an npm
    package it is the `node_modules` that contains it.
    """
    for parent in program.parents:
        if parent.name == "node_modules":
            return [parent]
    folder = program.parent
    if not _SYSTEM_PLACES.isdisjoint((folder, *folder.parents)) or not _is_accessible(folder):
        return []
    prefix = folder.parent
    if folder.name not in HOST_TABLES["program_folders"]:
        return []
    shared = prefix in (user, user / ".local", Path("/"))
    if shared:
        return [folder]
    marked = any(os.access(f"{prefix}/{mark}", os.F_OK) for mark in HOST_TABLES["installation_marks"])
    return [prefix] if marked or any(prefix.glob("lib/python3*")) else [folder]


def _find_base_interpreters(environment: Path, user: Path) -> Iterator[Path]:
    """The installations of the interpreters with which a virtual environment was made."""
    try:
        config_text = (environment / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return
    home = re.search(r"^home\s*=\s*(/.*?)\s*$", config_text, re.MULTILINE)
    if home is None:
        return
    for program in (Path(home[1]) / "python", environment / "bin" / "python"):
        for spelling in (program, program.parent.resolve() / program.name, program.resolve()):
            yield from _find_installation(spelling, user)


def _read_git_identity(config: Path) -> str:
    """A git configuration with the operator's name and address only. The file `config` may contain secrets, too."""
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


def find_secret_places(home: Home, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The existing places that are hidden from commands, even inside a place that they may read.

    These are secrets of the operator and of the system, and the engine's own folders, which contain the worktrees,
    scratch folders and caches of other sessions.
    """
    user = find_home(environment)
    secret_paths = [user / place for place in HOST_TABLES["secrets"]] + find_system_secrets()
    for pointer in HOST_TABLES["secret_pointers"]:
        for part in environment.get(pointer, "").split(os.pathsep):
            if part:
                secret_paths.append(Path(os.path.expanduser(part)))  # noqa: PTH111 - leaves ~unknown-user as it is
    secret_paths += [home.config, home.data, home.cache, home.logs]
    paths: set[Path] = set()
    for path in secret_paths:
        if not path.exists():
            continue  # few of them exist, and this is cheaper than `resolve`
        try:
            # Nothing can be mounted on a link, so its target is hidden.
            real = path.resolve(strict=True)
        except OSError:
            continue  # we may not read it either
        if real != user and real != Path("/"):
            paths.add(real)
    return tuple(sorted(paths))


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
        if (name in HOST_TABLES["inherited"] or name in confinement.variables or name.startswith("LC_"))
        and not _CREDENTIALS_IN_URL.search(value)
    }
    variables = _use_project_environment(variables, confinement)
    places = {
        "caches": confinement.caches,
        "files": confinement.files,
        "home": confinement.home,
        "temporary": sandbox.get_temporary_folder(confinement),
    }
    fixed = {name: template.format(**places) for name, template in HOST_TABLES["environment"].items()}
    return variables | fixed | {SESSION_MARK: session_id} | _make_package_variables(confinement)


def _make_package_variables(confinement: Confinement) -> dict[str, str]:
    """Variables by which tools find the packages that were installed into the caches or into `vendor`."""
    variables = {
        row["variable"]: row["value"].format(confinement.caches / row["folder"])
        for row in HOST_TABLES["cached_packages"].values()
        if (confinement.caches / row["folder"]).is_dir()
    }
    for place in (confinement.folder, confinement.tree or confinement.folder):
        if "BUNDLE_PATH" not in variables and (place / "vendor" / "bundle" / "ruby").is_dir():
            variables["BUNDLE_PATH"] = str(place / "vendor" / "bundle")
    return variables


def _use_project_environment(variables: dict[str, str], confinement: Confinement) -> dict[str, str]:
    """Replace the engine's virtual environment in `variables` by that of the project, if it has one."""
    project_env = _find_project_environment(confinement)
    engine_env = find_own_environment()
    if engine_env is not None and project_env is not None and _is_same_place(engine_env, project_env):
        engine_env = None  # it is also the project's, and is kept
    path = remove_programs_of(variables.get("PATH", "").split(os.pathsep), engine_env)
    if engine_env is not None and _is_same_place(Path(variables.get("VIRTUAL_ENV") or os.devnull), engine_env):
        variables = {name: value for name, value in variables.items() if name != "VIRTUAL_ENV"}
    if project_env is not None:
        programs = str(project_env / "bin")
        path = [programs, *(folder for folder in path if folder != programs)]
        variables = variables | {"VIRTUAL_ENV": str(project_env)}
    if path == [""]:  # no PATH was inherited, and the project adds nothing to it
        return variables
    return variables | {"PATH": os.pathsep.join(path)}


def _find_project_environment(confinement: Confinement) -> Path | None:
    """The `.venv` of the project, None if it has none."""
    tree = confinement.tree or confinement.folder
    folders = [confinement.folder, tree] if confinement.prepared else [tree, confinement.folder]
    return next((folder / ".venv" for folder in folders if (folder / ".venv" / "bin" / "python").exists()), None)


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
    path = remove_programs_of(search_path_without(project).split(os.pathsep), find_own_environment())
    return shutil.which(program, path=os.pathsep.join(path))
