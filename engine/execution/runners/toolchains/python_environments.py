"""Finds the environments and interpreters of a Python project, and the commands that make such an environment.

Environments of poetry, pipenv and hatch are found by reading files alone. None of these tools is started: each loads
plugins and configuration of the project. What the project's own files say of the place is not believed either. Where
no environment is found, the tests run in the sandbox all the same.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains.python_tests import is_test_file
from engine.execution.runners.toolchains.tool_table import folders_up_to, read_text, read_toml
from engine.execution.sandbox.environment import which

ENVIRONMENTS = (".venv", "venv", "env")
"""Folders that hold a project's environment by custom; uv makes the first."""

ON_PATH = " on the PATH"
"""The end of the place, in words, of an interpreter that is the operator's and not the project's."""

ADD_COMMANDS = {
    "uv": "uv add --dev",
    "poetry": "poetry add --group dev",
    "pdm": "pdm add -d",
    "pipenv": "pipenv install --dev",
}
"""The commands of package managers that add a package for development."""

_PACKAGE_FOLDERS = (
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib/python3/dist-packages",
    "Lib/site-packages",
)

_HAS_PYTEST = """
import os, site, sys
places = [*site.getsitepackages(), site.getusersitepackages()]
sys.exit(not any(os.path.isfile(os.path.join(place, "pytest", "__init__.py")) for place in places))
"""

_PYTEST_REQUIREMENT = re.compile(r"""["']pytest\b|^pytest\s*=""", re.MULTILINE)
"""pytest among a project's requirements; `[tool.pytest.ini_options]` alone installs none."""


def managed_environments(workspace: Path) -> Iterator[tuple[str, Path]]:
    """The package manager and the interpreter of each environment that one keeps for the project at `workspace`."""
    for manager, candidates in (
        ("poetry", _poetry_environments),
        ("pipenv", _pipenv_environments),
        ("hatch", _hatch_environments),
    ):
        for home in candidates(workspace):
            if (home / "bin" / "python").exists():
                yield manager, home / "bin" / "python"
                break


def _poetry_environments(workspace: Path) -> list[Path]:
    project = read_toml(workspace / "pyproject.toml")
    own = project.get("tool", {}).get("poetry")
    name = (own or {}).get("name") or project.get("project", {}).get("name") or workspace.name
    if own is None and not (workspace / "poetry.lock").is_file():
        return []
    mac = sys.platform == "darwin"
    support = Path.home() / "Library"
    config = _xdg_folder("XDG_CONFIG_HOME", ".config") if not mac else support / "Application Support"
    settings = read_toml(config / "pypoetry" / "config.toml")
    cache = os.environ.get("POETRY_CACHE_DIR") or settings.get("cache-dir")
    cache = cache or (_xdg_folder("XDG_CACHE_HOME", ".cache") if not mac else support / "Caches") / "pypoetry"
    place = os.environ.get("POETRY_VIRTUALENVS_PATH") or settings.get("virtualenvs", {}).get("path")
    root = Path(str(place).replace("{cache-dir}", str(cache))) if place else Path(cache) / "virtualenvs"
    plain = re.sub(r"[ $`!*@\"\\\r\n\t]", "_", str(name).lower())[:42]
    begin = f"{plain}-{_short_hash(os.path.normcase(os.path.realpath(workspace)))}"
    chosen = read_toml(root / "envs.toml").get(begin, {}).get("minor", "")
    homes = sorted(_list_subfolders(root, f"{begin}-py"), key=_python_version, reverse=True)
    return sorted(homes, key=lambda home: not home.name.endswith(f"-py{chosen}"))


def _pipenv_environments(workspace: Path) -> list[Path]:
    if not (workspace / "Pipfile").is_file():
        return []
    named = os.environ.get("WORKON_HOME")
    root = Path(named).expanduser() if named else _xdg_folder("XDG_DATA_HOME", ".local/share") / "virtualenvs"
    plain = re.sub(r"[ &$`!*@\"()\[\]\\\r\n\t]", "_", workspace.name)[:42]
    return _list_subfolders(root, f"{plain}-{_short_hash(str(workspace / 'Pipfile'))}")


