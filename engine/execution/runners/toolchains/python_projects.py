"""Finds the environments, the interpreters, the settings and the test files of a Python project.

Environments of Poetry and Pipenv are found by their names in the usual folders. Neither tool is started, because both
load plugins and configuration of the project. For the same reason, settings that name the place of an environment are
ignored.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import subprocess
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs

from engine.execution.runners.toolchains import list_folders_up_to, read_text
from engine.execution.sandbox.host_paths import which
from engine.frozen import frozen
from engine.git import Git, GitError

ENVIRONMENTS = (".venv", "venv", "env")
"""The usual folders for the environment of a project. uv makes the first one."""

ON_PATH = " on the PATH"
"""The end of the description of an interpreter that belongs to the operator and not to the project."""

# -- environments


def find_environment(workspace: Path, top: Path) -> Path | None:
    """The folder of the environment of a project: its own, or that of the nearest folder above it up to the `top` of
    the repository. None if there is none."""
    candidates = (folder / name for folder in list_folders_up_to(workspace, top) for name in ENVIRONMENTS)
    return next((candidate for candidate in candidates if (candidate / "bin").is_dir()), None)


def _find_poetry_environments(workspace: Path) -> list[Path]:
    project = _read_toml(workspace / "pyproject.toml")
    poetry = _find_table(project, "tool", "poetry")
    name = poetry.get("name") or _find_table(project, "project").get("name") or workspace.name
    if not poetry and not (workspace / "poetry.lock").is_file():
        return []
    safe_name = re.sub(r"[ $`!*@\"\\\r\n\t]", "_", str(name).lower())[:42]
    prefix = f"{safe_name}-{_make_short_hash(os.path.normcase(os.path.realpath(workspace)))}"
    root = platformdirs.user_cache_path("pypoetry") / "virtualenvs"
    chosen_version = _find_table(_read_toml(root / "envs.toml"), prefix).get("minor", "")  # by `poetry env use`
    homes = _list_subfolders(root, f"{prefix}-py")
    homes.sort(key=lambda home: [*map(int, re.findall(r"\d+", home.name.removeprefix(prefix)))], reverse=True)
    return sorted(homes, key=lambda home: not home.name.endswith(f"-py{chosen_version}"))


def _find_pipenv_environments(workspace: Path) -> list[Path]:
    if not (workspace / "Pipfile").is_file():
        return []
    root = Path(os.environ.get("WORKON_HOME") or Path.home() / ".local/share/virtualenvs")
    safe_name = re.sub(r"[ &$`!*@\"()\[\]\\\r\n\t]", "_", workspace.name)[:42]
    return _list_subfolders(root, f"{safe_name}-{_make_short_hash(str(workspace / 'Pipfile'))}")


def _make_short_hash(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(os.fsencode(text)).digest()).decode()[:8]


def _list_subfolders(root: Path, prefix: str) -> list[Path]:
    """The folders in `root` whose names begin with `prefix`."""
    return sorted(folder for folder in root.glob(f"{glob.escape(prefix)}*") if folder.is_dir())


# -- interpreters

_PACKAGE_FOLDERS = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages")
"""The folders of an environment in which packages may be installed."""

_HAS_PYTEST = """
import os, site, sys
places = [*site.getsitepackages(), site.getusersitepackages()]
sys.exit(not any(os.path.isfile(os.path.join(place, "pytest", "__init__.py")) for place in places))
"""
"""Python code that ends with 0 if pytest is in the folders of its interpreter."""


@frozen
class Interpreter:
    """A Python interpreter with which a project may run."""

    where: str
    """Its place in words."""
    program: Path
    is_operators: bool = False
    """Whether it is the operator's own, and belongs to no environment of the project."""

    @property
    def home(self) -> Path:
        """The folder of its environment."""
        return self.program.parent.parent


