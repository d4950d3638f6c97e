"""What commands may read besides their own folders: the system, and installed tools. An allow-list (SPEC 3.8).

Nothing of the operator's home is in it but what a row of `TOOLS` names, and installations that lie on the PATH or that
a command itself lies in. Commands have another HOME, in which links stand where the tools look.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.execution.sandbox.base import Confinement
from engine.frozen import frozen

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""The lists of `host_paths.toml`."""

SYSTEM = tuple(map(Path, TABLES["system"]))
"""What everybody on the machine reads. macOS has a list of its own (see `seatbelt`)."""

_OF_SYSTEM = frozenset(SYSTEM)


@frozen
class Tool:
    """Where a tool keeps what commands read: `pieces` of `folder`, which lies under the operator's home unless the
    environment variable `variable` names another place."""

    folder: str
    pieces: tuple[str, ...] = ("",)
    variable: str = ""


TOOLS = tuple(Tool(**{**row, "pieces": tuple(row.get("pieces", ("",)))}) for row in TABLES["tools"])
"""What of a home tools need to run and to find what they installed, never their settings with keys."""

_PROGRAMS = ("bin", "sbin", "shims", "Scripts")
_OF_INSTALLATIONS = (
    "pyvenv.cfg", "conda-meta", "lib/node_modules", "include/node", "pkg/tool", "lib/rustlib", "lib/ruby",
    "lib/jvm.cfg", "lib/modules", "lib/erlang",
)  # fmt: skip
_VIRTUAL = (".venv", "venv", "env", ".env")


def readable_places(confinement: Confinement, program: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Everything that commands may read but not write, as far as it exists. `program` is what is run; `environment` is
    the engine's."""
    user = home_of(environment)
    found = [*SYSTEM, *(piece for piece, _ in pieces(environment)), *confinement.readable]
    if confinement.tree is not None:
        found.append(confinement.tree)
    path = environment.get("PATH", "")
    for folder in path.split(os.pathsep):
        if folder.startswith("/"):
            found += _installation(Path(folder) / "program", user)
    relative = os.sep in program and not program.startswith(os.sep)  # of the command's folder, not of this process's
    if not relative and (named := shutil.which(program, path=path)):
        found += [Path(named), *installed(Path(named), user)]
    for place in dict.fromkeys((confinement.tree or confinement.folder, confinement.folder)):
        for name in _VIRTUAL:
            if _there(place / name / "pyvenv.cfg"):
                found += [(place / name).resolve(), *_bases(place / name, user)]
    above = {user, *user.parents}
    return [place for place in dict.fromkeys(found) if place not in above and _there(place)]


def installed(program: Path, user: Path) -> Iterator[Path]:
    """The installations that `program` needs: the one it lies in, that of what it is a link to, and of a virtual
    environment the interpreter it was made with. What everybody reads is left out."""
    for spelling in dict.fromkeys((program, program.parent.resolve() / program.name, program.resolve())):
        for place in _installation(spelling, user):
            yield place
            yield from _bases(place, user)


def pieces(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """What `TOOLS` names of this machine: where it is, and its name under a home."""
    user = home_of(environment)
    home = str(user)
    for tool in TOOLS:
        named = environment.get(tool.variable, "") if tool.variable else ""
        root = named if named.startswith("/") else f"{home}/{tool.folder}"
        for piece in tool.pieces:
            # Most are not there: a path is made of those alone that are.
            if os.access(f"{root}/{piece}", os.F_OK) and not user.is_relative_to(place := Path(root, piece)):
                yield place, f"{tool.folder}/{piece}".rstrip("/")


def furnish(home: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Put links to what tools read into a new `home`, where they look for it, and the operator's name for git."""
    user = home_of(environment)
    for place, name in pieces(environment):
        link = home / name
        if not os.path.lexists(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
    if identity := _identity(user / ".gitconfig") or _identity(user / ".config" / "git" / "config"):
        (home / ".gitconfig").write_text(identity)


def home_of(environment: Mapping[str, str]) -> Path:
    """The operator's home."""
    return Path(environment.get("HOME") or Path.home())


_secrets: tuple[dict[str, int], list[Path]] = ({}, [])


def system_secrets() -> list[Path]:
    """What of the system commands do not see: what we may read and not everybody may. Looked for again when one of the
    folders has changed."""
    global _secrets
    folders, found = _secrets
    if not folders or any(_changed(folder) != time for folder, time in folders.items()):
        folders, found = {}, []
        _collect_private("/etc", folders, found, deep=True)
        _collect_private("/opt", folders, found, deep=False)
        _secrets = folders, found
    return found


def _changed(folder: str) -> int:
    """When its entries last changed, in ns; 0 for one that is gone."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116  a path for each would cost more than the look
    except OSError:
        return 0


def _collect_private(folder: str, folders: dict[str, int], found: list[Path], *, deep: bool) -> None:
    folders[folder] = _changed(folder)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # not for us either
    for entry in entries:
        if entry.is_symlink():
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        wanted = stat.S_IROTH | stat.S_IXOTH if is_folder else stat.S_IROTH
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if mode & wanted != wanted:
            if os.access(entry.path, os.R_OK):
                found.append(Path(entry.path))
        elif is_folder and deep:
            _collect_private(entry.path, folders, found, deep=True)


def _there(path: Path) -> bool:
    """Whether it is there for us; `Path.exists` raises where we may not look."""
    return os.access(path, os.F_OK)


def _installation(program: Path, user: Path) -> list[Path]:
    """The folder that `program` needs: of `x/bin/program` that is `x` where `x` looks like an installation, else the
    folder of programs alone; of a script in an npm package the `node_modules` it lies in."""
    for parent in program.parents:
        if parent.name == "node_modules":
            return [parent]
    folder = program.parent
    if not _OF_SYSTEM.isdisjoint((folder, *folder.parents)) or not _there(folder):
        return []
    prefix = folder.parent
    if folder.name not in _PROGRAMS:
        return []
    shared = prefix in (user, user / ".local", Path("/"))
    if shared:
        return [folder]
    marked = any(os.access(f"{prefix}/{mark}", os.F_OK) for mark in _OF_INSTALLATIONS)
    return [prefix] if marked or any(prefix.glob("lib/python3*")) else [folder]


def _bases(environment: Path, user: Path) -> Iterator[Path]:
    """The interpreters that a virtual environment was made with."""
    try:
        told = (environment / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return
    if (home := re.search(r"^home\s*=\s*(/.*?)\s*$", told, re.MULTILINE)) is None:
        return
    for program in (Path(home[1]) / "python", environment / "bin" / "python"):
        for spelling in (program, program.parent.resolve() / program.name, program.resolve()):
            yield from _installation(spelling, user)


def _identity(config: Path) -> str:
    """The name and address of the operator for git, out of a file of settings that has secrets besides."""
    try:
        told = config.read_text(errors="replace")
    except OSError:
        return ""
    found: dict[str, str] = {}
    section = ""
    for line in told.splitlines():
        if header := re.match(r'\s*\[\s*([\w.]+)\s*(?:"[^"]*")?\s*\]', line):
            section = header[1].lower() if '"' not in header[0] else ""
        elif section == "user" and (entry := re.match(r"\s*(name|email)\s*=\s*(.*?)\s*$", line, re.IGNORECASE)):
            found[entry[1].lower()] = entry[2]
    return "[user]\n" + "".join(f"\t{name} = {value}\n" for name, value in found.items()) if found else ""