def _hatch_environments(workspace: Path) -> list[Path]:
    project = read_toml(workspace / "pyproject.toml")
    name = project.get("project", {}).get("name")
    if "hatch" not in project.get("tool", {}) or not name:
        return []
    mac = Path.home() / "Library" / "Application Support"
    data = os.environ.get("HATCH_DATA_DIR") or (
        mac / "hatch" if sys.platform == "darwin" else _xdg_folder("XDG_DATA_HOME", ".local/share") / "hatch"
    )
    plain = re.sub(r"[-_.]+", "-", str(name)).lower()
    root = Path(data) / "env" / "virtual" / Path(plain).name / _short_hash(str(workspace))
    return sorted(
        _list_subfolders(root, ""), key=lambda home: (not home.name.startswith("hatch-test"), home.name != plain)
    )


def _short_hash(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(os.fsencode(text)).digest()).decode()[:8]


def _python_version(home: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", home.name.rpartition("-py")[2])]


def _list_subfolders(root: Path, begin: str) -> list[Path]:
    """The folders in `root` whose names begin so."""
    try:
        return sorted(place for place in root.iterdir() if place.name.startswith(begin) and place.is_dir())
    except OSError:
        return []


def _xdg_folder(variable: str, below_home: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / below_home)


def environment_command(workspace: Path) -> str:
    """The command that makes a project's environment with pytest, by the project's package manager."""
    project, manager = read_text(workspace / "pyproject.toml"), package_manager_of(workspace)
    if manager and _PYTEST_REQUIREMENT.search(read_text(workspace / "Pipfile") if manager == "pipenv" else project):
        commands = {
            "uv": f"uv sync{pytest_group_option(workspace)}",
            "poetry": "poetry install",
            "pdm": "pdm install -d",
            "pipenv": "pipenv install --dev",
        }
        return commands[manager]
    if manager:
        return add_package_command(workspace, "pytest")
    return " ".join([add_package_command(workspace, "pytest"), *pip_arguments(workspace)])


def pip_arguments(workspace: Path) -> list[str]:
    """Arguments of `pip install` besides pytest."""
    needs = [f"-r {file.name}" for file in sorted(workspace.glob("requirements*.txt"))]
    own = "[project]" in read_text(workspace / "pyproject.toml") or (workspace / "setup.py").is_file()
    if not own:
        return needs
    option, _, name = pytest_group_option(workspace).strip().partition(" ")  # pip knows groups only since 25.1
    return [*needs, f"-e '.[{name}]'" if option == "--extra" else "-e ."]


def add_package_command(workspace: Path, tool: str) -> str:
    """The command that adds `tool` to a project's environment, by the project's package manager."""
    manager = package_manager_of(workspace)
    if manager:
        return f"{ADD_COMMANDS[manager]} {tool}"
    own = next((name for name in ENVIRONMENTS if (workspace / name / "bin" / "pip").exists()), "")
    make = "" if own else "python3 -m venv .venv && "
    return f"{make}{own or '.venv'}/bin/pip install {tool}"


def package_manager_of(workspace: Path) -> str:
    """The package manager of a project: a key of `ADD_COMMANDS`, "" for pip."""
    project = read_text(workspace / "pyproject.toml")
    if (workspace / "uv.lock").is_file() or "[tool.uv" in project:
        return "uv"
    if "[dependency-groups]" in project and not _has_pip_environment(workspace):
        return "uv"
    if (workspace / "poetry.lock").is_file() or "[tool.poetry]" in project:
        return "poetry"
    if (workspace / "pdm.lock").is_file() or "[tool.pdm" in project:
        return "pdm"
    return "pipenv" if (workspace / "Pipfile").is_file() else ""


def _has_pip_environment(workspace: Path) -> bool:
    """Whether the project has an environment that `python3 -m venv` made."""
    environments = [workspace / name for name in ENVIRONMENTS if (workspace / name / "bin" / "pip").exists()]
    return any("uv = " not in read_text(home / "pyvenv.cfg") for home in environments)


def pytest_group_option(workspace: Path) -> str:
    """The option of `uv sync` for the group or extra with pytest, "" where it needs none."""
    try:
        lists = list(_dependency_groups(read_toml(workspace / "pyproject.toml")))
        return next(option for option, needs in lists if any(str(need).startswith("pytest") for need in needs))
    except (AttributeError, TypeError, StopIteration):  # not as it should be, or `[tool.uv]` has it
        return ""


def _dependency_groups(project: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The requirements of a project, by the option with which `uv sync` installs them."""
    own, groups = project.get("project", {}), project.get("dependency-groups", {})
    yield "", [*own.get("dependencies", []), *groups.get("dev", [])]
    for name, needs in groups.items():
        yield f" --group {name}", needs
    for name, needs in own.get("optional-dependencies", {}).items():
        yield f" --extra {name}", needs


def has_pytest(interpreter: Path, *, operators: bool) -> bool:
    """Whether an interpreter has pytest.

    An environment is only read: it came with the repository, or may lead into it, and runs nothing outside a sandbox.
    The operator's own interpreter (`operators`) is asked where its packages are, without loading any (`-S`: an editable
    install would lead into the repository) and in a folder that holds nothing to import.
    """
    home = interpreter.parent.parent
    if any(next(home.glob(f"{place}/pytest/__init__.py"), None) for place in _PACKAGE_FOLDERS):
        return True
    settings = read_text(home / "pyvenv.cfg")
    if (settings or not operators) and "include-system-site-packages = true" not in settings:
        return False
    program = str(interpreter) if operators else which("python3", project=home.parent)
    return program is not None and _exits_zero([program, "-I", "-S", "-c", _HAS_PYTEST])


def _exits_zero(argv: Sequence[str]) -> bool:
    """Whether a program of the operator, run outside of every project, ends with 0 within 10 seconds."""
    environment = {name: os.environ[name] for name in ("HOME", "PYENV_ROOT") if name in os.environ}
    environment["PATH"] = os.defpath
    try:
        done = subprocess.run(
            argv, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def is_python_project(folder: Path) -> bool:
    """Whether Python tests may be expected: a project file, a pytest configuration, or test files near the top."""
    names = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "conftest.py", "tox.ini", "requirements.txt")
    if any((folder / name).is_file() for name in names):
        return True
    near = (folder, folder / "tests", folder / "test")
    return any(is_test_file(file.name) for place in near if place.is_dir() for file in place.iterdir())


def find_interpreters(workspace: Path, top: Path) -> list[tuple[str, Path]]:
    """Interpreters, each with its place in words: of the project's own environment first, then of the folders above it
    up to the `top` of the repository, then the operator's."""
    pairs = [pair for folder in folders_up_to(workspace, top) for pair in _find_environments(folder, top)]
    for program in ("python3", "python"):
        path = which(program, project=top)
        if path:
            pairs.append((f"{program}{ON_PATH}", Path(path)))
            break
    return pairs


def _find_environments(folder: Path, top: Path) -> Iterator[tuple[str, Path]]:
    for name in filter(None, [*ENVIRONMENTS, os.environ.get("UV_PROJECT_ENVIRONMENT", "")]):
        for program in ("bin/python", "bin/python3", "Scripts/python.exe"):
            if (place := folder / name / program).exists():
                yield str(folder.relative_to(top) / name) if folder.is_relative_to(top) else name, place
                break
    yield from ((f"{manager}'s environment", place) for manager, place in managed_environments(folder))
