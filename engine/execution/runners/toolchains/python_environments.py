"""Where poetry, pipenv and hatch keep a project's environment, found by reading files alone.

None of them is started: each loads plugins and configuration of the project. What the project's own files say of the
place is not believed either. An environment that is nowhere here is no reason not to run the tests in the sandbox.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains.shapes import read


def kept(workspace: Path) -> Iterator[tuple[str, Path]]:
    """The tool and the interpreter of each environment that is kept for the project at `workspace`."""
    for keeper, candidates in (("poetry", _poetry), ("pipenv", _pipenv), ("hatch", _hatch)):
        for home in candidates(workspace):
            if (home / "bin" / "python").exists():
                yield keeper, home / "bin" / "python"
                break


def _poetry(workspace: Path) -> list[Path]:
    project = _toml(workspace / "pyproject.toml")
    own = project.get("tool", {}).get("poetry")
    name = (own or {}).get("name") or project.get("project", {}).get("name") or workspace.name
    if own is None and not (workspace / "poetry.lock").is_file():
        return []
    mac = sys.platform == "darwin"
    support = Path.home() / "Library"
    config = _folder("XDG_CONFIG_HOME", ".config") if not mac else support / "Application Support"
    settings = _toml(config / "pypoetry" / "config.toml")
    cache = os.environ.get("POETRY_CACHE_DIR") or settings.get("cache-dir")
    cache = cache or (_folder("XDG_CACHE_HOME", ".cache") if not mac else support / "Caches") / "pypoetry"
    place = os.environ.get("POETRY_VIRTUALENVS_PATH") or settings.get("virtualenvs", {}).get("path")
    root = Path(str(place).replace("{cache-dir}", str(cache))) if place else Path(cache) / "virtualenvs"
    plain = re.sub(r"[ $`!*@\"\\\r\n\t]", "_", str(name).lower())[:42]
    begin = f"{plain}-{_digest(os.path.normcase(os.path.realpath(workspace)))}"
    chosen = _toml(root / "envs.toml").get(begin, {}).get("minor", "")
    found = sorted(_below(root, f"{begin}-py"), key=_version, reverse=True)
    return sorted(found, key=lambda home: not home.name.endswith(f"-py{chosen}"))


def _pipenv(workspace: Path) -> list[Path]:
    if not (workspace / "Pipfile").is_file():
        return []
    named = os.environ.get("WORKON_HOME")
    root = Path(named).expanduser() if named else _folder("XDG_DATA_HOME", ".local/share") / "virtualenvs"
    plain = re.sub(r"[ &$`!*@\"()\[\]\\\r\n\t]", "_", workspace.name)[:42]
    return _below(root, f"{plain}-{_digest(str(workspace / 'Pipfile'))}")


def _hatch(workspace: Path) -> list[Path]:
    project = _toml(workspace / "pyproject.toml")
    name = project.get("project", {}).get("name")
    if "hatch" not in project.get("tool", {}) or not name:
        return []
    mac = Path.home() / "Library" / "Application Support"
    data = os.environ.get("HATCH_DATA_DIR") or (
        mac / "hatch" if sys.platform == "darwin" else _folder("XDG_DATA_HOME", ".local/share") / "hatch"
    )
    plain = re.sub(r"[-_.]+", "-", str(name)).lower()
    root = Path(data) / "env" / "virtual" / Path(plain).name / _digest(str(workspace))
    return sorted(_below(root, ""), key=lambda home: (not home.name.startswith("hatch-test"), home.name != plain))


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(os.fsencode(text)).digest()).decode()[:8]


def _version(home: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", home.name.rpartition("-py")[2])]


def _below(root: Path, begin: str) -> list[Path]:
    """The folders in `root` whose names begin so."""
    try:
        return sorted(place for place in root.iterdir() if place.name.startswith(begin) and place.is_dir())
    except OSError:
        return []


def _folder(variable: str, below_home: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / below_home)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read(file))
    except tomllib.TOMLDecodeError:
        return {}
