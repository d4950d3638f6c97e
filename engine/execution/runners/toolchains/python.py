"""pytest, ruff, black, flake8: the tools of a Python project, from its own environment first."""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from engine.execution.own_environment import which
from engine.execution.runners.toolchains.base import Command, Toolchain, operand, read, result, succeeds
from engine.execution.runners.toolchains.missing import Missing, fix_for
from engine.execution.runners.toolchains.python_environments import kept
from engine.execution.runners.toolchains.python_lint import PythonLinter
from engine.git import Git, GitError
from engine.values import CheckResult

ENVIRONMENTS = (".venv", "venv", "env")
"""Folders that hold a project's environment by custom; uv makes the first."""

SKIPPED = {".git", ".venv", "venv", "env", "node_modules", "__pycache__", ".tox", ".nox", "build", "dist", "target"}
"""Folders in which nobody keeps tests."""

MAX_TEST_FILES = 3000
"""A scan for imports reads at most so many test files."""

_PACKAGES = (
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

_REQUIRED = re.compile(r"""["']pytest\b|^pytest\s*=""", re.MULTILINE)
"""pytest among what a project needs; `[tool.pytest.ini_options]` alone brings none."""

LARGEST_REPORT = 50_000_000
"""Characters of a report that are read."""

USAGE_ERRORS = {2: "collection failed", 3: "pytest broke", 4: "pytest did not understand its arguments"}


def is_test_file(path: str) -> bool:
    """Whether pytest would collect a file by its default names."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def test_files(folder: Path) -> Iterator[Path]:
    """Every file of a project that pytest would collect by its default names, in order."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if is_test_file(name))


def module_of(path: str) -> str:
    """The dotted module name of a source file: `src/shop/cart.py` is `shop.cart`, a package its folder."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if len(parts) > 1 and parts[0] in ("src", "lib", "python"):
        parts = parts[1:]
    if parts[-1:] == ["__init__"]:
        parts = parts[:-1]
    return ".".join(parts)


def imports(text: str, module: str) -> bool:
    """Whether Python source imports a module, by its full dotted name (a quick look, not a parse)."""
    dotted = re.escape(module)
    if re.search(rf"^\s*(?:import\s+(?:[\w., ]+,\s*)?{dotted}(?![\w])|from\s+{dotted}\s+import\b)", text, re.M):
        return True
    package, _, name = module.rpartition(".")
    if not package:
        return False
    taken = re.compile(rf"^\s*from\s+{re.escape(package)}\s+import\s+(\([^)]*\)|[^\n]*)", re.M)
    return any(re.search(rf"\b{re.escape(name)}\b", match.group(1)) for match in taken.finditer(text))


def related(paths: Sequence[str], tests: dict[str, str]) -> dict[str, list[str]]:
    """For each changed path the test files that belong to it; `tests` maps test files to their source text.

    A test file belongs to itself; `x.py` has `test_x.py`, `x_test.py`, and whatever imports its module; of several
    files of the same name the mirrored one wins; a `conftest.py` has all tests of its folder.
    """
    found: dict[str, list[str]] = {}
    for path in paths:
        pure = PurePosixPath(path)
        if is_test_file(path):
            found[path] = [path] if path in tests else []
        elif pure.name == "conftest.py":
            folder = "" if str(pure.parent) == "." else f"{pure.parent}/"
            found[path] = sorted(test for test in tests if test.startswith(folder))
        elif pure.suffix == ".py":
            stem = pure.parent.name if pure.stem in ("__init__", "__main__") else pure.stem
            stem = stem.strip("_") or stem
            named = [test for test in tests if PurePosixPath(test).stem in (f"test_{stem}", f"{stem}_test")]
            module = module_of(path)
            importing = [test for test, text in tests.items() if module and imports(text, module)]
            found[path] = sorted({*_mirrored(named, pure), *importing})
        else:
            found[path] = []
    return found


def _mirrored(named: list[str], source: PurePosixPath) -> list[str]:
    """Of test files with the right name those whose folders share most with the source's (`a/x.py`, `tests/a/…`)."""
    folders = set(source.parent.parts)
    shared = {test: len(folders & set(PurePosixPath(test).parent.parts)) for test in named}
    best = max(shared.values(), default=0)
    return [test for test in named if shared[test] == best]


class Pytest(Toolchain):
    """pytest, run by the interpreter that has it."""

    name = "pytest"
    title = "pytest"
    suffixes = (".py",)

    def __init__(self, folder: Path, workspace: Path, interpreter: Path) -> None:
        super().__init__(folder, workspace)
        self.interpreter = interpreter

    @property
    def where(self) -> str:
        return str(self.interpreter)

    @property
    def environment(self) -> dict[str, str]:
        """Leaves no byte code in the tree; the folder under test wins over an editable install of another tree."""
        roots = [str(self.folder / "src"), str(self.folder)] if (self.folder / "src").is_dir() else [str(self.folder)]
        roots += filter(None, [os.environ.get("PYTHONPATH")])
        return {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(roots),
            "PY_COLORS": "0",
        }

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        argv = (
            str(self.interpreter), "-m", "pytest", "-q", *map(operand, tests), "--tb=short", "--color=no",
            "-p", "no:cacheprovider", f"--rootdir={self.folder}", f"--junitxml={report}", "-o", "junit_family=xunit1",
        )  # fmt: skip
        return Command(argv, self.environment, codes=(0, 1, 2, 5), report=report)

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        return read_junit(read(report, LARGEST_REPORT), self.folder, exit_code)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        return related(paths, self._test_files)

    def present(self, tests: Sequence[str]) -> list[str]:
        files = dict.fromkeys(test.partition("::")[0] for test in tests)  # pytest stops at the first id it lacks
        return [file for file in files if (self.folder / file).is_file()]

    def believes(self, missing: Missing) -> bool:
        """A module that is the project's own, or was until it was renamed, can be installed by nobody."""
        if missing.kind != "package":
            return True
        roots = [base / name for base in {self.folder, self.workspace} for name in ("", "src", "tests")]
        own = any((root / missing.what).is_dir() or (root / f"{missing.what}.py").is_file() for root in roots)
        return not own and not self._was_own(missing.what)

    def _was_own(self, module: str) -> bool:
        paths = [f":(glob)**/{module}.py", f":(glob)**/{module}/**/*.py"]
        try:
            return bool(Git(self.workspace).text("log", "-1", "--format=%h", "--", *paths))
        except GitError:  # nothing was ever committed
            return False

    def failure_texts(self, report: Path, output: str, failing: tuple[str, ...]) -> Mapping[str, str]:
        return junit_texts(read(report, LARGEST_REPORT), self.folder)

    def fix(self, missing: Missing) -> str:
        return fix_for(missing, environment_command(self.workspace))

    @cached_property
    def _test_files(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for file in islice(test_files(self.folder), MAX_TEST_FILES):
            found[file.relative_to(self.folder).as_posix()] = read(file, 200_000)
        return found

    def linter(self) -> PythonLinter | None:
        return python_linter(self.folder, self.workspace, self.interpreter)


def read_junit(text: str, folder: Path, exit_code: int) -> CheckResult:
    """pytest's JUnit report as a result; ids are pytest's own node ids.

    Without a readable report the run broke: one error, and the exit code's meaning as the failing "id".
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        reason = USAGE_ERRORS.get(exit_code, f"pytest ended with code {exit_code} and no report")
        return result("pytest", passed=0, failed=0, errors=0 if exit_code == 5 else 1, failing=[reason])
    durations: dict[str, float] = {}
    bad: dict[str, str] = {}
    skipped: set[str] = set()
    for case in root.iter("testcase"):
        node = _node_id(case, folder)
        durations[node] = durations.get(node, 0.0) + _number(case.get("time"))
        if case.find("failure") is not None:
            bad[node] = "failure"
        elif case.find("error") is not None:
            bad.setdefault(node, "error")
        elif case.find("skipped") is not None:
            skipped.add(node)
    failed = sum(kind == "failure" for kind in bad.values())
    skipped -= bad.keys()
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    return result(
        "pytest",
        passed=len(durations) - len(bad) - len(skipped),
        failed=failed,
        skipped=len(skipped),
        errors=len(bad) - failed,
        seconds=_number(suite.get("time")) if suite is not None else 0.0,
        failing=bad,
        durations={node: seconds for node, seconds in durations.items() if node not in skipped},
    )


def junit_texts(text: str, folder: Path) -> dict[str, str]:
    """What pytest's JUnit report says about each test that failed or broke; {} without a readable report."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return {}
    texts: dict[str, str] = {}
    for case in root.iter("testcase"):
        for bad in (*case.findall("failure"), *case.findall("error")):
            node = _node_id(case, folder)
            texts[node] = f"{texts.get(node, '')}{bad.get('message') or ''}\n{bad.text or ''}\n"
    return texts


def _node_id(case: ElementTree.Element, folder: Path) -> str:
    """`classname` is the dotted file and classes, which only the files themselves can tell apart."""
    name, parts = case.get("name", ""), [part for part in case.get("classname", "").split(".") if part]
    if not parts:  # a file that could not be collected: its name is the dotted module
        dotted = name.replace(".", "/") + ".py"
        return dotted if (folder / dotted).is_file() else name
    for count in range(len(parts), 0, -1):
        file = "/".join(parts[:count]) + ".py"
        if (folder / file).is_file():
            return "::".join([file, *parts[count:], name])
    return "::".join([case.get("file") or ".".join(parts), name])


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def find_pytest(folder: Path, workspace: Path, looked: list[str]) -> Pytest | None:
    """pytest for a project, or None; `looked` is told where it was looked for."""
    if not is_python_project(folder):
        return None
    for where, interpreter in interpreters(workspace):
        looked.append(f"pytest in {where}")
        if has_pytest(interpreter, operators=where.endswith(" on the PATH")):
            return Pytest(folder, workspace, interpreter)
    return None


ADDS = {"uv": "uv add --dev", "poetry": "poetry add --group dev", "pipenv": "pipenv install --dev"}
"""How the tools that projects are kept with add one more that is needed to work on them."""


def environment_command(workspace: Path) -> str:
    """The command that makes a project's environment with pytest in it, by the tool that the project is kept with."""
    project, keeper = read(workspace / "pyproject.toml"), _keeper(workspace)
    if keeper and _REQUIRED.search(read(workspace / "Pipfile") if keeper == "pipenv" else project):
        sync = f"uv sync{_where_listed(workspace)}"
        return {"uv": sync, "poetry": "poetry install", "pipenv": "pipenv install --dev"}[keeper]
    if keeper:
        return adding_command(workspace, "pytest")
    needs = [f"-r {file.name}" for file in sorted(workspace.glob("requirements*.txt"))]
    needs += ["-e ."] if "[project]" in project or (workspace / "setup.py").is_file() else []
    return " ".join([adding_command(workspace, "pytest"), *needs])


def adding_command(workspace: Path, tool: str) -> str:
    """The command that adds `tool` to a project's environment, by the tool that the project is kept with."""
    if keeper := _keeper(workspace):
        return f"{ADDS[keeper]} {tool}"
    own = next((name for name in ENVIRONMENTS if (workspace / name / "bin" / "pip").exists()), "")
    make = "" if own else "python3 -m venv .venv && "
    return f"{make}{own or '.venv'}/bin/pip install {tool}"


def _keeper(workspace: Path) -> str:
    """What a project is kept with: one of `ADDS`, "" for pip alone."""
    project = read(workspace / "pyproject.toml")
    if (workspace / "uv.lock").is_file() or "[tool.uv" in project or "[dependency-groups]" in project:
        return "uv"
    if (workspace / "poetry.lock").is_file() or "[tool.poetry]" in project:
        return "poetry"
    return "pipenv" if (workspace / "Pipfile").is_file() else ""


def _where_listed(workspace: Path) -> str:
    """The group or extra that `uv sync` must be told of to bring pytest, "" where it is installed by itself."""
    try:
        lists = list(_lists(_pyproject(workspace)))
        return next(option for option, needs in lists if any(str(one).startswith("pytest") for one in needs))
    except (AttributeError, TypeError, StopIteration):  # not as it should be, or `[tool.uv]` has it
        return ""


def _lists(project: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """What a project needs, by the option with which `uv sync` installs it."""
    own, groups = project.get("project", {}), project.get("dependency-groups", {})
    yield "", [*own.get("dependencies", []), *groups.get("dev", [])]
    for name, needs in groups.items():
        yield f" --group {name}", needs
    for name, needs in own.get("optional-dependencies", {}).items():
        yield f" --extra {name}", needs


def has_pytest(interpreter: Path, *, operators: bool) -> bool:
    """Whether an interpreter has pytest.

    An environment is only looked at: it came with the repository, or may lead into it, and runs nothing outside a
    sandbox. One of the `operators` is asked where its packages are, without loading any (`-S`: an editable install
    would lead into the repository) and in a folder that holds nothing to import.
    """
    home = interpreter.parent.parent
    if any(next(home.glob(f"{place}/pytest/__init__.py"), None) for place in _PACKAGES):
        return True
    if not operators and "include-system-site-packages = true" not in read(home / "pyvenv.cfg"):
        return False
    program = str(interpreter) if operators else which("python3", project=home.parent)
    return program is not None and succeeds([program, "-I", "-S", "-c", _HAS_PYTEST])


def is_python_project(folder: Path) -> bool:
    """Whether Python tests may be expected: a project file, a pytest configuration, or test files near the top."""
    names = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "conftest.py", "tox.ini", "requirements.txt")
    if any((folder / name).is_file() for name in names):
        return True
    near = (folder, folder / "tests", folder / "test")
    return any(is_test_file(file.name) for place in near if place.is_dir() for file in place.iterdir())


def interpreters(workspace: Path) -> list[tuple[str, Path]]:
    """Interpreters to ask, the project's own environment first, each with the words for where it is."""
    found: list[tuple[str, Path]] = []
    own = [*ENVIRONMENTS, os.environ.get("UV_PROJECT_ENVIRONMENT", "")]
    for name in filter(None, own):
        for program in ("bin/python", "bin/python3", "Scripts/python.exe"):
            if (workspace / name / program).exists():
                found.append((name, workspace / name / program))
                break
    found += [(f"{keeper}'s environment", place) for keeper, place in kept(workspace)]
    for program in ("python3", "python"):
        if where := which(program, project=workspace):
            found.append((f"{program} on the PATH", Path(where)))
            break
    return found


def python_linter(folder: Path, workspace: Path, interpreter: Path | None = None) -> PythonLinter | None:
    """ruff or flake8: whichever the project configures, else whichever its environment has."""
    own = _program_folders(workspace, interpreter)
    tables = _pyproject(folder).get("tool", {})
    ruff_configured = "ruff" in tables or any((folder / name).is_file() for name in ("ruff.toml", ".ruff.toml"))
    flake8_configured = (folder / ".flake8").is_file() or any(
        _has_section(folder / name, "flake8") for name in ("setup.cfg", "tox.ini")
    )
    for name, configured in (("ruff", ruff_configured), ("flake8", flake8_configured)):
        program = _program(name, own) or (which(name, project=workspace) if configured else None)
        if program and (configured or not (ruff_configured or flake8_configured)):
            black = _program("black", own) or which("black", project=workspace) if "black" in tables else None
            return PythonLinter(name, program, black=black)
    return None


def _program_folders(workspace: Path, interpreter: Path | None) -> list[Path]:
    own = [workspace / name / "bin" for name in ENVIRONMENTS]
    if (
        interpreter is not None
        and interpreter.parent not in own
        and (interpreter.parent.parent / "pyvenv.cfg").exists()
    ):
        own.append(interpreter.parent)
    return own


def _program(name: str, folders: Sequence[Path]) -> str | None:
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


def _pyproject(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read(folder / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return {}  # the project's own tools will say so in their own words


def _has_section(file: Path, section: str) -> bool:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(read(file))
    except configparser.Error:
        return False
    return parser.has_section(section)