def has_pytest(interpreter: Interpreter) -> bool:
    """Whether an interpreter has pytest.

    For an environment of the project, only files are read. It may have come with the repository, so its programs are
    never started outside of a sandbox. The operator's own interpreter is started to ask where its packages are. It
    loads no packages (`-S`), because an editable install could lead into the repository, and it runs in a folder
    without modules.
    """
    home, is_operators = interpreter.home, interpreter.is_operators
    if any(next(home.glob(f"{place}/pytest/__init__.py"), None) for place in _PACKAGE_FOLDERS):
        return True
    settings = read_text(home / "pyvenv.cfg")
    if (settings or not is_operators) and "include-system-site-packages = true" not in settings:
        return False
    program = str(interpreter.program) if is_operators else which("python3", project=home.parent)
    if program is None:
        return False
    environment = {name: os.environ[name] for name in ("HOME", "PYENV_ROOT") if name in os.environ}
    environment["PATH"] = os.defpath
    argv = (program, "-I", "-S", "-c", _HAS_PYTEST)
    try:
        result = subprocess.run(
            argv, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def find_interpreters(workspace: Path, top: Path) -> list[Interpreter]:
    """The interpreters of a project: that of the project's own environment, then those of the folders
    above it up to the `top` of the repository, then that of the operator."""
    folders = list_folders_up_to(workspace, top)
    interpreters = [interpreter for folder in folders for interpreter in _find_environments(folder, top)]
    for program in ("python3", "python"):
        if path := which(program, project=top):
            return [*interpreters, Interpreter(f"{program}{ON_PATH}", Path(path), is_operators=True)]
    return interpreters


def _find_environments(folder: Path, top: Path) -> Iterator[Interpreter]:
    for name in ENVIRONMENTS:
        if (interpreter := folder / name / "bin" / "python").exists():
            where = str(folder.relative_to(top) / name) if folder.is_relative_to(top) else name
            yield Interpreter(where, interpreter)
    managed = {"poetry": _find_poetry_environments(folder), "pipenv": _find_pipenv_environments(folder)}
    for manager, homes in managed.items():
        interpreters = (home / "bin" / "python" for home in homes)
        if python := next(filter(Path.exists, interpreters), None):
            yield Interpreter(f"{manager}'s environment", python)


# -- settings and modules

_COVERAGE_SETTING = re.compile(r"^\[(?:tool\.)?coverage\b|--cov\b|pytest-cov", re.M)
"""Matches a sign that coverage is configured."""

_SETTINGS_FILES = ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "noxfile.py")


def _read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file; {} if it cannot be read or is not TOML, because the project's tools will report
    that."""
    try:
        return tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def _find_table(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """The table `names` in a document; {} if there is none, or if it is something else."""
    for name in names:
        inner = document.get(name)
        document = inner if isinstance(inner, dict) else {}
    return document


def find_pytest_group_option(workspace: Path) -> str:
    """The option of `uv sync` for the group or extra with pytest; "" if none is needed."""
    project = _read_toml(workspace / "pyproject.toml")
    groups, extras = _find_table(project, "dependency-groups"), _find_table(project, "project", "optional-dependencies")
    options = [
        ("", _find_table(project, "project").get("dependencies")),
        ("", groups.get("dev")),
        *((f" --group {name}", group) for name, group in groups.items()),
        *((f" --extra {name}", extra) for name, extra in extras.items()),
    ]
    for option, requirements in options:
        if isinstance(requirements, list) and any(str(need).startswith("pytest") for need in requirements):
            return option
    return ""


def measures_coverage(folder: Path, interpreter: str) -> bool:
    """Whether a project has configured coverage, and has it in its environment. Only files are read."""
    home = Path(interpreter).parent.parent
    if next(home.glob("lib/python3*/site-packages/coverage/__init__.py"), None) is None:
        return False
    if (folder / ".coveragerc").is_file():
        return True
    return any(_COVERAGE_SETTING.search(read_text(folder / name)) for name in _SETTINGS_FILES)


def is_collected(folder: Path, inside: str) -> bool:
    """Whether pytest in `folder` is configured to collect the folder `inside` below it (`testpaths`)."""
    paths: list[str] = []
    try:
        configured = _read_toml(folder / "pyproject.toml")["tool"]["pytest"]["ini_options"]["testpaths"]
        paths += configured.split() if isinstance(configured, str) else map(str, configured)
    except (KeyError, TypeError):
        pass
    for name in ("pytest.ini", "tox.ini", "setup.cfg"):
        for match in re.finditer(r"^testpaths\s*=(.*(?:\n[ \t]+.*)*)", read_text(folder / name), re.M):
            paths += match[1].split()
    folders = (inside, *map(str, PurePosixPath(inside).parents))
    return any(fnmatch(part, path.strip("/")) for path in paths for part in folders)


def is_external_module(module: str, folder: Path, workspace: Path) -> bool:
    """Whether a module was never part of the project, so that it must be installed."""
    folders = [base / name for base in {folder, workspace} for name in ("", "src", "tests")]
    if any((base / module).is_dir() or (base / f"{module}.py").is_file() for base in folders):
        return False
    paths = [f":(glob)**/{module}.py", f":(glob)**/{module}/**/*.py"]
    try:
        return not Git(workspace).text("log", "-1", "--format=%h", "--", *paths)
    except GitError:  # nothing was ever committed
        return True


# -- tests

TEST_FILE_PATTERN = r"(^|/)(test_[^/]*|[^/]*_test)\.py$"
"""Names of files that pytest collects by default."""

SKIPPED_FOLDERS = {"venv", "env", "node_modules", "__pycache__", "build", "dist", "target"}
"""Folders that contain no tests of the project. Folders that begin with a dot are skipped as well."""

MAX_TEST_FILES = 3000
"""Maximum number of test files that a scan for imports reads."""

_IMPORT = re.compile(r"^\s*(?:import\s+([\w., ]+)|from\s+([\w.]+)\s+import\b[ \t]*(\([^)]*\)|[^\n]*))", re.M)


def is_test_file(path: str) -> bool:
    """Whether pytest would collect a file by its default names."""
    return re.search(TEST_FILE_PATTERN, path) is not None


def _find_test_files(folder: Path) -> Iterator[Path]:
    """Every file of a project that pytest would collect by its default names, in order."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if is_test_file(name))


def _make_module_name(path: str) -> str:
    """The dotted module name of a source file: `shop.cart` for `src/shop/cart.py`, `shop` for `shop/__init__.py`."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
        parts = parts[1:]
    if parts[-1:] == ["__init__"]:
        parts = parts[:-1]
    return ".".join(parts)


def _find_imported_names(text: str) -> set[str]:
    """The full dotted names that Python source imports, of modules and of names in modules. The source is searched with
    an expression and not parsed, because that is faster."""
    names = set()
    for modules, source, imported in _IMPORT.findall(text):
        names |= {source, *(f"{source}.{name}" for name in re.findall(r"\w+", imported))}
        for dotted in (part.split()[0] for part in modules.split(",") if part.strip()):
            names |= {dotted, *(dotted[: dot.start()] for dot in re.finditer(r"\.", dotted))}
    return names


def find_related_tests(folder: Path, paths: Sequence[str]) -> dict[str, list[str]]:
    """For each changed path of the project in `folder`, the test files that belong to it. At most `MAX_TEST_FILES` are
    read.

    A test file belongs to itself. All tests of a folder belong to its `conftest.py`. To `x.py` belong `test_x.py` and
    `x_test.py`, and every test that imports its module or contains its full name. If several files have that name, the
    one in the most similar folder is taken. If the package of a module exports its names, tests that import the package
    belong to it, too.
    """
    files = islice(_find_test_files(folder), MAX_TEST_FILES)
    tests = {file.relative_to(folder).as_posix(): read_text(file, 200_000) for file in files}
    imported = {test: _find_imported_names(text) for test, text in tests.items()}
    return {path: _find_tests_of_path(folder, path, tests, imported) for path in paths}


def _find_tests_of_path(
    folder: Path, path: str, tests: Mapping[str, str], imported: Mapping[str, set[str]]
) -> list[str]:
    pure = PurePosixPath(path)
    if is_test_file(path):
        return [path] if path in tests else []
    if pure.name == "conftest.py":
        return sorted(test for test in tests if PurePosixPath(test).is_relative_to(pure.parent))
    module = _make_module_name(path)
    if pure.suffix != ".py" or not module:
        return []
    package = module.rpartition(".")[0]
    imports = {module, package} - {""} if _is_reexported(folder, pure, module) else {module}
    mention = re.compile(rf"(?<![\w.]){re.escape(module)}\.\w")
    using = [test for test, text in tests.items() if imports & imported[test] or (package and mention.search(text))]
    return sorted({*_find_tests_by_name(pure, tests), *using})


def _find_tests_by_name(source: PurePosixPath, tests: Iterable[str]) -> list[str]:
    """The tests with the name of a source file. A package has the name of its folder. Of several tests, those whose
    paths have the most folders in common with the source are taken, as `tests/a/…` with `a/x.py`."""
    stem = source.parent.name if source.stem in ("__init__", "__main__") else source.stem
    stem = stem.strip("_") or stem
    candidates = [test for test in tests if PurePosixPath(test).stem in (f"test_{stem}", f"{stem}_test")]
    folders = set(source.parent.parts)
    shared = {test: len(folders & set(PurePosixPath(test).parent.parts)) for test in candidates}
    most_shared = max(shared.values(), default=0)
    return [test for test in candidates if shared[test] == most_shared]


def _is_reexported(folder: Path, source: PurePosixPath, module: str) -> bool:
    """Whether the `__init__.py` of its package imports names from a module."""
    if source.stem == "__init__":
        return False
    text = read_text(folder / source.parent / "__init__.py", 200_000)
    name = rf"(?:\.{re.escape(source.stem)}|{re.escape(module)})"
    return re.search(rf"^\s*from\s+{name}\s+import\b", text, re.M) is not None
